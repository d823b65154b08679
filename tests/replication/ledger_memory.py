"""A ledger's log and a node's storage in memory, for simulations and tests. Positions follow the rules of the files.

An entry needs its size plus eight bytes in a file, for the closing blank; if they do not fit, it starts the next file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from flintlog.format.ledger import ENTRY_END_RESERVE, MAX_ENTRY_SIZE, NO_INDEX
from flintlog.replication.ledger.core.interface import HardState, Output, Truncation
from flintlog.replication.ledger.core.messages import Entry


def place_entry(position: int, size: int, file_size: int) -> int:
    """The position of an entry after one that ends at `position`."""
    rest = file_size - position % file_size
    return position if size + ENTRY_END_RESERVE <= rest else position + rest


class MemoryLog:
    """A writable `LedgerLog`."""

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
        """A copy of all entries."""
        return list(self._entries)

    def apply(self, output: Output) -> None:
        """Apply a step's truncation, then its entries."""
        if output.truncation is not None:
            self._truncate(output.truncation)
        for entry in output.entries:
            if self._entries and entry.index != self.end + 1:
                raise IndexError(entry.index)
            self._entries.append(entry)

    def delete_before(self, index: int) -> None:
        """Delete entries before `index`, as retention does."""
        del self._entries[: index - self.begin]

    def _truncate(self, truncation: Truncation) -> None:
        if truncation.restart_position is not None:
            self._entries = []
            self._start = truncation.restart_position
        else:
            del self._entries[max(0, truncation.last_index - self.begin + 1) :]


class MemoryStorage:
    """Keeps everything in memory."""

    def __init__(self, file_size: int = 1 << 30) -> None:
        self.log = MemoryLog(file_size)
        self.max_entry_bytes = min(file_size - ENTRY_END_RESERVE, MAX_ENTRY_SIZE)
        self.hard_state = HardState()
        self.committed = NO_INDEX

    def save_hard_state(self, state: HardState) -> None:
        """Remember it."""
        self.hard_state = state

    def truncate(self, truncation: Truncation) -> None:
        """Cut the log."""
        self.log.apply(Output(truncation=truncation))

    def write(self, entries: Sequence[Entry]) -> None:
        """Append to the log."""
        self.log.apply(Output(entries=list(entries)))

    def sync(self) -> None:
        """Do nothing."""

    def save_committed(self, index: int) -> None:
        """Remember it."""
        self.committed = index

    def close(self) -> None:
        """Do nothing."""
