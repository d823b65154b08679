"""What a crash left delivered but not recorded: found again in the log, so that it is not delivered twice.

    delayOffset.json      level 1: 15          saved every few seconds, in RocketMQ's form
    flintlog/delay.json   {1: 15} at 81920     the same table, and the end of the log when it was saved

In a ledger's member both come from the group (`MARK_PART`): the leader that delivered may have been another.

RocketMQ delivers everything again that it delivered since it last saved. Here the log itself tells: deliveries of a
level are in the order of its queue, and those behind the noted end belong to messages from the saved offset on. So
each waiting message is compared with the next delivery behind that end in its real queue; as long as they are the
same, it was delivered. The comparison is by everything that a delivery copies, so a message that only looks delayed
ends the search: at worst something is delivered twice, as RocketMQ would, and never is something left out.

The note counts only if its table is the one in `delayOffset.json`; after a RocketMQ broker it is not. And only with its
checksum: an end that a wrong bit made lower would let older equal messages pass for deliveries.
"""

from __future__ import annotations

import hashlib
import logging
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from flintlog.errors import DamagedRecord, FormatError, InvalidMessage
from flintlog.format.properties import DELAY_TIME_LEVEL
from flintlog.format.record import SCHEDULE_TOPIC
from flintlog.services.delay.delay_message import destination
from flintlog.services.delay.delay_offsets import DelayOffsets
from flintlog.services.log_tail import first_behind
from flintlog.store.runtime.note_file import NoteFile, Offset
from flintlog.store.model.stored_message import StoredMessage

if TYPE_CHECKING:
    from flintlog.store.store import Store

log = logging.getLogger(__name__)

STALE_BYTES: Final = 64 * 1024 * 1024
"""Log behind a note after which it is renewed before the next delivery: it bounds the search of the next opening."""

MARK_PART: Final = "delayMark"
"""Where the note stands in what a ledger's group shares."""


class Noted(msgspec.Struct, frozen=True):
    """A note: how far each level was delivered when the log ended at this offset."""

    offsets: dict[int, Offset]
    log_end: Offset


class DeliveryMark:
    """The file with the note. Owned by the thread that delivers."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._file = NoteFile(store.path / "flintlog" / "delay.json", store.medium, Noted)
        self._log_end = -1

    def load(self, offsets: Mapping[int, int]) -> Noted | None:
        """The note, if it was made together with these offsets."""
        noted = self._load()
        return noted if noted is not None and noted.offsets == dict(offsets) else None

    def _load(self) -> Noted | None:
        shared = self._store.shared(MARK_PART)
        if shared is None:
            return self._file.load().checked
        try:
            return msgspec.convert(shared, Noted, strict=False)
        except msgspec.ValidationError as error:
            log.warning("what the group shares about deliveries is of no use: %s", error)
            return None

    def note(self, offsets: Mapping[int, int]) -> Noted:
        """That everything delivered so far is below these offsets, and lies in the log as it is now."""
        return Noted(dict(offsets), self._store.max_physical_offset)

    def save(self, noted: Noted) -> None:
        self._log_end = noted.log_end
        self._file.save(noted)

    @property
    def is_stale(self) -> bool:
        """Whether the log has outgrown the note, so that it is to be renewed before the next delivery."""
        return self._log_end < 0 or self._store.max_physical_offset - self._log_end >= STALE_BYTES


class _Deliveries:
    """Deliveries behind a note, by level and real queue, each to be taken once and in order."""

    def __init__(self, store: Store, log_end: int) -> None:
        self._store = store
        self._log_end = log_end
        self._queues: dict[tuple[str, int], dict[int, deque[bytes]]] = {}

    def take(self, level: int, waiting: StoredMessage) -> bool:
        """Whether this message was delivered; the delivery is then used up."""
        topic, queue_id = destination(waiting.properties)
        if (topic, queue_id) not in self._queues:
            self._queues[topic, queue_id] = self._read(topic, queue_id)
        found = self._queues[topic, queue_id].get(level)
        wanted = _fingerprint(waiting)
        if found is None or wanted not in found:
            return False
        while found.popleft() != wanted:
            continue
        return True

    def _read(self, topic: str, queue_id: int) -> dict[int, deque[bytes]]:
        by_level: dict[int, deque[bytes]] = {}
        for message in _messages(
            self._store, topic, queue_id, first_behind(self._store, topic, queue_id, self._log_end)
        ):
            text = "" if message is None else message.properties.get(DELAY_TIME_LEVEL, "")
            if message is not None and text.isdecimal():
                by_level.setdefault(int(text), deque()).append(_fingerprint(message))
        return by_level


def deliveries_after(
    noted: Noted | None, store: Store, offsets: DelayOffsets, delays_ms: Sequence[int]
) -> dict[int, int]:
    """Levels that were delivered further than was recorded, and where they go on."""
    if noted is None:
        return {}
    deliveries = _Deliveries(store, noted.log_end)
    found: dict[int, int] = {}
    for level in range(1, len(delays_ms) + 1):
        for waiting in _messages(store, SCHEDULE_TOPIC, level - 1, offsets.get(level) or 0):
            # Behind one that cannot be read, an equal one might be taken for delivered.
            if waiting is None:
                break
            try:
                if not deliveries.take(level, waiting):
                    break
            except (InvalidMessage, FormatError):
                continue  # passed over when its time came
            found[level] = waiting.queue_offset + 1
    return found


def _messages(store: Store, topic: str, queue_id: int, offset: int) -> Iterator[StoredMessage | None]:
    """The messages of a queue from an offset on; None for one that cannot be read."""
    for place in range(max(offset, store.min_offset(topic, queue_id)), store.max_offset(topic, queue_id)):
        entry = store.entry(topic, queue_id, place)
        try:
            yield None if entry is None else store.message_at(entry.physical_offset)
        except DamagedRecord:
            yield None


def _fingerprint(message: StoredMessage) -> bytes:
    """Everything that a delivery has in common with the message that waited."""
    digest = hashlib.sha256(message.body)
    fields = (
        sorted(message.properties.items()),
        message.flag,
        message.sys_flag,
        message.born_timestamp,
        message.born_host,
        message.store_host,
        message.reconsume_times,
    )
    digest.update(msgspec.json.encode(fields))
    return digest.digest()
