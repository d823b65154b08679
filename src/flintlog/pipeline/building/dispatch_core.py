"""Dispatches a store from outside, without Spark: one range of the log after another, each published.

    readable end (the store's) ─▶ apply records to queues and index ─▶ sync their files ─▶ is the claim still ours?
                                                        ─▶ one frame into the journal
                                                        store/dispatch/external/dispatch_journal.py

A range is read here (`advance`), or by tasks whose results are taken over (`take`).

Only the journal counts. A dispatcher that starts rolls the files back to it: queues to their published ends, the index
to its published count. Entries after these ends were never served, and are written again with the same bytes. So after
a kill at any moment the next dispatcher continues without a gap and without a duplicate entry.

A new epoch means that the store has used queues and index itself, to open or to stop. The store asks for the claim
before that (`is_wanted`); a dispatcher that gives it up starts again from the journal afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from flintlog import kernel
from flintlog.derive.chains import Span, join_reaches, join_spans
from flintlog.disk.media.medium import Medium
from flintlog.errors import DamagedStore, DiskFull
from flintlog.format.index_file import IndexLayout
from flintlog.format.queue_entry import ENTRY_SIZE, QueueKey
from flintlog.format.record import parse_record
from flintlog.kernel import KEY, Scan, ScanStop
from flintlog.pipeline.building.dispatch_tasks import Derived
from flintlog.store.components import load_queue_types, make_components
from flintlog.store.dispatch.dispatcher import Dispatcher
from flintlog.store.dispatch.external.dispatch_claim import Claim
from flintlog.store.dispatch.external.dispatch_journal import (
    NOTHING,
    DispatchJournal,
    Frame,
    ReadableEnd,
    ReadableEndFile,
)
from flintlog.store.dispatch.external.rollback import index_mark, mark_of, set_back
from flintlog.store.index.index_service import IndexService
from flintlog.store.log.segment_bytes import held
from flintlog.store.options.store_config import StoreConfig
from flintlog.store.queues.logical_queue import LogicalQueue

MAX_BATCH_BYTES: Final = 64 * 1024 * 1024
_SCAN_BYTES: Final = 16 * 1024 * 1024
_PATIENCE_S: Final = 1.0
"""A store that checks whether a dispatcher runs holds the claim for a moment."""


class DispatchCore:
    """One dispatcher at work on one store. Belongs to one thread."""

    def __init__(
        self,
        root: Path,
        config: StoreConfig,
        medium: Medium,
        *,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        journal_file_bytes: int | None = None,
    ) -> None:
        self._config = config
        self._medium = medium
        self._parts = parts = make_components(root, config, medium, now_ms)
        parts.queues.set_types({**load_queue_types(parts.paths.topics, medium), **config.topic_queue_types})
        folder = parts.paths.dispatch
        self._claim = Claim(folder, medium, patience_s=_PATIENCE_S)
        size = {} if journal_file_bytes is None else {"file_bytes": journal_file_bytes}
        self._journal = DispatchJournal(folder, medium, **size)
        self._readable = ReadableEndFile(folder, medium)
        self._index = self._make_index(now_ms)
        self._dispatcher = Dispatcher(
            parts.commit_log,
            parts.queues,
            self._index,
            parts.fast_dispatch,
            readable_end=lambda: self.progress.end,
            damage=parts.damage,
            delay_levels_ms=config.delay_levels_ms,
            extension=config.enable_consume_queue_ext,
        )
        self.progress = NOTHING
        try:
            parts.segments.load()
            self._resume()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release everything; the next dispatcher writes the unpublished entries again."""
        with ExitStack() as last_to_first:
            last_to_first.callback(self._claim.release)
            last_to_first.callback(self._journal.close)
            last_to_first.callback(self._readable.close)
            last_to_first.callback(self._parts.segments.shut_down)
            if self._index is not None:
                last_to_first.callback(self._index.shut_down)
            last_to_first.callback(self._parts.queues.shut_down)
            last_to_first.callback(self._dispatcher.stop)

    @property
    def claim(self) -> str:
        """The name of the claim that it works under."""
        return self._claim.name

    @property
    def is_wanted(self) -> bool:
        """Whether the store waits for the claim; then close."""
        return self._claim.is_wanted

    def _make_index(self, now_ms: Callable[[], int]) -> IndexService | None:
        """Without the checkpoint, which is the store's."""
        config = self._config
        if self._parts.index is None:
            return None
        layout = IndexLayout(config.max_hash_slot_num, config.max_index_num)
        return IndexService(self._parts.paths.index, self._medium, layout, now_ms=now_ms)

    # ------------------------------------------------------------------ starting

    def _resume(self) -> None:
        """Set queues and index back to their published ends; if nothing was published, change nothing."""
        published = self._journal.load()
        if published is None:
            return
        self.progress = published
        for queue in self._parts.queues.all():  # of an earlier start: fast dispatch must not write at their old ends
            self._dispatcher.fast_dispatch.set_queue(queue.topic, queue.queue_id, None)
            queue.let_go()
        self._parts.queues.load()
        if self._index is not None:
            self._index.load(last_exit_ok=True, index_safe_timestamp=0)
        try:
            set_back(published, self._parts.queues, self._index, self._store_time_at)
        except DamagedStore as mismatch:
            advice = "open the store, which then builds its queues and index again"
            raise DamagedStore(mismatch.what, path=self._parts.paths.root, advice=advice) from None
        # A process that was killed may have left names and bytes that are not durable.
        self._parts.queues.sync_names()
        self._parts.queues.sync.flush_all()
        self._dispatcher.start_at(max(published.end, self._first))

    @property
    def _first(self) -> int:
        return max(0, self._parts.segments.min_offset)

    def _store_time_at(self, offset: int) -> int:
        segment = self._parts.segments.find(offset)
        if segment is None:
            return 0
        with held(segment) as view:
            return parse_record(view, offset - segment.base).store_timestamp

    # ------------------------------------------------------------------ going on

    def advance(self, max_bytes: int = MAX_BATCH_BYTES) -> bool:
        """Dispatch and publish the next range up to the store's readable end; False when there was none."""
        readable = self.readable()
        if readable is None or readable.end <= self.progress.end:
            return False
        self._claim.check()
        start = max(self.progress.end, self._first)
        end = self._apply(start, min(readable.end, start + max_bytes))
        if end == start:  # one record that is longer than a batch
            end = self._apply(start, readable.end)
        if end > start:
            self._publish(start, end, self._parts.queues.all())
        return end > start

    def readable(self) -> ReadableEnd | None:
        """How far the log may be read now; None while the store dispatches itself, or if it always does."""
        readable = self._readable.load()
        if readable is None or readable.end < 0 or readable.epoch != self.progress.epoch:
            return None
        return readable

    def _apply(self, start: int, stop: int) -> int:
        """Apply the records that lie wholly in [start, stop); returns the offset after the last of them."""
        position = start
        while position < stop:
            segment = self._parts.segments.find(position)
            if segment is None:
                self._parts.segments.load()  # the store has made a file since
                segment = self._parts.segments.find(position)
            if segment is None:
                raise DamagedStore("the log ends before its readable end", path=self._parts.paths.root, offset=position)
            place = position - segment.base
            with held(segment) as view:
                until = min(segment.size, stop - segment.base)
                seen = self._scan(view, place, min(until, place + _SCAN_BYTES), until, segment.base)
                self._dispatcher.apply(view, segment.base, seen)
            if seen.reason is ScanStop.BLANK:
                position = segment.base + segment.size
                continue
            if seen.end == place:
                if seen.reason in (ScanStop.SHORT, ScanStop.LIMIT) and segment.base + until == stop:
                    return position  # the record ends after `stop`
                raise DamagedStore("the log is damaged", path=segment.path, offset=position)
            position = segment.base + seen.end
        return position

    def _scan(self, view: memoryview, place: int, soon: int, until: int, base: int) -> Scan:
        """Some records; more than a piece when the first of them is longer."""
        levels = self._config.delay_levels_ms
        seen = kernel.scan(view, place, soon, base, delay_levels_ms=levels)
        if not seen.count and seen.reason is ScanStop.SHORT and soon < until:
            seen = kernel.scan(view, place, until, base, delay_levels_ms=levels, max_count=1)
        return seen

    # ------------------------------------------------------------------ taking over from tasks

    def take(self, derived: Sequence[Derived], stop: int) -> str | None:
        """Publish the results of tasks from the progress up to `stop`; returns why it was done serially, or None.

        After anything unusual (damage, queue offsets that are not consecutive, entries without a fixed place) the
        results are undone, and the range is dispatched here record by record, by the store's own rules.
        """
        self._claim.check()
        start = max(self.progress.end, self._first)
        end, spans, problem = self._join(derived, start)
        if problem is not None:
            self._resume()
            while self.progress.end < stop and self.advance(max(1, stop - self.progress.end)):
                pass
            return problem
        for key, span in spans.items():
            self._parts.queues.get_or_create(*key).follow(span.next * ENTRY_SIZE)
        for each in derived:
            self._put_keys(memoryview(each.keys))
        if end > start:
            self._dispatcher.start_at(end)
            self._publish(start, end, [self._parts.queues.get_or_create(*key) for key in spans])
        return None

    def _join(self, derived: Sequence[Derived], start: int) -> tuple[int, dict[QueueKey, Span], str | None]:
        """Where the results end, and the spans of their queues; or why they cannot be published."""
        end, problem = join_reaches([(each.split, each.result.reach) for each in derived], start)
        spans, out_of_step = join_spans(each.result.spans for each in derived)
        for each in derived:
            if each.result.gaps:
                problem = f"the log is damaged at {each.result.gaps[0].start}"
            if each.result.dense:
                problem = problem or "entries whose place follows only from all before them"
        for key in () if problem else sorted(spans):
            queue = self._parts.queues.get(*key)
            expected = 0 if queue is None else queue.max_offset
            if key in out_of_step or spans[key].first != expected:
                problem = f"the queue {key[0]}/{key[1]} does not go on at {expected}"
        return end, spans, problem

    def _put_keys(self, keys: memoryview) -> None:
        index = self._index
        while index is not None and keys:
            if not index.roll():
                raise DiskFull("no room for an index file", path=self._parts.paths.index)
            layout = index.layout
            count = kernel.index_fill(index.files[-1].buffer, layout.slot_count, layout.index_count, keys)
            keys = keys[count * KEY.size :]

    # ------------------------------------------------------------------ publishing

    def _publish(self, start: int, end: int, written: Sequence[LogicalQueue]) -> None:
        """Make the files durable, then add a frame to the journal."""
        self._parts.queues.sync.flush_all()
        if self._index is not None:
            self._index.flush()
        before = self.progress
        marks = [mark for mark in map(mark_of, written) if mark.end_byte and before.queues.get(mark.key) != mark]
        frame = Frame(before.epoch, before.sequence + 1, start, end, marks, *index_mark(self._index))
        self._claim.check()
        self._journal.append(frame)
        self.progress = before.after(frame)
