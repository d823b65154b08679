"""Decides transactions, each exactly once.

A single record decides, so a crash cannot leave a transaction half decided:

    commit        the committed message
    rollback      the op message
    given up      the message in the discard topic

All later writes only save work: notes about commits (gathered, see `transaction_ops.py`) and the progress of the two
queues, which moves only past durable decisions.

Any thread may call. `_changed` guards the table, the gathered ops and the claims. It is never held during a put: a
thread claims a transaction before it puts a record for it, and other threads wait until it is decided or released.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from flintlog.errors import PutFailed, TransactionDecided, TransactionError
from flintlog.services.transaction import transaction_records as records
from flintlog.services.transaction.transaction_loading import PAGE_MESSAGES, load_table, read_halves
from flintlog.services.transaction.transaction_ops import GatheredOps
from flintlog.services.transaction.transaction_records import GROUP, HALF_TOPIC, OP_TOPIC, QUEUE_ID, Half
from flintlog.services.transaction.transaction_table import Decision, TransactionTable, Undecided
from flintlog.store.model.message import Receipt
from flintlog.store.model.stored_message import StoredMessage
from flintlog.store.put.service_host import ServiceHost
from flintlog.store.runtime.service import Rewritten

_WORDS: Final = {Decision.COMMIT: "committed", Decision.ROLLBACK: "rolled back"}

_TRIES: Final = 3
_CLAIM_LOOK_S: Final = 0.002

Rebuild = Callable[[StoredMessage, Half], Rewritten]


class Decisions:
    """The transactions of one store and their decisions."""

    def __init__(self, host: ServiceHost, nudge: Callable[[], None]) -> None:
        store = host.store
        config = store.config
        self._host = host
        self._store = store
        self._offsets = store.consumer_offsets
        self._nudge = nudge
        self._table = TransactionTable(0, 0)
        self._ops = GatheredOps(config.transaction_op_msg_max_size, config.transaction_op_batch_interval)
        self._saved = (-1, -1)
        self._changed = threading.RLock()
        self._beginning: dict[str, object] = {}

    def load(self) -> None:
        """Find the undecided transactions in the log."""
        store = self._store
        store.wait_dispatched()
        half, op = (self._offsets.get(GROUP, topic, QUEUE_ID) for topic in (HALF_TOPIC, OP_TOPIC))
        self._saved = (-1 if half is None else half, -1 if op is None else op)
        self._table, not_noted = load_table(self._host, *self._saved)
        self._ops.add(not_noted, self._host.now_ms())

    # ------------------------------------------------------------------ looking

    def undecided(self) -> list[Undecided]:
        with self._changed:
            return self._table.undecided()

    def counts(self) -> dict[str, int]:
        """The number of undecided transactions by topic."""
        with self._changed:
            return dict(self._table.counts)

    def find(self, id: str) -> Undecided | None:
        """An undecided transaction whose half message was read, or None; raises if it was decided lately."""
        with self._changed:
            found = self._table.find(id)
            if found is None and self._table.decision_about(id) is not None:
                raise self.decided(id)
            return found

    def is_in_index(self, id: str) -> bool:
        """Whether such a transaction ever existed; old ones are known only to the index."""
        return any(half.uniq_key == id for half in self._store.query(HALF_TOPIC, id, max_count=PAGE_MESSAGES))

    def decided(self, id: str) -> TransactionDecided:
        """The error for a second decision."""
        decision = self._table.decision_about(id)
        word = "decided" if decision is None else _WORDS.get(decision, "decided")
        return TransactionDecided(f"the transaction {id!r} was already {word}", path=self._store.path)

    def is_open(self, transaction: Undecided) -> bool:
        with self._changed:
            return self._table.is_open(transaction)

    def see_new(self, *, wait: bool) -> None:
        """Read new half messages. With `wait`, first wait until everything put so far is dispatched."""
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
    # `begin` and `claimed` release without making a call, so an exception from a signal handler cannot come in between.
    # Both take a function instead of being context managers: a kept exception would keep the claim alive.

    def begin(self, id: str, put: Callable[[], Receipt]) -> Receipt | None:
        """Put a half message while its id is reserved; None when the id is in use."""
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
        """Claim a transaction and put a record for it; `TransactionDecided` when it is no longer undecided."""
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
                    raise PutFailed(f"a copy of the transaction {transaction.half.id!r} is not visible yet")
                if transaction.claimed_by is None:
                    transaction.claimed_by = claimant

    @staticmethod
    def _wait_for_claim(transaction: Undecided) -> None:
        """Wait until no thread has claimed it. This polls, because a claim is released without a notification."""
        while transaction.claimed_by is not None:
            time.sleep(_CLAIM_LOOK_S)

    def _see_copy_of(self, transaction: Undecided) -> None:
        """Read the newest copy before a decision: an unread copy would look like an undecided transaction later.

        Call without a claim, because this waits for dispatch: dispatch waits for listeners, and a listener may wait for
        the claim.
        """
        for _ in range(_TRIES):
            self._wait_for_claim(transaction)
            with self._changed:
                if transaction.copied_to < self._table.read_to:
                    return
            self.see_new(wait=True)

    # ------------------------------------------------------------------ deciding a claimed transaction

    def commit(self, transaction: Undecided) -> Receipt:
        half = transaction.half
        receipt = self._host.put_rebuilt(records.commit(self.read(half), half), check=False)
        # Even after a flush timeout it is in the log, so a second commit must not follow.
        if receipt.physical_offset >= 0:
            with self._changed:
                self._gather(self._table.decide(transaction, Decision.COMMIT))
        return receipt

    def roll_back(self, transaction: Undecided) -> Receipt:
        half_offsets = [half.queue_offset for half in transaction.halves]
        receipt = self._host.put_rebuilt(records.op_message(half_offsets), check=False)
        if receipt.physical_offset >= 0:
            with self._changed:
                self._table.decide(transaction, Decision.ROLLBACK)
                self._table.add_op(receipt.queue_offset, half_offsets)
        return receipt

    def give_up(self, transaction: Undecided, check_max: int) -> Receipt:
        half = transaction.half
        receipt = self._host.put_rebuilt(records.give_up(self.read(half), half, check_max), check=False)
        if receipt.physical_offset >= 0:
            with self._changed:
                self._table.decide(transaction, Decision.UNKNOWN)
        return receipt

    def copy(self, transaction: Undecided, rebuild: Rebuild) -> Receipt:
        """Put a copy at the end of the half queue; it becomes the valid half message once it is read."""
        half = transaction.half
        receipt = self._host.put_rebuilt(rebuild(self.read(half), half), check=False)
        if receipt.physical_offset >= 0:
            transaction.copied_to = receipt.queue_offset
        return receipt

    # ------------------------------------------------------------------ notes and progress

    def _gather(self, half_offsets: list[int]) -> None:
        if self._ops.add(half_offsets, self._host.now_ms()):
            self._nudge()

    def ops_due_at_ms(self) -> int:
        with self._changed:
            return self._ops.due_at_ms()

    def follow_clock(self, now_ms: int) -> None:
        with self._changed:
            self._ops.follow_clock(now_ms)

    def write_ops(self) -> None:
        """Write one op message with gathered offsets. One thread at a time calls this."""
        # The commits must be durable before their note, or a crash could keep the note and lose the commit.
        self._store.flush()
        with self._changed:
            half_offsets = self._ops.take()
        receipt = self._host.put_rebuilt(records.op_message(half_offsets), check=False)
        with self._changed:
            if receipt.physical_offset < 0:
                self._ops.put_back(half_offsets)
            else:
                self._table.add_op(receipt.queue_offset, half_offsets)
        receipt.check()

    def save_progress(self) -> None:
        """Save the offsets below which all is decided, for the next opening by flintlog or Java."""
        with self._changed:
            progress = (self._table.first_half, self._table.first_op)
        if progress == self._saved:
            return
        # Messages below are never read again, so their decisions must be durable first.
        self._store.flush()
        # Half queue first: if the op offset were ahead, op messages that name undecided halves would be skipped.
        self._offsets.commit(GROUP, HALF_TOPIC, QUEUE_ID, progress[0])
        self._offsets.commit(GROUP, OP_TOPIC, QUEUE_ID, progress[1])
        self._saved = progress
