"""The storage interface of a ledger node.

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

from flintlog.replication.ledger.core.interface import HardState, LedgerLog, Truncation
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
