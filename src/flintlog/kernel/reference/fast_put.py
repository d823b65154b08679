"""The fast path of a put: from a message to a visible record.

    message ─▶ queue offset ─▶ record at the tail ─▶ queue entry and index ─▶ receipt
       │             │                │                        │
       └─────────────┴── None: the caller takes the long way   └── left to the dispatcher

It serves a plain message in the plain case: the lock is free, the segment has room, dispatch has caught up. The long
way (`CommitLog.put`, `Dispatcher.advance`) serves every message and does the same.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar, cast

from flintlog.errors import DiskFull, FormatError
from flintlog.format.client_batch import count_client_messages
from flintlog.format.message_fields import MessageFields
from flintlog.format.properties import INNER_NUM
from flintlog.format.sys_flag import INNER_BATCH, TRANSACTION_MASK
from flintlog.kernel.reference.encoder import Encoder
from flintlog.kernel.reference.fast_dispatch import FastDispatch
from flintlog.kernel.reference.tails import Tail
from flintlog.kernel.types import DISPATCH_REASONS, PUT_REASONS, Moves

_SPECIAL_FLAGS = TRANSACTION_MASK | INNER_BATCH

R = TypeVar("R")
B = TypeVar("B")


class PlainMessage(MessageFields, Protocol):
    """The fields that distinguish a plain message from one that needs the long way."""

    @property
    def delay_level(self) -> int: ...
    @property
    def deliver_at_ms(self) -> int | None: ...
    @property
    def compress(self) -> str | None: ...


class Lock(Protocol):
    """The put lock."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...
    def release(self) -> None: ...

    @property
    def locked(self) -> Callable[[], bool]:
        """Whether the lock is taken. A built-in method: the native kernel must not lose the GIL in this call."""
        ...


