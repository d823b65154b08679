"""The first half of a rebuild: one task reads one split.

    records ─▶ fast dispatch ─▶ consume queue entries, each at its place in the staged files
            ├─▶ entries of queues whose places are not known yet (extension, batch)  ─▶ spilled, by queue
            └─▶ index keys                                                           ─▶ spilled, in the log's order

A task returns little: how far it read, and the offsets of each queue in its split.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from flintlog import kernel
from flintlog.derive.chains import Reach, Span
from flintlog.derive.entries import Place, places_of
from flintlog.derive.splits import Gap, Split, Window, first_record, scan_split
from flintlog.disk.media.local import LocalMedium
from flintlog.disk.media.medium import Medium
from flintlog.format.config_json import BATCH_TYPE
from flintlog.format.index_file import IndexLayout
from flintlog.format.names import CONSUME_QUEUE
from flintlog.format.queue_entry import QueueKey
from flintlog.format.sys_flag import takes_queue_offset
from flintlog.kernel import KEY, DispatchStop, FastDispatch, QueueEnd, Row, Scan
from flintlog.pipeline.building.staging import SKIP, OpenFiles, StagedQueue, open_or_create
from flintlog.pipeline.reading.partitions import LogSplit, load_window
from flintlog.store.options.store_config import StoreConfig
from flintlog.store.queues.deleted_queues import DeletedQueue

DENSE: Final = struct.Struct("<qiqqqiB")
"""A spilled entry: physical offset, size, tags code, queue offset, store timestamp, how many messages, marks."""
IS_OWN: Final = 1
"""Mark of an entry in the queue of the message's own topic; a record may have entries in light queues too."""
IS_INTACT: Final = 2
"""Mark of an entry whose record matches its body's CRC."""


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """The part of a plan that all tasks of a rebuild share."""

    staged: str
    spill: str
    consume_queue_bytes: int
    batch_queue_bytes: int
    extension_bytes: int | None
    topic_queue_types: Mapping[str, str]
    delay_levels_ms: tuple[int, ...]
    lmq: bool
    index: IndexLayout | None
    topics: frozenset[str] | None = None
    deleted: Mapping[QueueKey, DeletedQueue] = field(default_factory=dict)
    serial: frozenset[QueueKey] | None = None
    """If given, only the entries of these queues are wanted, and all are spilled: their offsets do not follow."""

    @classmethod
    def of(
        cls,
        config: StoreConfig,
        queue_types: Mapping[str, str],
        *,
        staged: Path | str,
        spill: Path | str = "",
        topics: frozenset[str] | None = None,
        deleted: Iterable[DeletedQueue] = (),
    ) -> BuildPlan:
        """The plan for a store's configuration; `queue_types` are those that its `topics.json` names."""
        return cls(
            str(staged),
            str(spill),
            consume_queue_bytes=config.mapped_file_size_consume_queue,
            batch_queue_bytes=config.mapped_file_size_batch_consume_queue,
            extension_bytes=config.mapped_file_size_consume_queue_ext if config.enable_consume_queue_ext else None,
            topic_queue_types={**queue_types, **config.topic_queue_types},
            delay_levels_ms=config.delay_levels_ms,
            lmq=config.enable_lmq and config.enable_multi_dispatch,
            index=None if topics else index_layout(config),
            topics=topics,
            deleted={(each.topic, each.queue_id): each for each in deleted if each.is_deletion},
        )

    def is_batch(self, topic: str) -> bool:
        return self.topic_queue_types.get(topic) == BATCH_TYPE

    def is_dense(self, topic: str) -> bool:
        """Whether an entry's place depends on all entries before it."""
        return self.serial is not None or self.extension_bytes is not None or self.is_batch(topic)

    def is_wanted(self, topic: str, queue_id: int) -> bool:
        if self.serial is not None:
            return (topic, queue_id) in self.serial
        return self.topics is None or topic in self.topics

    def is_deleted(self, topic: str, queue_id: int, physical_offset: int) -> bool:
        """Whether the record there was deleted with its topic. It stays in the log, but gets no entry."""
        deleted = self.deleted.get((topic, queue_id))
        return deleted is not None and deleted.holds(physical_offset)

    def keys_path(self, split: int) -> Path:
        return Path(self.spill) / f"keys-{split}"

    def dense_path(self, split: int) -> Path:
        return Path(self.spill) / f"entries-{split}"


def index_layout(config: StoreConfig) -> IndexLayout | None:
    """The layout of the store's index; None when it keeps none."""
    if not config.message_index_enable or not config.index_file_write_enable:
        return None
    return IndexLayout(config.max_hash_slot_num, config.max_index_num)


