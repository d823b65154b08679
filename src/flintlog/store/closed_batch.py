"""Storing a batch whole or not at all: the order of steps that `batch_notes.py` relies on.

    note: opened ─▶ messages ─▶ flush ─▶ closing marker ─▶ flush ─▶ note: closed

A crash before the marker is durable costs the batch and nothing else; one behind it costs nothing. When a step fails
the store takes no more messages, because they would come to lie behind a part of a batch; opening it again cuts that.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from flintlog.errors import InvalidConfig, InvalidMessage, PutFailed, StoreClosed
from flintlog.store.batch_notes import OpenedBatch, closing_marker
from flintlog.store.checks import INT64_MAX, check_types, plain_text
from flintlog.store.commit_log import CommitLog
from flintlog.store.engine import Engine
from flintlog.store.lifecycle import Flag
from flintlog.store.message import Message, PutStatus, Receipt

MAX_WRITER_ID_CHARS = 1000


@dataclass(frozen=True, slots=True)
class ClosedBatch:
    """A batch in the log: how many messages, and the physical offsets from its first message to behind its marker."""

    message_count: int
    start: int
    end: int


class ClosedBatches:
    """Writes the batches of one running store, one at a time; the caller sees to it that nobody else puts."""

    def __init__(self, engine: Engine, append: Callable[[Message], Receipt]) -> None:
        self._engine = engine
        self._append = append

    def put(self, messages: Iterable[Message], writer_id: str | None, batch_id: int) -> ClosedBatch | None:
        _check(writer_id, batch_id)
        _check_messages(messages)
        if isinstance(messages, Sequence) and isinstance(self._engine.log, CommitLog):
            self._engine.log.check(message for message in messages if _is_stored_as_it_is(message))
        writer_id = None if writer_id is None else plain_text(writer_id)
        notes = self._engine.batch_notes
        if not self._engine.lifecycle.is_writeable:
            raise StoreClosed("the store takes no messages now", path=self._engine.path)
        last = None if writer_id is None else notes.last_closed(writer_id)
        if last is not None and batch_id <= last:
            return None
        self._engine.flush()
        batch = self._opened(writer_id, batch_id)
        notes.open(batch)
        try:
            count = self._append_all(messages)
            self._engine.flush()
            self._append_one(closing_marker(batch.writer_id, batch.batch_id))
            self._engine.flush()
            notes.close()
        except BaseException:
            self._give_up(batch)
            raise
        return ClosedBatch(count, batch.start, self._engine.log.max_offset)

    def _give_up(self, batch: OpenedBatch) -> None:
        """Something went wrong: unless it did so before the first message, the log has a part of the batch."""
        self._engine.lifecycle.set(Flag.NOT_WRITEABLE)
        if self._engine.log.max_offset == batch.start:
            self._engine.batch_notes.forget()
            self._engine.lifecycle.clear(Flag.NOT_WRITEABLE)

    def _opened(self, writer_id: str | None, batch_id: int) -> OpenedBatch:
        before = self._engine.parts.checkpoint.values
        return OpenedBatch(
            writer_id or uuid.uuid4().hex,
            batch_id,
            self._engine.log.max_offset,
            os.getpid(),
            before.logics_physical_offset,
            before.logics_msg_timestamp,
            before.index_msg_timestamp,
            is_remembered=writer_id is not None,
        )

    def _append_all(self, messages: Iterable[Message]) -> int:
        count = 0
        for message in messages:
            self._append_one(message)
            count += 1
        return count

    def _append_one(self, message: Message) -> None:
        receipt = self._append(message)
        if receipt.status is not PutStatus.PUT_OK:
            raise PutFailed(f"a message of the batch was not stored: {receipt.status.name}", path=self._engine.path)


def _check(writer_id: str | None, batch_id: int) -> None:
    if writer_id is not None and not (
        isinstance(writer_id, str) and 0 < len(writer_id) <= MAX_WRITER_ID_CHARS and _is_encodable(writer_id)
    ):
        raise InvalidConfig(f"a writer id is a text of 1 to {MAX_WRITER_ID_CHARS} letters, not {writer_id!r:.80}")
    if not isinstance(batch_id, int) or not 0 <= batch_id <= INT64_MAX:
        raise InvalidConfig(f"a batch id is a whole number from 0 on, not {batch_id!r:.80}")


def _check_messages(messages: Iterable[Message]) -> None:
    """Raise before anything is written; what is wrong with an iterator's messages one learns only as they come."""
    if isinstance(messages, (Message, str, bytes)) or not isinstance(messages, Iterable):
        raise InvalidMessage(f"a batch is some messages, not {type(messages).__name__}")
    for message in messages if isinstance(messages, Sequence) else ():
        if type(message) is not Message:
            raise InvalidMessage(f"a batch holds Messages, not {type(message).__name__}")
        check_types(message)


def _is_stored_as_it_is(message: Message) -> bool:
    """What is compressed, or rewritten by a service, is another message when it is stored."""
    return message.compress is None and not message.delay_level and message.deliver_at_ms is None


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
