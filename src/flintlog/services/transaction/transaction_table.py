"""Which transactions are undecided, and how far the half and op queues are done with.

A transaction has one half message or several: a check puts a copy at the queue's end and counts from then on, the
older ones are superseded. A decision about one of them decides all, so a crash between a copy and whatever comes
next leaves nothing to be decided twice.

    half queue    0   1   2   3   4   5   6                 A: 0, then its copy 4       B: 1       C: 5
                  a   b   .   .   A   C   .                 first_half = 1 when A and B are undecided: 0 is superseded
    op queue      an entry is done with when each half message that it names lies before `first_half`, and so do all
                  entries before it; Java reads on from there

The table knows no store. Its owner holds a lock around every call.
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
"""How many decisions are remembered, to tell a decided transaction from one that never was."""


class Decision(Enum):
    """What becomes of a transaction: the answer of a check, too."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    UNKNOWN = "unknown"


@dataclass(slots=True, eq=False)
class Undecided:
    """One transaction that is neither committed nor rolled back."""

    half: Half
    superseded: list[Half] = field(default_factory=list)
    claimed_by: object = None
    """Whether somebody is putting a record for it: everyone else waits."""
    copied_to: int = -1
    """Queue offset of the newest copy; until that one was read, nothing may be decided."""

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
        """What became of a transaction that was decided lately."""
        return self._decided_ids.get(id)

    def forget(self, id: str) -> None:
        """The id is used again: what became of its last transaction is no answer any more."""
        self._decided_ids.pop(id, None)

    # ------------------------------------------------------------------ half messages

    def add(self, half: Half) -> bool:
        """Take the next half message of the queue; False when its transaction is decided already."""
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
        """What lies before this offset cannot be read, or is no half message."""
        self.read_to = max(self.read_to, queue_offset)

    def decide(self, transaction: Undecided, decision: Decision) -> list[int]:
        """It is undecided no more; the half messages that an op message has to name."""
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
        """The queue offset below which no half message matters any more."""
        return next(iter(self._in_order), self.read_to)

    def add_op(self, queue_offset: int, half_offsets: Iterable[int]) -> None:
        """An op message stands in its queue."""
        heapq.heappush(self._ops, (queue_offset, max(half_offsets, default=-1)))

    @property
    def first_op(self) -> int:
        """The offset of the first op message that names a half message which still matters."""
        first_half = self.first_half
        while self._ops and self._ops[0][0] <= self._first_op and self._ops[0][1] < first_half:
            self._first_op = heapq.heappop(self._ops)[0] + 1
        return self._first_op
