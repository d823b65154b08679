"""Reading a store: by queue, key, offset, id and time.

Every answer is RocketMQ's: the same status and the same next offset. Three things differ. A page has as many messages
as were asked for, over the ends of queue files too. RocketMQ's own limits (`max_transfer_…`) apply if the configuration
has them; then a page also ends with its queue file, as RocketMQ's does. Tags and keys that share a hash are kept apart,
unless the caller wants RocketMQ's raw answer. Damage is detected: a record whose body does not match its CRC is never
returned. A page ends before it; a get that begins at it raises `DamagedRecord`, which has its offset and the next
offset to get.

Readers take no lock: queues and the log only grow at their ends, and a range is held while it is read.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from flintlog import kernel
from flintlog.derive.entries import places_of, stated_count
from flintlog.errors import DamagedRecord, FormatError, InvalidOffset
from flintlog.format.index_file import index_key, index_keys
from flintlog.format.message_id import parse_message_id
from flintlog.format.queue_entry import ENTRY_SIZE, PHYSICAL_OFFSET
from flintlog.format.record import MIN_RECORD_SIZE, SCHEDULE_TOPIC
from flintlog.kernel import Scan, ScanStop
from flintlog.store.filters.tags import MessageFilter
from flintlog.store.index.index_service import IndexService
from flintlog.store.log.damage import DamageMap
from flintlog.store.log.log import Log
from flintlog.store.log.record_crc import FAULTS, crc_to_check
from flintlog.store.model.arguments import check_offset
from flintlog.store.model.stored_message import GetStatus, Page, StoredMessage
from flintlog.store.options.store_config import StoreConfig
from flintlog.store.queues.batch_consume_queue import BatchConsumeQueue
from flintlog.store.queues.consume_queue import ConsumeQueue
from flintlog.store.queues.entries import CqUnit, EntryRange
from flintlog.store.queues.entry_home import stranger
from flintlog.store.queues.logical_queue import Boundary, LogicalQueue, QueueType
from flintlog.store.queues.queue_table import QueueTable

MAX_PULL_BYTES = 128 * 1024 * 1024
MIN_PULL_BYTES = 100
QUERY_ROUNDS = 3
_FIRST_OF_ENTRY = PHYSICAL_OFFSET.unpack_from
_NOWHERE = "its entry points to no record"


@dataclass(slots=True)
class _Pull:
    """The state of one `get`."""

    offset: int
    stop: int
    max_count: int
    max_bytes: int
    next_offset: int
    status: GetStatus
    messages: list[StoredMessage]
    bytes: int = 0
    count: int = 0
    skip_until: int = -1


@dataclass(frozen=True, slots=True)
class _Limits:
    """What the configuration lets one page hold, whatever was asked for."""

    count: int
    bytes: int


def _limits(count: int | None, size: int | None) -> _Limits:
    return _Limits(sys.maxsize if count is None else count, sys.maxsize if size is None else size)


_UNLIMITED = _limits(None, None)


class Reader:
    """Reads a store; see the module."""

    def __init__(
        self,
        commit_log: Log,
        queues: QueueTable,
        index: IndexService | None,
        damage: DamageMap,
        config: StoreConfig,
    ) -> None:
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._damage = damage
        self._config = config
        self._delay_levels_ms = config.delay_levels_ms
        self._checked_crc = crc_to_check(config)
        self._in_memory = _limits(
            config.max_transfer_count_on_message_in_memory, config.max_transfer_bytes_on_message_in_memory
        )
        self._on_disk = _limits(
            config.max_transfer_count_on_message_in_disk, config.max_transfer_bytes_on_message_in_disk
        )
        self._is_limited = not self._in_memory == self._on_disk == _UNLIMITED
        self._memory_bytes = _physical_memory_bytes() * config.access_message_in_memory_max_ratio // 100

    # ------------------------------------------------------------------ by queue

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        message_filter: MessageFilter | None,
        max_bytes: int,
        end: int | None = None,
    ) -> Page:
        """A page of messages before the queue offset `end`, if that is given."""
        queue = self._queues.get(topic, queue_id)
        high = 0 if queue is None else queue.max_offset
        if queue is None or high == 0:
            return Page(GetStatus.NO_MESSAGE_IN_QUEUE, self._correct(offset, 0), 0, 0)
        low = queue.min_offset
        if offset < low:
            return Page(GetStatus.OFFSET_TOO_SMALL, self._correct(offset, low), low, high)
        if offset == high:
            return Page(GetStatus.OFFSET_OVERFLOW_ONE, self._correct(offset, offset), low, high)
        if offset > high:
            return Page(GetStatus.OFFSET_OVERFLOW_BADLY, self._correct(offset, high), low, high)
        limit = max(max_bytes, MIN_PULL_BYTES)
        if message_filter is None and type(queue) is ConsumeQueue and queue.ext is None:
            most = min(max_count, self._in_memory.count)
            page = self._plain_page(queue, offset, low, high, most, min(limit, self._in_memory.bytes))
            if page is not None:
                return page
        stop = sys.maxsize if end is None else end
        pull = _Pull(offset, stop, max_count, limit, offset, GetStatus.NO_MATCHED_MESSAGE, [])
        self._pull(queue, pull, message_filter)
        return Page(pull.status, pull.next_offset, low, high, pull.messages)

    def message_count(self, topic: str, queue_id: int, page: Page) -> int:
        """The number of messages of a page; an inner batch is one record with several messages."""
        queue = self._queues.get(topic, queue_id)
        if queue is None or queue.type is not QueueType.BATCH:
            return len(page.messages)
        return sum(stated_count(message.properties) or 1 for message in page.messages)

    def on_disk_only(self, page: Page) -> tuple[int, int]:
        """Number and bytes of a page's messages that are too far from the log's end to be in memory, by estimate."""
        in_memory_from = self._log.max_offset - self._memory_bytes
        if in_memory_from <= 0 or not page.messages or page.messages[0].physical_offset >= in_memory_from:
            return 0, 0
        sizes = [message.size for message in page.messages if message.physical_offset < in_memory_from]
        return len(sizes), sum(sizes)

    def last_examined(self, topic: str, queue_id: int, page: Page) -> int:
        """The physical offset of the last entry that a page looked at."""
        if page.messages and page.messages[-1].queue_offset == page.next_offset - 1:
            return page.messages[-1].physical_offset
        queue = self._queues.get(topic, queue_id)
        entries = None if queue is None else queue.entries_from(page.next_offset - 1)
        if entries is None:
            return self._log.max_offset
        with entries:
            return next((unit.physical_offset for unit in entries), self._log.max_offset)

    def _correct(self, old: int, new: int) -> int:
        """A slave does not correct offsets, unless configured to, because its queues may lag behind its master's."""
        config = self._config
        return old if config.broker_role == "SLAVE" and not config.offset_check_in_slave else new

    def _pull(self, queue: LogicalQueue, pull: _Pull, message_filter: MessageFilter | None) -> None:
        left = self._config.travel_cq_file_num_when_get_message
        is_file_over = False
        while pull.next_offset < min(queue.max_offset, pull.stop):
            may_go_on = left > 0 if not pull.messages else is_file_over and not self._is_limited
            entries = queue.entries_from(pull.next_offset) if may_go_on else None
            if not may_go_on or (entries is None and pull.messages):
                return
            left -= 1
            if entries is None:
                pull.status = GetStatus.OFFSET_FOUND_NULL
                following = queue.roll_next(pull.next_offset)
                if following <= pull.next_offset:  # in a batch queue; a consumer would ask for it forever
                    following = queue.after(None, pull.next_offset)
                pull.next_offset = self._correct(pull.next_offset, following)
                return
            before = pull.next_offset
            with entries:
                is_file_over = self._pull_entries(queue, entries, pull, message_filter)
            if is_file_over and pull.next_offset == before and isinstance(queue, BatchConsumeQueue):
                pull.next_offset = queue.after(None, before)  # the file has no batch with this offset or a later one

    def _plain_page(
        self, queue: ConsumeQueue, offset: int, low: int, high: int, most: int, max_bytes: int
    ) -> Page | None:
        """A page in one call of the kernel, if entries are in one file, records in one segment, and all are intact."""
        place = offset * ENTRY_SIZE
        entries = queue.segments.find(place)
        view = None if entries is None else entries.peek()
        if entries is None or view is None:
            return None
        start = place - entries.base
        stop = min(entries.read_position, start + most * ENTRY_SIZE)
        first = _FIRST_OF_ENTRY(view, start)[0]
        segments = self._log.segments
        segment = segments.find(first)
        log = None if segment is None else segment.peek()
        if segment is None or log is None:
            return None
        if self._is_limited and segments.max_offset - first > self._memory_bytes:
            return None
        log_end = segment.base + segment.read_position
        home = queue.topic_bytes, queue.queue_id, offset
        levels, checked = self._delay_levels_ms, self._checked_crc
        messages, end = kernel.collect(
            StoredMessage, levels, view, start, stop, log, segment.base, log_end, most, max_bytes, checked, home
        )
        if end != stop or not messages:
            return None
        if len(messages) < most and offset + len(messages) < high and not self._is_limited:
            return None  # the rest is in the next file
        return Page(GetStatus.FOUND, offset + len(messages), low, high, messages)

    def _pull_entries(
        self, queue: LogicalQueue, entries: EntryRange, pull: _Pull, message_filter: MessageFilter | None
    ) -> bool:
        """Take entries of one file; returns whether the page may go on after its last one."""
        log_end = self._log.max_offset
        scan_bytes = max(self._config.max_filter_message_size, pull.max_count * queue.entry_size)
        is_first = True
        for unit in entries:
            wanted = pull.next_offset
            if wanted >= pull.stop:
                return False
            if unit.queue_offset + unit.batch_count <= wanted and not self._was_given(unit, wanted):
                continue
            if not is_first and (unit.queue_offset - pull.offset) * queue.entry_size >= scan_bytes:
                return False
            is_first = False
            in_memory = log_end - unit.physical_offset <= self._memory_bytes
            if self._is_full(pull, unit, in_memory) or pull.bytes >= pull.max_bytes:
                return False
            if unit.physical_offset < pull.skip_until:
                pull.next_offset = unit.queue_offset + unit.batch_count
                continue
            if not self._take(queue, pull, unit, message_filter):
                return False
        return True

    def _is_full(self, pull: _Pull, unit: CqUnit, in_memory: bool) -> bool:
        if not pull.messages:
            return False
        after = pull.bytes + unit.size
        if pull.count + unit.batch_count > pull.max_count or after > pull.max_bytes:
            return True
        limits = self._in_memory if in_memory else self._on_disk
        return after > limits.bytes or pull.count >= limits.count

    def _take(self, queue: LogicalQueue, pull: _Pull, unit: CqUnit, message_filter: MessageFilter | None) -> bool:
        """Look at one entry; False ends the page before it."""
        following = unit.queue_offset + unit.batch_count
        if message_filter is not None and not message_filter.matches_entry(unit.tags_code, unit.extension):
            pull.next_offset = following
            return True
        record = self._log.record_at(unit.physical_offset, unit.size)
        if record is None and self._is_of_missing_file(unit):
            if not pull.messages:
                pull.status = GetStatus.MESSAGE_WAS_REMOVING
            size = self._log.segments.segment_size
            pull.skip_until = unit.physical_offset - unit.physical_offset % size + size
            pull.next_offset = following
            return True
        levels = self._delay_levels_ms if queue.topic == SCHEDULE_TOPIC else ()
        seen = None if record is None else self._scan(record, unit.physical_offset, levels)
        if record is None or seen is None:
            return self._pass_damage(queue, pull, unit, _NOWHERE)
        fault = self._fault_in(seen, unit.physical_offset)
        row = None if fault is not None else seen.row(0)
        if row is not None:
            fault = stranger(queue, unit, row, seen.queues[0], record)
        if row is None or fault is not None:
            return self._pass_damage(queue, pull, unit, str(fault))
        pull.next_offset = following
        stored = StoredMessage(record, self._delay_levels_ms)
        if message_filter is not None:
            # The entry passed, but its tags code may be damaged.
            if row.tags_code != unit.tags_code and not message_filter.matches_entry(row.tags_code, unit.extension):
                return True
            if not message_filter.matches_message(stored):
                return True
        pull.messages.append(stored)
        pull.bytes += unit.size
        pull.count += unit.batch_count
        pull.status = GetStatus.FOUND
        pull.skip_until = -1
        return True

    def _was_given(self, unit: CqUnit, offset: int) -> bool:
        """Whether a batch contains an offset that its entry does not cover.

        In a ledger, RocketMQ's entry of an inner batch covers only the first of its offsets.
        """
        record = self._log.record_at(unit.physical_offset, unit.size)
        seen = None if record is None else self._scan(record, unit.physical_offset)
        if record is None or seen is None or seen.count != 1:
            return False
        places = places_of(*seen.queues[0], seen.row(0), record, is_batch=lambda _: True, lmq=False)
        return any(place.queue_offset <= offset < place.queue_offset + place.given_count for place in places)

    def _pass_damage(self, queue: LogicalQueue, pull: _Pull, unit: CqUnit, fault: str) -> bool:
        """End the page before a damaged entry or record; raise if it is the first one."""
        if pull.messages:
            return False
        offset = pull.next_offset
        other = self._other_batch(queue, offset) if isinstance(queue, BatchConsumeQueue) else None
        if other is not None:
            pull.messages.append(StoredMessage(other[1], self._delay_levels_ms))
            pull.status, pull.next_offset = GetStatus.FOUND, other[0].queue_offset + other[0].batch_count
            return False
        following = queue.after(unit, offset)
        damaged = DamagedRecord(
            f"message {offset} of the queue is damaged: {fault}",
            offset=unit.physical_offset,
            advice=f"everything else is intact; go on at queue offset {following}",
        )
        damaged.next_queue_offset = following
        raise damaged

    def _other_batch(self, queue: BatchConsumeQueue, offset: int) -> tuple[CqUnit, bytes] | None:
        """The intact batch with an offset that two entries claim, one of which is damaged."""
        for unit in queue.covering(offset):
            record = self._log.record_at(unit.physical_offset, unit.size)
            if record is None:
                continue
            seen = self._scan(record, unit.physical_offset)
            if self._fault_in(seen, unit.physical_offset) is not None:
                continue
            if stranger(queue, unit, seen.row(0), seen.queues[0], record) is None:
                return unit, record
        return None

    def _is_of_missing_file(self, unit: CqUnit) -> bool:
        """Whether an entry points into a log file that expired or was lost, while later files exist.

        Any other entry that points to no record is damaged itself. Skipping the rest of the file that it names would
        skip messages that exist.
        """
        segments = self._log.segments
        segment = segments.find(unit.physical_offset)
        is_missing = segment is None or not segment.available
        return is_missing and 0 <= unit.physical_offset < segments.max_offset

    def _scan(self, record: bytes, physical_offset: int, levels_ms: tuple[int, ...] = ()) -> Scan:
        return kernel.scan(
            record, 0, len(record), physical_offset, check_crc=self._checked_crc, delay_levels_ms=levels_ms
        )

    def _fault_in(self, seen: Scan, physical_offset: int) -> str | None:
        """The fault of the record at this offset; None if it is intact."""
        if seen.count == 1 and seen.reason is ScanStop.LIMIT:
            return None
        known = self._damage.at(physical_offset)
        return FAULTS.get(seen.reason, seen.reason.name) if known is None else known.evidence

    # ------------------------------------------------------------------ by key

    def query(
        self, topic: str, key: str, begin: int, end: int, max_count: int, index_type: str | None
    ) -> list[StoredMessage]:
        """Messages that have a key, each once. The index has only hashes, so each message's own keys are compared."""
        text = index_key(topic, key, index_type)
        found: dict[int, StoredMessage] = {}

        def has_key(offset: int) -> bool:
            stored = None if offset in found else self._indexed(offset)
            if stored is None or text not in index_keys(stored.topic, stored.properties):
                return False
            found[offset] = stored
            return True

        if self._index is not None:
            self._index.query_offsets(topic, key, max_count, begin, end, index_type, has_key)
        return [found[offset] for offset in sorted(found)]

    def query_hash(
        self, topic: str, key: str, begin: int, end: int, max_count: int, index_type: str | None
    ) -> list[StoredMessage]:
        """RocketMQ's answer: messages with a key of the same hash. It looks again, further back, if it has none."""
        last = end
        found: list[StoredMessage] = []
        if self._index is None:
            return found
        for _ in range(QUERY_ROUNDS):
            offsets = self._index.query_offsets(topic, key, max_count, begin, last, index_type)
            if not offsets:
                break
            for place, offset in enumerate(sorted(offsets)):
                stored = self._indexed(offset)
                if stored is None:
                    continue
                if place == 0:
                    last = stored.store_timestamp
                found.append(stored)
            if found or last < begin:
                break
        return found

    def _indexed(self, offset: int) -> StoredMessage | None:
        """The message at an offset of the index; None if it is damaged or deleted."""
        record = self._log.record_at(offset)
        if record is None or self._fault_in(self._scan(record, offset), offset) is not None:
            return None
        return StoredMessage(record, self._delay_levels_ms)

    # ------------------------------------------------------------------ by offset, id and time

    def message_at(self, physical_offset: int) -> StoredMessage | None:
        check_offset("a physical offset", physical_offset)
        if not max(0, self._log.min_offset) <= physical_offset < self._log.max_offset:
            return None
        record = self._log.record_at(physical_offset)
        fault = None
        if record is not None and len(record) >= MIN_RECORD_SIZE:
            fault = self._fault_in(self._scan(record, physical_offset), physical_offset)
            if fault is None:
                return StoredMessage(record, self._delay_levels_ms)
        known = self._damage.at(physical_offset)
        if known is not None:
            raise DamagedRecord(f"the log is damaged here: {known.evidence}", offset=physical_offset)
        if fault == ScanStop.BAD_CRC.name:
            raise DamagedRecord("the body does not match its CRC", offset=physical_offset)
        if fault is not None and fault in FAULTS.values():
            raise DamagedRecord(fault, offset=physical_offset)
        return None

    def message_by_id(self, message_id: str) -> StoredMessage | None:
        try:
            _, physical_offset = parse_message_id(message_id)
        except (FormatError, TypeError, AttributeError) as error:
            raise InvalidOffset(f"not a message id: {message_id!r}") from error
        return self.message_at(physical_offset)

    def offset_at(self, topic: str, queue_id: int, timestamp_ms: int, boundary: str) -> int:
        try:
            side = Boundary(boundary.lower())
        except (ValueError, AttributeError):
            raise InvalidOffset(f"boundary {boundary!r}", advice='"lower" or "upper"') from None
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            return 0
        return queue.offset_by_time(timestamp_ms, side, self._log.store_time_at, max(0, self._log.min_offset))


def _physical_memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
