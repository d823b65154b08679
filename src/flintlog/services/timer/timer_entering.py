"""Entering: each message of the queue becomes a unit in the timer log, chained in its slot of the wheel.

A batch of messages is chained in memory first. The position of each unit is known before it is written, so a batch
costs one write and one change per slot.

    unit k: previous = the head of its slot,  the slot's head = unit k

A message whose slot was already delivered is late, and is delivered at once.
"""

from __future__ import annotations

import logging
from typing import Final

from flintlog.format.timer import (
    MAGIC_DEFAULT,
    MAGIC_DELETE,
    MAGIC_ROLL,
    NO_UNIT,
    UNIT,
    UNIT_SIZE,
    Slot,
)
from flintlog.services.timer.timer_delivery import TimerDelivery
from flintlog.services.timer.timer_files import TimerFiles
from flintlog.services.timer.timer_message import Timed
from flintlog.services.timer.timer_metrics import TimerMetrics
from flintlog.services.timer.timer_queue import TimerQueue
from flintlog.services.timer.timer_recovery import Resumed

log = logging.getLogger(__name__)

_MAX_DELAY_MS: Final = (1 << 31) - 1


class TimerEntering:
    """Enters the queue's messages from `next_offset` on."""

    def __init__(
        self,
        files: TimerFiles,
        queue: TimerQueue,
        delivery: TimerDelivery,
        metrics: TimerMetrics,
        resumed: Resumed,
        window_ms: int,
    ) -> None:
        self.next_offset = resumed.queue_offset
        self._past = resumed.past
        self._files = files
        self._queue = queue
        self._delivery = delivery
        self._metrics = metrics
        self._window_ms = window_ms
        self._late_done: set[int] = set()

    def enter(self, read_ms: int, write_ms: int) -> bool:
        """Enter all visible messages; False when a late one could not be delivered now."""
        stop = self._queue.max_offset
        start = max(self.next_offset, self._queue.min_offset)
        if start >= stop:
            return True
        # A slot before `read_ms` is late, unless the clock was turned back to before that slot.
        late_before_ms = min(read_ms, write_ms)
        for page, next_offset in self._queue.pages(start, stop):
            pending = [timed for timed in page if not self._past.is_over(timed)]
            late = [timed for timed in pending if timed.slot_ms < late_before_ms and not self._is_done_late(timed)]
            if late and not self._delivery.deliver_late(late, self._past.cancelled):
                return False
            self._late_done.update(timed.message.queue_offset for timed in late)
            in_time = [timed for timed in pending if timed.slot_ms >= late_before_ms and not self._is_done_late(timed)]
            self._chain(in_time, read_ms, write_ms)
            self.next_offset = next_offset
            self._late_done.clear()
        if stop >= self._past.known_before:
            self._past.forget()
        return True

    @property
    def is_caught_up(self) -> bool:
        """Whether all messages that were entered, or perhaps delivered, before the last stop were examined again."""
        return self.next_offset >= max(self._past.entered_before, self._past.known_before)

    def _is_done_late(self, timed: Timed) -> bool:
        """Whether it was delivered in a round that failed before its whole page was entered."""
        return timed.message.queue_offset in self._late_done

    def _chain(self, page: list[Timed], read_ms: int, write_ms: int) -> None:
        place = 0
        while place < len(page):
            position, room = self._files.log.room()
            fitting = page[place : place + room]
            self._files.log.append(self._units(fitting, position, read_ms, write_ms))
            place += len(fitting)
            self.next_offset = fitting[-1].message.queue_offset + 1  # in case the next file cannot be created

    def _units(self, page: list[Timed], position: int, read_ms: int, write_ms: int) -> bytes:
        """Encode the units of messages for a position, and point their slots at them."""
        wheel, units, slots = self._files.wheel, bytearray(len(page) * UNIT_SIZE), dict[int, Slot]()
        for number, timed in enumerate(page):
            slot_ms, magic = self._slot_for(timed.slot_ms, read_ms, write_ms)
            if timed.cancels is not None:
                magic |= MAGIC_DELETE
            time = slot_ms // wheel.precision_ms
            slot = slots.get(time) or wheel.slot_at(slot_ms)
            place = number * UNIT_SIZE
            message, here = timed.message, position + place
            entered_ms = min(write_ms, slot_ms + _MAX_DELAY_MS)  # the delay has 32 bits and may be negative
            UNIT.pack_into(
                units, place, UNIT_SIZE, slot.last, magic, entered_ms, slot_ms - entered_ms,
                message.physical_offset, message.size, timed.topic_hash, 0,
            )  # fmt: skip
            first = here if slot.first == NO_UNIT else slot.first
            slots[time] = Slot(time, first, here, slot.number + timed.step, slot.magic)
            self._metrics.add(timed.topic, timed.step)
        for slot in slots.values():
            wheel.put(slot)
        return bytes(units)

    def _slot_for(self, slot_ms: int, read_ms: int, write_ms: int) -> tuple[int, int]:
        """The slot and the magic for a message; one that is due later than the window gets an earlier slot to roll."""
        window_ms, precision_ms = self._window_ms, self._files.precision_ms
        if slot_ms < read_ms:  # the clock was turned back: wait until it reaches `read_ms` again
            return read_ms, MAGIC_DEFAULT | MAGIC_ROLL
        beyond_ms = slot_ms - write_ms - window_ms
        magic = MAGIC_DEFAULT
        if beyond_ms >= 0:
            slots = window_ms // precision_ms
            step = slots // 2 if beyond_ms < slots // 3 * precision_ms else slots
            slot_ms, magic = write_ms + step * precision_ms, magic | MAGIC_ROLL
        # After a very long stop the oldest slots are not delivered yet: do not overwrite them.
        last_ms = read_ms + self._files.wheel.span_ms - precision_ms
        return (slot_ms, magic) if slot_ms <= last_ms else (last_ms, magic | MAGIC_ROLL)