class Spilled(NamedTuple):
    """Where one queue's entries lie in a split's spill: the numbers [first, stop)."""

    first: int
    stop: int


@dataclass(frozen=True, slots=True)
class SplitResult:
    """The result of reading one split."""

    reach: Reach
    gaps: tuple[Gap, ...]
    damaged_bodies: tuple[int, ...]
    """Where records begin whose body alone is damaged; they have their entries."""

    record_count: int
    entry_count: int
    key_count: int
    last_physical_offset: int
    last_store_timestamp: int
    spans: Mapping[QueueKey, Span]
    dense: Mapping[QueueKey, Spilled]

    def up_to(self, end: int) -> SplitResult:
        """The same for a log that ends at `end`: bytes after it are no gap."""
        reach = self.reach._replace(first=min(self.reach.first, end), end=min(self.reach.end, end))
        return replace(self, reach=reach, gaps=tuple(gap for gap in self.gaps if gap.start < end))


@dataclass(frozen=True, slots=True)
class ScanTask:
    """Read split `number` of a plan."""

    plan: BuildPlan
    number: int
    planned: LogSplit
    sync_log: bool = False
    """Whether the log is made durable too: the checkpoint of a store that is rebuilt in place states that it is."""


def read_split(task: ScanTask) -> SplitResult:
    """The task."""
    medium = LocalMedium()
    if task.sync_log:
        make_log_durable(task.planned, medium)
    reader = SplitReader(task.plan, task.number, medium)
    return reader.read(load_window(task.planned), task.planned.split)


def make_log_durable(planned: LogSplit, medium: Medium) -> None:
    """Sync a file of the log, once for all its splits."""
    if planned.split.start == planned.split.file.base:
        medium.sync(Path(planned.uri) / planned.split.file.name)


def derive_split(
    plan: BuildPlan, planned: LogSplit, start: int | None = None, check: Callable[[], None] = lambda: None
) -> SplitResult:
    """As `read_split`, for files that are in use: the written files are synced. The split's number is its start.

    `start` is where the first record begins, if that is known. `check` is called before each piece is written; if it
    raises, nothing more is written.
    """
    reader = SplitReader(plan, planned.split.start, LocalMedium(), check)
    return reader.derive(load_window(planned), planned.split, start)


@dataclass(slots=True)
class _Tally:
    record_count: int = 0
    entry_count: int = 0
    key_count: int = 0
    last_physical_offset: int = -1
    last_store_timestamp: int = 0
    keys: list[memoryview] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    damaged_bodies: list[int] = field(default_factory=list)


class SplitQueue(Protocol):
    """The entries of one split in one queue. The kernel's fast dispatch writes through `end`, others use `put`."""

    end: QueueEnd
    first: int
    in_step: bool

    @property
    def next(self) -> int:
        """The queue offset after the last entry."""

    def put(self, row: Row, queue_offset: int, marks: int) -> None:
        """Write one entry."""


