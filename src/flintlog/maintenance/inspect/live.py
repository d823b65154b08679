"""Live figures of a store: how much is written to it and read from it, seen from outside, again and again.

A `Watch` looks at the directory beside the process that runs the store; it neither opens nor locks anything. Messages
and bytes a second are counted in the log: each look fixes the log's end and reads the records since the last look, so
it costs what was written meanwhile, and every record is counted once. A group's rate comes from `consumerOffset.json`,
which is saved every few seconds and not with each message. At the first look rates are None: a rate needs two looks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flintlog import kernel
from flintlog.checks.derived_files import DataFile
from flintlog.errors import DiskError
from flintlog.format.properties import INNER_NUM
from flintlog.format.queue_entry import QueueKey
from flintlog.kernel import INNER_BATCH, ROW, Row, ScanStop
from flintlog.maintenance.inspect.log_reader import LogReader
from flintlog.maintenance.inspect.overview import GroupOffset, all_files, groups, log_disk
from flintlog.maintenance.inspect.queue_ends import queue_begin, queue_end
from flintlog.maintenance.inspect.store_files import StoreFiles, look_at

if TYPE_CHECKING:
    from flintlog.disk.media.medium import Medium
    from flintlog.store.options.store_config import StoreConfig

Seconds = Callable[[], float]

SAVED_WITHIN_S = 15.0
"""A group whose offsets have not moved for so long is standing still: brokers save them every 5 s."""
_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class TopicSnapshot:
    """One topic; `last_store_timestamp` is that of the last message that arrived since the first look."""

    topic: str
    queues: int
    messages: int
    messages_a_second: float | None
    bytes_a_second: float | None
    lag: int | None
    last_store_timestamp: int | None


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """A group's lag in a topic, and how many messages a second it consumes."""

    group: str
    topic: str
    queues: int
    lag: int
    messages_a_second: float | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One look at a store. Its rates are over the last `span_s` seconds, since the look before."""

    path: str
    at_ms: int
    span_s: float | None
    is_running: bool
    messages_a_second: float | None
    bytes_a_second: float | None
    min_offset: int
    max_offset: int
    messages: int
    files: int
    bytes: int
    disk_bytes: int | None
    disk_free_bytes: int | None
    disk_used_ratio: float | None
    topics: tuple[TopicSnapshot, ...]
    groups: tuple[GroupSnapshot, ...]


class Watch:
    """Looks at one directory; the caller says when, from one thread at a time."""

    def __init__(
        self,
        root: Path,
        config: StoreConfig | None = None,
        *,
        now_ms: Callable[[], int],
        monotonic: Seconds,
        medium: Medium | None = None,
    ) -> None:
        self._root = root
        self._config = config
        self._now_ms = now_ms
        self._monotonic = monotonic
        self._medium = medium
        self._growth = LogGrowth()
        self._looked_at: float | None = None
        self._latest: dict[str, int] = {}
        self._offsets: dict[tuple[str, str], tuple[int, float]] = {}
        self._group_rates: dict[tuple[str, str], float] = {}

    def look(self) -> Snapshot:
        """The store as it is now; `FlintlogError` when it cannot be read."""
        files = look_at(self._root, self._config, self._medium)
        arrived = self._growth.advance(files)
        moment = self._monotonic()
        span = None if arrived is None or self._looked_at is None else max(moment - self._looked_at, 1e-9)
        self._looked_at = moment
        ends = {key: queue_end(files, queue) for key, queue in files.queues.items()}
        offsets = list(groups(files, ends))
        topics = self._topics(files, ends, offsets, arrived or {}, span)
        listed = [(size, kind) for _, kind, size, _ in all_files(files)]
        disk = log_disk(files)
        return Snapshot(
            path=str(self._root),
            at_ms=self._now_ms(),
            span_s=span,
            is_running=files.is_running,
            messages_a_second=_rate(sum(topic.messages for topic in (arrived or {}).values()), span),
            bytes_a_second=_rate(sum(topic.bytes for topic in (arrived or {}).values()), span),
            min_offset=files.min_offset,
            max_offset=self._growth.end,
            messages=sum(topic.messages for topic in topics),
            files=len(listed),
            bytes=sum(size for size, _ in listed),
            disk_bytes=None if disk is None else disk.total,
            disk_free_bytes=None if disk is None else disk.free,
            disk_used_ratio=None if disk is None else disk.used_ratio,
            topics=topics,
            groups=self._groups(offsets, moment),
        )

    def _topics(
        self,
        files: StoreFiles,
        ends: Mapping[QueueKey, int],
        offsets: list[GroupOffset],
        arrived: Mapping[str, Arrived],
        span: float | None,
    ) -> tuple[TopicSnapshot, ...]:
        counts: defaultdict[str, list[int]] = defaultdict(list)
        for key, queue in files.queues.items():
            counts[queue.topic].append(ends[key] - queue_begin(files, queue, files.min_offset, ends[key]))
        lags: defaultdict[str, int] = defaultdict(int)
        for offset in offsets:
            lags[offset.topic] += offset.lag
        for topic, news in arrived.items():
            if news.last_store_timestamp is not None:
                self._latest[topic] = news.last_store_timestamp
        return tuple(
            TopicSnapshot(
                topic=topic,
                queues=len(counts.get(topic, ())),
                messages=sum(counts.get(topic, ())),
                messages_a_second=_rate(arrived[topic].messages if topic in arrived else 0, span),
                bytes_a_second=_rate(arrived[topic].bytes if topic in arrived else 0, span),
                lag=lags.get(topic),
                last_store_timestamp=self._latest.get(topic),
            )
            for topic in sorted({*counts, *arrived})
        )

    def _groups(self, offsets: list[GroupOffset], moment: float) -> tuple[GroupSnapshot, ...]:
        found: defaultdict[tuple[str, str], list[GroupOffset]] = defaultdict(list)
        for offset in offsets:
            found[offset.group, offset.topic].append(offset)
        return tuple(
            GroupSnapshot(
                group=key[0],
                topic=key[1],
                queues=len(own),
                lag=sum(offset.lag for offset in own),
                messages_a_second=self._group_rate(key, sum(offset.offset for offset in own), moment),
            )
            for key, own in sorted(found.items())
        )

    def _group_rate(self, key: tuple[str, str], offset: int, moment: float) -> float | None:
        """Measured from one change of the offsets to the next: between two saves the file does not change."""
        before = self._offsets.get(key)
        if before is None:
            self._offsets[key] = offset, moment
        elif before[0] != offset:
            self._group_rates[key] = max(0, offset - before[0]) / max(moment - before[1], 1e-9)
            self._offsets[key] = offset, moment
        elif moment - before[1] > SAVED_WITHIN_S:
            self._group_rates[key] = 0.0
        return self._group_rates.get(key)


def _rate(count: int, span: float | None) -> float | None:
    return None if span is None else count / span


# ---------------------------------------------------------------------- new records


@dataclass(slots=True)
class Arrived:
    """The messages of one topic that were stored between two looks."""

    messages: int = 0
    bytes: int = 0
    last_store_timestamp: int | None = None


class LogGrowth:
    """Counts what is added to a log. `end` is the physical offset after the last published record."""

    def __init__(self) -> None:
        self.end = 0
        self._is_known = False
        self._counted: int | None = None

    def advance(self, files: StoreFiles) -> dict[str, Arrived] | None:
        """Count what was added since the last look; None at the first one, and after the log was cut or replaced."""
        start, end = self.end, files.fix_end(self.end)
        if not self._is_known or end < start or not self._is_there(files):
            self.end, self._is_known, self._counted = files.fix_end(), True, None
            return None
        arrived: defaultdict[str, Arrived] = defaultdict(Arrived)
        for file in LogReader(files).files:
            if file.end > start:
                self._walk(files, file, max(start, file.base), min(file.end, end), arrived)
        self.end = end
        return dict(arrived)

    def _is_there(self, files: StoreFiles) -> bool:
        """Whether the log still reaches to the last look's end and has the last record that was counted."""
        if not files.log or not files.log[0].base <= self.end <= files.log[-1].end:
            return False
        return self._counted is None or LogReader(files).message_at(self._counted) is not None

    def _walk(
        self, files: StoreFiles, file: DataFile, position: int, stop: int, arrived: defaultdict[str, Arrived]
    ) -> None:
        """Count the records of one file from a position on; damage is passed over."""
        try:
            view = files.view(file)
        except DiskError:
            return  # retention has deleted it since
        place, limit = position - file.base, stop - file.base
        while 0 <= place < limit:
            seen = kernel.scan(view, place, limit, file.base, check_crc=True, max_count=_ROWS)
            for row in map(Row._make, ROW.iter_unpack(seen.rows)):
                _count(arrived[seen.queues[row.queue][0]], row, files)
                self._counted = row.physical_offset
            if seen.reason is ScanStop.BLANK:
                return
            place = seen.end
            if seen.reason is not ScanStop.LIMIT:
                place = kernel.find_record(view, place + 1, limit, file.base) if place + 1 < limit else -1


def _count(topic: Arrived, row: Row, files: StoreFiles) -> None:
    topic.messages += _inner_count(files, row) if row.marks & INNER_BATCH else 1
    topic.bytes += row.size
    topic.last_store_timestamp = row.store_timestamp


def _inner_count(files: StoreFiles, row: Row) -> int:
    """How many messages a record of a batch queue holds."""
    message = LogReader(files).message_at(row.physical_offset)
    count = "" if message is None else message.properties.get(INNER_NUM, "")
    return int(count) if count.isascii() and count.isdecimal() else 1
