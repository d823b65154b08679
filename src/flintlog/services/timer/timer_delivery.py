"""Delivery: when a slot's time is over, its messages are put into their own topics, in the order of their puts.

Cancellations are read first, because they apply to the whole slot. A message that is due later than the window is put
into the timer's topic again. When the store refuses a message, delivery later resumes with that message; RocketMQ drops
it after three tries.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from flintlog.errors import InvalidMessage
from flintlog.format.timer import TimerUnit
from flintlog.services.timer.timer_files import TimerFiles
from flintlog.services.timer.timer_message import LATE_MS, Timed, cancel_key, delivered, rolled
from flintlog.services.timer.timer_metrics import TimerMetrics
from flintlog.services.timer.timer_queue import TimerQueue
from flintlog.store.runtime.service import Rewritten

if TYPE_CHECKING:
    from flintlog.store.put.service_host import ServiceHost

log = logging.getLogger(__name__)


class TimerDelivery:
    """Delivers slots, and remembers its place within a slot, so that a retry resumes there."""

    def __init__(self, host: ServiceHost, files: TimerFiles, queue: TimerQueue, metrics: TimerMetrics) -> None:
        self.unsaved_count = 0
        self._has_rolled = False
        self._host = host
        self._files = files
        self._queue = queue
        self._metrics = metrics
        self._with_topic = host.store.config.append_topic_for_timer_delete_key
        self._slot_ms = -1
        self._done = 0
        self._late_done: set[int] = set()

    def deliver_slot(self, slot_ms: int, now_ms: int) -> bool:
        """Deliver one slot; False when the store refused a message for now."""
        units = [unit for _, unit in self._files.log.chain(self._files.wheel.slot_at(slot_ms).last)]
        units.reverse()
        cancellations = self._cancellations(units)
        cancelled = {timed.cancels for timed in cancellations}
        if slot_ms != self._slot_ms:
            self._slot_ms, self._done = slot_ms, 0
            self._count_out(cancellations)
        for unit in units[self._done :]:
            if not self._deliver(unit, cancelled, now_ms):
                return False
            self._done += 1
        self._slot_ms, self._done = -1, 0
        self.unsaved_count += 1
        return True

    def take_rolled(self) -> bool:
        """Whether a message was rolled since the last call: it must be entered before the next slot is delivered."""
        has_rolled, self._has_rolled = self._has_rolled, False
        return has_rolled

    def _cancellations(self, units: list[TimerUnit]) -> list[Timed]:
        found = [self._queue.timed_at(unit) for unit in units if unit.cancels]
        return [timed for timed in found if timed is not None and timed.cancels is not None]

    def _count_out(self, done: Iterable[Timed]) -> None:
        """Take messages that no longer wait out of the counts."""
        for timed in done:
            self._metrics.add(timed.topic, -timed.step)

    def _deliver(self, unit: TimerUnit, cancelled: Collection[str | None], now_ms: int) -> bool:
        """Deliver, roll or drop one unit; False when the store refused it for now, and nothing was done."""
        if unit.cancels:
            return True
        timed = self._queue.timed_at(unit)
        if timed is None:
            log.warning("the due message at %d is no longer in the log", unit.physical_offset)
            return True
        rebuilt = self._rebuilt(unit, timed, cancelled, now_ms)
        if rebuilt is not None and not self._put(rebuilt):
            return False
        self._has_rolled |= rebuilt is not None and unit.rolls
        self._count_out([timed])  # only now: a refused message still waits
        return True

    def _rebuilt(
        self, unit: TimerUnit, timed: Timed, cancelled: Collection[str | None], now_ms: int
    ) -> Rewritten | None:
        """The message to put for a unit; None when it was cancelled."""
        if cancelled and self._key_of(timed) in cancelled:
            return None
        if unit.rolls:
            return rolled(timed, unit.entered_ms, now_ms)
        return delivered(timed, unit.entered_ms, now_ms) if timed.cancels is None else None

    def deliver_late(self, late: list[Timed], cancelled: Collection[tuple[int, str]]) -> bool:
        """Deliver messages whose slot is already over; after False (the store refused one) call again."""
        now_ms = self._host.now_ms()
        due = [
            timed
            for timed in late
            if timed.cancels is None
            and (timed.slot_ms, self._key_of(timed)) not in cancelled
            and timed.message.queue_offset not in self._late_done
        ]
        for timed in due:
            if not self._put(delivered(timed, LATE_MS, now_ms)):
                return False
            self._late_done.add(timed.message.queue_offset)
        self._late_done.clear()
        return True

    def _key_of(self, timed: Timed) -> str | None:
        return None if timed.key is None else cancel_key(timed.topic, timed.key, with_topic=self._with_topic)

    def _put(self, rebuilt: Rewritten) -> bool:
        """Put a message; False when the store refused it for now. The next save makes it durable."""
        try:
            receipt = self._host.put_rebuilt(rebuilt, wait=False, check=False)
        except InvalidMessage as error:
            log.error("a message for %s can never be stored and is skipped: %s", rebuilt.message.topic, error)
            return True
        if receipt.physical_offset < 0:
            log.warning("the store refuses timed messages for now: %s", receipt.status)
            return False
        self.unsaved_count += 1
        return True
