"""What a ledger's node needs of its disk, and the same in memory for tests.

    hard_state, committed   what was found at the start
    max_entry_bytes         what a file can hold
    save_hard_state         durable when it returns
    truncate                durable when it returns; never while `sync` runs
    write                   into the page cache: there for every reader, not yet for ever
    sync                    what was written before the call is durable when it returns
    save_committed          how far the group was known to agree; a hint, so a crash may lose it

`sync` and `save_committed` are called from a thread of their own, one at a time, while `write` may go on in the loop's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from flintlog.format.ledger_entry import ENTRY_END_RESERVE, MAX_ENTRY_SIZE, NO_INDEX
from flintlog.replication.ledger.core.interface import HardState, LedgerLog, Output, Truncation
from flintlog.replication.ledger.node.memory_log import MemoryLog
from flintlog.replication.ledger.core.messages import Entry


class LedgerStorage(Protocol):
    """The files of one node."""

    @property
    def log(self) -> LedgerLog: ...
    @property
    def hard_state(self) -> HardState: ...
    @property
    def committed(self) -> int: ...
    @property
    def max_entry_bytes(self) -> int: ...

    def save_hard_state(self, state: HardState) -> None: ...
    def truncate(self, truncation: Truncation) -> None: ...
    def write(self, entries: Sequence[Entry]) -> None: ...
    def sync(self) -> None: ...
    def save_committed(self, index: int) -> None: ...
    def close(self) -> None: ...


class MemoryStorage:
    """Keeps everything as long as the object lives."""

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
        """There is nothing that could be lost."""

    def save_committed(self, index: int) -> None:
        """Remember it."""
        self.committed = index

    def close(self) -> None:
        """Nothing is open."""
