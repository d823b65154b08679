"""Dispatch: what stands in the log becomes visible in its queue and findable by its keys.

    log ──▶ lane (kernel: entry and index hashes of the plain case)
              │ stops at whatever is not plain
              └▶ here: new queue, full file, extension, batch queue, LMQ, full index file, blank, damage

Threads: whoever moved the readable end (the putting thread under async flush, the flush thread under sync flush) calls
`advance`, which dispatches everything up to the end of then, once. A message is visible before its put returns, and
nothing waits for an interpreter switch. A second caller leaves a note for the first and goes on; what came behind the
first one's end is left to a thread (`dispatch_thread.py`), so that no put does the work of all others. Who puts while
that is far behind waits a moment (`keep_up`). `_running` is the only lock, and no other lock is taken while it is
waited for.

Invariant: every record below `position` is in its queue and in the index; records are applied in log order.

Reasons and costs: docs/decisions/0005.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from flintlog import kernel
from flintlog.derive.entries import Place, places_of
from flintlog.disk.segments.segment import Segment
from flintlog.errors import DiskFull, FlintlogError
from flintlog.format.ledger import size_at
from flintlog.format.sys_flag import takes_queue_offset
from flintlog.kernel import ClosedFor, Lane, LaneStop, Row, Scan
from flintlog.store.dispatch.arrival_wait import ArrivalWait
from flintlog.store.dispatch.dispatch_thread import DispatchThread
from flintlog.store.dispatch.gap_filling import GapFiller
from flintlog.store.index.index_service import IndexService
from flintlog.store.log.damage import DamageMap
from flintlog.store.log.log import Log
from flintlog.store.model.stored_message import Arrival
from flintlog.store.queues.consume_queue import ConsumeQueue
from flintlog.store.queues.covered_queues import QueueClaim
from flintlog.store.queues.logical_queue import LogicalQueue, QueueType
from flintlog.store.queues.queue_table import QueueTable
from flintlog.store.runtime.turn import Turn

log = logging.getLogger(__name__)

T = TypeVar("T")

FAR_BEHIND_BYTES: Final = 256 * 1024
"""With more than this to dispatch, who puts waits for whoever dispatches."""
PATIENCE_S: Final = 0.1
"""For so long at most: a listener may be waiting for the thread that puts."""
COUNT_PATIENCE_S: Final = 1.0
"""For so long at most a count waits for whoever dispatches."""
HAND_OVER_S: Final = 0.001
"""Who waited for a count has this time to dispatch itself: its message is then there when its put returns."""

Listener = Callable[[Arrival], None]
PlacesBefore = Callable[[int, list[Place], bytes], list[Place]]
"""Given a record's physical offset, the places that it names, and its bytes, the places that get its entries."""
BitmapHook = Callable[[bytes], "bytes | None"]
"""Given a whole record, the filter bitmap of its queue extension, or None."""


