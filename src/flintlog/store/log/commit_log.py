"""The commit log: one append-only sequence of records, the only truth of a store.

    segment 0              segment 1              segment 2
    +----+----+---+blank+  +------+----+--blank+  +-----+----+-------------+
    | r0 | r1 |...|     |  | rk   |    |       |  |     | rn |   (zeros)   |
    +----+----+---+-----+  +------+----+-------+  +-----+----+-------------+
                                                             ^ tail.end

Invariants. A record's physical offset is its place. Records and batches never span segments; what is left of a
segment is closed by a blank of eight bytes. The queue offset of a record is assigned, used and advanced under
the put lock. `tail.position` moves last, so whatever lies below it is a whole record; the queue's next offset moves
with it, in the kernel, as one step: an exception that a signal's handler raises comes before both or after both.

Any thread may call `put` and the reading methods; the put lock orders appends.

Reasons and costs: docs/decisions/0001.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, cast

from flintlog.disk.media.scratch import scratch_room
from flintlog.disk.segments.segment import Segment
from flintlog.disk.segments.segment_queue import SegmentQueue
from flintlog.errors import DiskFull, InvalidMessage, InvalidOffset, StoreClosed
from flintlog.format.client_batch import count_client_messages
from flintlog.format.properties import encode_properties
from flintlog.format.record import END_RESERVE, STORE_TIME_END, encode_blank, store_time_of
from flintlog.kernel import Encoder, Lane, Moves, PutLane, Tail, scan
from flintlog.store.log.put_lock import PutLock
from flintlog.store.log.queue_offsets import OffsetsBefore, QueueOffsets
from flintlog.store.log.unqueued_puts import UnqueuedPuts
from flintlog.store.model.message import Message, PutStatus, Receipt, Receipts, refused
from flintlog.store.runtime.clock import Milliseconds, given_clock

_OK = PutStatus.PUT_OK
_I32 = struct.Struct(">i")
READY_STEP_BYTES = 2 * 1024 * 1024
RECORD_SLACK_BYTES = 40 * 1024
"""What a record may hold besides its body: headers, a topic, properties."""

_TOO_LARGE = "the message does not fit into a segment"
_LARGER_FILES = "raise mappedFileSizeCommitLog"


AppendMany: TypeAlias = Callable[[Tail, int, int, "Moves | None"], "Sequence[int] | None"]
"""Appends a batch to a tail, given its first queue offset, the time and what moves on with it."""


class Placement(Protocol):
    """A put whose queue offset and properties are decided inside the put lock."""

    @property
    def is_unqueued(self) -> bool:
        """Whether no queue will show the message."""

    def prepare(self) -> tuple[Message, int, Moves]:
        """The message to append, its queue offset, and the next offsets that move on with it."""


@dataclass(slots=True)
class LogMark:
    """How the log was when a batch began: where it ended, and the next offsets that have moved since."""

    end: int
    padding_bytes: int
    offsets: OffsetsBefore = field(default_factory=OffsetsBefore)


class CommitLog:
    """Appends records and finds them again; see the module for its invariants."""

    def __init__(
        self,
        segments: SegmentQueue,
        encoder: Encoder,
        lane: Lane,
        offsets: QueueOffsets,
        *,
        now_ms: Milliseconds,
        lock: PutLock,
        store_host: str,
        max_message_size: int,
    ) -> None:
        self.segments = segments
        self.offsets = offsets
        self.lock = lock
        self.locked_since: float | None = None
        self.on_wait: Callable[[int, int], None] | None = None
        self._refusal = PutStatus.CREATE_MAPPED_FILE_FAILED
        self._began_at = 0
        self._padding_bytes = 0
        self._mark: LogMark | None = None
        self.unqueued = UnqueuedPuts()
        self._encoder = encoder
        self._append = encoder.append
        self._now_ms = now_ms
        self._store_host = store_host
        self._scratch_size = min(segments.segment_size, max_message_size + RECORD_SLACK_BYTES)
        self._nothing = Tail(bytearray(0), 0)
        self._tail = self._nothing
        self.put_lane = PutLane(
            encoder,
            lane,
            lock=lock,
            receipt_type=Receipt,
            batch_type=Receipts,
            ok=_OK,
            now_ms=given_clock(now_ms),
        )
        self.put_lane.next_offsets = offsets.by_queue

    # ------------------------------------------------------------------ appending

    def start(self) -> None:
        """Take the last segment as the one to append to."""
        self._take(self.segments.last)
        self._began_at = self.end_offset

    def close(self) -> None:
        """Take no more: a put that comes too late is refused, whatever it was told before."""
        with self.lock():
            self.close_held()

    def close_held(self) -> None:
        """`close` for a caller that holds the put lock: the puts that wait for it are refused."""
        self._refusal = PutStatus.SERVICE_NOT_AVAILABLE
        self._use(self._nothing)

    @property
    def is_closed(self) -> bool:
        return self._refusal is PutStatus.SERVICE_NOT_AVAILABLE

    @property
    def appended_bytes(self) -> int:
        """How many bytes of records were put since the start."""
        return self.end_offset - self._began_at - self._padding_bytes

    def put(self, message: Message, capacity: int | None = None) -> Receipt:
        """Append one message to the queue it names: the long way, which `put_lane` shortens for the plain case.

        `capacity` is that of the Java HashMap which orders the properties, when it is not that of a new message.
        """
        with self.lock():
            return self.put_held(message, capacity)

    def put_held(self, message: Message, capacity: int | None = None) -> Receipt:
        """`put` for a caller that holds the put lock."""
        queue_offset, moves = self.offsets.plan((message.topic, message.queue_id))
        return self._append_one(message, queue_offset, capacity, moves)

    def make_check(self) -> Callable[[Message, int | None], None]:
        """A function that raises what a put of a message would, and appends nothing."""
        scratch = Tail(scratch_room(self._scratch_size), 0)

        def check(message: Message, capacity: int | None) -> None:
            scratch.position = 0
            text = None if capacity is None else encode_properties(message.properties or {}, capacity)
            if not self._append(scratch, message, 0, 0, text):
                raise InvalidMessage(_TOO_LARGE, advice=_LARGER_FILES)

        return check

    def put_placed(self, placement: Placement, capacity: int | None = None) -> Receipt:
        """Append a message whose queue offset is not simply the next of its own queue."""
        with self.lock():
            return self.put_placed_held(placement, capacity)

    def put_placed_held(self, placement: Placement, capacity: int | None = None) -> Receipt:
        """`put_placed` for a caller that holds the put lock."""
        message, queue_offset, moves = placement.prepare()
        receipt = self._append_one(message, queue_offset, capacity, moves)
        if receipt.status is _OK and placement.is_unqueued:
            self.unqueued.add((message.topic, message.queue_id), receipt.size)
        return receipt

    def mark_held(self) -> LogMark:
        """Remember how the log is now, and what moves from now on. The caller holds the put lock."""
        self._mark = LogMark(self.end_offset, self._padding_bytes)
        return self._mark

    def keep_held(self) -> None:
        """What was appended since the mark stays."""
        self._mark = None

    def cut_back_held(self, mark: LogMark) -> None:
        """Take back what was appended since the mark: nobody was let past it. A second call does the same."""
        self.segments.truncate(mark.end, clear=True)
        mark.offsets.set_back()
        self._padding_bytes = mark.padding_bytes
        self._take(self.segments.last)
        self._mark = None

    def last_bytes(self, size: int) -> memoryview:
        """The last bytes that were appended, for a caller that holds the put lock; they lie in one segment."""
        tail = self._tail
        return memoryview(cast(memoryview, tail.buffer))[tail.position - size : tail.position]

    def _append_one(self, message: Message, queue_offset: int, capacity: int | None, moves: Moves) -> Receipt:
        if self._mark is not None:
            self._mark.offsets.note(moves)
        now = self._now_ms()
        tail = self._ready_tail()
        text = None if capacity is None else encode_properties(message.properties or {}, capacity)
        size = self._append(tail, message, queue_offset, now, text, moves)
        if not size:
            rolled = self._append_to_next(message, queue_offset, now, text, moves)
            if rolled is None:
                return Receipt(self._refusal)
            tail, size = rolled
        host = message.store_host or self._store_host
        return Receipt(_OK, tail.base + tail.position - size, queue_offset, size, now, host)

    def put_batch(self, messages: Sequence[Message]) -> Receipts:
        """Append messages of one queue as one write, within one segment."""
        most_bytes = sum(len(message.body) for message in messages) + len(messages) * RECORD_SLACK_BYTES

        def append(tail: Tail, queue_offset: int, now: int, moves: Moves | None) -> Sequence[int] | None:
            return self._encoder.append_batch(tail, messages, queue_offset, now, moves)

        return self._put_many(messages[0], append, most_bytes, len(messages))

    def put_encoded(self, batch: Message) -> Receipts:
        """The same for messages that a client encoded as the body of one."""
        count = count_client_messages(batch.body)
        most_bytes = len(batch.body) + count * RECORD_SLACK_BYTES

        def append(tail: Tail, queue_offset: int, now: int, moves: Moves | None) -> Sequence[int] | None:
            return self._encoder.append_encoded(tail, batch, queue_offset, now, moves)

        return self._put_many(batch, append, most_bytes, count)

    def _put_many(
        self,
        first: Message,
        append: AppendMany,
        most_bytes: int,
        count: int,
    ) -> Receipts:
        with self.lock():
            queue_offset, moves = self.offsets.plan((first.topic, first.queue_id), count)
            now = self._now_ms()
            # The file needs no pages of its map made ready.
            tail = self._tail if self._tail.is_through_file else self._ready_tail()
            offsets = append(tail, queue_offset, now, moves)
            if offsets is None:
                scratch = Tail(scratch_room(min(most_bytes, self.segments.segment_size)), 0)
                if append(scratch, queue_offset, now, None) is None:
                    raise InvalidMessage("the batch does not fit into a segment", advice="make it smaller")
                offsets = append(self._tail, queue_offset, now, moves) if self._roll() else None
                if offsets is None:
                    return refused(self._refusal, count)
            return Receipts(_OK, offsets, queue_offset, now, first.store_host or self._store_host)

    def append_raw(self, offset: int, data: bytes) -> None:
        """Write records of another log, whole ones, at the end of this one; an empty log begins where they do."""
        with self.lock():
            self._check_follows(offset)
            if data and self._refusal is PutStatus.SERVICE_NOT_AVAILABLE:
                raise StoreClosed("the log takes no more")
            with memoryview(data) as view:
                place = 0
                while place < len(view):
                    segment = self.segments.last_or_new(offset + place)
                    if segment is None:
                        raise self.segments.create_failure or DiskFull("no new file for the log")
                    stop = min(len(view), place + segment.size - segment.wrote_position)
                    self._write_raw(segment, view[place:stop])
                    place = stop

    def _check_follows(self, offset: int) -> None:
        if not self.segments.segments:
            if offset % self.segments.segment_size:
                raise InvalidOffset("an empty log begins where a file does", offset=offset)
        elif offset != self.segments.max_wrote:
            raise InvalidOffset(f"the log ends at {self.segments.max_wrote}", offset=offset)

    def _write_raw(self, segment: Segment, view: memoryview) -> None:
        last = scan(view, 0, len(view), segment.base + segment.wrote_position)
        segment.append(view)
        if last.count:
            segment.tail.store_timestamp = last.row(last.count - 1).store_timestamp
        self._use(segment.log_tail)

    def _append_to_next(
        self, message: Message, queue_offset: int, now: int, text: bytes | None, moves: Moves
    ) -> tuple[Tail, int] | None:
        """Close the full segment and append to a new one; None when there is no new one."""
        scratch = Tail(bytearray(self._scratch_size), 0)
        if not self._append(scratch, message, queue_offset, now, text):
            raise InvalidMessage(_TOO_LARGE, advice=_LARGER_FILES)
        if not self._roll():
            return None
        return self._tail, self._append(self._tail, message, queue_offset, now, text, moves)

    def _roll(self) -> bool:
        """Close the current segment with a blank and take the next; False when none can be made."""
        if self._refusal is PutStatus.SERVICE_NOT_AVAILABLE:
            return False
        self._close_tail()
        self.locked_since = began = time.monotonic()
        try:
            return self._take(self._next_segment())
        finally:
            self.locked_since = None
            elapsed_ms = int((time.monotonic() - began) * 1000)
            if elapsed_ms and self.on_wait is not None:
                self.on_wait(elapsed_ms, 1)

    def _close_tail(self) -> None:
        tail = self._tail
        room = tail.capacity - tail.position
        if room >= END_RESERVE:
            blank = encode_blank(room)
            with memoryview(cast(memoryview, tail.buffer)) as view:
                view[tail.position : tail.position + len(blank)] = blank
            tail.position = tail.capacity
        self._padding_bytes += room

    def _next_segment(self) -> Segment | None:
        try:
            return self.segments.last_or_new(0)
        except DiskFull:
            return None

    def _take(self, segment: Segment | None) -> bool:
        if segment is None:
            # The closed segment may give its write buffer back; its tail is of no more use.
            self._use(self._nothing)
            return False
        self._use(segment.log_tail)
        return True

    def _use(self, tail: Tail) -> None:
        if tail is not self._tail:
            self._tail.leave_file()
        self._tail = self.put_lane.tail = tail
        self.put_lane.ready_until = tail.end

    def _ready_tail(self) -> Tail:
        """The tail, its next pages ready to be written."""
        tail = self._tail
        if tail.end >= self.put_lane.ready_until:
            segment = self.segments.last
            if segment is not None and segment.base == tail.base:
                self.put_lane.ready_until = segment.base + segment.make_ready(READY_STEP_BYTES)
        return tail

    # ------------------------------------------------------------------ places

    @property
    def min_offset(self) -> int:
        return self.segments.min_offset

    @property
    def max_offset(self) -> int:
        """The readable end of the log."""
        return self.segments.max_offset

    @property
    def end_offset(self) -> int:
        """Where the next record would go."""
        tail = self._tail
        return self.max_offset if tail is self._nothing else tail.end

    # ------------------------------------------------------------------ reading

    def record_at(self, physical_offset: int, size: int | None = None) -> bytes | None:
        """The bytes of the record at an offset; None when the log does not reach there."""
        segment = self.segments.find(physical_offset)
        if segment is None or physical_offset >= self.segments.max_offset:
            return None
        position = physical_offset - segment.base
        if size is None:
            size = self._size_at(segment, position)
        if size <= END_RESERVE:
            return None
        selected = segment.select(position, size)
        if selected is None:
            return None
        with selected:
            return bytes(selected.view)

    def _size_at(self, segment: Segment, position: int) -> int:
        selected = segment.select(position, 4)
        if selected is None:
            return 0
        with selected:
            return int(_I32.unpack_from(selected.view, 0)[0])

    def store_time_at(self, physical_offset: int, size: int = 0) -> int:
        """The store timestamp of a record; -1 when it is gone."""
        segment = self.segments.find(physical_offset)
        if segment is None or physical_offset < self.min_offset:
            return -1
        position = physical_offset - segment.base
        selected = segment.select(position, STORE_TIME_END)
        if selected is None:
            return -1
        with selected:
            return store_time_of(selected.view)
