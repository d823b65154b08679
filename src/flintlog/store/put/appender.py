"""The way of a message into the log: the short one for plain messages, the long one for all others.

    admit ─▶ append ─▶ finish (`Writable`)

    plain     type right, no hook, no service, no batch queue       kernel's fast put
    special   hooks, compression, inner batches, multi-dispatch,     here, then CommitLog.put or put_placed
              transaction flags
    delayed   rewritten by its service, then as special
    rebuilt   made by a service from a stored one, as special, without hooks

Every message that is appended here was admitted here: each check is made once for all puts, after the last step that
could change its outcome. A message that can never be stored raises an error. A message that cannot be stored now gives
a receipt with the reason.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import msgspec

from flintlog.derive.entries import may_multi_dispatch
from flintlog.errors import InvalidMessage, InvalidTopic, ServiceNotEnabled, StoreClosed
from flintlog.format.properties import INNER_MULTI_DISPATCH, INNER_NUM
from flintlog.format.sys_flag import INNER_BATCH, TRANSACTION_MASK, is_compressed, takes_queue_offset
from flintlog.kernel import ClosedFor
from flintlog.store.engine import Engine
from flintlog.store.log.log import Placement
from flintlog.store.model.arguments import check_batch, check_encoded_batch, check_types, plain_text
from flintlog.store.model.compression import Codec, compress
from flintlog.store.model.message import Message, PutStatus, Receipt, Receipts, refused
from flintlog.store.put.placement import InBatchQueue, MultiDispatched, Unqueued, inner_count
from flintlog.store.put.queue_choice import QueueChoice
from flintlog.store.queues.logical_queue import QueueType
from flintlog.store.runtime.service import Rewritten, Service

_SPECIAL_FLAGS = TRANSACTION_MASK | INNER_BATCH
_REFUSES_ALL = int(ClosedFor.NOT_WRITEABLE | ClosedFor.REFUSAL)
_REFUSES_CALLERS = int(_REFUSES_ALL | ClosedFor.CLOSING)
_MAKES_SPECIAL = int(ClosedFor.HOOKS | ClosedFor.BATCH_TOPICS | ClosedFor.MULTI_DISPATCH)

BeforePut = Callable[[Message], "Message | Receipt | None"]
"""Called with each message before it is appended: returns another one, a receipt that ends the put, or None."""

Rewrite = Callable[[Message], "Rewritten | Receipt"]
"""Returns the message to store instead of the given one; a receipt refuses the put, as an error does."""


class Prepared(msgspec.Struct, frozen=True):
    """A message as it is to be stored. The receipt is reported to `service`, which rewrote it."""

    message: Message
    capacity: int | None = None
    service: Service | None = None
    is_plain: bool = False
    """Whether it is appended to its queue unchanged, so that no placement has to be looked for."""


class Appender:
    """Puts messages into the log of a running engine; nothing here waits for a disk."""

    def __init__(self, engine: Engine) -> None:
        config = engine.config
        self._fast = engine.log.fast_put
        self._engine = engine
        self._log = engine.log
        self._queues = engine.parts.queues
        self._lifecycle = engine.lifecycle
        self.services: Mapping[str, Service] = {}
        self.queue_choice: QueueChoice | None = None
        self._hooks: list[BeforePut] = []
        self._own_topics = engine.log.own_topics
        self._close_for(ClosedFor.MULTI_DISPATCH, config.enable_lmq and config.enable_multi_dispatch)
        self._least_in_sync = config.min_in_sync_replicas if config.broker_role == "SYNC_MASTER" else 1
        self.refuse(PutStatus.SERVICE_NOT_AVAILABLE if engine.is_replica else None)
        self.set_in_sync_count(1)
        self.look_at_queue_types()
        engine.lifecycle.on_change = self._follow_lifecycle
        self._follow_lifecycle()

    def add_hook(self, hook: BeforePut) -> None:
        self._hooks.append(hook)
        self._fast.close(ClosedFor.HOOKS)

    def set_in_sync_count(self, count: int) -> None:
        """Set how many stores are in sync, this one counted; with too few of them puts are refused."""
        if not self._engine.is_replica and self._least_in_sync > 1:
            self.refuse(PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH if count < self._least_in_sync else None)

    def refuse(self, status: PutStatus | None) -> None:
        """Refuse all puts with this status; None accepts them again."""
        self._refusal = status
        self._close_for(ClosedFor.REFUSAL, status is not None)

    def refuse_callers(self) -> None:
        """Refuse the puts of callers from now on; services may still put what they need in order to stop."""
        self._fast.close(ClosedFor.CLOSING)

    def look_at_queue_types(self) -> None:
        """Look again whether a topic has a batch queue."""
        self._close_for(ClosedFor.BATCH_TOPICS, self._queues.has_batch_topics)

    def _follow_lifecycle(self) -> None:
        self._close_for(ClosedFor.NOT_WRITEABLE, not self._lifecycle.is_writeable)

    def _close_for(self, reason: ClosedFor, is_closed: bool) -> None:
        (self._fast.close if is_closed else self._fast.open)(reason)

    # ------------------------------------------------------------------ one message

    def admit(
        self, message: Message, rewrite: Rewrite | None = None, *, is_patient: bool = False
    ) -> Prepared | Receipt:
        """Check a caller's message; returns the message to store, or the receipt that refuses it. Appends nothing.

        `rewrite` returns what a service stores instead. A patient caller waits for a busy log.
        """
        if self._fast.closed_for & _REFUSES_CALLERS:
            return self._refuse()
        if type(message) is not Message:
            raise InvalidMessage(f"put takes a Message, not {type(message).__name__}")
        message = self._named(message)
        if not is_patient and self._is_busy():
            return Receipt(PutStatus.OS_PAGE_CACHE_BUSY)
        try:
            if rewrite is None and not self._is_special(message):
                return Prepared(message, is_plain=True)
            answer = self._ask_hooks(message)
            if isinstance(answer, Receipt):
                return answer
            check_types(answer)
            return self._rewritten(_compressed(self._named(answer)), rewrite)
        except (TypeError, AttributeError, ValueError):
            check_types(message)
            raise

    def admit_rebuilt(self, rebuilt: Rewritten) -> Prepared | Receipt:
        """The same for a message that a service made from a stored one, which the hooks have seen already."""
        if self._fast.closed_for & _REFUSES_ALL:
            return self._refuse()
        check_types(rebuilt.message)
        return Prepared(self._named(rebuilt.message), rebuilt.capacity)

    def append(self, prepared: Prepared | Receipt) -> Receipt:
        """Append an admitted message, and report the receipt to the service that rewrote it."""
        if isinstance(prepared, Receipt):
            return prepared
        receipt = self._append(prepared, self._log.put, self._log.put_placed)
        if receipt.status is PutStatus.PUT_OK and prepared.service is not None:
            prepared.service.stored(receipt)
        return receipt

    def append_held(self, prepared: Prepared) -> Receipt:
        """Append an admitted message, for a caller that holds the put lock and reports to the service itself."""
        return self._append(prepared, self._log.put_held, self._log.put_placed_held)

    def append_state(self, message: Message) -> Receipt:
        """Append a message of the ledger group's shared state; hooks are not called."""
        return self._refuse() if self._fast.closed_for & _REFUSES_ALL else self._log.put(message)

    def make_check(self) -> Callable[[Prepared], Receipt | None]:
        """A function that raises or refuses as `append_held` would, and appends nothing."""
        check = self._log.make_check()

        def run(prepared: Prepared) -> Receipt | None:
            placement = None if prepared.is_plain else self._place(prepared.message)
            if isinstance(placement, Receipt):
                return placement
            try:
                check(prepared.message if placement is None else placement.prepare()[0], prepared.capacity)
            except (TypeError, AttributeError, ValueError):
                check_types(prepared.message)
                raise
            return None

        return run

    def _append(
        self,
        prepared: Prepared,
        put: Callable[[Message, int | None], Receipt],
        put_placed: Callable[[Placement, int | None], Receipt],
    ) -> Receipt:
        try:
            placement = None if prepared.is_plain else self._place(prepared.message)
            if isinstance(placement, Receipt):
                return placement
            if placement is None:
                return put(prepared.message, prepared.capacity)
            return put_placed(placement, prepared.capacity)
        except (TypeError, AttributeError, ValueError):
            check_types(prepared.message)
            raise

    def _is_special(self, message: Message) -> bool:
        """Whether the message, or this store, needs more than an unchanged append."""
        return bool(
            self._fast.closed_for & _MAKES_SPECIAL
            or message.sys_flag & _SPECIAL_FLAGS
            or message.delay_level != 0
            or message.deliver_at_ms is not None
            or message.compress is not None
            or _has_inner_count(message)
        )

    def _named(self, message: Message) -> Message:
        """The message with a plain topic, which must not be the log's own. Call it after each possible change."""
        message = plainly_named(message)
        if message.topic in self._own_topics:
            raise InvalidTopic(f"{message.topic} is the group's own", advice="its leader writes there")
        return message if self.queue_choice is None else self.queue_choice.in_turn(message)

    def _rewritten(self, message: Message, rewrite: Rewrite | None) -> Prepared | Receipt:
        service: Service | None = None
        if rewrite is None:
            if not message.delay_level and message.deliver_at_ms is None:
                return Prepared(message)
            found = self._delaying(message)
            if isinstance(found, Receipt):
                return found
            service, rewrite = found, found.rewrite
        answer = rewrite(message)
        if isinstance(answer, Receipt):
            return answer
        return Prepared(self._named(answer.message), answer.capacity, service)

    def _delaying(self, message: Message) -> Service | Receipt:
        """The service that keeps a delayed message until it is due."""
        if message.delay_level and message.deliver_at_ms is not None:
            raise InvalidMessage("a message waits for a delay level or for a time, not for both")
        name = "schedule" if message.delay_level else "timer"
        service = self.services.get(name)
        if service is None and name in self._engine.config.services:
            return Receipt(PutStatus.SERVICE_NOT_AVAILABLE)  # it does not run yet, or not any more
        if service is None:
            raise ServiceNotEnabled(
                f"a delayed message needs the service {name!r}", advice=f"open the store with services={{{name!r}}}"
            )
        return service

    # ------------------------------------------------------------------ batches

    def append_batch(self, messages: Sequence[Message]) -> Receipts:
        messages = self._named_batch(messages)
        refusal = self._refuse_batch(len(messages))
        if refusal is not None:
            return refusal
        if self._hooks:
            answers = [self._ask_hooks(message) for message in messages]
            refused_by = next((answer for answer in answers if isinstance(answer, Receipt)), None)
            if refused_by is not None:
                return refused(refused_by.status, len(messages))
            messages = self._named_batch(cast("list[Message]", answers))
        try:
            self._check_batch_queue(messages[0])
            if any(_is_special_in_batch(message) for message in messages):
                messages = [_compressed(_not_inner(message)) for message in messages]
            return self._log.put_batch(messages)
        except (TypeError, AttributeError, ValueError):
            for message in messages:
                check_types(message)
            raise

    def _named_batch(self, messages: Sequence[Message]) -> Sequence[Message]:
        batch: Sequence[Message] = check_batch(messages)
        if self.queue_choice is not None:
            batch = self.queue_choice.batch_in_turn([plainly_named(message) for message in batch])
        return [self._named(message) for message in batch]

    def append_encoded(self, batch: Message) -> Receipts:
        """Append the messages that a client encoded as the body of one; hooks get that one."""
        batch, count = self._check_encoded(batch)
        refusal = self._refuse_batch(count)
        if refusal is not None:
            return refusal
        answer = self._ask_hooks(batch)
        if isinstance(answer, Receipt):
            return refused(answer.status, count)
        if answer is not batch:
            answer, _ = self._check_encoded(answer)
        self._check_batch_queue(answer)
        return self._log.put_encoded(answer)

    def _check_encoded(self, batch: Message) -> tuple[Message, int]:
        if type(batch) is Message:
            batch = self._named(batch)
        return batch, check_encoded_batch(batch)

    def _refuse_batch(self, count: int) -> Receipts | None:
        if self._fast.closed_for & _REFUSES_CALLERS:
            return refused(self._refuse().status, count)
        return refused(PutStatus.OS_PAGE_CACHE_BUSY, count) if self._is_busy() else None

    def _check_batch_queue(self, message: Message) -> None:
        if self._fast.closed_for & ClosedFor.BATCH_TOPICS and self._queues.type_of(message.topic) is QueueType.BATCH:
            raise InvalidMessage("a topic with a batch queue takes inner batches", advice="put each as one message")

    # ------------------------------------------------------------------ parts of both

    def _ask_hooks(self, message: Message) -> Message | Receipt:
        for hook in self._hooks:
            answer = hook(message)
            if isinstance(answer, Receipt):
                return answer
            if answer is None:
                continue
            if type(answer) is not Message:
                raise InvalidMessage(f"a hook before a put answers a Message, a Receipt or None, not {answer!r}")
            message = answer
        return message

    def _is_busy(self) -> bool:
        """Whether a put has held the log for longer than another should wait for it."""
        since = self._log.locked_since
        patience_ms = self._engine.config.os_page_cache_busy_time_out_millis
        return since is not None and (time.monotonic() - since) * 1000 > patience_ms

    def _place(self, message: Message) -> Placement | Receipt | None:
        """The object that decides this message's queue offset; None for a plain message."""
        queues = self._queues
        is_batch = queues.type_of(message.topic) is QueueType.BATCH
        if message.sys_flag & INNER_BATCH and not is_batch:
            raise InvalidMessage("an inner batch needs a topic with a batch queue")
        inner_count(message)  # raises for a wrong count, in prepared messages too
        if not takes_queue_offset(message.sys_flag):
            return Unqueued(message)
        if is_batch:
            return InBatchQueue(message, queues.offsets)
        names = (message.properties or {}).get(INNER_MULTI_DISPATCH)
        if not names or not self._fast.closed_for & ClosedFor.MULTI_DISPATCH or not may_multi_dispatch(message.topic):
            return None
        placement = MultiDispatched(message, queues.offsets)
        placement.check_names()
        if queues.offsets.light_count + placement.new_queue_count > self._engine.config.max_lmq_consume_queue_num:
            return Receipt(PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED)
        return placement

    def _refuse(self) -> Receipt:
        if self._engine.read_only:
            raise StoreClosed("the store was opened read-only", path=self._engine.path)
        if self._lifecycle.is_writeable and self._refusal is not None:
            return Receipt(self._refusal)
        return Receipt(PutStatus.SERVICE_NOT_AVAILABLE)


