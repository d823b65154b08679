"""Deciding transactions, each once: who may, what is put, and what is known afterwards.

The rule against crashes: one record decides.

    commit        the committed message is put          from then on it is committed, whatever else is lost
    rollback      the op message is put                 from then on it is rolled back
    given up      the message in the discard topic      likewise

Everything after that record only saves work: notes about commits (gathered, see `transaction_ops.py`) and the
progress of the two queues, which moves only past what is on disk.

Any thread may call. `_changed` guards table, gathered ops and claims, and is never held while something is put: who
puts a record for a transaction has claimed it, and others wait until it is decided or free again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from flintlog.errors import PutFailed, TransactionDecided, TransactionError
from flintlog.services.transaction.transaction_service import transaction_records as records
from flintlog.services.transaction.transaction_loading import load_table, read_halves
from flintlog.services.transaction.transaction_ops import GatheredOps
from flintlog.services.transaction.transaction_records import GROUP, HALF_TOPIC, OP_TOPIC, QUEUE_ID, Half
from flintlog.services.transaction.transaction_table import Decision, TransactionTable, Undecided
from flintlog.store.model.message import Receipt
from flintlog.store.runtime.service import Rewritten
from flintlog.store.store import Store
from flintlog.store.model.stored_message import StoredMessage

_WORDS: Final = {Decision.COMMIT: "committed", Decision.ROLLBACK: "rolled back"}

_TRIES: Final = 3
_CLAIM_LOOK_S: Final = 0.002

Rebuild = Callable[[StoredMessage, Half], Rewritten]


class Decisions:
    """The transactions of one store and what becomes of them."""

    def __init__(self, store: Store, nudge: Callable[[], None]) -> None:
        config = store.config
        self._store = store
        self._offsets = store.consumer_offsets
        self._nudge = nudge
        self._table = TransactionTable(0, 0)
        self._ops = GatheredOps(config.transaction_op_msg_max_size, config.transaction_op_batch_interval)
        self._saved = (-1, -1)
        self._changed = threading.RLock()
        self._beginning: dict[str, object] = {}

    def load(self) -> None:
        """Learn from the log what is undecided."""
        store = self._store
        store.wait_dispatched()
        half, op = (self._offsets.get(GROUP, topic, QUEUE_ID) for topic in (HALF_TOPIC, OP_TOPIC))
        self._saved = (-1 if half is None else half, -1 if op is None else op)
        self._table, not_noted = load_table(store, *self._saved)
        self._ops.add(not_noted, store.now_ms())

    # ------------------------------------------------------------------ looking

    def undecided(self) -> list[Undecided]:
        with self._changed:
            return self._table.undecided()

    def counts(self) -> dict[str, int]:
        """How many are undecided, by topic."""
        with self._changed:
            return dict(self._table.counts)

    def find(self, id: str) -> Undecided | None:
        """An undecided transaction, as soon as its half message was read; an error when it was decided lately."""
        with self._changed:
            found = self._table.find(id)
            if found is None and self._table.decision_about(id) is not None:
                raise self.decided(id)
            return found

    def is_in_index(self, id: str) -> bool:
        """Whether there ever was such a transaction; of old ones only the index knows."""
        return any(half.uniq_key == id for half in self._store.query(HALF_TOPIC, id))

    def decided(self, id: str) -> TransactionDecided:
        """The error that says so."""
        decision = self._table.decision_about(id)
        word = "decided" if decision is None else _WORDS.get(decision, "decided")
        return TransactionDecided(f"the transaction {id!r} was {word} before", path=self._store.path)

    def is_open(self, transaction: Undecided) -> bool:
        with self._changed:
            return self._table.is_open(transaction)

    def see_new(self, *, wait: bool) -> None:
        """Take what came into the half queue; `wait`: everything that was put so far."""
        if wait:
            self._store.wait_dispatched()
        with self._changed:
            if self._store.max_offset(HALF_TOPIC, QUEUE_ID) > self._table.read_to:
                self._gather(read_halves(self._store, self._table))

    def read(self, half: Half) -> StoredMessage:
        """The half message itself."""
        stored = self._store.message_at(half.physical_offset)
        if stored is None:
            raise TransactionError(
                f"the half message of the transaction {half.id!r} is no longer in the log", offset=half.physical_offset
            )
        return stored

    # ------------------------------------------------------------------ claiming
    # Both give back what they hold without a call: nothing that a signal's handler raises comes before it. And both are
    # given a function, because a context manager would hold it for as long as somebody has the exception.

    def begin(self, id: str, put: Callable[[], Receipt]) -> Receipt | None:
        """Put a half message while its id is held; None when that is in use."""
        me = object()
        try:
            with self._changed:
                if id in self._beginning or self._table.find(id) is not None:
                    return None
                self._table.forget(id)
                self._beginning[id] = me
            return put()
        finally:
            if id in self._beginning and self._beginning[id] is me:
                del self._beginning[id]

    def claimed(self, transaction: Undecided, put: Callable[[Undecided], Receipt]) -> Receipt:
        """Be the one who puts a record for a transaction; an error when it is undecided no more."""
        me = object()
        try:
            self._claim(transaction, me)
            return put(transaction)
        finally:
            if transaction.claimed_by is me:
                transaction.claimed_by = None

    def _claim(self, transaction: Undecided, claimant: object) -> None:
        self._see_copy_of(transaction)
        while transaction.claimed_by is not claimant:
            self._wait_for_claim(transaction)
            with self._changed:
                if not self._table.is_open(transaction):
                    raise self.decided(transaction.half.id)
                if transaction.copied_to >= self._table.read_to:
                    raise PutFailed(f"a copy of the transaction {transaction.half.id!r} is not on disk yet")
                if transaction.claimed_by is None:
                    transaction.claimed_by = claimant

    @staticmethod
    def _wait_for_claim(transaction: Undecided) -> None:
        """Wait until nobody has claimed it. It is looked for: who gives it back may be interrupted before a call."""
        while transaction.claimed_by is not None:
            time.sleep(_CLAIM_LOOK_S)

    def _see_copy_of(self, transaction: Undecided) -> None:
        """A copy that is in the log but was not read would come to life when its transaction is decided without it.

        Nobody waits for dispatch with a claim in hand: a listener, which dispatch waits for, may wait for the claim.
        """
        for _ in range(_TRIES):
            self._wait_for_claim(transaction)
            with self._changed:
                if transaction.copied_to < self._table.read_to:
                    return
            self.see_new(wait=True)

    # ------------------------------------------------------------------ deciding what was claimed

    def commit(self, transaction: Undecided) -> Receipt:
        half = transaction.half
        receipt = self._store.put_rebuilt(records.commit(self.read(half), half))
        # Flushed in time or not, it is in the log: a second one must not follow.
        if receipt.physical_offset >= 0:
            with self._changed:
                self._gather(self._table.decide(transaction, Decision.COMMIT))
        return receipt

    def roll_back(self, transaction: Undecided) -> Receipt:
        half_offsets = [half.queue_offset for half in transaction.halves]
        receipt = self._store.put_rebuilt(records.op_message(half_offsets))
        if receipt.physical_offset >= 0:
            with self._changed:
                self._table.decide(transaction, Decision.ROLLBACK)
                self._table.add_op(receipt.queue_offset, half_offsets)
        return receipt

    def give_up(self, transaction: Undecided, check_max: int) -> Receipt:
        half = transaction.half
        receipt = self._store.put_rebuilt(records.give_up(self.read(half), half, check_max))
        if receipt.physical_offset >= 0:
            with self._changed:
                self._table.decide(transaction, Decision.UNKNOWN)
        return receipt

    def copy(self, transaction: Undecided, rebuild: Rebuild) -> Receipt:
        """Put a copy at the end of the half queue, which counts as soon as it was read."""
        half = transaction.half
        receipt = self._store.put_rebuilt(rebuild(self.read(half), half))
        if receipt.physical_offset >= 0:
            transaction.copied_to = receipt.queue_offset
        return receipt

    # ------------------------------------------------------------------ notes and progress

    def _gather(self, half_offsets: list[int]) -> None:
        if self._ops.add(half_offsets, self._store.now_ms()):
            self._nudge()

    def ops_due_at_ms(self) -> int:
        with self._changed:
            return self._ops.due_at_ms()

    def follow_clock(self, now_ms: int) -> None:
        with self._changed:
            self._ops.follow_clock(now_ms)

    def write_ops(self) -> None:
        """Write one op message of what was gathered. One thread at a time calls this."""
        # A note must not outlive the commit that it notes.
        self._store.flush()
        with self._changed:
            half_offsets = self._ops.take()
        receipt = self._store.put_rebuilt(records.op_message(half_offsets))
        with self._changed:
            if receipt.physical_offset < 0:
                self._ops.put_back(half_offsets)
            else:
                self._table.add_op(receipt.queue_offset, half_offsets)
        receipt.check()

    def save_progress(self) -> None:
        """Let the next opening, ours or Java's, read on from where everything before is decided."""
        with self._changed:
            progress = (self._table.first_half, self._table.first_op)
        if progress == self._saved:
            return
        # What lies below is never looked at again, so whatever took its place must be on disk.
        self._store.flush()
        # In this order: an op message that is passed too early would be missed by the half messages that it names.
        self._offsets.commit(GROUP, HALF_TOPIC, QUEUE_ID, progress[0])
        self._offsets.commit(GROUP, OP_TOPIC, QUEUE_ID, progress[1])
        self._saved = progress
