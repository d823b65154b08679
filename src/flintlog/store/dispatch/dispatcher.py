"""Dispatch: each record of the log becomes visible in its queue and findable by its keys.

    log ──▶ fast dispatch (kernel: entry and index hashes of the plain case)
              │ stops at everything else
              ├▶ entry_writer.py: new queue, full file, extension, batch queue, LMQ
              └▶ here: full index file, blank, damage

Threads. The thread that moved the readable end (the putting thread under async flush, the flush thread under sync
flush) calls `advance`, which dispatches once up to that end. So a message is visible before its put returns, without
waiting for another thread to get the GIL. If another thread is dispatching, `advance` sets `_wanted` and returns.
Records after the end that the first thread saw are left to `flintlog-dispatch` (`dispatch_thread.py`), so that no put
does the work of all others. While dispatch is far behind, a put waits a moment (`keep_up`). `_running` is the only
lock, and a thread that waits for it takes no other.

Invariant: every record below `position` is in its queue and in the index; records are applied in log order.

Reasons and costs: docs/decisions/0005.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from flintlog.disk.segments.segment import Segment
from flintlog.errors import DiskFull, FlintlogError
from flintlog.kernel import ClosedFor, DispatchStop, FastDispatch, Scan
from flintlog.store.dispatch.arrival_wait import ArrivalWait
from flintlog.store.dispatch.arrivals import Arrivals, Listener
from flintlog.store.dispatch.dispatch_thread import DispatchThread
from flintlog.store.dispatch.entry_writer import EntryWriter
from flintlog.store.dispatch.gap_filling import GapFiller, LogAhead
from flintlog.store.index.index_service import IndexService
from flintlog.store.log.damage import DamageMap
from flintlog.store.log.log import Log
from flintlog.store.queues.covered_queues import QueueClaim
from flintlog.store.queues.queue_table import QueueTable
from flintlog.store.runtime.turn import Turn

log = logging.getLogger(__name__)

T = TypeVar("T")

FAR_BEHIND_BYTES: Final = 256 * 1024
"""With more than this to dispatch, a put waits for the dispatching thread."""
PATIENCE_S: Final = 0.1
"""The longest such wait: a listener may be waiting for the putting thread."""
COUNT_PATIENCE_S: Final = 1.0
"""How long `claim_queues` waits for the dispatching thread."""
HAND_OVER_S: Final = 0.001
"""Time for a put that waited for `claim_queues` to dispatch itself: its message is then visible when it returns."""


class Dispatcher:
    """See the module."""

    _relief: DispatchThread | None = None

    def __init__(
        self,
        commit_log: Log,
        queues: QueueTable,
        index: IndexService | None,
        fast_dispatch: FastDispatch,
        *,
        readable_end: Callable[[], int],
        damage: DamageMap,
        delay_levels_ms: Sequence[int],
        extension: bool,
    ) -> None:
        self.failure: FlintlogError | None = None
        self._log = commit_log
        self._queues = queues
        self._index = index
        self._readable_end = readable_end
        self._damage = damage
        self._delay_levels_ms = tuple(delay_levels_ms)
        self._arrivals = Arrivals(delay_levels_ms)
        self._running = Turn()
        self._runner: int | None = None
        self._wanted = False
        self._is_counting = False
        self._segment: Segment | None = None
        self._view = memoryview(b"")
        segments = commit_log.segments
        ahead = LogAhead(segments, queues, lambda: self.fast_dispatch.lmq)
        gaps = GapFiller(damage, queues, ahead, segments.segment_size)
        self.entries = EntryWriter(queues, gaps, fast_dispatch, self._arrivals, delay_levels_ms)
        self.fast_dispatch = fast_dispatch
        self.fast_dispatch.all_slow = extension
        self.fast_dispatch.index_enabled = index is not None

    # ------------------------------------------------------------------ from outside

    def start_at(self, position: int) -> None:
        """Begin after records that are known to be dispatched."""
        self._leave_segment()
        self.position = self._arrivals.reported_to = position
        self.fast_dispatch.stopped_at_index = False
        if self._index is not None:
            self._show_index()

    def stop(self) -> None:
        """End the thread and release the files. The next opening dispatches the rest."""
        relief, self._relief = self._relief, None
        if relief is not None:
            relief.stop()
        self._running.run(self._let_go)

    def _let_go(self) -> None:
        self._leave_segment()
        self.fast_dispatch.set_index(None)

    def add_listener(self, listener: Listener) -> None:
        self._log.fast_put.close(ClosedFor.LISTENERS)
        self._arrivals.add_listener(listener, self.position)

    def arm(self, wait: ArrivalWait) -> None:
        """Wake these sleepers at the next entry for one of their topics; see `arrival_wait.py`."""
        if self._runner == threading.get_ident():
            # A listener would wait for its own thread.
            wait.wake()
            return

        def forget_queues() -> None:
            self._arrivals.add_wait(wait)
            for topic in wait.topics:
                for queue_id in self._queues.queue_ids(topic):
                    self.fast_dispatch.set_queue(topic, queue_id, None)

        self.alone(forget_queues)

    def remove_topic(self, topic: str) -> None:
        """Delete the queues of a topic. A record that is dispatched later begins a new one."""

        def remove() -> None:
            self._log.sync()
            for queue_id in self._queues.queue_ids(topic):
                self.fast_dispatch.set_queue(topic, queue_id, None)
            self._queues.remove_topic(topic, self.position)

        self.exclusively(remove)

    def alone(self, work: Callable[[], T]) -> T:
        """Run `work` while no thread dispatches, also no put. Records that came meanwhile are dispatched after it."""
        if self._runner == threading.get_ident():
            return work()  # called from a listener, in the dispatching thread
        try:
            return self._running.run(lambda: self._own_fast_dispatch(work))
        finally:
            self.advance()

    def exclusively(self, work: Callable[[], T]) -> T:
        """As `alone`, to delete queues: readable records are dispatched first, and deleted with their queue."""
        self.advance_and_wait()
        return self.alone(work)

    @property
    def lets_puts_dispatch(self) -> bool:
        """Whether a put may dispatch its own record, which only fast dispatch can do."""
        return not self.fast_dispatch.all_slow

    @property
    def is_calling_listener(self) -> bool:
        """Whether the calling thread is in a listener now."""
        return self._runner == threading.get_ident()

    def start(self) -> None:
        """Start the thread that dispatches the records that others leave."""
        self._relief = DispatchThread(lambda: self._wanted, self._run_wanted)
        self._relief.start()

    def advance(self, patience_s: float = 0) -> None:
        """Dispatch up to the present readable end; if another thread still does after this time, leave it to that."""
        self._wanted = True
        while self._wanted and self._take(patience_s):
            try:
                self._wanted = False
                self._run_owned()
            except BaseException:
                self._wanted = True  # the next caller does the rest
                raise
            finally:
                self._running.owner = None
                self._running.ring()
            if self._relief is not None:
                # The thread does what came meanwhile: this caller might never end.
                if self._wanted:
                    self._relief.ring()
                return

    def _take(self, patience_s: float) -> bool:
        """Become the dispatching thread. `claim_queues` is waited for, because it ends soon."""
        if self._running.take(patience_s):
            return True
        is_waiting = self._is_counting and self._runner != threading.get_ident()
        return self._running.take(PATIENCE_S) if is_waiting else False

    def keep_up(self) -> None:
        """As `advance`, for a put: while dispatch is far behind, wait for it a moment."""
        self.advance()
        if self._wanted and self.backlog_bytes > FAR_BEHIND_BYTES and self._runner != threading.get_ident():
            self.advance(PATIENCE_S)

    def advance_and_wait(self) -> None:
        """Dispatch up to the present readable end, waiting for another thread that dispatches.

        Called from a listener, this returns at once: it would wait for its own thread.
        """
        if self._runner == threading.get_ident():
            return
        self._running.run(self._run_owned)
        self.advance()

    def check_progress(self) -> None:
        """Raise the error that stopped dispatch, if there is one: waiting for it would not help."""
        if self.failure is not None and self.backlog_bytes:
            raise self.failure

    def finish(self) -> bool:
        """Dispatch everything before the store stops; whether that was possible."""
        self.advance_and_wait()
        return self.backlog_bytes == 0

    @property
    def last_dispatched(self) -> tuple[int, int]:
        """Physical offset and store time of the last record that was dispatched; -1 when none was."""
        return self.fast_dispatch.last_physical_offset, self.fast_dispatch.last_store_timestamp

    def claim_queues(self) -> tuple[tuple[int, int], list[QueueClaim] | None]:
        """The last dispatched record, and where all queues end with it.

        The ends are None when the record after it is half done, or when another thread dispatches for long, for example
        in a listener that does not return.
        """
        if not self._running.take(COUNT_PATIENCE_S):
            return self.last_dispatched, None
        try:
            self._is_counting = True  # no call after `take`: a thread that waits for the turn sees this flag
            self.fast_dispatch.own()
            found = self._claims()
        finally:
            self.fast_dispatch.is_owned = False
            self._running.owner = None
            self._is_counting = False  # last: a thread that sees it finds the turn free
            self._running.ring()
        if self._wanted:
            time.sleep(HAND_OVER_S)
            if self._wanted:
                self.advance()
        return found

    def _claims(self) -> tuple[tuple[int, int], list[QueueClaim] | None]:
        if self.fast_dispatch.stopped_at_index:
            self._run()
        is_half_done = self.failure is not None or self.fast_dispatch.stopped_at_index
        return self.last_dispatched, None if is_half_done else self._queues.claims()

    @property
    def backlog_bytes(self) -> int:
        return max(0, self._readable_end() - self.position)

    @property
    def position(self) -> int:
        """Everything below is dispatched. A put moves it too, while no thread owns fast dispatch."""
        return self.fast_dispatch.log_offset

    @position.setter
    def position(self, offset: int) -> None:
        self.fast_dispatch.log_offset = offset

    # ------------------------------------------------------------------ the loop

    def _run_owned(self) -> None:
        self._own_fast_dispatch(self._run)

    def _own_fast_dispatch(self, work: Callable[[], T]) -> T:
        self.fast_dispatch.own()
        try:
            return work()
        finally:
            self.fast_dispatch.is_owned = False

    def _run_wanted(self) -> None:
        """One round of the dispatch thread."""
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
            self._report()  # the records of an earlier run that was interrupted
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
            self._report()
            if not goes_on:
                return

    def _find_segment(self) -> Segment | None:
        """Hold the segment at the position: it stays mapped and is not deleted."""
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
        self._segment, self._view = segment, view  # both or none: there is no call in between
        self.position = position
        return segment

    def _leave_segment(self) -> None:
        segment, self._segment = self._segment, None
        self._view = memoryview(b"")
        if segment is not None:
            segment.release()

    def _step(self, segment: Segment, end: int) -> bool:
        """Run fast dispatch once and handle what stopped it; False when nothing more can be done now."""
        base = segment.base
        stop = min(segment.read_position, end - base)
        start = self.position - base
        if start >= stop:
            return False
        fast_dispatch = self.fast_dispatch
        reason = fast_dispatch.run(self._view, start, stop, base, fast_dispatch.stopped_at_index)
        if reason is DispatchStop.DONE:
            return True
        if reason is DispatchStop.BLANK:
            self.position = base + segment.size
        elif reason is DispatchStop.QUEUE:
            self.entries.write(self._view, fast_dispatch.position, base)
            fast_dispatch.stopped_at_index = True
        elif reason is DispatchStop.INDEX:
            self._roll_index()
        else:
            return self._pass_damage(end)
        return True

    def _stall(self, failure: Exception) -> None:
        """No room for a queue or index file: stay at this record, and log it once."""
        if self.failure is None:
            log.error("dispatch stopped at %d: %s", self.position, failure)
        self.failure = failure if isinstance(failure, FlintlogError) else DiskFull(str(failure))

    def _pass_damage(self, end: int) -> bool:
        following = self._damage.end_of(self.position)
        if following is None or following >= end:
            return False
        self.position = following
        return True

    def apply(self, view: memoryview, base: int, scan: Scan) -> None:
        """Dispatch records that were scanned already. The caller owns the dispatcher."""
        fast_dispatch = self.fast_dispatch
        row = 0
        while row < scan.count:
            reason = fast_dispatch.apply(scan, row, fast_dispatch.stopped_at_index)
            fast_dispatch.stopped_at_index = False
            if reason is DispatchStop.DONE:
                break
            row = fast_dispatch.row_index
            self.position = scan.row(row).physical_offset
            if reason is DispatchStop.QUEUE:
                self.entries.write(view, self.position - base, base)
                fast_dispatch.stopped_at_index = True
            else:
                fast_dispatch.stopped_at_index = True
                self._roll_index()
        self.position = base + scan.end

    def apply_by_hand(self, view: memoryview, base: int, scan: Scan) -> None:
        """As `apply`, for one record that may belong to another place than it names."""
        self.position = scan.row(0).physical_offset
        self.entries.write(view, self.position - base, base)
        self.fast_dispatch.stopped_at_index = True
        self.apply(view, base, scan)

    # ------------------------------------------------------------------ index and arrivals

    def _roll_index(self) -> None:
        assert self._index is not None
        if not self._index.roll():
            raise DiskFull("no room for an index file")
        self._show_index()

    def _show_index(self) -> None:
        assert self._index is not None
        self.fast_dispatch.set_index(*self._index.fast_dispatch_buffer())

    def _report(self) -> None:
        """Report the records up to the position, in the segment just read, that were not reported yet."""
        segment = self._segment
        if segment is not None and self._arrivals.reported_to < self.position:
            self._arrivals.report(self._view, segment.base, self.position)