class FastPut(Generic[R, B]):
    """The fast path of a plain message. A put that returns None has done nothing: its caller takes the long way.

    `tail` is the end of the log and `next_offsets` the table of next queue offsets; the put lock guards both. Unless
    `is_open`, every put returns None. With `dispatches` (not under sync flush) a put dispatches its own records. At the
    log offset `ready_until` one put takes the long way, which prepares the next pages of the file; batches that are
    written through the file need no pages. A single put that leaves its record undispatched calls `when_behind`.
    """

    def __init__(
        self,
        encoder: Encoder,
        fast_dispatch: FastDispatch,
        *,
        lock: Lock,
        receipt_type: Callable[..., R],
        batch_type: Callable[..., B],
        ok: object,
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        """A receipt is made as `receipt_type(ok, physical offset, queue offset, size, store time, store host)`.

        Those of a batch: `batch_type(ok, physical offsets and the end, first queue offset, store time, store host)`.
        """
        self.encoder = encoder
        self.fast_dispatch = fast_dispatch
        self.tail: Tail | None = None
        self.next_offsets: dict[tuple[str, int], int] = {}
        self.closed_for = 0
        self._closing = threading.Lock()
        self.ready_until = 0
        self.when_behind: Callable[[], None] | None = None
        # The built-in lock, entered by `with`: a signal handler that raises between `acquire` and `try` would leave it
        # locked. `put` checks that it is free first, so it waits for one other put at most.
        self._lock = cast(threading.Lock, lock() if callable(lock) else lock)
        self._receipt_type = receipt_type
        self._batch_type = batch_type
        self._ok = ok
        self._now_ms = _system_now_ms if now_ms is None else now_ms

    def close(self, reason: int) -> None:
        """Take no puts, or leave dispatch to others, for this reason too."""
        with self._closing:
            self.closed_for |= reason

    def open(self, reason: int) -> None:
        """This reason has passed; others may remain."""
        with self._closing:
            self.closed_for &= ~reason

    @property
    def is_behind(self) -> bool:
        """Whether records wait to be dispatched."""
        return self.tail is not None and self.fast_dispatch.log_offset != self.tail.end

    def put(self, message: PlainMessage) -> R | None:
        """Append and dispatch a plain message; returns its receipt, or None when this is not the plain case."""
        if self.closed_for & PUT_REASONS or type(message) is not self.encoder.message_type or not _is_plain(message):
            return None
        if self._lock.locked():
            return None
        with self._lock:
            receipt = self._append(message, self._now_ms())
        if self.when_behind is not None and receipt is not None and self.is_behind:
            self.when_behind()
        return receipt

    def put_batch(self, messages: Sequence[PlainMessage]) -> B | None:
        """The same for messages of one queue, as one write; returns a `batch_type`, or None."""
        if self.closed_for & PUT_REASONS or type(messages) is not list or not messages:
            return None
        kind = self.encoder.message_type
        if any(type(each) is not kind for each in messages) or not all(map(_is_plain, messages)):
            return None
        if self._lock.locked():
            return None
        with self._lock:
            return self._append_batch(messages, self._now_ms())

    def put_encoded(self, batch: PlainMessage) -> B | None:
        """The same for messages that a client encoded as the body of one."""
        if self.closed_for & PUT_REASONS or type(batch) is not self.encoder.message_type or not _is_plain(batch):
            return None
        if self._lock.locked():
            return None
        with self._lock:
            return self._append_batch(batch, self._now_ms())

    def _append_batch(self, messages: Sequence[PlainMessage] | PlainMessage, stored_at: int) -> B | None:
        tail = self.tail
        if tail is None or (tail.end >= self.ready_until and not tail.is_through_file):
            return None
        first = messages[0] if isinstance(messages, Sequence) else messages
        key = (first.topic, first.queue_id)
        queue_offset = self.next_offsets.get(key, 0)
        start = tail.position
        if isinstance(messages, Sequence):
            count = len(messages)
        else:
            try:
                count = count_client_messages(memoryview(messages.body).cast("B"))
            except FormatError:
                return None  # the long way raises the error
        moves: Moves = self.next_offsets, {key: queue_offset + count}, {}, {}
        try:
            if isinstance(messages, Sequence):
                offsets = self.encoder.append_batch(tail, messages, queue_offset, stored_at, moves)
            else:
                offsets = self.encoder.append_encoded(tail, messages, queue_offset, stored_at, moves)
        except DiskFull:
            return None  # the usual way refuses it
        if offsets is None:
            return None
        if not self.closed_for & DISPATCH_REASONS:
            self._dispatch(tail, start, tail.position - start)
        host = first.store_host or self.encoder.store_host
        return self._batch_type(self._ok, offsets, queue_offset, stored_at, host)

    def _append(self, message: PlainMessage, stored_at: int) -> R | None:
        tail = self.tail
        if tail is None or tail.end >= self.ready_until:
            return None
        key = (message.topic, message.queue_id)
        queue_offset = self.next_offsets.get(key, 0)
        start = tail.position
        moves: Moves = self.next_offsets, {key: queue_offset + 1}, {}, {}
        try:
            size = self.encoder.append(tail, message, queue_offset, stored_at, None, moves)
        except DiskFull:
            return None  # the usual way refuses it
        if not size:
            return None
        if not self.closed_for & DISPATCH_REASONS:
            self._dispatch(tail, start, size)
        host = message.store_host or self.encoder.store_host
        return self._receipt_type(self._ok, tail.base + start, queue_offset, size, stored_at, host)

    def _dispatch(self, tail: Tail, start: int, size: int) -> None:
        """Dispatch the records just appended, if all earlier ones are dispatched and fast dispatch is free."""
        fast_dispatch = self.fast_dispatch
        if not fast_dispatch.try_to_own():
            return
        try:
            if fast_dispatch.stopped_at_index or fast_dispatch.log_offset != tail.base + start:
                return
            fast_dispatch.run(tail._writable(), start, start + size, tail.base)
        finally:
            fast_dispatch.is_owned = False


def _is_plain(message: PlainMessage) -> bool:
    return (
        _has_plain_types(message)
        and message.delay_level == 0
        and message.deliver_at_ms is None
        and message.compress is None
        and not message.sys_flag & _SPECIAL_FLAGS
        and not _may_have_inner_count(message.properties)
    )


def _may_have_inner_count(properties: Mapping[str, str] | None) -> bool:
    """True also when a property name of a user's type fails to compare: the long way then raises that error."""
    try:
        return properties is not None and INNER_NUM in properties
    except Exception:  # noqa: BLE001 (it is the user's code that failed)
        return True


def _has_plain_types(message: PlainMessage) -> bool:
    """Whether the fields that are read here have the usual types; for others the long way raises the error."""
    properties: object = message.properties
    return (
        type(message.topic) is str
        and type(message.queue_id) is int
        and isinstance(message.sys_flag, int)
        and (properties is None or isinstance(properties, Mapping))
    )


def _system_now_ms() -> int:
    return time.time_ns() // 1_000_000
