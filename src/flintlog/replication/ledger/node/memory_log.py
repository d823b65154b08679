"""The ledger's log in memory: for simulations and tests, with the rules of the files for positions.

An entry needs its size and eight bytes more in a file, for the blank that closes it; if they are not there it begins
the next file.
"""

from __future__ import annotations

from collections.abc import Iterable

from flintlog.format.ledger_entry import ENTRY_END_RESERVE, NO_INDEX
from flintlog.replication.ledger.core.interface import Output, Truncation
from flintlog.replication.ledger.core.messages import Entry


def place_entry(position: int, size: int, file_size: int) -> int:
    """Where an entry lies that follows one which ended at `position`."""
    rest = file_size - position % file_size
    return position if size + ENTRY_END_RESERVE <= rest else position + rest


class MemoryLog:
    """A `LedgerLog` that can also be written."""

    def __init__(self, file_size: int = 1 << 30, entries: Iterable[Entry] = (), *, start: int = 0) -> None:
        self._file_size = file_size
        self._entries = list(entries)
        self._start = start

    @property
    def begin(self) -> int:
        return self._entries[0].index if self._entries else NO_INDEX

    @property
    def end(self) -> int:
        return self._entries[-1].index if self._entries else NO_INDEX

    @property
    def end_position(self) -> int:
        last = self._entries[-1] if self._entries else None
        return self._start if last is None else last.position + last.size

    def term_of(self, index: int) -> int:
        return self.entry(index).term

    def entry(self, index: int) -> Entry:
        place = index - self.begin
        if not self._entries or place < 0:
            raise IndexError(index)
        return self._entries[place]

    def place(self, position: int, size: int) -> int:
        return place_entry(position, size, self._file_size)

    def entries(self) -> list[Entry]:
        """All of them, as a copy."""
        return list(self._entries)

    def apply(self, output: Output) -> None:
        """Do what a step asks for: the truncation, then the entries."""
        if output.truncation is not None:
            self._truncate(output.truncation)
        for entry in output.entries:
            if self._entries and entry.index != self.end + 1:
                raise IndexError(entry.index)
            self._entries.append(entry)

    def delete_before(self, index: int) -> None:
        """Let the log begin with `index`, as retention does."""
        del self._entries[: index - self.begin]

    def _truncate(self, truncation: Truncation) -> None:
        if truncation.restart_position is not None:
            self._entries = []
            self._start = truncation.restart_position
        else:
            del self._entries[max(0, truncation.last_index - self.begin + 1) :]
