"""Proposals of records to a ledger's group: how they are made, what is answered, and the receipts of their puts.

put ─▶ Pending ─▶ Proposer.propose ─▶ the group ─▶ ProposalAnswer ─▶ outcome_of: the receipt, with its place
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Protocol

from flintlog.disk.bell import Bell
from flintlog.format.ledger import ENTRY_HEAD_SIZE
from flintlog.store.model.message import PutStatus, Receipt, Receipts, refused

_OK: Final = PutStatus.PUT_OK
_LOOK_AGAIN_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class ProposalAnswer:
    """The result of a proposal: PUT_OK and the positions of its entries, or why it failed.

    `is_written`: the entries are in the leader's log, and may still be committed later.
    """

    status: PutStatus
    positions: Sequence[int] = ()
    is_written: bool = False


class Proposer(Protocol):
    """Proposes records to the group."""

    def propose(self, bodies: Sequence[bytes], answer: Future[ProposalAnswer]) -> None:
        """Propose the records of one put, after those proposed before; any thread may call.

        The proposer marks the future as running when it takes the records. If it was cancelled before, it drops them.
        """


@dataclass(slots=True)
class Pending:
    """A put under way.

    The future is the proposer's. The thread that put does not touch it after the proposal: if a signal's handler raised
    with the future's lock taken, the proposer would hang.
    """

    answer: Future[ProposalAnswer]
    sizes: Sequence[int]
    queue_offset: int
    now_ms: int
    store_host: str
    outcome: ProposalAnswer | None = None
    _bell: Bell = field(default_factory=Bell)
    _listeners: list[Callable[[ProposalAnswer], None]] = field(default_factory=list)

    def answered(self, outcome: ProposalAnswer) -> None:
        """Wake the thread that waits, and call the listeners."""
        self.outcome = outcome
        self._bell.ring()
        self._notify(outcome)

    def wait(self) -> ProposalAnswer:
        """Sleep until there is an answer."""
        while (outcome := self.outcome) is None:
            self._bell.listen(_LOOK_AGAIN_S)
        return outcome

    def on_answer(self, listener: Callable[[ProposalAnswer], None]) -> None:
        """Call it once with the answer, here or in the thread that brings it."""
        self._listeners.append(listener)
        if self.outcome is not None:
            self._notify(self.outcome)

    def _notify(self, outcome: ProposalAnswer) -> None:
        with suppress(IndexError):  # the other thread has it
            while self._listeners:
                self._listeners.pop()(outcome)


class LedgerReceipts(Receipts):
    """The receipts of a batch whose records have heads between them."""

    __slots__ = ("_sizes",)

    def __init__(
        self,
        status: PutStatus,
        offsets: Sequence[int],
        sizes: Sequence[int],
        first_queue_offset: int,
        store_timestamp: int,
        store_host: str,
    ) -> None:
        super().__init__(status, [*offsets, offsets[-1] + sizes[-1]], first_queue_offset, store_timestamp, store_host)
        self._sizes = sizes

    def with_status(self, status: PutStatus) -> LedgerReceipts:
        """The same with another status."""
        return LedgerReceipts(
            status,
            list(self._offsets)[:-1],
            self._sizes,
            self._first_queue_offset,
            self._store_timestamp,
            self._store_host,
        )

    def _size_of(self, place: int) -> int:
        return self._sizes[place]


def outcome_of(pending: Pending, receipt: Receipt | Receipts, answer: ProposalAnswer) -> Receipt | Receipts:
    """The receipt with its place in the log, or with the reason why it has none."""
    if answer.status is not _OK:
        is_one = isinstance(receipt, Receipt)
        return Receipt(answer.status) if is_one else refused(answer.status, len(pending.sizes))
    offsets = [position + ENTRY_HEAD_SIZE for position in answer.positions]
    if isinstance(receipt, Receipt):
        return Receipt(_OK, offsets[0], pending.queue_offset, pending.sizes[0], pending.now_ms, pending.store_host)
    return LedgerReceipts(_OK, offsets, pending.sizes, pending.queue_offset, pending.now_ms, pending.store_host)
