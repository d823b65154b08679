"""The storage interface of a ledger node, and an implementation in memory for tests.

    hard_state, committed   the values found at the start
    max_entry_bytes         the largest entry that fits into a file
    save_hard_state         durable when it returns
    truncate                durable when it returns; never called while `sync` runs
    write                   into the page cache: readable at once, not durable yet
    sync                    entries written before the call are durable when it returns
    save_committed          the known committed index; a hint, so a crash may lose it

A separate thread calls `sync` and `save_committed`, one at a time, while the loop may call `write`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from flintlog.format.ledger_entry import ENTRY_END_RESERVE, MAX_ENTRY_SIZE, NO_INDEX
from flintlog.replication.ledger.core.interface import HardState, LedgerLog, Output, Truncation
from flintlog.replication.ledger.core.messages import Entry
from flintlog.replication.ledger.node.memory_log import MemoryLog


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
