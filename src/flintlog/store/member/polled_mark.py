"""When a ledger's member last took settings and offsets from a Java broker that led its group: `flintlog/polled.json`.

    {"stateEnd": 17}     the end of the shared state's queue at that time

A Java leader writes no shared state into the log, so as long as that queue has not grown, what was taken from it is
newer than what the queue says. As soon as one of ours has led, the queue has: the mark is of no use any more.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from flintlog.disk.media.medium import Medium
from flintlog.store.runtime.note_file import NoteFile, Offset


class _Mark(msgspec.Struct, frozen=True, rename="camel"):
    state_end: Offset


class PolledMark:
    """The file, and whether it counts. Its owner calls it from one thread at a time."""

    def __init__(self, root: Path, medium: Medium) -> None:
        self._file = NoteFile(root / "flintlog" / "polled.json", medium, _Mark)
        self._state_end: int | None = None

    def load(self) -> None:
        """Read the file; without a readable one the state's queue counts, and groups may read some messages again."""
        found = self._file.load().content
        self._state_end = None if found is None else found.state_end

    def counts(self, state_end: int) -> bool:
        """Whether what was taken from a broker is newer than a state's queue that ends here."""
        return self._state_end is not None and state_end <= self._state_end

    def save(self, state_end: int) -> None:
        """Something was taken from a broker now, and is in the files."""
        if self._state_end == state_end:
            return
        self._file.save(_Mark(state_end))
        self._state_end = state_end