def _is_special_in_batch(message: Message) -> bool:
    return message.compress is not None or bool(message.sys_flag & INNER_BATCH) or _has_inner_count(message)


def plainly_named(message: Message) -> Message:
    """The message with its topic as a plain `str`: a subclass with its own comparison must not become a table's key."""
    topic = message.topic
    if type(topic) is str:
        return message
    if not isinstance(topic, str):
        raise InvalidTopic(f"a topic is text, not {type(topic).__name__}")
    return msgspec.structs.replace(message, topic=plain_text(topic))


def _has_inner_count(message: Message) -> bool:
    properties = message.properties
    try:
        return properties is not None and INNER_NUM in properties
    except TypeError:
        raise  # not a mapping: the check of types reports it
    except Exception as failure:
        raise InvalidMessage(f"a property's name cannot be compared: {failure!r}") from failure


def _not_inner(message: Message) -> Message:
    if message.sys_flag & INNER_BATCH or inner_count(message) != 1:
        raise InvalidMessage("an inner batch cannot be in a batch", advice="put it alone")
    return message


def _compressed(message: Message) -> Message:
    if message.compress is None:
        return message
    if is_compressed(message.sys_flag):
        raise InvalidMessage("the body is compressed already, as sys_flag says", advice="leave compress out")
    body, bits = compress(bytes(message.body), cast(Codec, message.compress))
    return msgspec.structs.replace(message, body=body, sys_flag=message.sys_flag | bits, compress=None)
