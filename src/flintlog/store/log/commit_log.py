"""The commit log: one append-only sequence of records, the only truth of a store.

    segment 0              segment 1              segment 2
    +----+----+---+blank+  +------+----+--blank+  +-----+----+-------------+
    | r0 | r1 |...|     |  | rk   |    |       |  |     | rn |   (zeros)   |
    +----+----+---+-----+  +------+----+-------+  +-----+----+-------------+
                                                             ^ tail.end

Invariants. A record's physical offset is its place. Records and batches never span segments; what is left of a
segment is closed by a blank of eight bytes. The queue offset of a record is assigned, used and advanced under
the put lock. `tail.position` moves last, so below it there are only whole records. The queue's next offset moves with
it, in the kernel, as one step: an exception from a signal's handler is raised before both or after both.

Any thread may call `put` and the reading methods; the put lock orders appends.

Reasons and costs: docs/decisions/0001.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

from flintlog.checks.finding import Finding
from flintlog.disk.media.libc import scratch_memory
from flintlog.disk.segments.segment import Segment
from flintlog.disk.segments.segment_queue import SegmentQueue
from flintlog.errors import DamagedStore, DiskFull, InvalidMessage, InvalidOffset, StoreClosed
from flintlog.format.properties import encode_properties
from flintlog.format.record import END_RESERVE, encode_blank
from flintlog.kernel import FastDispatch, Moves, Tail, scan
from flintlog.store.log.log import AppendMany, BatchMark, Log, too_large
from flintlog.store.log.queue_offsets import OffsetsBefore, QueueOffsets
from flintlog.store.model.message import Message, PutStatus, Receipt, Receipts, refused
from flintlog.store.options.store_config import StoreConfig
from flintlog.store.runtime.clock import Milliseconds

_OK = PutStatus.PUT_OK
READY_STEP_BYTES = 2 * 1024 * 1024


class _LogMark(BatchMark):
    """How the log was when a batch began: where it ended, and the next offsets that have moved since."""

    def __init__(self, log: CommitLog, end: int, padding_bytes: int, stored_until: int) -> None:
        self._log = log
        self.end = end
        self.padding_bytes = padding_bytes
        self.stored_until = stored_until
        self.offsets = OffsetsBefore()

    def last_bytes(self, size: int) -> memoryview:
        return self._log.last_bytes(size)

    def keep(self) -> None:
        self._log.keep_held()

    def cut_back(self) -> None:
        self._log.cut_back_held(self)


class CommitLog(Log):
    """Appends records to its own files; see the module for its invariants."""

    def __init__(
        self,
        config: StoreConfig,
        segments: SegmentQueue,
        fast_dispatch: FastDispatch,
        offsets: QueueOffsets,
        now_ms: Milliseconds,
    ) -> None:
        super().__init__(config, segments, fast_dispatch, offsets, now_ms)
        self._shows_synced_only = config.flush == "sync" and not config.read_uncommitted
        self._refusal = PutStatus.SERVICE_NOT_AVAILABLE
        self._mark: _LogMark | None = None
        self._nothing = Tail(bytearray(0), 0)
        self._tail = self._nothing

    # ------------------------------------------------------------------ opening

    def load(self, *, read_only: bool) -> Sequence[Finding]:
        """The end is not written down: recovery finds it."""
        return ()

    def note_writer(self, process: bytes) -> None:
        """`abort` shows it: RocketMQ derives the same queues from a log of its own."""

    def was_others(self, *, clean: bool, stopped_at: int | None) -> bool:
        return False

    def refuse_lost(self, directory: Path) -> None:
        raise DamagedStore(
            "the log is missing: there are traces of its messages, and no file of it",
            path=directory,
            advice="is its disk mounted? restore the files; for an empty store take another directory",
        )

    def end_at(self, end: int, keep_aside: Callable[[int], list[Path]] | None) -> list[Path]:
        kept = [] if keep_aside is None else keep_aside(end)
        self.segments.truncate(end)
        if keep_aside is not None:
            self.segments.reach(end)
        return kept

    # ------------------------------------------------------------------ running

    def start(self) -> None:
        """Take the last segment as the one to append to."""
        self._refusal = PutStatus.CREATE_MAPPED_FILE_FAILED
        self._take(self.segments.last)
        self._began_at = self.end_offset

    def close(self) -> None:
        with self.lock():
            self.close_held()

    def close_held(self) -> None:
        self._refusal = PutStatus.SERVICE_NOT_AVAILABLE
        self._use(self._nothing)

    @property
    def is_serving(self) -> bool:
        return self._refusal is not PutStatus.SERVICE_NOT_AVAILABLE

    def sync(self) -> None:
        self.segments.flush_all()

    def settle(self) -> None:
        self.segments.flush_all()

    def release(self) -> None:
        self.segments.shut_down()

    def let_go(self, end: int) -> bool:
        return True

    def needed_from(self) -> int | None:
        return None

    def check_topic_deletion(self) -> None:
        """Each store deletes its own queues."""

    def check_queue_type(self, queue_type: str | None) -> None:
        """All types are served."""

    # ------------------------------------------------------------------ places

    @property
    def end_offset(self) -> int:
        tail = self._tail
        return self.max_offset if tail is self._nothing else tail.end

    def visible_end(self) -> int:
        """Under sync flush the synced end, under async flush the readable end.

        Never the middle of a closed batch: an opening may still cut it.
        """
        end = self.copied_end()
        if self.batch_range is None:
            return end
        batch_start, batch_end = self.batch_range
        return batch_start if batch_start < end < batch_end else end

    def copied_end(self) -> int:
        return self.segments.flushed_where if self._shows_synced_only else self.segments.max_offset

    # ------------------------------------------------------------------ closed batches

    def mark_held(self) -> BatchMark:
        """Remember how the log is now, and what moves from now on."""
        self._mark = _LogMark(self, self.end_offset, self._padding_bytes, self._tail.store_timestamp)
        return self._mark

    def keep_held(self) -> None:
        """Keep what was appended since the mark. The caller holds the put lock."""
        self._mark = None

    def cut_back_held(self, mark: _LogMark) -> None:
        """Remove what was appended since the mark. The caller holds the put lock."""
        self.segments.truncate(mark.end, clear=True, stored_until=mark.stored_until)
        mark.offsets.set_back()
        self._padding_bytes = mark.padding_bytes
        self._take(self.segments.last)
        self._mark = None

    def last_bytes(self, size: int) -> memoryview:
        """The last bytes that were appended. The caller holds the put lock."""
        tail = self._tail
        return memoryview(cast(memoryview, tail.buffer))[tail.position - size : tail.position]

    # ------------------------------------------------------------------ appending

    def check_answered(self, receipt: Receipt) -> None:
        """A receipt of this log always says whether the record is in it."""

    def _append_one(self, message: Message, queue_offset: int, capacity: int | None, moves: Moves) -> Receipt:
        if self._mark is not None:
            self._mark.offsets.note(moves)
        now = self._now_ms()
        tail = self._ready_tail()
        text = None if capacity is None else encode_properties(message.properties or {}, capacity)
        try:
            size = self._append(tail, message, queue_offset, now, text, moves)
            if not size:
                rolled = self._append_to_next(message, queue_offset, now, text, moves)
                if rolled is None:
                    return Receipt(self._refusal)
                tail, size = rolled
        except DiskFull:
            return Receipt(self._refusal)
        host = message.store_host or self._store_host
        return Receipt(_OK, tail.base + tail.position - size, queue_offset, size, now, host)

    def _append_many(self, first: Message, append: AppendMany, most_bytes: int, count: int) -> Receipts:
        """One write, within one segment."""
        with self.lock():
            queue_offset, moves = self.offsets.plan((first.topic, first.queue_id), count)
            now = self._now_ms()
            # The file needs no pages of its map made ready.
            tail = self._tail if self._tail.is_through_file else self._ready_tail()
            try:
                offsets = append(tail, queue_offset, now, moves)
                if offsets is None:
                    scratch = Tail(scratch_memory(min(most_bytes, self.segments.segment_size)), 0)
                    if append(scratch, queue_offset, now, None) is None:
                        raise InvalidMessage("the batch does not fit into a segment", advice="make it smaller")
                    offsets = append(self._tail, queue_offset, now, moves) if self._roll() else None
            except DiskFull:
                offsets = None
            if offsets is None:
                return refused(self._refusal, count)
            return Receipts(_OK, offsets, queue_offset, now, first.store_host or self._store_host)

    def append_raw(self, offset: int, data: bytes) -> None:
        with self.lock():
            self._check_follows(offset)
            if data and not self.is_serving:
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
            raise too_large()
        if not self._roll():
            return None
        return self._tail, self._append(self._tail, message, queue_offset, now, text, moves)

    def _roll(self) -> bool:
        """Close the current segment with a blank and take the next; False when none can be made."""
        if not self.is_serving:
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
        self._padding_bytes += max(0, room)  # of a tail whose buffer was released nothing is left

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
        self._tail = self.fast_put.tail = tail
        self.fast_put.ready_until = tail.end

    def _ready_tail(self) -> Tail:
        """The tail, its next pages ready to be written."""
        tail = self._tail
        if tail.position >= tail.capacity and tail is not self._nothing:
            # A put was interrupted after it had closed this segment. Its buffer may be released at any time.
            self._roll()
            tail = self._tail
        if tail.end >= self.fast_put.ready_until:
            segment = self.segments.last
            if segment is not None and segment.base == tail.base:
                self.fast_put.ready_until = segment.base + segment.make_ready(READY_STEP_BYTES)
        return tail
