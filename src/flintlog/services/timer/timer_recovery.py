"""Restores the timer's state after any stop, whatever happened to its files.

    checkpoint, wheel and log are consistent  valid units after the checkpoint are kept; entering continues after the
                                              last of them
    the commit log was cut below a unit       that unit and all later ones are removed, slot by slot
    anything else                             wheel and log are rebuilt from the queue

A wheel is valid when the head of every slot that is still due is a unit of that slot, and the newest unit of the log
is the head of its slot. A unit is valid when the record at its offset is the message it was made for.

The queue and the checkpoint's time determine which messages wait, with two exceptions. A rolled message has a newer
copy in the queue, so the older one must be left out. And without a checkpoint it is unknown which messages were
delivered, so their topics are searched for deliveries. `Past` holds both.

In a ledger group another member may have led before, with its own wheel and log. Then the group's checkpoint is ahead
of the local one. Everything is rebuilt from the queue, and deliveries after the group's checkpoint are searched for in
the topics.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flintlog.format.properties import TIMER_DEQUEUE_MS
from flintlog.format.timer import NO_UNIT, UNIT_SIZE, Slot, TimerCheckpoint, TimerUnit
from flintlog.services.queue_reading import first_after, read_pages
from flintlog.services.timer.timer_files import TIMER_PART, TimerFiles
from flintlog.services.timer.timer_log import TimerLog
from flintlog.services.timer.timer_message import Timed, parse_timed
from flintlog.services.timer.timer_queue import TimerQueue
from flintlog.services.timer.timer_wheel import TimerWheel

if TYPE_CHECKING:
    from flintlog.store.put.service_host import ServiceHost

log = logging.getLogger(__name__)

_DELIVERED = -1


@dataclass(slots=True)
class Past:
    """The messages that were entered, rolled, delivered or cancelled before the stop."""

    entered_before: int = 0
    read_ms: int = 0
    copies: Counter[tuple[object, int]] = field(default_factory=Counter)
    cancelled: set[tuple[int, str]] = field(default_factory=set)
    known_before: int = 0

    def is_over(self, timed: Timed) -> bool:
        """Whether a message is done. Call once per message, in the queue's order."""
        offset = timed.message.queue_offset
        if offset < self.entered_before and timed.slot_ms < self.read_ms:
            return True
        if offset >= self.known_before or not self.copies:
            return False
        for copy in ((timed.identity, timed.roll_times + 1), (timed.identity, _DELIVERED)):
            if self.copies[copy] > 0:
                self.copies[copy] -= 1
                return True
        return False

    def forget(self) -> None:
        """Drop the copies and cancellations: all messages that they concern were examined."""
        self.copies.clear()
        self.cancelled.clear()


@dataclass(frozen=True, slots=True)
class Resumed:
    """Where the timer continues."""

    read_ms: int
    queue_offset: int
    past: Past
    is_rebuilt: bool


@dataclass(frozen=True, slots=True)
class SharedCheckpoint:
    """A group's checkpoint, and the log's end when it was written."""

    checkpoint: TimerCheckpoint
    log_end: int


