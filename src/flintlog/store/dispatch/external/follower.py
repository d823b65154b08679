"""Dispatch by another process: the store publishes how far its log may be read, and serves what was dispatched.

    put ─▶ readable end ─▶ (a dispatcher in another process) ─▶ journal ─▶ queues and index served up to there
                                                                              └▶ listeners, sleepers, wait_dispatched

While it opens, before it stops and while it deletes queues, the store is in charge: it dispatches as the embedded
dispatcher does. So every opening finds, and every clean stop leaves, complete queues and a complete index. In between,
the thread `flintlog-follow` reads the journal every `dispatch_poll_ms`.

Invariant: while it follows, this process writes no queue and no index file, and serves nothing beyond `position`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from flintlog import kernel
from flintlog.disk.bell import Bells, Latch
from flintlog.errors import FlintlogError, ServiceNotEnabled, StoreInUse
from flintlog.kernel import ScanStop
from flintlog.store.dispatch.dispatcher import Dispatcher
from flintlog.store.dispatch.external.dispatch_journal import Published, QueueMark
from flintlog.store.dispatch.external.handshake import Handshake
from flintlog.store.dispatch.external.rollback import mark_of, progress_of, set_back
from flintlog.store.log.segment_bytes import held

log = logging.getLogger(__name__)

T = TypeVar("T")

_REPORT_ROWS: Final = 65_536
_LOOK_FOR_DISPATCHER_S: Final = 1.0


class ExternalDispatcher(Dispatcher):
    """See the module."""

    _handshake: Handshake

    def use(self, handshake: Handshake, *, poll_ms: int, patience_ms: int, read_only: bool) -> None:
        """Set it up; called before anything else."""
        self._handshake = handshake
        self._poll_s = poll_ms / 1000
        self._patience_s = patience_ms / 1000
        self._read_only = read_only
        self._is_in_charge = not read_only
        self._moved = Bells()
        self._charging = threading.Lock()
        self._is_behind = False
        self._stopped = Latch()
        self._thread: threading.Thread | None = None
        self._last = (-1, -1)

    @property
    def lets_puts_dispatch(self) -> bool:
        """Never: a put is visible once its entry is published."""
        return False

    @property
    def last_dispatched(self) -> tuple[int, int]:
        return max(self._last, super().last_dispatched)

    # ------------------------------------------------------------------ the charge

    def start(self) -> None:
        """Leave the files to the other process, and follow it."""
        if self._is_in_charge:
            self._hand_over()
        self._stopped.clear()
        self._thread = threading.Thread(target=self._follow, name="flintlog-follow", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop_following()
        super().stop()

    def finish(self) -> bool:
        """Take charge and dispatch the rest: a stop leaves no batch half dispatched."""
        self._stop_following()
        with self._charging:
            try:
                self._take_charge()
            except FlintlogError as failure:
                log.error("the rest was not dispatched, so this stop is not clean: %s", failure)
                return False
            super().advance_and_wait()
            return self.backlog_bytes == 0

    def exclusively(self, work: Callable[[], T]) -> T:
        """Take charge for a while; everything put so far is dispatched first."""
        if self.is_calling_listener:
            raise StoreInUse("an arrival listener cannot delete queues", advice="let another thread do it")
        with self._charging:
            self._take_charge()
            try:
                super().advance_and_wait()
                return self.alone(work)
            finally:
                self._hand_over()

    def _run_to(self, end: int) -> None:
        if self._is_in_charge:  # checked again: this thread has the turn, so it cannot change now
            super()._run_to(end)

    def _take_charge(self) -> None:
        self._handshake.take("store")
        try:
            self._running.run(self._load)
        except BaseException:
            self._handshake.release()
            raise
        self._moved.ring()

    def _load(self) -> None:
        progress = self._handshake.load()
        if progress is None:
            raise FlintlogError("the dispatcher's journal is missing", path=self._handshake.folder)
        self._queues.load()  # a dispatcher may have made files that it did not publish
        if self._index is not None:
            self._index.load(last_exit_ok=True, index_safe_timestamp=0)
            self._index.stop_following()
        set_back(progress, self._queues, self._index, self._log.store_time_at)
        for queue in self._queues.all():
            queue.correct_min_offset(max(0, self._log.min_offset))
        self.start_at(progress.end)
        self._is_in_charge = True

    def _hand_over(self) -> None:
        """Make everything durable, release the files, and publish what they hold."""
        self._running.run(self._publish)
        self._show()
        self._handshake.release()

    def _publish(self) -> None:
        self._queues.sync.flush_all()
        self._leave_segment()
        self.fast_dispatch.set_index(None)
        for queue in self._queues.all():
            self.fast_dispatch.set_queue(queue.topic, queue.queue_id, None)
            queue.let_go()
        handshake = self._handshake
        if self._index is not None:
            self._index.flush()
        progress = progress_of(
            self._queues, self._index, epoch=handshake.epoch, sequence=handshake.next_sequence, end=self.position
        )
        if self._index is not None:
            self._index.let_go()
            self._index.follow(progress.index_name, progress.end)
        handshake.begin(progress)
        self._is_in_charge = False

    # ------------------------------------------------------------------ following

    def advance(self, patience_s: float = 0) -> None:
        if self._is_in_charge:
            super().advance(patience_s)
        else:
            self._show()

    def _show(self) -> None:
        if not self._read_only and not self._is_in_charge:
            self._handshake.show(self._readable_end)

    def advance_and_wait(self) -> None:
        if self._runner == threading.get_ident():
            return
        if self._is_in_charge:
            super().advance_and_wait()
            return
        self._show()
        end, before, seen_at = self._readable_end(), self.position, time.monotonic()
        while not self._moved.wait_for(partial(self._is_through, end), _LOOK_FOR_DISPATCHER_S):
            if self.position != before or self._handshake.has_dispatcher:
                before, seen_at = self.position, time.monotonic()
            elif time.monotonic() - seen_at > self._patience_s:
                raise ServiceNotEnabled("nobody dispatches", advice="run: flintlog pipeline dispatch STORE")

    def _is_through(self, end: int) -> bool:
        """Whether a caller need not wait any longer for the records below `end`."""
        return self.position >= end or self._is_in_charge or self._stopped.is_set()

    def _follow(self) -> None:
        failure = ""
        while not self._stopped.wait(self._poll_s):
            try:
                self._show()
                self.look()
                failure = ""
            except (FlintlogError, OSError) as error:
                if str(error) != failure:  # logged once, not a hundred times a second
                    failure = str(error)
                    log.error("the dispatcher cannot be followed: %s", error)

    def look(self) -> None:
        """Serve what was published since the last call."""
        with self._running:
            if self._is_in_charge:
                return
            moved = self._handshake.journal.poll()
            progress = self._handshake.journal.progress
            if progress is None or (moved == () and progress.end == self.position and not self._is_behind):
                return
            start = self.position
            self._runner = threading.get_ident()
            try:
                self.adopt(progress, self._differences(progress) if moved is None or self._is_behind else moved)
                if self._arrivals.has_listeners:
                    self._report_between(start, progress.end)
            finally:
                self._runner = None
        self._moved.ring()

    def adopt(self, progress: Published, moved: Sequence[QueueMark] | None = None) -> None:
        """Serve what was published. `moved` are the queues that have changed; None: compare all."""
        if moved is None:
            moved = [*self._gone(progress), *progress.queues.values()]
        self._is_behind = True  # until this is done: after a failure all queues are compared
        if self._read_only:
            self._log.segments.follow(progress.end)
        for mark in moved:
            self._follow_queue(mark)
        if self._index is not None:
            self._index.follow(progress.index_name, progress.end)
        self.position = progress.end
        self._is_behind = False
        self._arrivals.wake({mark.topic for mark in moved})

    def _differences(self, progress: Published) -> list[QueueMark]:
        mine = {(queue.topic, queue.queue_id): mark_of(queue) for queue in self._queues.all()}
        moved = [mark for key, mark in progress.queues.items() if mine.get(key) != mark]
        return self._gone(progress) + moved

    def _gone(self, progress: Published) -> list[QueueMark]:
        keys = ((queue.topic, queue.queue_id) for queue in self._queues.all())
        return [QueueMark(*key, 0, 0) for key in keys if key not in progress.queues]

    def _follow_queue(self, mark: QueueMark) -> None:
        queue = self._queues.get_or_create(mark.topic, mark.queue_id)
        is_new = not queue.segments.segments
        queue.follow(mark.end_byte)
        if is_new:
            queue.correct_min_offset(max(0, self._log.min_offset))
        last = queue.last_physical_offset
        if last > self._last[0]:
            self._last = last, self._log.store_time_at(last)

    def _report_between(self, start: int, end: int) -> None:
        """Report the records in [start, end) to the listeners."""
        while start < end:
            segment = self._log.segments.find(start)
            if segment is None:
                return
            base, size = segment.base, segment.size
            with held(segment) as view:
                stop = min(size, end - base)
                levels = self._delay_levels_ms
                seen = kernel.scan(view, start - base, stop, base, delay_levels_ms=levels, max_count=_REPORT_ROWS)
            self._arrivals.report_rows(seen)
            if seen.reason is ScanStop.BLANK:
                start = base + size
            elif not seen.count:
                return
            else:
                start = base + seen.end

    def _stop_following(self) -> None:
        self._stopped.set()
        self._moved.ring()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()
