"""How messages come into an open store: one, a batch, from threads or asyncio, from services and pipelines.

A put has two ways in: the short one of the kernel's put lane, which takes plain messages, and `appending.py` for
everything else. Behind either it waits for as much durability as the configuration promises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import cast

from flintlog.errors import InvalidConfig, PutFailed
from flintlog.format.properties import WAIT_STORE_MSG_OK
from flintlog.store.put.appender import Appender, BeforePut, Rewrite, plainly_named
from flintlog.store.model.arguments import check_batch
from flintlog.store.put.closed_batch import ClosedBatch, ClosedBatches
from flintlog.store.engine import Engine
from flintlog.store.ledger.ledger_commit_log import LedgerCommitLog
from flintlog.store.model.message import Message, PutStatus, Receipt, Receipts
from flintlog.store.read.readable import Readable
from flintlog.store.runtime.service import Rewritten

_OK = PutStatus.PUT_OK
_IN_DOUBT = frozenset({PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH, PutStatus.UNKNOWN_ERROR})
"""What a ledger's group answers when a message may be in its log or not."""


@dataclass(frozen=True, slots=True)
class Putting:
    """A put that was begun: refused if `receipt` says so; else `finish`, once, gives what became of it."""

    receipt: Receipt
    finish: Callable[[], Receipt]


