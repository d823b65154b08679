"""When a ledger member last copied settings from a Java broker that led its group: `flintlog/polled.json`.

    {"stateEnd": 17}     the end of the shared state's queue at that time

A Java leader writes no shared state into the log. As long as the queue has not grown, the copied settings are newer
than the queue. After a flintlog member has led, the queue is longer, and the mark does not count any more.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from flintlog.disk.media.medium import Medium
from flintlog.store.runtime.note_file import NoteFile, Offset


class _Mark(msgspec.Struct, frozen=True, rename="camel"):
    state_end: Offset


class PolledMark:
    """The file, and whether it counts. One thread at a time may call."""

    def __init__(self, root: Path, medium: Medium) -> None:
        self._file = NoteFile(root / "flintlog" / "polled.json", medium, _Mark)
        self._state_end: int | None = None

    def load(self) -> None:
        """Read the file. Without a readable one the state's queue counts, and groups may get some messages again."""
        found = self._file.load().content
        self._state_end = None if found is None else found.state_end

    def counts(self, state_end: int) -> bool:
        """Whether the copied settings are newer than a state's queue that ends at this offset."""
        return self._state_end is not None and state_end <= self._state_end

    def save(self, state_end: int) -> None:
        """Note that settings were copied, and are in the files."""
        if self._state_end == state_end:
            return
        self._file.save(_Mark(state_end))
        self._state_end = state_end
