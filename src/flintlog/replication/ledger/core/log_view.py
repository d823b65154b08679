"""The log as it will be after the present step: the shell's log, a cut, and the new entries after it.

Within a step the core reads the entries that it has just asked the shell to write. The shell must write them before the
next step begins; if the log then ends elsewhere, that is a fault of the shell and raises LedgerHalted.
"""

from __future__ import annotations

from flintlog.errors import LedgerHalted
from flintlog.format.ledger import ENTRY_HEAD_SIZE, NO_INDEX
from flintlog.replication.ledger.core.interface import LedgerLog, Output, Truncation
from flintlog.replication.ledger.core.messages import NO_TERM, Entry


class LogView:
    """All reads and changes of the log; `settle` and the Output connect it with the shell's log."""

    def __init__(self, log: LedgerLog) -> None:
        self._log = log
        self._new: list[Entry] = []
        self.begin = log.begin
        self.end = log.end
        self.end_term = NO_TERM if self.end == NO_INDEX else log.term_of(self.end)
        self._end_position = log.end_position

    def settle(self) -> None:
        """Check that the shell has carried out the last step. Old entries may have been deleted since."""
        if self._log.end != self.end:
            raise LedgerHalted(f"the log ends with entry {self._log.end}, but should end with entry {self.end}")
        self._new = []
        self.begin = self._log.begin

    @property
    def start(self) -> int:
        """The position of the first entry of an empty log."""
        return self._end_position

    def has(self, index: int) -> bool:
        return index != NO_INDEX and self.begin <= index <= self.end

    def entry(self, index: int) -> Entry:
        if self._new and index >= self._new[0].index:
            return self._new[index - self._new[0].index]
        return self._log.entry(index)

    def term_of(self, index: int) -> int:
        if self._new and index >= self._new[0].index:
            return self._new[index - self._new[0].index].term
        return self._log.term_of(index)

    def follows(self, entry: Entry) -> bool:
        """Whether an entry is a valid successor: its term is not smaller, and its position is the one it would get."""
        term, end_position = self.end_term, self._end_position
        if entry.index != self.end + 1:
            before = self.entry(entry.index - 1)
            term, end_position = before.term, before.position + before.size
        return entry.term >= term and entry.position == self._log.place(end_position, entry.size)

    def next_entry(self, term: int, body: bytes) -> Entry:
        """The next entry of a leader, with its body not sealed yet."""
        position = self._log.place(self._end_position, ENTRY_HEAD_SIZE + len(body))
        return Entry(self.end + 1, term, position, body)

    def append(self, entry: Entry, output: Output) -> None:
        if self.begin == NO_INDEX:
            self.begin = entry.index
        self._new.append(entry)
        output.entries.append(entry)
        self.end = entry.index
        self.end_term = entry.term
        self._end_position = entry.position + entry.size

    def cut(self, last_index: int, output: Output) -> None:
        """Keep all entries up to an existing one."""
        last = self.entry(last_index)
        self.end, self.end_term, self._end_position = last_index, last.term, last.position + last.size
        output.truncation = Truncation(last_index)

    def restart(self, entry: Entry, output: Output) -> None:
        """Drop all entries, and start with this one."""
        output.truncation = Truncation(entry.index - 1, entry.position)
        self.begin = NO_INDEX
        self.append(entry, output)

    def first_of_term(self, index: int) -> int:
        """The first entry with the same term as the one at `index`; terms never fall along a log."""
        return self._first(self.begin, index, self.term_of(index))

    def last_up_to_term(self, term: int, index: int) -> int:
        """The last entry up to `index` whose term is at most `term`; `begin` - 1 if there is none."""
        return self._first(self.begin, index + 1, term + 1) - 1

    def _first(self, low: int, high: int, term: int) -> int:
        """The first index of low..high whose term is at least `term`; `high` if there is none before it."""
        while low < high:
            middle = (low + high) // 2
            if self.term_of(middle) < term:
                low = middle + 1
            else:
                high = middle
        return low
