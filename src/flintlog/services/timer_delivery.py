"""Delivery: the messages of a slot that is over go to their own topics, in the order in which they were put.

Cancellations are looked at first: they hold for the whole slot. A message that is due later than the window is put into
the timer's topic again. What the store cannot take now is tried again, from the message at which it stopped; RocketMQ
gives such a message up after three tries.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from flintlog.errors import InvalidMessage
from flintlog.format.timer import TimerUnit
from flintlog.services.timer_files import TimerFiles
from flintlog.services.timer_message import LATE_MS, Timed, cancel_key, delivered, rolled
from flintlog.services.timer_metrics import TimerMetrics
from flintlog.services.timer_queue import TimerQueue
from flintlog.store.service import Rewritten

if TYPE_CHECKING:
    from flintlog.store.store import Store

log = logging.getLogger(__name__)

CHUNK: Final = 512


class TimerDelivery:
    """Delivers slots; keeps how far it is within one, so that a retry goes on there."""

    def __init__(self, store: Store, files: TimerFiles, queue: TimerQueue, metrics: TimerMetrics) -> None:
        self.unsaved_count = 0
        self._has_rolled = False
        self._store = store
        self._files = files
        self._queue = queue
        self._metrics = metrics
        self._with_topic = store.config.append_topic_for_timer_delete_key
        self._slot_ms = -1
        self._done = 0
        self._late_done: set[int] = set()

    def deliver_slot(self, slot_ms: int, now_ms: int) -> bool:
        """Deliver one slot; False when the store takes no more for now."""
        if slot_ms != self._slot_ms:
            self._slot_ms, self._done = slot_ms, 0
        units = [unit for _, unit in self._files.log.chain(self._files.wheel.slot_at(slot_ms).last)]
        units.reverse()
        cancelled = self._cancelled(units)
        while self._done < len(units):
            chunk = units[self._done : self._done + CHUNK]
            taken = self._deliver_chunk(chunk, cancelled, now_ms)
            self._done += taken
            if taken < len(chunk):
                return False
        self._slot_ms, self._done = -1, 0
        self.unsaved_count += 1
        return True

    def take_rolled(self) -> bool:
        """Whether something was rolled since the last call: it must be entered before the next slot is delivered."""
        has_rolled, self._has_rolled = self._has_rolled, False
        return has_rolled

    def _cancelled(self, units: list[TimerUnit]) -> set[str]:
        found: set[str] = set()
        for unit in units:
            timed = self._queue.timed_at(unit) if unit.cancels else None
            if timed is not None and timed.cancels is not None:
                found.add(timed.cancels)
                if not self._done:
                    self._metrics.add(timed.topic, 1)
        return found

    def _deliver_chunk(self, chunk: list[TimerUnit], cancelled: set[str], now_ms: int) -> int:
        """Put the messages of some units; how many units are done with."""
        places: list[int] = []
        rebuilt: list[Rewritten] = []
        for place, unit in enumerate(chunk):
            if unit.cancels:
                continue
            timed = self._queue.timed_at(unit)
            if timed is None:
                log.warning("the message at %d, due now, is gone from the log", unit.physical_offset)
                continue
            self._metrics.add(timed.topic, -1)
            if cancelled and self._key_of(timed) in cancelled:
                continue
            if unit.rolls:
                rebuilt.append(rolled(timed, unit.entered_ms, now_ms))
                self._has_rolled = True
            elif timed.cancels is None:
                rebuilt.append(delivered(timed, unit.entered_ms, now_ms))
            else:
                continue
            places.append(place)
        taken = self._put(rebuilt)
        return len(chunk) if taken == len(rebuilt) else places[taken]

    def deliver_late(self, late: list[Timed], cancelled: Collection[tuple[int, str]]) -> bool:
        """Deliver messages whose slot is over already; False when the store takes no more, and then call again."""
        now_ms = self._store.now_ms()
        due = [
            timed
            for timed in late
            if timed.cancels is None
            and (timed.slot_ms, self._key_of(timed)) not in cancelled
            and timed.message.queue_offset not in self._late_done
        ]
        taken = self._put([delivered(timed, LATE_MS, now_ms) for timed in due])
        if taken == len(due):
            self._late_done.clear()
            return True
        self._late_done.update(timed.message.queue_offset for timed in due[:taken])
        return False

    def _key_of(self, timed: Timed) -> str | None:
        return None if timed.key is None else cancel_key(timed.topic, timed.key, with_topic=self._with_topic)

    def _put(self, rebuilt: list[Rewritten]) -> int:
        """Put messages in order; how many the store took, or could never take. Saving flushes them."""
        for taken, each in enumerate(rebuilt):
            try:
                receipt = self._store.put_rebuilt(each, wait=False)
            except InvalidMessage as error:
                log.error("a message for %s can never be stored, and is passed over: %s", each.message.topic, error)
                continue
            if receipt.physical_offset < 0:
                log.warning("the store takes no more for now: %s", receipt.status)
                return taken
            self.unsaved_count += 1
        return len(rebuilt)
