"""Storing a batch whole or not at all: the order of steps that `batch_notes.py` relies on.

    messages made and checked ─▶ put lock { note: opened ─▶ opening marker ─▶ messages ─▶ closing marker }
                              ─▶ flush ─▶ note: closed

Whatever can be wrong with a message is found before the first one is appended. Other putters wait for the put lock
while the batch is appended, so their records lie before it or after it. A kill before the closing marker is in the log
costs the batch and nothing else; one after it costs nothing. Dispatch and replicas see a batch when all of it can be
read (`Log.visible_end`). A replica that gets it in pieces knows by the opening marker that it has a part.

When appending fails or is interrupted, the appended part is cut off the log before the put lock is released: no reader
has seen it. If the cut fails too, the log takes no more messages, because they would follow a part of a batch; opening
the store again cuts that part. An interruption after the marker costs nothing: the batch is made durable and its note
is closed before the exception is raised.
"""

from __future__ import annotations

import threading
import uuid
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from flintlog.errors import InvalidConfig, InvalidMessage, PutFailed, StoreClosed
from flintlog.store.engine import Engine
from flintlog.store.log.batch_markers import ClosingMarker, OpeningMarker
from flintlog.store.log.log import BatchMark
from flintlog.store.model.arguments import INT64_MAX, plain_text
from flintlog.store.model.message import Message, PutStatus, Receipt
from flintlog.store.put.appender import Appender, Prepared
from flintlog.store.runtime.lifecycle import Flag
from flintlog.store.runtime.service import Service

MAX_WRITER_ID_CHARS = 1000


@dataclass(frozen=True, slots=True)
class ClosedBatch:
    """A batch in the log: how many messages, and the physical offsets from its opening marker to its end.

    `last` is the receipt of its last message, if it has any.
    """

    message_count: int
    start: int
    end: int
    last: Receipt | None = None


class StagedMessages(ABC, Iterable[Message]):
    """Messages that were staged elsewhere: read once to check them and once more to append them, never all in memory.

    The second time they are read under the put lock, so reading them must not put.
    """

    @abstractmethod
    def __iter__(self) -> Iterator[Message]:
        """All of them, the same each time."""