class SplitReader:
    """One split on its way into the staged files."""

    def __init__(self, plan: BuildPlan, number: int, medium: Medium, check: Callable[[], None] = lambda: None) -> None:
        self._plan = plan
        self._check = check
        self._number = number
        self._medium = medium
        self._files = OpenFiles(medium)
        self._queues: dict[QueueKey, SplitQueue] = {}
        self._dense: dict[QueueKey, bytearray] = {}
        self._tally = _Tally()
        self._fast_dispatch = FastDispatch(delay_levels_ms=plan.delay_levels_ms, lmq=plan.lmq)
        self._fast_dispatch.index_enabled = False
        self._fast_dispatch.all_slow = plan.extension_bytes is not None
        self._passed = QueueEnd(None, SKIP)
        self._marks = IS_INTACT

    def read(self, window: Window, split: Split) -> SplitResult:
        reach = self._scan(window, split, first_record(window, split), keep_damaged=True)
        return self._result(reach, self._spill())

    def derive(self, window: Window, split: Split, start: int | None) -> SplitResult:
        reach = self._scan(window, split, first_record(window, split) if start is None else start)
        self._files.sync()
        self._check()
        return self._result(reach, self._spill())

    def _scan(self, window: Window, split: Split, first: int, *, keep_damaged: bool = False) -> Reach:
        end = first
        levels = self._plan.delay_levels_ms
        pieces = scan_split(
            window, split, check_crc=True, delay_levels_ms=levels, start=first, keep_damaged=keep_damaged
        )
        for piece in pieces:
            self._check()
            if not isinstance(piece, Gap):
                self._add(window, piece)
                end = window.base + piece.end
                continue
            if piece.record is None:
                self._tally.gaps.append(piece)
            else:
                self._add_damaged(window, piece.start, piece.record)
            end = piece.stop
        return Reach(first, end, end < split.stop)

    def _add_damaged(self, window: Window, start: int, record: Scan) -> None:
        """Add a record whose body alone is damaged."""
        self._tally.damaged_bodies.append(start)
        self._marks = 0
        self._add(window, record)
        self._marks = IS_INTACT

    def _add(self, window: Window, scan: Scan) -> None:
        tally = self._tally
        row = 0
        at_index = False
        while self._fast_dispatch.apply(scan, row, at_index) is DispatchStop.QUEUE:
            row, at_index = self._fast_dispatch.row_index, True
            self._put_slowly(window, scan, scan.row(row))
        tally.record_count += scan.count
        last = scan.row(scan.count - 1)
        tally.last_physical_offset, tally.last_store_timestamp = last.physical_offset, last.store_timestamp
        if self._plan.index is not None:
            keys = kernel.pack_keys(scan)
            tally.keys.append(keys)
            tally.key_count += keys.nbytes // KEY.size

    def _put_slowly(self, window: Window, scan: Scan, row: Row) -> None:
        """Write the entries of a record at which fast dispatch stopped."""
        if not takes_queue_offset(row.sys_flag):
            return
        topic, queue_id = scan.queues[row.queue]
        place = row.physical_offset - window.base
        record = bytes(window.view[place : place + row.size])
        plan = self._plan
        places = places_of(topic, queue_id, row, record, is_batch=plan.is_batch, lmq=plan.lmq)
        for number, each in enumerate(places):
            key = each.topic, each.queue_id
            if plan.is_wanted(*key) and not plan.is_deleted(*key, row.physical_offset):
                self._put(row, each, self._marks if number else self._marks | IS_OWN)
        if not plan.is_wanted(topic, queue_id):
            self._fast_dispatch.set_queue(topic, queue_id, self._passed)
        elif plan.is_deleted(topic, queue_id, row.physical_offset):
            # Fast dispatch then skips the other deleted records, and stops at the first one put after the deletion.
            self._fast_dispatch.set_queue(topic, queue_id, QueueEnd(None, plan.deleted[topic, queue_id].log_end))
        elif (queue := self._queues.get((topic, queue_id))) is not None:
            self._fast_dispatch.set_queue(topic, queue_id, queue.end)

    def _put(self, row: Row, place: Place, marks: int) -> None:
        key = place.topic, place.queue_id
        if self._plan.is_dense(place.topic):
            entry = (row.physical_offset, row.size, row.tags_code, place.queue_offset, row.store_timestamp)
            self._dense.setdefault(key, bytearray()).extend(DENSE.pack(*entry, place.batch_count, marks))
            return
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = self._new_queue(key)
        queue.put(row, place.queue_offset, marks)

    def _new_queue(self, key: QueueKey) -> SplitQueue:
        folder = Path(self._plan.staged) / CONSUME_QUEUE / key[0] / str(key[1])
        return StagedQueue(folder, self._plan.consume_queue_bytes, self._files)

    def _spill(self) -> dict[QueueKey, Spilled]:
        self._write(self._plan.keys_path(self._number), self._tally.keys)
        places: dict[QueueKey, Spilled] = {}
        first = 0
        for key, entries in self._dense.items():
            places[key] = Spilled(first, first + len(entries) // DENSE.size)
            first = places[key].stop
        self._write(self._plan.dense_path(self._number), [memoryview(entries) for entries in self._dense.values()])
        return places

    def _write(self, path: Path, parts: list[memoryview]) -> None:
        """Write a file of exactly this size. Another attempt at the task writes the same bytes."""
        size = sum(part.nbytes for part in parts)
        if not size:
            return
        raw = open_or_create(self._medium, path, size)
        position = 0
        for part in parts:
            raw.write_at(position, part)
            position += part.nbytes
        raw.close()

    def _result(self, reach: Reach, dense: dict[QueueKey, Spilled]) -> SplitResult:
        tally = self._tally
        spans = {key: Span(queue.first, queue.next, queue.in_step) for key, queue in self._queues.items()}
        entries = sum(span.next - span.first for span in spans.values())
        entries += sum(spilled.stop - spilled.first for spilled in dense.values())
        return SplitResult(
            reach,
            tuple(tally.gaps),
            tuple(tally.damaged_bodies),
            tally.record_count,
            entries,
            tally.key_count,
            tally.last_physical_offset,
            tally.last_store_timestamp,
            spans,
            dense,
        )
