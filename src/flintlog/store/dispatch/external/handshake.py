"""The handshake between a store and a dispatcher in another process, in the folder `dispatch/`.

    opening    claim ─▶ nothing may be read ─▶ set back to the journal, recover, finish ─▶ new journal ─▶ claim released
    running    readable end ─▶ ... ─▶ frames of the journal, which the store follows
    stopping   claim ─▶ set back to the journal, finish ─▶ journal deleted ─▶ a clean stop

Invariant: a process that writes queues or index holds the claim, and an existing journal is true. A clean stop leaves
none: the files are complete, and RocketMQ, which has no journal, can go on with them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from flintlog.disk.media.medium import Medium
from flintlog.errors import StoreInUse
from flintlog.store.dispatch.external.dispatch_claim import Claim, Kind
from flintlog.store.dispatch.external.dispatch_journal import DispatchJournal, Published, ReadableEnd, ReadableEndFile

SPILL: Final = "spill"
"""The folder in `dispatch/` that tasks of a dispatcher use."""

_PATIENCE_MS: Final = 30_000


class Handshake:
    """See the module. Owned by the engine; the dispatcher's thread polls the journal."""

    def __init__(self, folder: Path, medium: Medium, *, patience_ms: int) -> None:
        self.folder = folder
        self.journal = DispatchJournal(folder, medium)
        self.published: Published | None = None
        self.epoch = 0
        self._medium = medium
        self._patience_s = patience_ms / 1000
        self._claim: Claim | None = None
        self._readable = ReadableEndFile(folder, medium)
        self._shown_end = -1
        self._showing = threading.Lock()

    @property
    def is_there(self) -> bool:
        """Whether the store was ever opened with `dispatch="external"`."""
        return self._medium.exists(self.folder)

    def take(self, kind: Kind) -> None:
        """Take the claim, from a running dispatcher if need be, and let it read no further."""
        self._claim = Claim(self.folder, self._medium, kind, patience_s=self._patience_s)
        self.retract()

    def load(self) -> Published | None:
        """Read what the dispatcher has published."""
        self.published = self.journal.load()
        return self.published

    def retract(self) -> None:
        """Allow no more reading, and end the epoch: frames of the old one no longer count."""
        readable = self._readable.load()
        known = 0 if readable is None else readable.epoch
        progress = self.journal.progress or self.journal.load()
        with self._showing:
            self.epoch = max(self.epoch, known, 0 if progress is None else progress.epoch) + 1
            self._shown_end = -1
            self._readable.publish(ReadableEnd(self.epoch, -1))

    def begin(self, progress: Published) -> None:
        """Begin a new journal with a snapshot of what the store has dispatched itself."""
        self.journal.begin(progress)

    def show(self, readable_end: Callable[[], int]) -> None:
        """Publish how far the log may be read. The end is read under the lock, so it never goes back."""
        with self._showing:
            end = readable_end()
            if end != self._shown_end:
                self._shown_end = end
                self._readable.publish(ReadableEnd(self.epoch, end))

    def release(self) -> None:
        """Release the claim, if it is held."""
        claim, self._claim = self._claim, None
        if claim is not None:
            claim.release()

    @property
    def next_sequence(self) -> int:
        return 1 if self.journal.progress is None else self.journal.progress.sequence + 1

    @property
    def has_dispatcher(self) -> bool:
        """Whether the claim is held."""
        try:
            self._medium.lock(self.folder / "owner").release()
        except StoreInUse:
            return True
        return False

    def forget(self) -> None:
        """Delete the journal, and what tasks of a dispatcher left for each other: the files are complete."""
        if self.is_there:
            self.journal.forget()
            self._medium.remove_tree(self.folder / SPILL)

    def close(self) -> None:
        self.journal.close()
        self._readable.close()
        self.release()


@contextmanager
def without_dispatcher(folder: Path, medium: Medium) -> Iterator[None]:
    """Hold the claim while a command changes queues or index of a store that is not open; no journal is left."""
    handshake = Handshake(folder, medium, patience_ms=_PATIENCE_MS)
    if not handshake.is_there:
        yield
        return
    try:
        handshake.take("store")
        handshake.forget()
        yield
    finally:
        handshake.close()
