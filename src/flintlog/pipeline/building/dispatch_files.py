"""Queues and index of a store that another process than the store writes, by the store's own dispatcher.

    set back to what was published ─▶ apply records, one after another ─▶ sync ─▶ where queues and index end now

`DispatchCore` uses it for every range, in its own process. A job on Spark uses it in one task, when it starts and where
a batch cannot be dispatched by several tasks (`dispatch_ordered.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from flintlog import kernel
from flintlog.disk.media.medium import Medium
from flintlog.errors import DamagedStore
from flintlog.format.index_file import IndexLayout
from flintlog.format.record import parse_record
from flintlog.kernel import Scan, ScanStop
from flintlog.store.components import load_queue_types, make_components
from flintlog.store.dispatch.dispatcher import Dispatcher
from flintlog.store.dispatch.external.dispatch_journal import Published, QueueMark
from flintlog.store.dispatch.external.rollback import index_mark, mark_of, set_back
from flintlog.store.index.index_service import IndexService
from flintlog.store.log.segment_bytes import held
from flintlog.store.options.store_config import StoreConfig

_SCAN_BYTES: Final = 16 * 1024 * 1024


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class DispatchFiles:
    """The files of one store. Belongs to one thread of the process that may write them."""

    def __init__(self, root: Path, config: StoreConfig, medium: Medium, clock_ms: Callable[[], int] = now_ms) -> None:
        self._config = config
        self._parts = parts = make_components(root, config, medium, clock_ms)
        parts.queues.set_types({**load_queue_types(parts.paths, medium), **config.topic_queue_types})
        self.index = None if parts.index is None else make_index(parts.paths.index, config, medium, clock_ms)
        self._end = 0
        self._dispatcher = Dispatcher(
            parts.commit_log,
            parts.queues,
            self.index,
            parts.fast_dispatch,
            readable_end=lambda: self._end,
            damage=parts.damage,
            delay_levels_ms=config.delay_levels_ms,
            extension=config.enable_consume_queue_ext,
        )
        parts.segments.load()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        with ExitStack() as last_to_first:
            last_to_first.callback(self._parts.segments.shut_down)
            if self.index is not None:
                last_to_first.callback(self.index.shut_down)
            last_to_first.callback(self._parts.queues.shut_down)
            last_to_first.callback(self._dispatcher.stop)

    @property
    def first(self) -> int:
        """Where the log begins now."""
        return max(0, self._parts.segments.min_offset)

    def set_back(self, published: Published) -> None:
        """Load queues and index, and cut what was written after their published ends, durably."""
        self._parts.queues.load()
        if self.index is not None:
            self.index.load(last_exit_ok=True, index_safe_timestamp=0)
        try:
            set_back(published, self._parts.queues, self.index, self.store_time_at)
        except DamagedStore as mismatch:
            advice = "open the store, which then builds its queues and index again"
            raise DamagedStore(mismatch.what, path=self._parts.paths.root, advice=advice) from None
        # A process that was killed may have left names and bytes that are not durable.
        self._parts.queues.sync_names()
        self._parts.queues.sync.flush_all()
        self._end = max(published.end, self.first)
        self._dispatcher.start_at(self._end)

    def store_time_at(self, offset: int) -> int:
        segment = self._parts.segments.find(offset)
        if segment is None:
            return 0
        with held(segment) as view:
            return parse_record(view, offset - segment.base).store_timestamp

    def apply(self, start: int, stop: int, readable_end: int) -> int:
        """Apply the records that lie wholly in [start, stop), at least one; returns the offset after the last."""
        end = self._apply(start, stop)
        if end == start:  # one record that is longer than the range
            end = self._apply(start, readable_end)
        self._end = end
        return end

    def _apply(self, start: int, stop: int) -> int:
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

    def sync(self) -> None:
        self._parts.queues.sync.flush_all()
        if self.index is not None:
            self.index.flush()

    def moved(self, before: Published) -> list[QueueMark]:
        """Where the queues end that have changed since a publication."""
        marks = map(mark_of, self._parts.queues.all())
        return [mark for mark in marks if mark.end_byte and before.queues.get(mark.key) != mark]

    @property
    def index_mark(self) -> tuple[str, int]:
        return index_mark(self.index)


def make_index(folder: Path, config: StoreConfig, medium: Medium, clock_ms: Callable[[], int] = now_ms) -> IndexService:
    """The index without the checkpoint, which is the store's."""
    layout = IndexLayout(config.max_hash_slot_num, config.max_index_num)
    return IndexService(folder, medium, layout, now_ms=clock_ms)
