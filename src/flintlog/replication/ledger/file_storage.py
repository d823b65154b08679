"""A ledger's node over its files: what the state machine asks to be kept, in `currterm`, `checkpoint`, data and index.

    save_hard_state, truncate   durable when they return
    write                       there for every reader, durable with the next `sync`
    save_committed              a hint: an entry that it names is made durable first

It only translates between the entries of the protocol and those of `flintlog.store.ledger_files`.
"""

from __future__ import annotations

from collections.abc import Sequence

from flintlog.format.ledger_entry import ENTRY_END_RESERVE, MAX_ENTRY_SIZE, EntryHead
from flintlog.format.ledger_state import TermVote
from flintlog.replication.ledger.interface import HardState, Truncation
from flintlog.replication.ledger.messages import Entry
from flintlog.store.ledger_files import LedgerFiles


class FileLog:
    """The files as the state machine reads them."""

    def __init__(self, files: LedgerFiles) -> None:
        self._files = files

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
        """The term of an entry that is there."""
        return self._files.term_of(index)

    def entry(self, index: int) -> Entry:
        """An entry that is there."""
        head, body = self._files.entry(index)
        return Entry(head.index, head.term, head.position, body, channel=head.channel)

    def place(self, position: int, size: int) -> int:
        """Where an entry of this size lies that follows one which ended at `position`."""
        return self._files.place(position, size)


class FileStorage:
    """One node's files; they are loaded when this is made. `sync` and `save_committed` may run in another thread."""

    def __init__(self, files: LedgerFiles) -> None:
        self.files = files
        self.log = FileLog(files)
        vote = files.state.load_vote()
        self.hard_state = HardState(vote.term, vote.vote)
        self.committed = files.state.load_checkpoint().committed_index
        self.max_entry_bytes = min(files.data.segment_size - ENTRY_END_RESERVE, MAX_ENTRY_SIZE)

    def save_hard_state(self, state: HardState) -> None:
        """Write term and vote."""
        self.files.state.save_vote(TermVote(state.term, state.voted_for))
        self.hard_state = state

    def truncate(self, truncation: Truncation) -> None:
        """Cut the log, or let it begin anew."""
        if truncation.restart_position is None:
            self.files.truncate(truncation.last_index)
        else:
            self.files.restart(truncation.restart_position)

    def write(self, entries: Sequence[Entry]) -> None:
        """Append entries, each at the position it names."""
        self.files.append(
            [
                (EntryHead(entry.index, entry.term, entry.position, len(entry.body), entry.channel), entry.body)
                for entry in entries
            ]
        )

    def sync(self) -> None:
        """Make durable what was written."""
        self.files.sync()

    def save_committed(self, index: int) -> None:
        """Write the checkpoint."""
        self.files.save_checkpoint(index)

    def close(self) -> None:
        """Make everything durable and give the files back."""
        self.files.close()
