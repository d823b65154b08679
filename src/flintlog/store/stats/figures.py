"""The figures of a running store, from its counters, its queues and its disks.

Totals of puts are read from the queue offsets and the log instead of being counted.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from flintlog.errors import FlintlogError
from flintlog.store.dispatch.dispatcher import Dispatcher
from flintlog.store.options.store_config import StoreConfig
from flintlog.store.runtime.clock import Milliseconds
from flintlog.store.stats.broker_stats import BrokerStats
from flintlog.store.stats.put_figures import PutFigures
from flintlog.store.stats.store_stats import PutTotals, StoreStatsService

if TYPE_CHECKING:
    from flintlog.store.components import Components

SAMPLE_INTERVAL_MS: Final = 1000
_SAMPLE_INTERVAL_S: Final = 0.999


class Figures:
    """The counters, the figures by queue and group, and `values` over all of them. Any thread may ask."""

    def __init__(
        self, config: StoreConfig, parts: Components, dispatcher: Dispatcher, now_ms: Milliseconds, *, read_only: bool
    ) -> None:
        log = parts.commit_log
        self.samples_itself = True
        self.puts = PutFigures(parts.queues, lambda: log.end_offset, lambda: dispatcher.position, log.unqueued)
        self.broker = BrokerStats(
            now_ms,
            self.puts.take,
            lambda: self.counters.get_transferred_count,
            puts_wait=config.flush == "sync" or config.waits_for_replicas,
            light_as_one=config.enable_lmq,
        )
        self.counters = StoreStatsService(now_ms, self._put_totals, self.broker.put_totals)
        self._parts = parts
        self._dispatcher = dispatcher
        self._now_ms = now_ms
        self._read_only = read_only
        self._offsets_before = 0
        self._totals = PutTotals(0, 0)
        self._next_sample_s = 0.0

    def start(self) -> None:
        """Count from here: messages that are stored already were put by others."""
        self.puts.start()
        self._offsets_before = self._parts.queues.offsets.given_count

    def tick(self) -> None:
        """Sample if a second has passed, unless the store's own clock calls `sample`."""
        if self.samples_itself and time.monotonic() >= self._next_sample_s:
            self._next_sample_s = time.monotonic() + _SAMPLE_INTERVAL_S
            self.sample()

    def sample(self) -> int:
        """Keep the totals of this second for the rates. Returns when to sample again, by the store's clock."""
        self.counters.dispatch_backlog(self._dispatcher.backlog_bytes)
        self.counters.sample()
        self.broker.tick()
        return self._now_ms() + SAMPLE_INTERVAL_MS

    def values(self) -> dict[str, int | float | str]:
        """Counters, rates and offsets under RocketMQ's names; numbers where RocketMQ shows one number."""
        paths, log = self._parts.paths, self._parts.commit_log
        ratios = {str(path): self._used_ratio(path) for path in paths.commit_logs}
        found = self.counters.values()
        found["commitLogDiskRatio"] = min(ratios.values())
        if len(ratios) > 1:
            found.update({f"commitLogDiskRatio_{path}": ratio for path, ratio in ratios.items()})
        found["consumeQueueDiskRatio"] = self._used_ratio(paths.consume_queue)
        found["commitLogMinOffset"] = max(0, log.min_offset)
        found["commitLogMaxOffset"] = log.max_offset
        found["dispatchBehindBytes"] = self._dispatcher.backlog_bytes
        found.update(self.broker.values())
        return found

    def _used_ratio(self, path: Path) -> float:
        """How full the disk of a directory is; -1.0, as in RocketMQ, when it is unknown."""
        medium = self._parts.medium
        try:
            return medium.usage(path if medium.exists(path) else self._parts.paths.root).used_ratio
        except FlintlogError:
            return -1.0

    def _put_totals(self) -> PutTotals:
        """Puts and their bytes since the opening."""
        if self._read_only:
            return PutTotals(0, 0)
        log = self._parts.commit_log
        appended = log.appended_bytes
        if appended != self._totals.bytes:  # adding up 100,000 queues each second would be too slow
            times = self._parts.queues.offsets.given_count - self._offsets_before + log.unqueued.count
            self._totals = PutTotals(times, appended)
        return self._totals
