"""A store's figures as Prometheus metrics. Needs the extra `flintlog[metrics]`.

    >>> import tempfile
    >>> from prometheus_client import CollectorRegistry, generate_latest
    >>> from flintlog import Message, StoreConfig, open_store
    >>> from flintlog.store.prometheus import StoreCollector
    >>> config = StoreConfig(mapped_file_size_commit_log=65536, max_hash_slot_num=100, max_index_num=400)
    >>> registry = CollectorRegistry()
    >>> with tempfile.TemporaryDirectory() as folder, open_store(folder, config) as store:
    ...     registry.register(StoreCollector(store))
    ...     _ = store.put(Message("orders", b"42 pieces")).check()
    ...     text = generate_latest(registry).decode()
    >>> [line for line in text.splitlines() if line.startswith("flintlog_messages_in_total")]
    ['flintlog_messages_in_total{topic="orders"} 1.0']

Names follow those of RocketMQ's own exporter where it has one (`messages_in_total`, `throughput_out_total`,
`storage_dispatch_behind_bytes`); with `prefix="rocketmq"` they are the same. Everything is read when Prometheus asks;
between two questions a collector costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from flintlog.errors import MissingExtra
from flintlog.store.stats import LATENCY_BOUNDS, RATE_WINDOWS

if TYPE_CHECKING:
    from prometheus_client.metrics_core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
        Metric,
    )

    from flintlog.store.store import Store

_SHOWN_BOUNDS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)
_RATES: Final = ("put", "found", "miss", "transferred")

Labelled = Iterable[tuple[tuple[str, ...], float]]


class StoreCollector:
    """Register it with a `CollectorRegistry`. `by_queue` adds a label for each queue: mind how many there are."""

    def __init__(self, store: Store, *, prefix: str = "flintlog", by_queue: bool = False) -> None:
        try:
            from prometheus_client import metrics_core
        except ImportError:
            raise MissingExtra(
                "Prometheus metrics need the package prometheus-client", advice="pip install 'flintlog[metrics]'"
            ) from None
        self._store = store
        self._prefix = prefix
        self._by_queue = by_queue
        self._core = metrics_core

    def describe(self) -> Iterable[Metric]:
        """Nothing: the names are known, and asking a store at registration would be too early."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """All metrics, with the values of now."""
        yield from self._by_topic()
        yield from self._by_group()
        yield from self._totals()
        yield from self._rates()
        yield self._latency()
        yield from self._log()

    def _by_topic(self) -> Iterator[Metric]:
        figures = self._store.broker_stats
        kind, labels = ("QUEUE", ("topic", "queue_id")) if self._by_queue else ("TOPIC", ("topic",))
        for name, item, about in (
            ("messages_in", "NUMS", "Messages put since the store was opened."),
            ("throughput_in", "SIZE", "Bytes of their records."),
        ):
            items = figures.items(f"{kind}_PUT_{item}")
            counted = ((_split(key, len(labels)), found.value) for key, found in items.items())
            yield self._counter(name, about, labels, counted)

    def _by_group(self) -> Iterator[Metric]:
        figures = self._store.broker_stats
        labels = ("topic", "group")
        for name, item, about in (
            ("messages_out", "GROUP_GET_NUMS", "Messages read by a group since the store was opened."),
            ("throughput_out", "GROUP_GET_SIZE", "Bytes of their records."),
        ):
            items = figures.items(item)
            yield self._counter(name, about, labels, ((_split(key, 2), found.value) for key, found in items.items()))
        for name, item, about, scale in (
            ("group_fall_behind_bytes", "GROUP_GET_FALL_SIZE", "How far behind the log's end a group reads.", 1.0),
            ("group_fall_behind_seconds", "GROUP_GET_FALL_TIME", "How old the last message is that it read.", 1000.0),
        ):
            moments = figures.moments(item).items()
            told = ((tuple(key.split("@", 2)), moment.value / scale) for key, moment in moments)
            yield self._gauge(name, about, ("queue_id", "topic", "group"), told)

    def _totals(self) -> Iterator[Metric]:
        counters = self._store.counters
        for name, about, value in (
            ("puts_failed", "Puts that were refused or not acknowledged.", counters.put_failed_times),
            ("gets_found", "Questions that were answered with messages.", counters.get_found_times),
            ("gets_missed", "Questions that were answered with none.", counters.get_miss_times),
            ("messages_transferred", "Messages in all answers.", counters.get_transferred_count),
        ):
            yield self._counter(name, about, (), [((), value)])

    def _rates(self) -> Iterator[Metric]:
        counters = self._store.counters
        for name in _RATES:
            known = ((str(window), counters.rate(name, window)) for window in RATE_WINDOWS)
            told = [((window,), rate) for window, rate in known if rate is not None]
            yield self._gauge(f"{name}_tps", "Counts a second over the last seconds.", ("window",), told)
        quantiles = [((str(part),), counters.put_latency_ms(part) / 1000) for part in (0.99, 0.999)]
        about = "The time that this part of the puts of the last full minute did not exceed."
        yield self._gauge("put_latency_last_minute_seconds", about, ("quantile",), quantiles)

    def _latency(self) -> HistogramMetricFamily:
        buckets, total_ms = self._store.counters.put_latencies()
        below = dict(zip(LATENCY_BOUNDS, accumulate(buckets), strict=False))
        shown = [(str(bound / 1000), float(below[bound])) for bound in _SHOWN_BOUNDS_MS]
        metric = self._core.HistogramMetricFamily(f"{self._prefix}_put_latency_seconds", "How long puts took.")
        metric.add_metric((), [*shown, ("+Inf", float(sum(buckets)))], sum_value=total_ms / 1000)
        return metric

    def _log(self) -> Iterator[Metric]:
        store = self._store
        found = store.stats()
        low, high = store.min_physical_offset, store.max_physical_offset
        for name, about, value in (
            ("storage_size", "Bytes of the log that can be read.", high - low),
            ("storage_min_offset", "Where the log begins.", low),
            ("storage_max_offset", "Where the log ends.", high),
            ("storage_flush_behind_bytes", "Bytes that are not on disk yet.", max(0, high - store.flushed_offset)),
            ("storage_dispatch_behind_bytes", "Bytes that are not visible yet.", found["dispatchBehindBytes"]),
            ("queues", "Queues there are.", len(store.queues())),
        ):
            yield self._gauge(name, about, (), [((), float(value))])
        prefix = "commitLogDiskRatio_"
        paths = {name.removeprefix(prefix): value for name, value in found.items() if name.startswith(prefix)}
        ratios = paths or {"commitlog": found["commitLogDiskRatio"]}
        ratios["consumequeue"] = found["consumeQueueDiskRatio"]
        told = [((path,), float(ratio)) for path, ratio in ratios.items()]
        yield self._gauge("disk_used_ratio", "How full the disk of a directory is; -1: unknown.", ("path",), told)

    def _counter(self, name: str, about: str, labels: tuple[str, ...], counted: Labelled) -> CounterMetricFamily:
        metric = self._core.CounterMetricFamily(f"{self._prefix}_{name}", about, labels=labels)
        for values, value in counted:
            metric.add_metric(values, value)
        return metric

    def _gauge(self, name: str, about: str, labels: tuple[str, ...], told: Labelled) -> GaugeMetricFamily:
        metric = self._core.GaugeMetricFamily(f"{self._prefix}_{name}", about, labels=labels)
        for values, value in told:
            metric.add_metric(values, value)
        return metric


def _split(key: str, count: int) -> tuple[str, ...]:
    """The parts of an item's key; a topic may hold an @ itself, what follows it does not."""
    return tuple(key.rsplit("@", count - 1))
