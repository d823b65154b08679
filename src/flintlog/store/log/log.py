"""What a store asks of its log, whichever kind it has.

    CommitLog         `store/log`       the store's own log: it appends, syncs and cuts the records
    LedgerCommitLog   `store/ledger`    a DLedger group's log: a put is a proposal, and the group appends and cuts

`components.py` makes the log and knows its kind; everything else in the store uses this interface.

Invariants of both. A record's physical offset is its place. Its queue offset is assigned, used and advanced under the
put lock. Below `max_offset` there are only whole records, gaps between them and damage.

Any thread may put and read; the put lock orders puts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from flintlog.checks.finding import Finding
from flintlog.disk.media.libc import scratch_memory
from flintlog.disk.segments.segment import Segment
from flintlog.disk.segments.segment_queue import SegmentQueue
from flintlog.errors import InvalidMessage
from flintlog.format.client_batch import count_client_messages
from flintlog.format.properties import encode_properties
from flintlog.format.record import END_RESERVE, STORE_TIME_END, stated_size, store_time_of
from flintlog.kernel import Encoder, FastDispatch, FastPut, Moves, Tail
from flintlog.store.log.put_lock import make_put_lock
from flintlog.store.log.queue_offsets import QueueOffsets
from flintlog.store.log.unqueued_puts import UnqueuedPuts
from flintlog.store.model.message import Message, PutStatus, Receipt, Receipts
from flintlog.store.options.store_config import StoreConfig
from flintlog.store.runtime.clock import Milliseconds, given_clock

_OK = PutStatus.PUT_OK
RECORD_SLACK_BYTES = 40 * 1024
"""What a record may hold besides its body: headers, a topic, properties."""

AppendMany: TypeAlias = Callable[[Tail, int, int, "Moves | None"], "Sequence[int] | None"]
"""Appends a batch to a tail, given its first queue offset, the time and the offsets that move with it."""


class Placement(Protocol):
    """A put whose queue offset and properties are decided inside the put lock."""

    @property
    def is_unqueued(self) -> bool:
        """Whether no queue will show the message."""

    def prepare(self) -> tuple[Message, int, Moves]:
        """The message to append, its queue offset, and the next offsets that move on with it."""


OPEN: Final = float("inf")
"""Where a batch ends that has no closing marker yet."""


class BatchMark(ABC):
    """Where a closed batch began. The caller holds the put lock until the batch was kept or cut back."""

    @abstractmethod
    def last_bytes(self, size: int) -> memoryview:
        """The last bytes that were appended; they lie in one segment."""

    @abstractmethod
    def keep(self) -> None:
        """Keep what was appended since the mark."""

    @abstractmethod
    def cut_back(self) -> None:
        """Remove what was appended since the mark, which no reader has seen. A second call does the same."""


class Log(ABC):
    """One store's log; see the module."""

    def __init__(
        self,
        config: StoreConfig,
        segments: SegmentQueue,
        fast_dispatch: FastDispatch,
        offsets: QueueOffsets,
        now_ms: Milliseconds,
    ) -> None:
        self.segments = segments
        self.offsets = offsets
        self.lock = make_put_lock(config.put_lock)
        self.locked_since: float | None = None
        self.on_wait: Callable[[int, int], None] | None = None
        self.unqueued = UnqueuedPuts()
        self.batch_range: tuple[int, float] | None = None
        """Where the last closed batch begins and ends; its end is `OPEN` while it is appended."""
        self._encoder = Encoder(
            Message,
            store_host=config.store_host,
            max_message_size=config.max_message_size,
            append_crc=config.enabled_append_prop_crc,
            auto_version=config.auto_message_version_on_topic_len,
        )
        self._append = self._encoder.append
        self._now_ms = now_ms
        self._store_host = config.store_host
        self._scratch_size = min(segments.segment_size, config.max_message_size + RECORD_SLACK_BYTES)
        self._began_at = self._padding_bytes = 0
        self.fast_put = FastPut(
            self._encoder,
            fast_dispatch,
            lock=self.lock,
            receipt_type=Receipt,
            batch_type=Receipts,
            ok=_OK,
            now_ms=given_clock(now_ms),
        )
        self.fast_put.next_offsets = offsets.by_queue

    # ------------------------------------------------------------------ opening

    @abstractmethod
    def load(self, *, read_only: bool) -> Sequence[Finding]:
        """Find the end of the log, if it is written down. The segments are loaded. Returns what was wrong."""

    @abstractmethod
    def note_writer(self, process: bytes) -> None:
        """Note that this process writes the log from now on, where `abort` alone does not show it later."""

    @abstractmethod
    def was_others(self, *, clean: bool, stopped_at: int | None) -> bool:
        """Whether another program, which derives other queues, has written the log since our last stop."""

    @abstractmethod
    def refuse_lost(self, directory: Path) -> None:
        """Raise if the messages are lost for good: there are traces of them in the directory, and no log file."""

    @abstractmethod
    def end_at(self, end: int, keep_aside: Callable[[int], list[Path]] | None) -> list[Path]:
        """End the log where recovery has found its end. Returns where the bytes after it were kept.

        `keep_aside` copies and clears those bytes; it is None in a store that is only read.
        """

    # ------------------------------------------------------------------ running

    @abstractmethod
    def start(self) -> None:
        """Begin to write: recovery is done."""

    @abstractmethod
    def close(self) -> None:
        """Refuse every put from now on, also one that was admitted before."""

    @property
    @abstractmethod
    def is_serving(self) -> bool:
        """Whether the log takes records from this store now."""

    @abstractmethod
    def sync(self) -> None:
        """Make everything durable that was appended before the call."""

    @abstractmethod
    def settle(self) -> None:
        """`sync`, with every file of the log: the store stops."""

    @abstractmethod
    def release(self) -> None:
        """Close the files."""

    @abstractmethod
    def let_go(self, end: int) -> bool:
        """Give up the files that end here or before, which are about to be deleted; False keeps them."""

    @abstractmethod
    def needed_from(self) -> int | None:
        """From where on no file may be deleted, however full the disk is; None if every file may."""

    # ------------------------------------------------------------------ what a log does not take

    own_topics: frozenset[str] = frozenset()
    """Topics into which callers do not put."""

    batch_refusal: str | None = None
    """Why this log takes no closed batches; None if it does."""

    @abstractmethod
    def check_topic_deletion(self) -> None:
        """Raise if topics of this log cannot be deleted."""

    @abstractmethod
    def check_queue_type(self, queue_type: str | None) -> None:
        """Raise if a topic of this log cannot have queues of this type."""

    # ------------------------------------------------------------------ putting

    @abstractmethod
    def _append_one(self, message: Message, queue_offset: int, capacity: int | None, moves: Moves) -> Receipt:
        """Append one message. The caller holds the put lock."""

    @abstractmethod
    def _append_many(self, first: Message, append: AppendMany, most_bytes: int, count: int) -> Receipts:
        """Append messages of one queue together."""

    @abstractmethod
    def append_raw(self, offset: int, data: bytes) -> None:
        """Write records of another log, whole ones, at the end of this one; an empty log begins where they do."""

    @abstractmethod
    def mark_held(self) -> BatchMark:
        """Begin a closed batch. The caller holds the put lock."""

    @abstractmethod
    def close_held(self) -> None:
        """`close` for a caller that holds the put lock: the puts that wait for it are refused."""

    @abstractmethod
    def check_answered(self, receipt: Receipt) -> None:
        """Raise if it is unknown whether a put that must not be made twice is in the log."""

    def put(self, message: Message, capacity: int | None = None) -> Receipt:
        """Append one message to the queue it names: the long way, which `fast_put` shortens for the plain case.

        `capacity` is that of the Java HashMap which orders the properties, when it is not that of a new message.
        """
        with self.lock():
            return self.put_held(message, capacity)

    def put_held(self, message: Message, capacity: int | None = None) -> Receipt:
        """`put` for a caller that holds the put lock."""
        queue_offset, moves = self.offsets.plan((message.topic, message.queue_id))
        return self._append_one(message, queue_offset, capacity, moves)

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

    def put_batch(self, messages: Sequence[Message]) -> Receipts:
        """Append messages of one queue together: all of them, or none."""
        most_bytes = sum(len(message.body) for message in messages) + len(messages) * RECORD_SLACK_BYTES

        def append(tail: Tail, queue_offset: int, now: int, moves: Moves | None) -> Sequence[int] | None:
            return self._encoder.append_batch(tail, messages, queue_offset, now, moves)

        return self._append_many(messages[0], append, most_bytes, len(messages))

    def put_encoded(self, batch: Message) -> Receipts:
        """The same for messages that a client encoded as the body of one."""
        count = count_client_messages(batch.body)

        def append(tail: Tail, queue_offset: int, now: int, moves: Moves | None) -> Sequence[int] | None:
            return self._encoder.append_encoded(tail, batch, queue_offset, now, moves)

        return self._append_many(batch, append, len(batch.body) + count * RECORD_SLACK_BYTES, count)

    def make_check(self) -> Callable[[Message, int | None], None]:
        """A function that raises what a put of a message would, and appends nothing."""
        scratch = Tail(scratch_memory(self._scratch_size), 0)

        def check(message: Message, capacity: int | None) -> None:
            scratch.position = 0
            text = None if capacity is None else encode_properties(message.properties or {}, capacity)
            if not self._append(scratch, message, 0, 0, text):
                raise too_large()

        return check

    # ------------------------------------------------------------------ places

    @property
    def min_offset(self) -> int:
        return self.segments.min_offset

    @property
    def max_offset(self) -> int:
        """The readable end of the log."""
        return self.segments.max_offset

    @property
    @abstractmethod
    def end_offset(self) -> int:
        """Where the next record would go."""

    @abstractmethod
    def visible_end(self) -> int:
        """How far records may be dispatched, and sent to slaves."""

    def copied_end(self) -> int:
        """How far a slave has copied its master's log: as `visible_end`, or into the middle of a closed batch."""
        return self.visible_end()

    @property
    def is_batch_open(self) -> bool:
        """Whether the log ends in a part of a closed batch."""
        return self.batch_range is not None and self.batch_range[1] == OPEN

    @property
    def appended_bytes(self) -> int:
        """How many bytes of records were put since the start."""
        return self.end_offset - self._began_at - self._padding_bytes

    # ------------------------------------------------------------------ reading

    def record_at(self, physical_offset: int, size: int | None = None) -> bytes | None:
        """The bytes of the record at an offset; None when the log does not reach there."""
        segment = self.segments.find(physical_offset)
        if segment is None or physical_offset >= self.segments.max_offset:
            return None
        position = physical_offset - segment.base
        if size is None:
            size = _size_at(segment, position)
        if size <= END_RESERVE:
            return None
        selected = segment.select(position, size)
        if selected is None:
            return None
        with selected:
            return bytes(selected.view)

    def store_time_at(self, physical_offset: int, size: int = 0) -> int:
        """The store timestamp of a record; -1 when it was deleted."""
        segment = self.segments.find(physical_offset)
        if segment is None or physical_offset < self.min_offset:
            return -1
        selected = segment.select(physical_offset - segment.base, STORE_TIME_END)
        if selected is None:
            return -1
        with selected:
            return store_time_of(selected.view)


def _size_at(segment: Segment, position: int) -> int:
    selected = segment.select(position, 4)
    if selected is None:
        return 0
    with selected:
        return stated_size(selected.view, 0) or 0


def too_large() -> InvalidMessage:
    return InvalidMessage("the message does not fit into a segment", advice="raise mappedFileSizeCommitLog")
