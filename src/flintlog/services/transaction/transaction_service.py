"""Transactions: messages that consumers see once their producer commits, through RocketMQ's half and op topics.

    begin ─▶ half message ─┬─▶ commit ─▶ the message in its own topic ─▶ (later) an op message
                           ├─▶ rollback ─▶ an op message
                           └─▶ neither: its producer is asked repeatedly, until it is given up

    with service.begin(Message("orders", b"...")) as transaction:      committed at the end, rolled back by an error
        book(transaction.id)

After a crash: the committed message alone proves a commit. It names its half message, so an opening finds it even when
no op message was written. The op message alone proves a rollback. Either is as durable as any put when the call
returns. A transaction with neither is undecided. There is no state in between; see docs/services.md. Any thread may
call; `transaction_decisions.py` explains the locking.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Final, Self

import msgspec

from flintlog.errors import (
    FlintlogError,
    InvalidConfig,
    InvalidMessage,
    StoreClosed,
    TransactionDecided,
    TransactionError,
    UnknownTransaction,
)
from flintlog.format.properties import PRODUCER_GROUP, UNIQ_KEY
from flintlog.services.transaction import transaction_records as records
from flintlog.services.transaction.transaction_checking import CheckRules, Verdict
from flintlog.services.transaction.transaction_decisions import Decisions
from flintlog.services.transaction.transaction_metrics import TransactionMetrics
from flintlog.services.transaction.transaction_records import Half
from flintlog.services.transaction.transaction_table import Decision, Undecided
from flintlog.services.unique_key import UniqueKeys
from flintlog.store.model.message import Message, Receipt
from flintlog.store.model.stored_message import StoredMessage
from flintlog.store.put.service_host import ServiceHost
from flintlog.store.runtime.jobs import NEVER
from flintlog.store.runtime.service import Rewritten

log = logging.getLogger(__name__)

NAME: Final = "transaction"
DEFAULT_PRODUCER_GROUP: Final = "DEFAULT_PRODUCER"

__all__ = ["CheckCallback", "Decision", "Transaction", "TransactionService", "UndecidedTransaction"]


class UndecidedTransaction(msgspec.Struct, frozen=True):
    """An undecided transaction, as the check callback gets it."""

    id: str
    producer_group: str
    topic: str
    queue_id: int
    born_timestamp: int
    check_times: int
    message: StoredMessage
    """Its half message, with the body, tags, keys and properties of the original message."""


CheckCallback = Callable[[UndecidedTransaction], Decision]


class Transaction:
    """One transaction that this process began. Another process can decide it by its id."""

    def __init__(self, service: TransactionService, id: str, producer_group: str, receipt: Receipt) -> None:
        self.id = id
        self.producer_group = producer_group
        self.receipt = receipt
        self.decision = Decision.UNKNOWN
        self._service = service

    def commit(self, *, check: bool = True) -> Receipt:
        """Make the message visible to consumers; returns its receipt in its own queue."""
        receipt = self._service.commit(self.id, self.producer_group, check=False)
        if receipt.physical_offset >= 0:
            self.decision = Decision.COMMIT
        return receipt.check() if check else receipt

    def rollback(self, *, check: bool = True) -> Receipt:
        """Discard the message; returns the receipt of the op message."""
        receipt = self._service.rollback(self.id, self.producer_group, check=False)
        if receipt.physical_offset >= 0:
            self.decision = Decision.ROLLBACK
        return receipt.check() if check else receipt

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.decision is Decision.UNKNOWN:
            (self.commit if kind is None else self.rollback)()

    def __repr__(self) -> str:
        return f"Transaction({self.id!r}, {self.decision.value})"


class TransactionService:
    """The service "transaction" of one store."""

    def __init__(self, host: ServiceHost) -> None:
        store = host.store
        self._host = host
        self._store = store
        self._decisions = Decisions(host, partial(host.nudge, NAME))
        self._metrics = TransactionMetrics(host)
        self._rules = CheckRules.of(store.config)
        self._keys = UniqueKeys(store.config.store_host, host.now_ms)
        self._callback: CheckCallback | None = None
        self._next_check_ms = 0
        self._next_metrics_ms = 0
        self._is_running = False

    # ------------------------------------------------------------------ for users

    def begin(self, message: Message, producer_group: str | None = None) -> Transaction:
        """Store a message that consumers do not see yet. Its id is its property UNIQ_KEY, or a new one."""
        self._check_running()
        if type(message) is not Message:
            raise InvalidMessage(f"a transaction begins with a Message, not {type(message).__name__}")
        group = _group_of(message, producer_group)
        given = (message.properties or {}).get(UNIQ_KEY)
        if given:
            self._decisions.see_new(wait=True)
        key = given or self._keys.next()
        put = partial(self._host.put_rewritten, message, lambda seen: records.prepare(seen, group, key), check=False)
        receipt = self._decisions.begin(key, put)
        if receipt is None:
            advice = "give each transaction its own UNIQ_KEY"
            raise InvalidMessage(f"an undecided transaction {key!r} already exists", advice=advice)
        return Transaction(self, key, group, receipt.check())

    def commit(self, id: str, producer_group: str | None = None, *, check: bool = True) -> Receipt:
        """Make a transaction's message visible to consumers. If it was not stored, the call can be retried."""
        transaction = self._find(id, producer_group)
        receipt = self._decisions.claimed(transaction, self._decisions.commit)
        return receipt.check() if check else receipt

    def rollback(self, id: str, producer_group: str | None = None, *, check: bool = True) -> Receipt:
        """Discard a transaction's message. If the rollback was not stored, the call can be retried."""
        transaction = self._find(id, producer_group)
        receipt = self._decisions.claimed(transaction, self._decisions.roll_back)
        return receipt.check() if check else receipt

    def undecided(self) -> list[UndecidedTransaction]:
        """All undecided transactions, oldest first."""
        self._check_running()
        self._decisions.see_new(wait=True)
        return [self._shown(each.half) for each in self._decisions.undecided()]

    def on_check(self, callback: CheckCallback | None) -> None:
        """Set the function that is asked about transactions that stay undecided; None to ask nobody."""
        if callback is not None and not callable(callback):
            raise InvalidConfig(f"a check is a function, not {type(callback).__name__}")
        self._callback = callback

    # ------------------------------------------------------------------ for the store

    def start(self) -> None:
        now_ms = self._host.now_ms()
        self._metrics.load()
        self._decisions.load()
        self._next_check_ms = now_ms + self._store.config.transaction_check_interval
        self._next_metrics_ms = now_ms + self._store.config.transaction_metric_flush_interval
        self._is_running = True

    def rewrite(self, message: Message) -> Rewritten:
        raise InvalidMessage("a put cannot begin a transaction", advice="call begin of the transaction service")

    def stored(self, receipt: Receipt) -> None:
        """Do nothing: `begin` puts half messages itself."""

    def run_due(self) -> int:
        now_ms = self._host.now_ms()
        self._follow_clock(now_ms)
        self._decisions.see_new(wait=False)
        if now_ms >= self._next_check_ms:
            self._next_check_ms = now_ms + self._store.config.transaction_check_interval
            self._check_all(now_ms)
        while now_ms >= self._decisions.ops_due_at_ms():
            self._decisions.write_ops()
        self._decisions.save_progress()
        if now_ms >= self._next_metrics_ms:
            self._next_metrics_ms = now_ms + self._store.config.transaction_metric_flush_interval
            self._metrics.save(self._decisions.counts())
        return min(self._next_check_ms, self._next_metrics_ms, self._decisions.ops_due_at_ms())

    def _follow_clock(self, now_ms: int) -> None:
        """Adapt to a clock that was turned back: no due time is more than its interval ahead."""
        config = self._store.config
        self._next_check_ms = min(self._next_check_ms, now_ms + config.transaction_check_interval)
        self._next_metrics_ms = min(self._next_metrics_ms, now_ms + config.transaction_metric_flush_interval)
        self._decisions.follow_clock(now_ms)

    def stop(self) -> None:
        """Note all decisions in op messages: a Java broker that opens the directory reads only those."""
        self._is_running = False
        try:
            self._decisions.see_new(wait=True)
            while self._decisions.ops_due_at_ms() < NEVER:
                self._decisions.write_ops()
            self._decisions.save_progress()
            self._metrics.save(self._decisions.counts())
        except FlintlogError as failure:
            log.warning("not all decisions were noted; the next opening finds them in the log: %s", failure)

    def _check_running(self) -> None:
        if not self._is_running:
            raise StoreClosed("the store was shut down, so its transactions cannot be used", path=self._store.path)

    # ------------------------------------------------------------------ finding

    def _find(self, id: str, producer_group: str | None) -> Undecided:
        self._check_running()
        if not isinstance(id, str) or not id:
            raise UnknownTransaction(f"the id of a transaction is a non-empty string, not {id!r}")
        found = self._decisions.find(id)
        for wait in (False, True):
            if found is None:
                self._decisions.see_new(wait=wait)
                found = self._decisions.find(id)
        if found is None:
            if self._decisions.is_in_index(id):
                raise self._decisions.decided(id)
            raise UnknownTransaction(f"there is no transaction {id!r}", path=self._store.path)
        owner = found.half.producer_group
        if producer_group is not None and producer_group != owner:
            raise TransactionError(f"the transaction {id!r} belongs to the group {owner!r}, not to {producer_group!r}")
        return found

    def _shown(self, half: Half) -> UndecidedTransaction:
        return UndecidedTransaction(
            half.id,
            half.producer_group,
            half.topic,
            half.queue_id,
            half.born_timestamp,
            max(0, half.check_times or 0),
            self._decisions.read(half),
        )

    # ------------------------------------------------------------------ checking

    def _check_all(self, now_ms: int) -> None:
        """Check all transactions that are undecided now, in the order of the half queue."""
        for transaction in self._decisions.undecided():
            verdict = self._rules.judge(transaction.half, now_ms)
            if verdict is Verdict.END_ROUND:
                return
            if verdict is not Verdict.GIVE_UP and self._callback is None:
                continue
            try:
                self._check(transaction, verdict)
            except TransactionDecided:
                log.debug("the transaction %s was decided while it was checked", transaction.half.id)

    def _check(self, transaction: Undecided, verdict: Verdict) -> None:
        decisions = self._decisions
        if verdict is Verdict.GIVE_UP:
            decisions.claimed(transaction, self._give_up).check()
            return
        rebuild = records.put_off if verdict is Verdict.PUT_OFF else records.check_again
        decisions.claimed(transaction, lambda claimed: decisions.copy(claimed, rebuild)).check()
        decisions.see_new(wait=True)
        answer = self._ask(transaction.half) if verdict is Verdict.ASK else Decision.UNKNOWN
        if answer is Decision.UNKNOWN:
            return
        decide = decisions.commit if answer is Decision.COMMIT else decisions.roll_back
        decisions.claimed(transaction, decide).check()

    def _give_up(self, transaction: Undecided) -> Receipt:
        log.error("the transaction %s is given up: it was checked too often or is too old", transaction.half.id)
        return self._decisions.give_up(transaction, self._rules.check_max)

    def _ask(self, half: Half) -> Decision:
        """The callback's answer; UNKNOWN when it fails, so that it is asked again."""
        if self._callback is None:
            return Decision.UNKNOWN
        try:
            answer: object = self._callback(self._shown(half))
        except Exception:
            log.exception("the check of the transaction %s failed; it will be checked again", half.id)
            return Decision.UNKNOWN
        if not isinstance(answer, Decision):
            log.error("the check of the transaction %s returned %r, which is not a Decision", half.id, answer)
            return Decision.UNKNOWN
        return answer


def _group_of(message: Message, producer_group: str | None) -> str:
    given = (message.properties or {}).get(PRODUCER_GROUP)
    if producer_group is not None and given not in (None, producer_group):
        raise InvalidMessage(f"the producer group is {producer_group!r}, but {given!r} in the message's properties")
    group = producer_group or given or DEFAULT_PRODUCER_GROUP
    if not isinstance(group, str):
        raise InvalidMessage(f"a producer group is a string, not {group!r}")
    return group
