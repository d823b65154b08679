"""A node's storage in DLedger's files (`flintlog.store.ledger.ledger_files`), with its newest entries in memory.

A leader reads every entry once per follower, and a follower compares duplicates, nearly always among the last few
thousand entries. Those are kept in memory, up to `RECENT_BYTES`; older ones are read from the files.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from flintlog.format.ledger import ENTRY_END_RESERVE, MAX_ENTRY_SIZE, NO_INDEX, EntryHead, LedgerPromise, TermVote
from flintlog.replication.ledger.core.interface import FORGOTTEN, NOTHING_PROMISED, HardState, Truncation
from flintlog.replication.ledger.core.messages import Entry
from flintlog.store.ledger.ledger_files import LedgerFiles

RECENT_BYTES: Final = 16 * 1024 * 1024


class FileLog:
    """A `LedgerLog` over files."""

    def __init__(self, files: LedgerFiles) -> None:
        self._files = files
        self._recent: deque[Entry] = deque()
        self._recent_bytes = 0

    @property
    def begin(self) -> int:
        return self._files.begin

    @property
    def end(self) -> int:
        return self._files.end

    @property
    def end_position(self) -> int:
        return self._files.end_position

    def term_of(self, index: int) -> int:
        """The term of an existing entry."""
        return self._files.term_of(index)

    def entry(self, index: int) -> Entry:
        """An existing entry."""
        recent = self._recent
        if recent and recent[0].index <= index <= recent[-1].index:
            return recent[index - recent[0].index]
        head, body = self._files.entry(index)
        return Entry(head.index, head.term, head.position, body, channel=head.channel)

    def place(self, position: int, size: int) -> int:
        """The position of an entry of this size after one that ends at `position`."""
        return self._files.place(position, size)

    def append(self, entries: Sequence[Entry]) -> None:
        """Write entries after the last one."""
        self._files.append([(_head(entry), entry.body) for entry in entries])
        for entry in entries:
            self._recent.append(entry)
            self._recent_bytes += entry.size
        while self._recent_bytes > RECENT_BYTES:
            self._recent_bytes -= self._recent.popleft().size

    def truncate(self, truncation: Truncation) -> None:
        """Cut the files, and drop the entries after the cut from memory."""
        if truncation.restart_position is not None:
            self._files.restart(truncation.restart_position, truncation.last_index + 1)
            self._recent.clear()
            self._recent_bytes = 0
            return
        self._files.truncate(truncation.last_index)
        while self._recent and self._recent[-1].index > truncation.last_index:
            self._recent_bytes -= self._recent.pop().size


def _head(entry: Entry) -> EntryHead:
    return EntryHead(entry.index, entry.term, entry.position, len(entry.body), entry.channel)


class FileStorage:
    """One node's loaded files. `sync` and `save_committed` may run in another thread."""

    def __init__(self, files: LedgerFiles, *, is_new: bool = False) -> None:
        """`is_new`: the operator knows that a member without a log never had one, or gives up the lost one."""
        self.files = files
        self.log = FileLog(files)
        found, promise = files.state.load_vote(), files.state.load_promise()
        promised = NOTHING_PROMISED if promise is None else (promise.end_term, promise.end_index)
        if is_new and promised == FORGOTTEN:
            promised = NOTHING_PROMISED
            files.state.save_promise(None)
        elif not is_new and promise is None and files.end == NO_INDEX:
            promised = FORGOTTEN
            files.state.save_promise(LedgerPromise(*FORGOTTEN))  # before the first entry hides that the log was lost
        self.hard_state = HardState(found.term, found.vote, promised)
        self.committed = files.state.load_checkpoint().committed_index
        self.max_entry_bytes = min(files.data.segment_size - ENTRY_END_RESERVE, MAX_ENTRY_SIZE)

    def save_hard_state(self, state: HardState) -> None:
        """Write term, vote and promise; durable when this returns."""
        if state.promised != self.hard_state.promised:
            is_promised = state.promised != NOTHING_PROMISED
            self.files.state.save_promise(LedgerPromise(*state.promised) if is_promised else None)
        self.files.state.save_vote(TermVote(state.term, state.voted_for))
        self.hard_state = state

    def truncate(self, truncation: Truncation) -> None:
        """Cut the log; durable when this returns."""
        self.log.truncate(truncation)

    def write(self, entries: Sequence[Entry]) -> None:
        """Append entries; they are readable now, and durable with the next sync."""
        self.log.append(entries)

    def sync(self) -> None:
        """Make the written entries durable."""
        self.files.sync()

    def save_committed(self, index: int) -> None:
        """Write the checkpoint."""
        self.files.save_checkpoint(index)
        self.committed = index

    def close(self) -> None:
        """Sync everything and close the files."""
        self.files.close()
