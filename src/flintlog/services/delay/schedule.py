"""Delay levels: a message waits as long as its level says and is then put into its real queue.

    put ─▶ SCHEDULE_TOPIC_XXXX/<level - 1>        the queue entry's tags code is the time of delivery
                 │
                 └─ at that time ─▶ the real queue ─▶ flush ─▶ config/delayOffset.json

All messages of a level wait equally long, so its queue is in the order of delivery, and only its first message has to
be examined. The service does not poll; it sleeps until the earliest first message is due.

Two guarantees. An offset is saved only after every delivery below it is durable, so a delivery that was recorded
happened and is not repeated. And a level stops at a put that fails until it succeeds, so order is kept and no message
is lost. A message that can never be delivered (damaged, or without a destination) is skipped with an error in the
process's log; it stays in the store.

In a ledger group both hold across leaders: offsets are shared with the group before they are saved, and a new leader
finds later deliveries in the log.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, cast

import msgspec

from flintlog.errors import DamagedRecord, FormatError, InvalidMessage, NotLeading, PutFailed, SyncFailed
from flintlog.format.record import SCHEDULE_TOPIC
from flintlog.services.delay.delay_message import delivered, scheduled
from flintlog.services.delay.delay_offsets import FILE_NAME, DelayOffsets
from flintlog.services.delay.delay_resume import MARK_PART, DeliveryMark, deliveries_after
from flintlog.store.model.message import Message, PutStatus, Receipt
from flintlog.store.model.stored_message import StoredMessage
from flintlog.store.put.service_host import Putting, ServiceHost
from flintlog.store.queues.entries import CqUnit
from flintlog.store.runtime.jobs import NEVER
from flintlog.store.runtime.service import Rewritten
from flintlog.store.settings.json_file import JsonFile
from flintlog.store.settings.shared_state import Part

log = logging.getLogger(__name__)

NAME: Final = "schedule"
OFFSETS_PART: Final = "delayOffset"
"""The offsets' name in the state that a ledger group shares."""

RETRY_MS: Final = 100
"""The pause after a refused put, or while a stored message is not visible yet."""

BATCH_COUNT: Final = 256
"""Most deliveries of a level in one run; they share one flush. The store may close between two runs."""


@dataclass(slots=True)
class _Level:
    """One level: `offset` is the next to deliver, `end` the offset after the last message known to be stored."""

    number: int
    delay_ms: int
    offset: int
    end: int
    due_at_ms: int = 0

    @property
    def queue_id(self) -> int:
        return self.number - 1