class TimerRecovery:
    """Makes the files of one timer consistent. Used once, at the start."""

    def __init__(self, host: ServiceHost, files: TimerFiles, queue: TimerQueue, window_ms: int) -> None:
        self._host = host
        self._store = host.store
        self._files = files
        self._queue = queue
        self._window_ms = window_ms
        self._now_ms = host.now_ms()

    def run(self) -> Resumed:
        files = self._files
        has_checkpoint = files.checkpoint.load()
        checkpoint = files.checkpoint.values
        shared = self._shared_checkpoint()
        if shared is not None and not (has_checkpoint and _is_as_far(checkpoint, shared.checkpoint)):
            files.log.load()
            return self._rebuild(shared.checkpoint, delivered_from=shared.log_end)
        is_loaded = files.log.load()
        if has_checkpoint and is_loaded and self._covers(checkpoint):
            wheel = files.open_wheel()
            if wheel is not None:
                resumed = self._resume(checkpoint, wheel)
                if resumed is not None:
                    return resumed
                wheel.close()
        log_end = 0 if shared is None else shared.log_end
        return self._rebuild(checkpoint if has_checkpoint else None, delivered_from=log_end)

    def _shared_checkpoint(self) -> SharedCheckpoint | None:
        shared = self._host.shared(TIMER_PART)
        if shared is None:
            return None
        read_ms, queue_offset, log_end = (shared.get(name) for name in ("readMs", "queueOffset", "logEnd"))
        if not (isinstance(read_ms, int) and isinstance(queue_offset, int) and isinstance(log_end, int)):
            return None
        return SharedCheckpoint(TimerCheckpoint(read_ms=read_ms, queue_offset=queue_offset), log_end)

    def _covers(self, checkpoint: TimerCheckpoint) -> bool:
        """Whether the log holds all that the checkpoint calls flushed. During a rebuild the checkpoint says 0."""
        flushed, timer_log = checkpoint.log_flushed, self._files.log
        if flushed == 0:
            return checkpoint.queue_offset == 0
        return timer_log.start <= flushed <= timer_log.end

    # ------------------------------------------------------------------ resuming

    def _resume(self, checkpoint: TimerCheckpoint, wheel: TimerWheel) -> Resumed | None:
        """Resume with the existing files; None when they are inconsistent."""
        timer_log = self._files.log
        if not self._is_newest_in_its_slot(timer_log.step_back(checkpoint.log_flushed), wheel):
            return None
        end = self._end_of_believed(checkpoint.log_flushed)
        keep = self._end_of_valid(end)
        for slot_ms in wheel.load(checkpoint.read_ms):
            slot = wheel.slot_at(slot_ms)
            if slot.last >= keep:
                slot = _cut_slot(slot, keep, timer_log)
                wheel.put(slot)
            if slot.last != NO_UNIT and not _is_head(slot, timer_log, wheel.precision_ms):
                return None
        self._apply(checkpoint.log_flushed, keep, wheel)
        timer_log.cut(keep)
        last = timer_log.step_back(keep)
        return self._resumed(checkpoint, last, was_cut=keep < end)

    def _resumed(self, checkpoint: TimerCheckpoint, last: int, *, was_cut: bool) -> Resumed:
        unit = None if last == NO_UNIT else self._files.log.unit_at(last)
        timed = None if unit is None else self._queue.timed_at(unit)
        entered = checkpoint.queue_offset
        was_cut = was_cut or entered > self._queue.max_offset
        if timed is not None:
            offset = timed.message.queue_offset + 1
            # After a cut, offsets that were entered before may be reused by other messages.
            past = Past(offset if was_cut else max(entered, offset), checkpoint.read_ms)
        else:
            offset = 0 if was_cut else entered
            past = Past(min(entered, self._queue.max_offset), checkpoint.read_ms)
        return Resumed(checkpoint.read_ms, max(offset, self._queue.min_offset), past, is_rebuilt=False)

    def _is_newest_in_its_slot(self, position: int, wheel: TimerWheel) -> bool:
        if position == NO_UNIT:
            return True
        unit = self._files.log.unit_at(position)
        return unit is not None and wheel.slot_at(unit.slot_ms).last >= position

    def _end_of_believed(self, start: int) -> int:
        """The end of the valid units after the checkpoint, with growing physical offsets."""
        timer_log, position = self._files.log, start
        before = timer_log.step_back(start)
        unit = None if before == NO_UNIT else timer_log.unit_at(before)
        reached = -1 if unit is None else unit.physical_offset
        while True:
            place = timer_log.place(position)
            unit = timer_log.unit_at(place)
            if unit is None or unit.physical_offset <= reached or self._queue.timed_at(unit) is None:
                return position
            reached, position = unit.physical_offset, place + UNIT_SIZE

    def _end_of_valid(self, end: int) -> int:
        """The position of the first unit after a cut of the commit log: a binary search, as their offsets only grow."""
        timer_log = self._files.log
        last = timer_log.step_back(end)
        if last == NO_UNIT or self._is_valid(timer_log.unit_at(last)):
            return end
        low, high = 0, timer_log.count_between(timer_log.start, last)
        while low < high:
            middle = (low + high) // 2
            if self._is_valid(timer_log.unit_at(timer_log.place_after(timer_log.start, middle))):
                low = middle + 1
            else:
                high = middle
        cut = timer_log.place_after(timer_log.start, low)
        log.warning("the commit log was cut: the timer log is cut from %d to %d", end, cut)
        return cut

    def _is_valid(self, unit: TimerUnit | None) -> bool:
        if unit is None:
            return False
        return unit.physical_offset < self._store.min_physical_offset or self._queue.timed_at(unit) is not None

    def _apply(self, start: int, stop: int, wheel: TimerWheel) -> None:
        """Enter units after the checkpoint in their slots, where they are missing."""
        timer_log, position = self._files.log, start
        while timer_log.place(position) < stop:
            place = timer_log.place(position)
            unit = timer_log.unit_at(place)
            if unit is not None and unit.slot_ms >= self._files.checkpoint.values.read_ms:
                slot = wheel.slot_at(unit.slot_ms)
                if slot.last < place:
                    wheel.put(_with_unit(slot, place, unit))
            position = place + UNIT_SIZE

    # ------------------------------------------------------------------ rebuilding

    def _rebuild(self, checkpoint: TimerCheckpoint | None, delivered_from: int = 0) -> Resumed:
        """Start with empty files. Entering then reads the whole queue and leaves out the messages that are done.

        `delivered_from` is the log's end when the group's checkpoint was written.
        """
        files, queue = self._files, self._queue
        floor_ms = self._now_ms // files.precision_ms * files.precision_ms
        if checkpoint is not None and checkpoint.queue_offset:
            # Written before any file is removed, so that a crash in between leads to another rebuild.
            files.checkpoint.write(
                read_ms=checkpoint.read_ms, log_flushed=0, queue_offset=checkpoint.queue_offset, now_ms=self._now_ms
            )
        files.log.remove_files()
        files.make_wheel()
        past = Past(known_before=queue.max_offset)
        if queue.max_offset == queue.min_offset:
            read_ms = floor_ms if checkpoint is None else checkpoint.read_ms
            return Resumed(read_ms, queue.max_offset, past, is_rebuilt=False)
        log.warning("the timer's wheel and log are rebuilt from %d messages", queue.max_offset - queue.min_offset)
        if checkpoint is None:
            oldest_ms = floor_ms + self._window_ms + files.precision_ms - files.wheel.span_ms
            read_ms = max(0, oldest_ms)
        else:
            read_ms = past.read_ms = checkpoint.read_ms
            past.entered_before = min(checkpoint.queue_offset, queue.max_offset)
        self._find_copies(past, None if checkpoint is not None and not delivered_from else delivered_from)
        return Resumed(read_ms, queue.min_offset, past, is_rebuilt=True)

    def _find_copies(self, past: Past, delivered_from: int | None) -> None:
        """Find rolled messages, and deliveries from a log offset on; None when the checkpoint covers all deliveries."""
        targets: set[tuple[str, int]] = set()
        for waiting, _ in self._queue.pages(self._queue.min_offset, past.known_before):
            for timed in waiting:
                targets.add((timed.topic, timed.queue_id))
                if timed.roll_times > 0:
                    past.copies[timed.identity, timed.roll_times] += 1
                if timed.cancels is not None:
                    past.cancelled.add((timed.slot_ms, timed.cancels))
        if delivered_from is None:
            return
        for topic, queue_id in targets:
            start = first_after(self._host, topic, queue_id, delivered_from)
            stop = self._store.max_offset(topic, queue_id)
            for messages, _ in read_pages(self._store, topic, queue_id, start, stop):
                for message in messages:
                    found = parse_timed(message) if TIMER_DEQUEUE_MS in message.properties else None
                    if found is not None:
                        past.copies[found.identity, _DELIVERED] += 1


def _is_as_far(here: TimerCheckpoint, there: TimerCheckpoint) -> bool:
    """Whether the local files cover the group's checkpoint, so that no other member has delivered since."""
    return here.read_ms >= there.read_ms and here.queue_offset >= there.queue_offset


def _is_head(slot: Slot, timer_log: TimerLog, precision_ms: int) -> bool:
    unit = timer_log.unit_at(slot.last)
    return unit is not None and unit.slot_ms // precision_ms == slot.time


def _cut_slot(slot: Slot, keep: int, timer_log: TimerLog) -> Slot:
    """A slot without its units from position `keep` on."""
    kept = [(position, unit) for position, unit in timer_log.chain(slot.last) if position < keep]
    if not kept:
        return Slot(slot.time, NO_UNIT, NO_UNIT)
    number = sum(unit.step for _, unit in kept)
    return Slot(slot.time, kept[-1][0], kept[0][0], number, slot.magic)


def _with_unit(slot: Slot, position: int, unit: TimerUnit) -> Slot:
    first = position if slot.first == NO_UNIT else slot.first
    return Slot(slot.time, first, position, slot.number + unit.step, slot.magic)
