"""The ways to put messages into an open store: one or a batch, from threads, asyncio or pipelines.

    admit ─▶ append ─▶ finish        every put

A put has two ways in: the short one of the kernel's fast put, which takes plain messages, and `appender.py` for
everything else. After either it waits for as much durability as the configuration promises. Services put in the same
way (`service_host.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import TypeVar, cast

from flintlog.errors import InvalidConfig
from flintlog.format.properties import WAIT_STORE_MSG_OK
from flintlog.store.engine import Engine
from flintlog.store.flush.waiters import done_future
from flintlog.store.model.arguments import check_batch, plain_text
from flintlog.store.model.message import Message, PutStatus, Receipt, Receipts
from flintlog.store.put.appender import Appender, BeforePut, plainly_named
from flintlog.store.put.closed_batch import ClosedBatch, ClosedBatches, check_batch_ids
from flintlog.store.put.producer import Producer
from flintlog.store.put.queue_choice import QueueChoice
from flintlog.store.read.readable import Readable

Given = TypeVar("Given", Receipt, Receipts)

_OK = PutStatus.PUT_OK


class Writable(Readable):
    """The puts of `Store`. Any thread may put; the put lock decides their order."""

    _choice: QueueChoice

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._appender = Appender(engine)
        self._fast_put = engine.log.fast_put
        self._put_plain = self._fast_put.put
        self._flushing = engine.flushing
        self._wait = engine.flushing.waiting
        self._fast_put.when_behind = engine.flushing.after_append if self._wait is None else None
        self._closed_batches = ClosedBatches(engine, self._appender)

    def put(self, message: Message, key: str | None = None, *, check: bool = True) -> Receipt:
        """Store one message. Under sync flush it is on disk when this returns.

        With a `key` the store chooses the queue: messages of one key share a queue, and so stay in order. See
        `Topics.queue_of`. (The key is not stored; the keys that `query` finds are the message's `keys`.)

        A put that is not acknowledged raises `PutFailed`, which carries the receipt and its status. With `check=False`
        the receipt is returned whatever its status is: look at it. All puts keep this rule.
        """
        if key is not None:
            message = self._choice.by_key(message, key)
        receipt: Receipt | None = self._put_plain(message)
        if receipt is None:
            receipt = self._appender.append(self._appender.admit(message))
        elif self._wait is None:
            return receipt
        return self._finish(receipt, message, check, None)

    def put_batch(self, messages: Sequence[Message], *, check: bool = True) -> Receipts:
        """Store messages of one queue as one write; a receipt for each."""
        if not isinstance(messages, (list, tuple)):
            messages = check_batch(messages)
        receipts: Receipts | None = self._fast_put.put_batch(messages)
        if receipts is None:
            receipts = self._appender.append_batch(messages)
        elif self._wait is None and not self._fast_put.is_behind:
            return receipts
        return self._finish(receipts, messages[0], check)

    def put_encoded(self, batch: Message, *, check: bool = True) -> Receipts:
        """Store messages that a client encoded one after the other as the body of `batch`; a receipt for each.

        `flintlog.encoded_batch` makes such a batch, and a client's request to a broker holds one. Topic, queue, born
        and store host are the batch's; body, flag and properties each message's own.
        """
        receipts: Receipts | None = self._fast_put.put_encoded(batch)
        if receipts is None:
            receipts = self._appender.append_encoded(batch)
        return self._finish(receipts, batch, check)

    def put_async(self, message: Message, key: str | None = None, *, check: bool = True) -> Future[Receipt]:
        """Store one message; the future is done when it is as durable as the configuration says.

        The future of a put that is not acknowledged carries `PutFailed`, or with `check=False` the receipt.
        """
        if key is not None:
            message = self._choice.by_key(message, key)
        receipt = self._append_one(message)
        wait = self._wait
        if wait is not None and receipt.status is _OK and (wait.waits_always or self._waits(message)):
            return cast("Future[Receipt]", wait.future(receipt, plainly_named(message), check))
        receipt = self._finish(receipt, message, check=False, waits=False)
        return cast("Future[Receipt]", done_future(receipt, check))

    def put_closed(
        self, messages: Iterable[Message], *, writer_id: str | None = None, batch_id: int = 0
    ) -> ClosedBatch | None:
        """Store messages of any queues as one batch: after a crash all of them are there, or none.

        A batch that its writer has written before is skipped: None. Any thread may put meanwhile: what others put lies
        before the batch or after it. The messages of an iterator are held in memory until it ends.
        """
        return self._closed_batches.put(messages, writer_id, batch_id)

    def producer(self, id: str) -> Producer:
        """A producer that may put a message again after a crash, and has it stored once; see `Producer`."""
        check_batch_ids(id, 0)
        return Producer(self._closed_batches, plain_text(id), self._finish)

    async def aput(self, message: Message, key: str | None = None, *, check: bool = True) -> Receipt:
        """Store one message from asyncio; a group of waiting producers is woken by one call into the loop."""
        if key is not None:
            message = self._choice.by_key(message, key)
        receipt = self._append_one(message)
        wait = self._wait
        if wait is None or receipt.status is not _OK or not (wait.waits_always or self._waits(message)):
            return self._finish(receipt, message, check=check, waits=False)
        receipt = cast(Receipt, await wait.task(receipt, plainly_named(message)))
        return receipt.check() if check else receipt

    async def aput_batch(self, messages: Sequence[Message], *, check: bool = True) -> Receipts:
        """`put_batch` from asyncio."""
        if not isinstance(messages, (list, tuple)):
            messages = check_batch(messages)
        receipts: Receipts | None = self._fast_put.put_batch(messages)
        if receipts is None:
            receipts = self._appender.append_batch(messages)
        if self._wait is None or receipts.status is not _OK:
            return self._finish(receipts, messages[0], check=check)
        receipts = cast(Receipts, await self._wait.task(receipts, plainly_named(messages[0])))
        return receipts.check() if check else receipts

    # ------------------------------------------------------------------ the path of all puts

    def _append_one(self, message: Message) -> Receipt:
        receipt: Receipt | None = self._put_plain(message)
        return self._appender.append(self._appender.admit(message)) if receipt is None else receipt

    def _waits(self, message: Message) -> bool:
        """Whether a message asks for its put to wait for more than the log."""
        return not message.properties or not _waits_not(message)

    def _finish(self, outcome: Given, message: Message, check: bool, waits: bool | None = True) -> Given:
        """The end of a put: wait for what the configuration promises, or nudge the threads that make it so.

        `waits` is None where the message's own WAIT decides.
        """
        wait = self._wait
        if outcome.status is not _OK:
            self._engine.figures.counters.put_failed(1 if isinstance(outcome, Receipt) else len(outcome))
        elif wait is None:
            if self._fast_put.is_behind:
                self._flushing.after_append()
            return outcome
        elif waits or wait.waits_always or (waits is None and self._waits(message)):
            outcome = cast(Given, wait.wait(outcome, message if type(message.topic) is str else plainly_named(message)))
        else:
            wait.nudge()
        if check and outcome.status is not _OK:
            raise outcome.failure()
        return outcome

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
