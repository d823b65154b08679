"""The undecided transactions, and the progress of the half and op queues.

A transaction has one or more half messages: a check puts a copy at the queue's end, which supersedes the older ones. A
decision about one of them decides all, so a crash after a copy cannot lead to a second decision.

    half queue    0   1   2   3   4   5   6                 A: 0, then its copy 4       B: 1       C: 5
                  a   b   .   .   A   C   .                 first_half = 1 when A and B are undecided: 0 is superseded
    op queue      an entry is done when each half message that it names lies before `first_half`, and all entries
                  before it are done; Java continues reading from there

The table does not use the store. Its owner holds a lock around every call.
"""

from __future__ import annotations

import heapq
from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from flintlog.services.transaction.transaction_records import Half, Key

REMEMBERED_DECISIONS: Final = 100_000
"""How many decisions are remembered, to distinguish a decided transaction from an unknown one."""


class Decision(Enum):
    """The decision about a transaction; also the answer of a check."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    UNKNOWN = "unknown"


@dataclass(slots=True, eq=False)
class Undecided:
    """One transaction that is neither committed nor rolled back."""

    half: Half
    superseded: list[Half] = field(default_factory=list)
    claimed_by: object = None
    """The thread's claim while it puts a record for this transaction; other threads wait."""
    copied_to: int = -1
    """Queue offset of the newest copy; no decision is allowed until that copy was read."""

    @property
    def halves(self) -> list[Half]:
        return [*self.superseded, self.half]


class TransactionTable:
    """The undecided transactions in the order of their half messages, and the queues' progress."""

    def __init__(self, first_half: int, first_op: int) -> None:
        self.read_to = first_half
        self.counts: Counter[str] = Counter()
        self._first_op = first_op
        self._ops: list[tuple[int, int]] = []
        self._in_order: OrderedDict[int, Undecided] = OrderedDict()
        self._by_key: dict[Key, Undecided] = {}
        self._by_id: dict[str, Undecided] = {}
        self._decided: OrderedDict[Key, Decision] = OrderedDict()
        self._decided_ids: dict[str, Decision] = {}

    def __len__(self) -> int:
        return len(self._in_order)

    def undecided(self) -> list[Undecided]:
        """All of them, oldest half message first."""
        return list(self._in_order.values())

    def find(self, id: str) -> Undecided | None:
        return self._by_id.get(id)

    def is_open(self, transaction: Undecided) -> bool:
        return self._in_order.get(transaction.half.queue_offset) is transaction

    def decision_about(self, id: str) -> Decision | None:
        """The decision about a transaction that was decided lately; None when it is not remembered."""
        return self._decided_ids.get(id)

    def forget(self, id: str) -> None:
        """Forget the decision about an id, because the id is reused."""
        self._decided_ids.pop(id, None)

    # ------------------------------------------------------------------ half messages

    def add(self, half: Half) -> bool:
        """Add the next half message of the queue; False when its transaction is already decided."""
        self.read_to = half.queue_offset + 1
        known = self._by_key.get(half.key) if half.is_copy else None
        if known is None and half.is_copy and half.key in self._decided:
            return False
        if known is not None:
            del self._in_order[known.half.queue_offset]
            known.superseded.append(known.half)
            known.half = half
        else:
            known = self._by_key[half.key] = self._by_id[half.id] = Undecided(half)
            self.counts[half.topic] += 1
        self._in_order[half.queue_offset] = known
        return True

    def skip_to(self, queue_offset: int) -> None:
        """Continue at this offset: the messages before it are unreadable or not half messages."""
        self.read_to = max(self.read_to, queue_offset)

    def decide(self, transaction: Undecided, decision: Decision) -> list[int]:
        """Remove a decided transaction; returns the half messages that an op message has to name."""
        first = self.first_half
        half = transaction.half
        del self._in_order[half.queue_offset]
        if self._by_key.get(half.key) is transaction:
            del self._by_key[half.key]
        if self._by_id.get(half.id) is transaction:
            del self._by_id[half.id]
        self.counts[half.topic] -= 1
        self._remember(half.key, decision)
        return [each.queue_offset for each in transaction.halves if each.queue_offset >= first]

    def _remember(self, key: Key, decision: Decision) -> None:
        self._decided[key] = self._decided_ids[key[0]] = decision
        if len(self._decided) > REMEMBERED_DECISIONS:
            forgotten, _ = self._decided.popitem(last=False)
            self._decided_ids.pop(forgotten[0], None)

    # ------------------------------------------------------------------ progress

    @property
    def first_half(self) -> int:
        """The queue offset below which all half messages are decided or superseded."""
        return next(iter(self._in_order), self.read_to)

    def add_op(self, queue_offset: int, half_offsets: Iterable[int]) -> None:
        """Note an op message of the queue."""
        heapq.heappush(self._ops, (queue_offset, max(half_offsets, default=-1)))

    @property
    def first_op(self) -> int:
        """The offset of the first op message that is not done."""
        first_half = self.first_half
        while self._ops and self._ops[0][0] <= self._first_op and self._ops[0][1] < first_half:
            self._first_op = heapq.heappop(self._ops)[0] + 1
        return self._first_op
