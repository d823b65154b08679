"""Dispatches a store from outside, without Spark: one range of the log after another, each published.

    readable end (the store's) ─▶ apply records to queues and index ─▶ sync their files ─▶ is the claim still ours?
                                                        ─▶ one frame into the journal
                                                        store/dispatch/external/dispatch_journal.py

`DispatchCore` reads each range itself. The driver of a job on Spark has tasks for that (`dispatch_driver.py`), and
shares `Publisher`: the claim and the journal.

Only the journal counts. A dispatcher that starts rolls the files back to it: queues to their published ends, the index
to its published count. Entries after these ends were never served, and are written again with the same bytes. So after
a kill at any moment the next dispatcher continues without a gap and without a duplicate entry.

A new epoch means that the store has used queues and index itself, to open or to stop. The store asks for the claim
before that (`is_wanted`); a dispatcher that gives it up starts again from the journal afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from flintlog.disk.media.medium import Medium
from flintlog.pipeline.building.dispatch_files import DispatchFiles, now_ms
from flintlog.store.dispatch.external.dispatch_claim import Claim
from flintlog.store.dispatch.external.dispatch_journal import (
    NOTHING,
    DispatchJournal,
    Frame,
    Published,
    QueueMark,
    ReadableEnd,
    ReadableEndFile,
)
from flintlog.store.options.store_config import StoreConfig

MAX_BATCH_BYTES: Final = 64 * 1024 * 1024
_PATIENCE_S: Final = 1.0
"""A store that checks whether a dispatcher runs holds the claim for a moment."""


class Publisher:
    """The claim on one store, and the journal. It writes neither queues nor index. Belongs to one thread."""

    def __init__(self, folder: Path, medium: Medium, journal_file_bytes: int | None = None) -> None:
        self._closing = ExitStack()
        self._claim = Claim(folder, medium, patience_s=_PATIENCE_S)
        self._closing.callback(self._claim.release)
        size = {} if journal_file_bytes is None else {"file_bytes": journal_file_bytes}
        self._journal = DispatchJournal(folder, medium, **size)
        self._closing.callback(self._journal.close)
        self._readable = ReadableEndFile(folder, medium)
        self._closing.callback(self._readable.close)
        self.progress: Published = NOTHING

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release everything; the next dispatcher writes the unpublished entries again."""
        self._closing.close()

    @property
    def claim(self) -> str:
        """The name of the claim that it works under."""
        return self._claim.name

    @property
    def is_wanted(self) -> bool:
        """Whether the store waits for the claim; then close."""
        return self._claim.is_wanted

    def readable(self) -> ReadableEnd | None:
        """How far the log may be read now; None while the store dispatches itself, or if it always does."""
        readable = self._readable.load()
        if readable is None or readable.end < 0 or readable.epoch != self.progress.epoch:
            return None
        return readable

    def publish(self, start: int, end: int, moved: list[QueueMark], index: tuple[str, int]) -> None:
        """Add a frame to the journal. The files are durable."""
        before = self.progress
        frame = Frame(before.epoch, before.sequence + 1, start, end, moved, *index)
        self._claim.check()
        self._journal.append(frame)
        self.progress = before.after(frame)


class DispatchCore(Publisher):
    """One dispatcher at work on one store, in one process."""

    def __init__(
        self,
        root: Path,
        config: StoreConfig,
        medium: Medium,
        *,
        now_ms: Callable[[], int] = now_ms,
        journal_file_bytes: int | None = None,
    ) -> None:
        super().__init__(root / "dispatch", medium, journal_file_bytes)
        try:
            self.files = DispatchFiles(root, config, medium, now_ms)
            self._closing.callback(self.files.close)
            published = self._journal.load()
            if published is not None:
                self.progress = published
                self.files.set_back(published)
        except BaseException:
            self.close()
            raise

    def advance(self, max_bytes: int = MAX_BATCH_BYTES) -> bool:
        """Dispatch and publish the next range up to the store's readable end; False when there was none."""
        readable, files = self.readable(), self.files
        if readable is None or readable.end <= self.progress.end:
            return False
        self._claim.check()
        start = max(self.progress.end, files.first)
        end = files.apply(start, min(readable.end, start + max_bytes), readable.end)
        if end > start:
            files.sync()
            self.publish(start, end, files.moved(self.progress), files.index_mark)
        return end > start