class Dispatcher:
    """See the module."""

    _relief: DispatchThread | None = None

    def __init__(
        self,
        commit_log: Log,
        queues: QueueTable,
        index: IndexService | None,
        lane: Lane,
        *,
        readable_end: Callable[[], int],
        damage: DamageMap,
        delay_levels_ms: Sequence[int],
        extension: bool,
    ) -> None:
        self.failure: FlintlogError | None = None
        self.bitmap_hook: BitmapHook | None = None
        self.places_before: PlacesBefore | None = None
        """While a store is opened: where records had their entries. They may name another place."""
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._readable_end = readable_end
        self._damage = damage
        self._gaps = GapFiller(commit_log.segments, damage, queues, lambda: self.lane.lmq)
        self._delay_levels_ms = tuple(delay_levels_ms)
        self._listeners: list[Listener] = []
        self._waits: dict[str, set[ArrivalWait]] = {}
        self._running = Turn()
        self._runner: int | None = None
        self._told = 0  # up to here the listeners know of every record
        self._wanted = False
        self._is_counting = False
        self._segment: Segment | None = None
        self._view = memoryview(b"")
        self.lane = lane
        self.lane.all_slow = extension
        self.lane.index_enabled = index is not None

    # ------------------------------------------------------------------ from outside

    def start_at(self, position: int) -> None:
        """Everything below `position` is known to be dispatched."""
        self._leave_segment()
        self.position = self._told = position
        self.lane.stopped_at_index = False
        if self._index is not None:
            self._show_index()

    def stop(self) -> None:
        """End the thread and let go of the files; what it had not reached is dispatched by the next opening."""
        relief, self._relief = self._relief, None
        if relief is not None:
            relief.stop()
        self._running.run(self._let_go)

    def _let_go(self) -> None:
        self._leave_segment()
        self.lane.set_index(None)

    def add_listener(self, listener: Listener) -> None:
        self._log.put_lane.close(ClosedFor.LISTENERS)
        if not self._listeners:
            self._told = self.position
        self._listeners.append(listener)

    def arm(self, wait: ArrivalWait) -> None:
        """Wake whoever sleeps there at the next entry for one of its topics; see `arrival_wait.py`."""
        if self._runner == threading.get_ident():
            # A listener holds up the dispatch that it would wait for.
            wait.wake()
            return

        def forget_queues() -> None:
            for topic in wait.topics:
                self._waits.setdefault(topic, set()).add(wait)
                for queue_id in self._queues.queue_ids(topic):
                    self.lane.set_queue(topic, queue_id, None)

        self.alone(forget_queues)

    def remove_topic(self, topic: str) -> None:
        """Delete the queues of a topic; a record for it that is dispatched later begins a new one."""

        def remove() -> None:
            for queue_id in self._queues.queue_ids(topic):
                self.lane.set_queue(topic, queue_id, None)
            self._queues.remove_topic(topic, self.position)

        self.exclusively(remove)

    def alone(self, work: Callable[[], T]) -> T:
        """Do this while nobody dispatches, neither the dispatcher nor a put; what came meanwhile is done after."""
        if self._runner == threading.get_ident():
            return work()  # a listener: its thread is the one that dispatches
        try:
            return self._running.run(lambda: self._own_lane(work))
        finally:
            self.advance()

    def exclusively(self, work: Callable[[], T]) -> T:
        """As `alone`, to delete queues: what can be read was dispatched before, so it is deleted with its queue."""
        self.advance_and_wait()
        return self.alone(work)

    @property
    def leaves_puts_to_lane(self) -> bool:
        """Whether a put may dispatch its own record: nothing but the lane is needed."""
        return not self.lane.all_slow

    @property
    def is_calling_listener(self) -> bool:
        """Whether the calling thread is in a listener now."""
        return self._runner == threading.get_ident()

    def start(self) -> None:
        """From now on there are other threads, and one that does what they leave."""
        self._relief = DispatchThread(lambda: self._wanted, self._run_wanted)
        self._relief.start()

    def advance(self, patience_s: float = 0) -> None:
        """Dispatch up to the readable end of now; or leave it to the thread that is at it, after this much patience."""
        self._wanted = True
        while self._wanted and self._take(patience_s):
            try:
                self._wanted = False
                self._run_owned()
            except BaseException:
                self._wanted = True  # what is left is the next one's
                raise
            finally:
                self._running.owner = None
                self._running.ring()
            if self._relief is not None:
                # What came meanwhile is not this caller's: there may be no end to it.
                if self._wanted:
                    self._relief.ring()
                return

    def _take(self, patience_s: float) -> bool:
        """Become the one who dispatches. Who only counts is waited for, because that takes a moment."""
        if self._running.take(patience_s):
            return True
        is_waiting = self._is_counting and self._runner != threading.get_ident()
        return self._running.take(PATIENCE_S) if is_waiting else False

    def keep_up(self) -> None:
        """As `advance`, for whoever puts: while dispatch is far behind, wait for it a moment."""
        self.advance()
        if self._wanted and self.backlog_bytes > FAR_BEHIND_BYTES and self._runner != threading.get_ident():
            self.advance(PATIENCE_S)

    def advance_and_wait(self) -> None:
        """Dispatch up to the readable end of now, waiting for a thread that is at it.

        A listener cannot wait for itself: called from one, this returns at once.
        """
        if self._runner == threading.get_ident():
            return
        self._running.run(self._run_owned)
        self.advance()

    def check_progress(self) -> None:
        """Raise what dispatch stands at, if it does: nobody is to wait for it, or to believe that it is done."""
        if self.failure is not None and self.backlog_bytes:
            raise self.failure

    def finish(self) -> bool:
        """Dispatch all there is, before the store stops; whether that was possible."""
        self.advance_and_wait()
        return self.backlog_bytes == 0

    @property
    def last_dispatched(self) -> tuple[int, int]:
        """Physical offset and store time of the last record that was dispatched; -1 when none was."""
        return self.lane.last_physical_offset, self.lane.last_store_timestamp

    def claim_queues(self) -> tuple[tuple[int, int], list[QueueClaim] | None]:
        """What was dispatched last, and where all queues end with it; None when the record after it is half done.

        None, too, when another thread dispatches for long, as one with a listener that does not return.
        """
        if not self._running.take(COUNT_PATIENCE_S):
            return self.last_dispatched, None
        try:
            self._is_counting = True  # no call comes between this and the turn, so whoever waits for it sees why
            self.lane.own()
            found = self._claims()
        finally:
            self.lane.is_owned = False
            self._running.owner = None
            self._is_counting = False  # only now: whoever sees it finds the turn free
            self._running.ring()
        if self._wanted:
            time.sleep(HAND_OVER_S)
            if self._wanted:
                self.advance()
        return found

    def _claims(self) -> tuple[tuple[int, int], list[QueueClaim] | None]:
        if self.lane.stopped_at_index:
            self._run()
        is_half_done = self.failure is not None or self.lane.stopped_at_index
        return self.last_dispatched, None if is_half_done else self._queues.claims()

    @property
    def backlog_bytes(self) -> int:
        return max(0, self._readable_end() - self.position)

    @property
    def position(self) -> int:
        """Everything below is dispatched; a put on the short way moves it too, when the lane is not owned."""
        return self.lane.log_offset

    @position.setter
    def position(self, offset: int) -> None:
        self.lane.log_offset = offset

    # ------------------------------------------------------------------ the loop

    def _run_owned(self) -> None:
        self._own_lane(self._run)

    def _own_lane(self, work: Callable[[], T]) -> T:
        self.lane.own()
        try:
            return work()
        finally:
            self.lane.is_owned = False

    def _run_wanted(self) -> None:
        """A round of the thread, which has all the time there is."""
        with self._running:
            self._wanted = False
            self._run_owned()

    def _run(self) -> None:
        self._runner = threading.get_ident()
        try:
            self._run_to(self._readable_end())
        finally:
            self._runner = None

    def _run_to(self, end: int) -> None:
        while self.position < end:
            self._notify()  # of what a run before did, if it was interrupted
            segment = self._segment
            if segment is None or not segment.base <= self.position < segment.base + segment.size:
                segment = self._find_segment()
                if segment is None:
                    return
            try:
                goes_on = self._step(segment, end)
            except (FlintlogError, OSError) as failure:
                self._stall(failure)
                return
            self.failure = None
            self._notify()
            if not goes_on:
                return

    def _find_segment(self) -> Segment | None:
        """Go to the segment at the position, holding it so that it stays mapped and is not deleted."""
        self._leave_segment()
        position = max(self.position, self._log.min_offset)
        segment = self._log.segments.find(position)
        if segment is None or not segment.hold():
            return None
        try:
            view = segment.raw().buffer
        except BaseException:
            segment.release()
            raise
        self._segment, self._view = segment, view  # both or none: no call comes between
        self.position = position
        return segment

    def _leave_segment(self) -> None:
        segment, self._segment = self._segment, None
        self._view = memoryview(b"")
        if segment is not None:
            segment.release()

    def _step(self, segment: Segment, end: int) -> bool:
        """Run the lane once and see to what it stopped at; False when nothing more can be done now."""
        base = segment.base
        stop = min(segment.read_position, end - base)
        start = self.position - base
        if start >= stop:
            return False
        lane = self.lane
        reason = lane.run(self._view, start, stop, base, lane.stopped_at_index)
        if reason is LaneStop.DONE:
            return True
        if reason is LaneStop.BLANK:
            self.position = base + segment.size
        elif reason is LaneStop.QUEUE:
            self._queue_step(self._view, lane.position, base)
            lane.stopped_at_index = True
        elif reason is LaneStop.INDEX:
            self._roll_index()
        else:
            return self._pass_damage(end)
        return True

    def _stall(self, failure: Exception) -> None:
        """No room for a queue or index file: stay at this record, and say so once."""
        if self.failure is None:
            log.error("dispatch stands at %d: %s", self.position, failure)
        self.failure = failure if isinstance(failure, FlintlogError) else DiskFull(str(failure))

    def _pass_damage(self, end: int) -> bool:
        following = self._damage.end_of(self.position)
        if following is None or following >= end:
            return False
        self.position = following
        return True

    def apply(self, view: memoryview, base: int, scan: Scan) -> None:
        """Dispatch records that were scanned already; the caller owns the dispatcher meanwhile."""
        lane = self.lane
        row = 0
        while row < scan.count:
            reason = lane.apply(scan, row, lane.stopped_at_index)
            lane.stopped_at_index = False
            if reason is LaneStop.DONE:
                break
            row = lane.row_index
            self.position = scan.row(row).physical_offset
            if reason is LaneStop.QUEUE:
                self._queue_step(view, self.position - base, base)
                lane.stopped_at_index = True
            else:
                lane.stopped_at_index = True
                self._roll_index()
        self.position = base + scan.end

    def apply_by_hand(self, view: memoryview, base: int, scan: Scan) -> None:
        """As `apply`, for one record that may not belong where it says."""
        self.position = scan.row(0).physical_offset
        self._queue_step(view, self.position - base, base)
        self.lane.stopped_at_index = True
        self.apply(view, base, scan)

    # ------------------------------------------------------------------ queues

    def _queue_step(self, view: memoryview, position: int, base: int) -> None:
        """Do by hand what the lane would not: the queue entry of the record at this position."""
        stop = position + size_at(view, position)
        scan = kernel.scan(view, position, stop, base, delay_levels_ms=self._delay_levels_ms)
        row = scan.row(0)
        topic, queue_id = scan.queues[0]
        record = bytes(view[stop - row.size : stop])
        places = places_of(topic, queue_id, row, record, is_batch=self._is_batch, lmq=self.lane.lmq)
        if self.places_before is not None:
            places = self.places_before(row.physical_offset, places, record)
        if not places and not takes_queue_offset(row.sys_flag):
            return
        if not places:
            where = f"{topic[:80]!a}/{queue_id} at {row.queue_offset}"
            log.warning("the record at %d is for a queue that cannot be: %s", row.physical_offset, where)
            return
        for number, place in enumerate(places):
            if not self._queues.deleted.holds(place.topic, place.queue_id, row.physical_offset):
                # Only the queue of the message's own topic refers to its extension, in RocketMQ too.
                self._put_place(row, place, None if number else record)
        own = places[0]
        queue = self._queues.get(own.topic, own.queue_id)
        if isinstance(queue, ConsumeQueue) and not self.lane.all_slow:
            self.lane.set_queue(own.topic, own.queue_id, queue.end)

    def _put_place(self, row: Row, place: Place, extended: bytes | None) -> None:
        """Put the entry of a record where it says, if that can be."""
        if self._is_batch(place.topic):
            self._put_entry(self._queues.get_or_create(place.topic, place.queue_id), row, place)
            return
        found = self._queues.get(place.topic, place.queue_id)
        if not self._gaps.make_way(found if isinstance(found, ConsumeQueue) else None, row, place):
            return
        queue = self._queues.get_or_create(place.topic, place.queue_id)
        bitmap = None if extended is None else self._bitmap_of(extended)
        self._put_entry(queue, row, place, bitmap, is_extended=extended is not None)

    def _is_batch(self, topic: str) -> bool:
        return self._queues.type_of(topic) is QueueType.BATCH

    def _bitmap_of(self, record: bytes) -> bytes | None:
        try:
            return None if self.bitmap_hook is None else self.bitmap_hook(record)
        except Exception:
            # The hook is the user's code; an entry without a bitmap is read by every filter.
            log.exception("the bitmap hook failed")
            return None

    def _put_entry(
        self,
        queue: LogicalQueue,
        row: Row,
        place: Place,
        bitmap: bytes | None = None,
        *,
        is_extended: bool = True,
    ) -> None:
        entry = (row.physical_offset, row.size, row.tags_code, place.queue_offset, row.store_timestamp)
        if not queue.put(*entry, bitmap, place.batch_count, is_extended=is_extended):
            raise DiskFull(f"no room for a file of queue {queue.topic}/{queue.queue_id}")
        if self._waits:
            self._wake(queue.topic)

    def _wake(self, topic: str) -> None:
        """Wake whoever sleeps until something comes for this topic."""
        for wait in self._waits.pop(topic, ()):
            for other in wait.topics:
                self._waits.get(other, set()).discard(wait)
            wait.wake()

    # ------------------------------------------------------------------ index and listeners

    def _roll_index(self) -> None:
        assert self._index is not None
        if not self._index.roll():
            raise DiskFull("no room for an index file")
        self._show_index()

    def _show_index(self) -> None:
        assert self._index is not None
        self.lane.set_index(*self._index.lane_buffer())

    def _notify(self) -> None:
        """Tell the listeners of the records that they do not know, up to the position, in the segment just read.

        If this is interrupted, a listener may hear of a record twice, but of each.
        """
        segment = self._segment
        if self._told >= self.position or segment is None:
            return
        if self._listeners:
            base, view = segment.base, self._view
            start, stop = max(self._told - base, 0), min(self.position - base, len(view))
            self._tell_rows(kernel.scan(view, start, stop, base, delay_levels_ms=self._delay_levels_ms))
        self._told = self.position

    def _tell_rows(self, seen: Scan) -> None:
        for place in range(seen.count):
            row = seen.row(place)
            if takes_queue_offset(row.sys_flag):
                topic, queue_id = seen.queues[row.queue]
                self._tell(
                    Arrival(topic, queue_id, row.queue_offset, row.physical_offset, row.tags_code, row.store_timestamp)
                )
                self._told = row.physical_offset + row.size

    def _tell(self, arrival: Arrival) -> None:
        for listener in tuple(self._listeners):
            try:
                listener(arrival)
            except Exception:
                # A listener is the user's code: its failure must stop neither dispatch nor the put it runs in.
                log.exception("an arrival listener failed")