class ClosedBatches:
    """Writes the batches of one running store, one at a time. Any thread may call."""

    def __init__(self, engine: Engine, appender: Appender) -> None:
        self._engine = engine
        self._appender = appender
        self._lock = threading.Lock()
        engine.on_tick = self._settle_left

    def mark_left_part(self) -> None:
        """If this opening or an earlier one left a part of a batch in the log, let an empty batch follow it.

        A replica takes all that follows an opening marker for the batch, until another marker says that it was
        abandoned.
        """
        if self._engine.batch_notes.is_part_left and self._engine.lifecycle.is_writeable:
            self.put((), None, 0)

    def put(
        self, messages: Iterable[Message], writer_id: str | None, batch_id: int, *, is_next: bool = False
    ) -> ClosedBatch | None:
        """See `Writable.put_closed`. With `is_next` no number between may be missing, and the first one is 0."""
        check_batch_ids(writer_id, batch_id)
        if self._engine.log.batch_refusal is not None:
            raise InvalidConfig(self._engine.log.batch_refusal)
        if not self._engine.lifecycle.is_writeable:
            raise StoreClosed("the store takes no messages now", path=self._engine.path)
        writer_id = None if writer_id is None else plain_text(writer_id)
        if self._is_there(writer_id, batch_id):
            return None
        prepared = self._stage(messages)
        with self._lock:
            if self._is_note_left:
                self._settle()  # the same batch may have its marker, and not its note
            if self._is_there(writer_id, batch_id):
                return None
            if is_next and writer_id is not None:
                self._check_next(writer_id, batch_id)
            return self._write(prepared, writer_id, batch_id)

    def next_id(self, writer_id: str) -> int:
        """The number after the last batch of a writer; 0 if it is not known."""
        with self._lock:
            if self._is_note_left:
                self._settle()
            last = self._engine.batch_notes.last_closed(writer_id)
        return 0 if last is None else last + 1

    def _check_next(self, writer_id: str, batch_id: int) -> None:
        last = self._engine.batch_notes.last_closed(writer_id)
        following = 0 if last is None else last + 1
        if batch_id != following:
            raise InvalidMessage(
                f"number {batch_id} of {writer_id!r} leaves a gap",
                advice=f"put number {following}; a producer that is not known begins with 0",
            )

    def _is_there(self, writer_id: str | None, batch_id: int) -> bool:
        last = None if writer_id is None else self._engine.batch_notes.last_closed(writer_id)
        return last is not None and batch_id <= last

    # ------------------------------------------------------------------ before the lock

    def _stage(self, messages: Iterable[Message]) -> Iterable[Prepared]:
        """What is to be appended, all of it checked: from here on only the disk can fail."""
        check = self._appender.make_check()

        def checked(each: Message) -> Prepared:
            prepared = self._prepared(each)
            self._refuse(check(prepared))
            return prepared

        if isinstance(messages, StagedMessages):
            for message in messages:
                checked(message)
            return map(self._prepared, messages)
        if isinstance(messages, (Message, str, bytes)) or not isinstance(messages, Iterable):
            raise InvalidMessage(f"a batch is some messages, not {type(messages).__name__}")
        return [checked(message) for message in messages]

    def _prepared(self, message: Message) -> Prepared:
        if type(message) is not Message:
            raise InvalidMessage(f"a batch holds Messages, not {type(message).__name__}")
        found = self._appender.admit(message, is_patient=True)
        if isinstance(found, Receipt):
            raise self._refused(found)
        return found

    def _refuse(self, receipt: Receipt | None) -> None:
        if receipt is not None and receipt.status is not PutStatus.PUT_OK:
            raise self._refused(receipt)

    def _refused(self, receipt: Receipt) -> PutFailed:
        what = f"a message of the batch was not stored: {receipt.status.name}"
        return PutFailed(what, path=self._engine.path, receipt=receipt)

    # ------------------------------------------------------------------ under the lock

    def _write(self, prepared: Iterable[Prepared], writer_id: str | None, batch_id: int) -> ClosedBatch:
        engine = self._engine
        self._settle()  # so that the put lock is not held for what others have put
        stored: list[tuple[Service, Receipt]] = []
        try:
            with engine.log.lock():
                if not engine.log.is_serving:
                    raise StoreClosed("the store takes no messages now", path=engine.path)
                marker = OpeningMarker(writer_id or uuid.uuid4().hex, batch_id, writer_id is not None)
                written = self._append_whole(prepared, marker, stored)
            engine.flushing.after_append()
            self._settle()
        except BaseException:
            if self._is_note_left:
                self._settle()  # the note must not stay while others put after the batch
            raise
        for service, receipt in stored:
            service.stored(receipt)
        return written

    @property
    def _is_note_left(self) -> bool:
        """Whether the note says that a batch is being appended which has its marker."""
        engine = self._engine
        log = engine.log
        return engine.batch_notes.opened is not None and log.batch_range is not None and not log.is_batch_open

    def _settle(self) -> None:
        """Make everything durable, and then close the note of a batch that has its marker."""
        self._engine.flush()
        if self._is_note_left:
            self._engine.batch_notes.close()

    def _settle_left(self) -> None:
        """Once a second, in a thread of the store's: a call may be interrupted twice, or the disk refuse the note."""
        if self._is_note_left and self._lock.acquire(blocking=False):
            try:
                self._settle()
            finally:
                self._lock.release()

    def _append_whole(
        self, prepared: Iterable[Prepared], opening: OpeningMarker, stored: list[tuple[Service, Receipt]]
    ) -> ClosedBatch:
        engine = self._engine
        mark = engine.log.mark_held()
        try:
            start = engine.log.end_offset
            engine.open_batch(start, opening)
            count, crc, last = self._append_all(prepared, opening, mark, stored)
            closing = ClosingMarker(opening.writer_id, opening.opens_batch, crc, start, opening.is_remembered)
            self._append_one(Prepared(closing.message()), mark, crc)
            end = engine.log.end_offset
            mark.keep()
            engine.log.batch_range = (start, end)
        except BaseException:
            self._take_back(mark)
            raise
        return ClosedBatch(count, start, end, last)

    def _append_all(
        self,
        prepared: Iterable[Prepared],
        opening: OpeningMarker,
        mark: BatchMark,
        stored: list[tuple[Service, Receipt]],
    ) -> tuple[int, int, Receipt | None]:
        """Append the opening marker and the messages; how many, the CRC of all these records, the last receipt."""
        last: Receipt | None = None
        _, crc = self._append_one(Prepared(opening.message()), mark, 0)
        count = 0
        for each in prepared:
            last, crc = self._append_one(each, mark, crc)
            count += 1
            if each.service is not None:
                stored.append((each.service, last))
        return count, crc, last

    def _append_one(self, prepared: Prepared, mark: BatchMark, crc: int) -> tuple[Receipt, int]:
        """Append one record; its receipt, and the CRC of the batch with it."""
        receipt = self._appender.append_held(prepared)
        self._refuse(receipt)
        return receipt, zlib.crc32(mark.last_bytes(receipt.size), crc)

    def _take_back(self, mark: BatchMark) -> None:
        """Cut off the part of a batch that was appended.

        If that fails, nothing may be appended after the beginning of the batch that the note names: the next opening
        cuts there.
        """
        engine = self._engine
        try:
            engine.flushing.beside_no_commit(mark.cut_back)
            engine.batch_notes.forget()
            engine.log.batch_range = None
        except BaseException:
            engine.log.close_held()
            engine.lifecycle.set(Flag.NOT_WRITEABLE)
            raise


def check_batch_ids(writer_id: str | None, batch_id: int) -> None:
    """Raise unless these can name a batch of a writer."""
    if writer_id is not None and not (
        isinstance(writer_id, str) and 0 < len(writer_id) <= MAX_WRITER_ID_CHARS and _is_encodable(writer_id)
    ):
        raise InvalidConfig(f"a writer id is a text of 1 to {MAX_WRITER_ID_CHARS} letters, not {writer_id!r:.80}")
    if not isinstance(batch_id, int) or not 0 <= batch_id <= INT64_MAX:
        raise InvalidConfig(f"a batch id is a whole number from 0 on, not {batch_id!r:.80}")


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