class ScheduleService:
    """Delivers delayed messages. `run_due` owns the offsets; `_lock` guards what `stored` reports to it."""

    def __init__(self, host: ServiceHost) -> None:
        store = host.store
        self._host = host
        self._store = store
        self._delays_ms = store.config.delay_levels_ms
        self._interval_ms = store.config.flush_delay_offset_interval
        self._offsets = DelayOffsets(JsonFile(store.path / "config" / FILE_NAME, host.medium), host.now_ms)
        self._mark = DeliveryMark(host)
        self._levels: list[_Level] = []
        self._delivered_end = 0
        self._save_at_ms = NEVER
        self._wants_at_ms = NEVER
        self._lock = threading.Lock()
        self._putting = threading.local()
        self.delivered_count = 0
        self.passed_over_count = 0

    # ------------------------------------------------------------------ the store's calls

    def start(self) -> None:
        """Load the offsets, bring them within their queues, and find unrecorded deliveries of a crashed process."""
        self._offsets.load()
        self._host.report(self._offsets.file.findings)
        found = deliveries_after(self._mark.load(self._offsets.as_table()), self._host, self._offsets, self._delays_ms)
        for number, offset in found.items():
            log.info("delay level %d continues at %d: earlier messages were delivered but not recorded", number, offset)
        for number, delay_ms in enumerate(self._delays_ms, start=1):
            self._levels.append(self._load_level(number, delay_ms, found.get(number)))
        self._warn_of_unknown_levels()

    def rewrite(self, message: Message) -> Rewritten:
        """Return the message in the form in which it waits; `InvalidMessage` for an unknown level."""
        self._putting.level = message.delay_level
        return scheduled(message, len(self._delays_ms))

    def stored(self, receipt: Receipt) -> None:
        """Note that a message waits, and wake the service if it is due before all others."""
        level = self._levels[self._putting.level - 1]
        due_at_ms = receipt.store_timestamp + level.delay_ms
        with self._lock:
            if level.offset >= level.end:
                level.due_at_ms = due_at_ms
            level.end = max(level.end, receipt.queue_offset + 1)
            is_first = due_at_ms < self._wants_at_ms
            if is_first:
                self._wants_at_ms = due_at_ms
        if is_first:
            self._host.nudge(NAME)

    def run_due(self) -> int:
        """Deliver due messages, save if it is time, and return when to run again."""
        now_ms = self._host.now_ms()
        delivered_before = self.delivered_count
        with self._lock:
            self._wants_at_ms = NEVER  # if this run fails, the next stored message starts another
        for level in self._levels:
            # A due time further ahead than the level's delay means that the clock was turned back.
            if not now_ms < level.due_at_ms <= now_ms + level.delay_ms:
                self._deliver_due(level, now_ms)
        if self.delivered_count > delivered_before:
            self._make_visible()
        self._note_waiting()
        self._save_in_time(now_ms)
        with self._lock:
            first = min((level.due_at_ms for level in self._levels), default=NEVER)
            self._wants_at_ms = min(first, self._save_at_ms)
            return self._wants_at_ms

    def stop(self) -> None:
        """Save. If that fails, the last save stays valid, and the next start finds later deliveries in the log."""
        self._note_waiting()
        try:
            self._save()
        except SyncFailed as failure:
            log.error("the delay levels' progress was not saved: %s", failure)
        except (NotLeading, PutFailed) as failure:
            log.info("the delay levels' progress was not shared with the group: %s", failure)

    def running_stats(self) -> dict[str, str]:
        """RocketMQ's figures: `scheduleMessageOffset_<level>` is "delivered offset,maximum offset"."""
        return {
            f"scheduleMessageOffset_{level}": f"{offset},{self._store.max_offset(SCHEDULE_TOPIC, level - 1)}"
            for level, offset in self._offsets.as_table().items()
        }

    # ------------------------------------------------------------------ opening

    def _load_level(self, number: int, delay_ms: int, found: int | None) -> _Level:
        low = self._store.min_offset(SCHEDULE_TOPIC, number - 1)
        high = self._store.max_offset(SCHEDULE_TOPIC, number - 1)
        recorded = self._offsets.get(number)
        offset = max(low, min(recorded or 0, high))
        if recorded is not None and offset != recorded:
            log.warning("delay level %d continues at %d: %d is not in its queue", number, offset, recorded)
        if found is not None:
            offset = max(offset, found)
        if recorded is not None or found is not None:
            self._offsets.set(number, offset)
        return _Level(number, delay_ms, offset, high)

    def _warn_of_unknown_levels(self) -> None:
        for queue in self._store.queues():
            level = queue.queue_id + 1
            if queue.topic == SCHEDULE_TOPIC and level > len(self._levels):
                waiting = queue.max_offset - max(self._offsets.get(level) or 0, queue.min_offset)
                if waiting > 0:
                    log.warning("%d messages wait for delay level %d, which is not configured", waiting, level)

    # ------------------------------------------------------------------ delivering

    def _deliver_due(self, level: _Level, now_ms: int) -> None:
        """Deliver a level's due messages, and set when its next one is due."""
        puts: list[Putting | None] = []
        next_at_ms = self._begin_due(level, now_ms, puts)
        if not self._end(level, puts):
            level.due_at_ms = now_ms + RETRY_MS
        elif next_at_ms is None:
            self._find_next(level, now_ms)
        else:
            level.due_at_ms = next_at_ms
            if next_at_ms > now_ms:
                self._offsets.set(level.number, level.offset)

    def _begin_due(self, level: _Level, now_ms: int, puts: list[Putting | None]) -> int | None:
        """Put a batch of due messages (None for a skipped one); returns when to look again, None at the queue's end."""
        for place in range(level.offset, level.offset + BATCH_COUNT):
            entry = self._host.entry(SCHEDULE_TOPIC, level.queue_id, place)
            if entry is None:
                return None
            due_at_ms = self._due_at_ms(level, entry, now_ms)
            if due_at_ms > now_ms:
                return due_at_ms
            if self._mark.is_stale:
                if puts:
                    return now_ms  # a note may name only finished deliveries, and these are not
                self._save()
            put = self._begin(level, entry)
            puts.append(put)
            if put is not None and put.receipt.status is not PutStatus.PUT_OK:
                return now_ms
        return now_ms

    def _due_at_ms(self, level: _Level, entry: CqUnit, now_ms: int) -> int:
        """The time in the queue entry; now, if that is further ahead than the delay: the clock was turned back."""
        code = entry.tags_code
        if code is None:
            waiting = self._read(entry)
            code = now_ms if waiting is None else waiting.store_timestamp + level.delay_ms
        return now_ms if code > now_ms + level.delay_ms else code

    def _find_next(self, level: _Level, now_ms: int) -> None:
        """Decide what a missing entry means: the queue ends there, or is not written yet, or has a hole."""
        high = self._store.max_offset(SCHEDULE_TOPIC, level.queue_id)
        if level.offset < high:
            if self._host.entry(SCHEDULE_TOPIC, level.queue_id, level.offset) is not None:
                level.due_at_ms = now_ms  # written meanwhile
                return
            next_offset = self._store.get(SCHEDULE_TOPIC, level.queue_id, level.offset, max_count=1).next_offset
            if next_offset > level.offset:
                log.error("delay level %d has no messages %d to %d", level.number, level.offset, next_offset - 1)
                level.offset, level.due_at_ms = next_offset, now_ms
                self._offsets.set(level.number, next_offset)
                return
        with self._lock:
            level.end = max(level.end, high)
            if level.offset >= level.end:
                level.due_at_ms = NEVER
            else:
                level.due_at_ms = max(level.due_at_ms, now_ms + RETRY_MS)

    def _read(self, entry: CqUnit) -> StoredMessage | None:
        try:
            return self._store.message_at(entry.physical_offset)
        except DamagedRecord as damage:
            log.error("a delayed message cannot be read: %s", damage)
            return None

    def _begin(self, level: _Level, entry: CqUnit) -> Putting | None:
        """Put one message into its real queue; None when it can never be put and is skipped."""
        waiting = self._read(entry)
        try:
            if waiting is None:
                raise InvalidMessage("it is not in the log any more")
            return self._host.put_rebuilt_soon(delivered(waiting))
        except (InvalidMessage, FormatError) as error:
            self.passed_over_count += 1
            log.error("message %d of delay level %d is never delivered: %s", entry.queue_offset, level.number, error)
            return None

    def _end(self, level: _Level, puts: list[Putting | None]) -> bool:
        """Move the level past its finished puts; False when one has to be retried."""
        try:
            while puts:
                put = puts.pop(0)
                if put is not None and not self._is_delivered(level, put.finish()):
                    return False
                level.offset += 1
                self._offsets.set(level.number, level.offset)
        finally:
            for put in puts:
                with suppress(PutFailed):
                    _ = None if put is None else put.finish()
        return True

    def _is_delivered(self, level: _Level, receipt: Receipt) -> bool:
        if receipt.status is not PutStatus.PUT_OK:
            log.warning("delay level %d waits at %d: %s", level.number, level.offset, receipt.status)
            return False
        self.delivered_count += 1
        self._delivered_end = max(self._delivered_end, receipt.end_offset)
        return True

    def _make_visible(self) -> None:
        """Flush once for all deliveries, instead of once per put."""
        if self._store.config.flush == "sync":
            self._store.flush()
        self._store.wait_dispatched()

    # ------------------------------------------------------------------ saving

    def _note_waiting(self) -> None:
        """Enter each level in the table as soon as a message waits in it, even before its first delivery."""
        for level in self._levels:
            if level.end > level.offset and self._offsets.get(level.number) is None:
                self._offsets.set(level.number, level.offset)

    def _save_in_time(self, now_ms: int) -> None:
        if self._offsets.is_dirty and self._save_at_ms == NEVER:
            self._save_at_ms = now_ms + self._interval_ms
        is_turned_back = now_ms + self._interval_ms < self._save_at_ms < NEVER
        if now_ms >= self._save_at_ms or is_turned_back:
            self._save()

    def _save(self) -> None:
        if self._store.flushed_offset < self._delivered_end:
            self._store.flush()
        if self._offsets.is_dirty or self._mark.is_stale:
            noted = self._mark.note(self._offsets.as_table())
            self._host.share({OFFSETS_PART: cast(Part, self._offsets.content()), MARK_PART: msgspec.to_builtins(noted)})
            self._offsets.save()
            self._mark.save(noted)
        self._save_at_ms = NEVER
