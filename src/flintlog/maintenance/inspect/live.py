"""The pulse of a store: how much is written to it and read from it, seen from outside, again and again.

A `Watch` looks at the directory beside the process that runs the store; it neither opens nor locks anything. Messages
and bytes a second come from the log (`flintlog.maintenance.inspect.log_growth`), a group's own rate from what it has
committed to `consumerOffset.json`, which is written every few seconds and not with each message. Rates are None at the
first look: a rate needs two.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flintlog.errors import FlintlogError
from flintlog.format.queue_entry import QueueKey
from flintlog.maintenance.inspect.log_growth import Arrived, LogGrowth
from flintlog.maintenance.inspect.overview import GroupOffset, all_files, groups
from flintlog.maintenance.inspect.queue_ends import queue_begin, queue_end
from flintlog.maintenance.inspect.store_files import StoreFiles, look_at

if TYPE_CHECKING:
    from flintlog.disk.media.medium import DiskUsage, Medium
    from flintlog.store.options.store_config import StoreConfig

Seconds = Callable[[], float]


@dataclass(frozen=True, slots=True)
class TopicPulse:
    """One topic; rates are a second's, `last_store_timestamp` is of what came while we looked."""

    topic: str
    queues: int
    messages: int
    messages_a_second: float | None
    bytes_a_second: float | None
    lag: int | None
    last_store_timestamp: int | None


@dataclass(frozen=True, slots=True)
class GroupPulse:
    """How far a group is behind in a topic, and how many messages a second it gets done."""

    group: str
    topic: str
    queues: int
    lag: int
    messages_a_second: float | None


@dataclass(frozen=True, slots=True)
class Pulse:
    """One look at a store. `span_s` is how long before it the look was with which rates were made."""

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
    topics: tuple[TopicPulse, ...]
    groups: tuple[GroupPulse, ...]


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

    def look(self) -> Pulse:
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
        disk = _usage(files)
        return Pulse(
            path=str(self._root),
            at_ms=self._now_ms(),
            span_s=span,
            is_running=files.is_running,
            messages_a_second=_rate(sum(topic.messages for topic in (arrived or {}).values()), span),
            bytes_a_second=_rate(sum(topic.bytes for topic in (arrived or {}).values()), span),
            min_offset=files.log[0].base if files.log else 0,
            max_offset=self._growth.end,
            messages=sum(topic.messages for topic in topics),
            files=len(listed),
            bytes=sum(size for size, _ in listed),
            disk_bytes=None if disk is None else disk.total,
            disk_free_bytes=None if disk is None else disk.free,
            disk_used_ratio=None if disk is None or disk.used_ratio < 0 else disk.used_ratio,
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
    ) -> tuple[TopicPulse, ...]:
        log_min = files.log[0].base if files.log else 0
        counts: defaultdict[str, list[int]] = defaultdict(list)
        for key, queue in files.queues.items():
            counts[queue.topic].append(ends[key] - queue_begin(files, queue, log_min, ends[key]))
        lags: defaultdict[str, int] = defaultdict(int)
        for offset in offsets:
            lags[offset.topic] += offset.lag
        for topic, news in arrived.items():
            if news.last_store_timestamp is not None:
                self._latest[topic] = news.last_store_timestamp
        return tuple(
            TopicPulse(
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

    def _groups(self, offsets: list[GroupOffset], moment: float) -> tuple[GroupPulse, ...]:
        found: defaultdict[tuple[str, str], list[GroupOffset]] = defaultdict(list)
        for offset in offsets:
            found[offset.group, offset.topic].append(offset)
        return tuple(
            GroupPulse(
                group=key[0],
                topic=key[1],
                queues=len(own),
                lag=sum(offset.lag for offset in own),
                messages_a_second=self._group_rate(key, sum(offset.offset for offset in own), moment),
            )
            for key, own in sorted(found.items())
        )

    def _group_rate(self, key: tuple[str, str], offset: int, moment: float) -> float | None:
        """From one change of the offsets to the next: between two saves they stand still, though the group does not."""
        before = self._offsets.get(key)
        if before is None:
            self._offsets[key] = offset, moment
        elif before[0] != offset:
            self._group_rates[key] = max(0, offset - before[0]) / max(moment - before[1], 1e-9)
            self._offsets[key] = offset, moment
        elif moment - before[1] > SAVED_WITHIN_S:
            self._group_rates[key] = 0.0
        return self._group_rates.get(key)


SAVED_WITHIN_S = 15.0
"""A group whose offsets have not moved for so long (brokers save them every 5 s) is standing still."""


def _rate(count: int, span: float | None) -> float | None:
    return None if span is None else count / span


def _usage(files: StoreFiles) -> DiskUsage | None:
    directory = next((path for path in files.paths.commit_logs if files.medium.exists(path)), files.root)
    try:
        return files.medium.usage(directory)
    except FlintlogError:
        return None