class Writable(Readable):
    """The puts of `Store`. Any thread may put; the log has the order in which they came."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._appender = Appender(engine)
        self._put_lane = engine.log.put_lane
        self._put_plain = self._put_lane.put
        self._flushing = engine.flushing
        self._group_commit = engine.flushing.waiting
        self._put_lane.when_behind = engine.flushing.after_append if self._group_commit is None else None
        self._is_ledger = engine.parts.ledger is not None  # then a put has no place before the group says which
        self._closed_batches = ClosedBatches(engine, self._appender)

    def put(self, message: Message) -> Receipt:
        """Store one message. Under sync flush it is on disk when this returns PUT_OK."""
        receipt: Receipt | None = self._put_plain(message)
        if receipt is None:
            receipt = self._appender.append(message)
            if receipt.status is not _OK or self._group_commit is None:
                return self._without_waiting(receipt)
            message = plainly_named(message)  # what the lane takes is so named
        elif self._group_commit is None:
            return receipt
        if not self._is_ledger and _waits_not(message):
            self._group_commit.nudge()
            return receipt
        return cast(Receipt, self._group_commit.wait(receipt, message))

    def put_batch(self, messages: Sequence[Message]) -> Receipts:
        """Store messages of one queue as one write; a receipt for each."""
        if not isinstance(messages, (list, tuple)):
            messages = check_batch(messages)
        receipts: Receipts | None = self._put_lane.put_batch(messages)
        if receipts is None:
            receipts = self._appender.append_batch(messages)
        return self._wait_for_all(receipts, messages)

    def put_encoded(self, batch: Message) -> Receipts:
        """Store messages that a client encoded one behind the other as the body of `batch`; a receipt for each.

        `flintlog.encoded_batch` makes such a batch, and a client's request to a broker holds one. Topic, queue, born
        and store host are the batch's; body, flag and properties each message's own.
        """
        receipts: Receipts | None = self._put_lane.put_encoded(batch)
        if receipts is None:
            receipts = self._appender.append_encoded(batch)
        return self._wait_for_all(receipts, (batch,))

    def _wait_for_all(self, receipts: Receipts, messages: Sequence[Message]) -> Receipts:
        """Make a batch as durable as the configuration says, or visible, when its put did not."""
        if receipts.status is not _OK:
            self._engine.figures.counters.put_failed(len(receipts))
            return receipts
        if self._group_commit is None:
            if self._put_lane.is_behind:
                self._flushing.after_append()
            return receipts
        return cast(Receipts, self._group_commit.wait(receipts, plainly_named(messages[0])))

    def put_async(self, message: Message) -> Future[Receipt]:
        """Store one message; the future is done when it is as durable as the configuration says."""
        receipt = self._appender.append(message)
        if receipt.status is _OK and self._group_commit is not None and (self._is_ledger or not _waits_not(message)):
            return cast("Future[Receipt]", self._group_commit.future(receipt, plainly_named(message)))
        done: Future[Receipt] = Future()
        done.set_result(self._without_waiting(receipt))
        return done

    def put_rewritten(self, message: Message, rewrite: Rewrite) -> Receipt:
        """Store what a service makes of a message; hooks and compression come first, as in `put`."""
        return self._wait_for(self._appender.append_rewritten(message, rewrite), message)

    def put_rebuilt(self, rebuilt: Rewritten, *, wait: bool = True) -> Receipt:
        """Store a message that was made from a stored one, its property text in the order that Java would give it.

        Without `wait` it is durable after a later `flush`, as many are then together. In a ledger's leader it is always
        waited for; when the group does not say what became of it, this raises, and services end until it is known.
        """
        receipt = self._appender.append_rebuilt(rebuilt)
        if self._is_ledger:
            return self._settled(self._wait_for(receipt, rebuilt.message))
        return self._wait_for(receipt, rebuilt.message) if wait else self._without_waiting(receipt)

    def put_rebuilt_soon(self, rebuilt: Rewritten) -> Putting:
        """`put_rebuilt` without `wait`, its end left to the caller: so a ledger's leader has many of them under way."""
        if not self._is_ledger:
            done = self.put_rebuilt(rebuilt, wait=False)
            return Putting(done, lambda: done)
        receipt = self._appender.append_rebuilt(rebuilt)
        return Putting(receipt, lambda: self._settled(self._wait_for(receipt, rebuilt.message)))

    def put_closed(
        self, messages: Iterable[Message], *, writer_id: str | None = None, batch_id: int = 0
    ) -> ClosedBatch | None:
        """Store messages of any queues as one batch: after a crash all of them are there, or none.

        A batch that its writer has written before is skipped: None. Any thread may put meanwhile: what others put lies
        before the batch or after it. The messages of an iterator are held in memory until all of them have come.
        """
        return self._closed_batches.put(messages, writer_id, batch_id)

    def _settled(self, receipt: Receipt) -> Receipt:
        if receipt.status in _IN_DOUBT and isinstance(self._engine.log, LedgerCommitLog):
            self._engine.log.doubt()
            raise PutFailed(f"the group has not said what became of a put: {receipt.status}")
        return receipt

    def _wait_for(self, receipt: Receipt, message: Message) -> Receipt:
        if receipt.status is _OK and self._group_commit is not None:
            return cast(Receipt, self._group_commit.wait(receipt, plainly_named(message)))
        return self._without_waiting(receipt)

    async def aput(self, message: Message) -> Receipt:
        """Store one message from asyncio; a group of waiting producers is woken by one call into the loop."""
        receipt: Receipt | None = self._put_plain(message)
        if receipt is None:
            receipt = self._appender.append(message)
            message = plainly_named(message)
        if receipt.status is _OK and self._group_commit is not None and (self._is_ledger or not _waits_not(message)):
            return cast(Receipt, await self._group_commit.task(receipt, message))
        return self._without_waiting(receipt)

    async def aput_batch(self, messages: Sequence[Message]) -> Receipts:
        """`put_batch` from asyncio."""
        if not isinstance(messages, (list, tuple)):
            messages = check_batch(messages)
        receipts = self._appender.append_batch(messages)
        if receipts.status is _OK and self._group_commit is not None:
            return cast(Receipts, await self._group_commit.task(receipts, plainly_named(messages[0])))
        if receipts.status is _OK:
            self._flushing.after_append()
        else:
            self._engine.figures.counters.put_failed(len(receipts))
        return receipts

    def _without_waiting(self, receipt: Receipt) -> Receipt:
        """The end of a put that nobody waits for: tell those who make it durable and visible."""
        if receipt.status is not _OK:
            return self._count_failed(receipt)
        if self._group_commit is None:
            self._flushing.after_append()
        else:
            self._group_commit.nudge()
        return receipt

    def _count_failed(self, receipt: Receipt) -> Receipt:
        self._engine.figures.counters.put_failed()
        return receipt

    def add_put_hook(self, hook: BeforePut) -> None:
        """Let a function look at each message before it is appended."""
        if not callable(hook):
            raise InvalidConfig(f"a hook is a function, not {type(hook).__name__}")
        self._appender.add_hook(hook)

    def flush(self) -> None:
        """Make everything put so far durable, whatever the configuration leaves to its flush thread."""
        self._check_readable()
        self._engine.flush()

    def wait_dispatched(self) -> None:
        """Return when everything put so far is visible; in an arrival listener it returns at once."""
        self._check_readable()
        self._engine.wait_dispatched()


def _waits_not(message: Message) -> bool:
    properties = message.properties
    if not properties:
        return False
    try:
        wait = properties.get(WAIT_STORE_MSG_OK)
        return wait is not None and wait.lower() != "true"
    except Exception:  # noqa: BLE001
        # A name of the user's own type failed to compare. The message is in the log by now: wait, which is safe.
        return False
