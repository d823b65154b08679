"""A store's figures as Prometheus metrics. Needs the extra `flintlog[metrics]`.

    >>> import tempfile
    >>> from prometheus_client import CollectorRegistry, generate_latest
    >>> from flintlog import Message, StoreConfig, open_store
    >>> from flintlog.store.stats.prometheus import StoreCollector
    >>> config = StoreConfig(mapped_file_size_commit_log=65536, max_hash_slot_num=100, max_index_num=400)
    >>> registry = CollectorRegistry()
    >>> with tempfile.TemporaryDirectory() as folder, open_store(folder, config) as store:
    ...     registry.register(StoreCollector(store))
    ...     _ = store.put(Message("orders", b"42 pieces"))
    ...     text = generate_latest(registry).decode()
    >>> [line for line in text.splitlines() if line.startswith("flintlog_messages_in_total")]
    ['flintlog_messages_in_total{topic="orders"} 1.0']

Names follow those of RocketMQ's own exporter where it has one (`messages_in_total`, `throughput_out_total`,
`storage_dispatch_behind_bytes`); with `prefix="rocketmq"` they are the same. Everything is read when Prometheus
scrapes; between two scrapes a collector costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from re import sub
from typing import TYPE_CHECKING, Final

from flintlog.errors import MissingExtra
from flintlog.store.stats.figure_names import KEY_FIELDS, parse_key
from flintlog.store.stats.store_stats import LATENCY_BOUNDS, RATE_WINDOWS

if TYPE_CHECKING:
    from prometheus_client.metrics_core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
        Metric,
        SummaryMetricFamily,
    )

    from flintlog.store.store import Store

_SHOWN_BOUNDS_MS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)
_RATES: Final = ("put", "found", "miss", "transferred")

# Metric, figure, description; the labels are the parts of the figure's key
_BY_TOPIC: Final = (
    ("messages_in", "TOPIC_PUT_NUMS", "Messages put since the store was opened."),
    ("throughput_in", "TOPIC_PUT_SIZE", "Bytes of their records."),
)
_BY_QUEUE: Final = (
    ("messages_in", "QUEUE_PUT_NUMS", "Messages put since the store was opened."),
    ("throughput_in", "QUEUE_PUT_SIZE", "Bytes of their records."),
    ("queue_messages_out", "QUEUE_GET_NUMS", "Messages of a queue read by a group."),
    ("queue_throughput_out", "QUEUE_GET_SIZE", "Bytes of their records."),
)
_BY_GROUP: Final = (
    ("messages_out", "GROUP_GET_NUMS", "Messages read by a group since the store was opened."),
    ("throughput_out", "GROUP_GET_SIZE", "Bytes of their records."),
    ("messages_out_from_disk", "GROUP_GET_FROM_DISK_NUMS", "Messages read from before what memory holds."),
    ("throughput_out_from_disk", "GROUP_GET_FROM_DISK_SIZE", "Bytes of their records."),
    ("acknowledged_messages", "GROUP_ACK_NUMS", "Messages that a group's consumers acknowledged."),
    ("sent_back_messages", "SNDBCK_PUT_NUMS", "Messages that a group sent back, for another try or as dead letters."),
    ("send_to_dlq_messages", "DLQ_PUT_NUMS", "Messages that became dead letters of a group."),
)
_IN_ALL: Final = (
    ("all_messages_in", "BROKER_PUT_NUMS", "Messages put, including RocketMQ's own topics."),
    ("user_messages_in", "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", "Messages put to users' topics."),
    ("all_messages_out", "BROKER_GET_NUMS", "Messages read, with a group or without."),
    ("user_messages_out", "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC", "Messages read of users' topics."),
    ("all_messages_out_from_disk", "BROKER_GET_FROM_DISK_NUMS", "Messages read from before what memory holds."),
    ("all_throughput_out_from_disk", "BROKER_GET_FROM_DISK_SIZE", "Bytes of their records."),
    ("all_acknowledged_messages", "BROKER_ACK_NUMS", "Messages that consumers acknowledged."),
    ("dead_letters", "SNDBCK2DLQ_TIMES", "Messages that became dead letters of any group."),
)
_TIMES: Final = (
    ("queue_put_latency_seconds", "TOPIC_PUT_LATENCY", "How long puts to a queue waited."),
    ("group_get_latency_seconds", "GROUP_GET_LATENCY", "How long a group's gets took."),
)
_MOMENTS: Final = (
    ("group_fall_behind_bytes", "GROUP_GET_FALL_SIZE", "Bytes from where a group read last to the log's end.", 1.0),
    ("group_fall_behind_seconds", "GROUP_GET_FALL_TIME", "Age of the last message that a group read.", 1000.0),
)

SHOWN_ITEMS: Final = frozenset(
    figure[1] for figures in (_BY_TOPIC, _BY_QUEUE, _BY_GROUP, _IN_ALL, _TIMES, _MOMENTS) for figure in figures
)
"""The figures that are metrics."""

Labelled = Iterable[tuple[tuple[str, ...], float]]


class StoreCollector:
    """Register it with a `CollectorRegistry`. With `by_queue` each queue is a series of its own."""

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
        """Nothing, so that registering a collector does not ask the store."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """All metrics, with the values of now."""
        for name, item, about in (*(_BY_QUEUE if self._by_queue else _BY_TOPIC), *_BY_GROUP):
            yield self._counter(name, about, KEY_FIELDS[item], self._values(item))
        for name, item, about in _IN_ALL:
            yield self._counter(name, about, (), [((), sum(value for _, value in self._values(item)))])
        for name, item, about in _TIMES:
            yield self._summary(name, about, item)
        for name, item, about, scale in _MOMENTS:
            yield self._gauge(name, about, KEY_FIELDS[item], [(key, n / scale) for key, n in self._values(item)])
        yield self._lag()
        yield from self._totals()
        yield from self._rates()
        yield self._latency()
        yield from self._log()

    def _values(self, item: str) -> Labelled:
        for key, found in self._store.broker_stats.items(item).items():
            yield tuple(parse_key(item, key).values()), found.value

    def _summary(self, name: str, about: str, item: str) -> SummaryMetricFamily:
        """Number and time; without `by_queue` the queues of a topic are added up."""
        labels = tuple(field for field in KEY_FIELDS[item] if self._by_queue or field != "queue_id")
        times: dict[tuple[str, ...], int] = {}
        elapsed_ms: dict[tuple[str, ...], int] = {}
        for key, found in self._store.broker_stats.items(item).items():
            parts = parse_key(item, key)
            values = tuple(parts[field] for field in labels)
            times[values] = times.get(values, 0) + found.times
            elapsed_ms[values] = elapsed_ms.get(values, 0) + found.value
        metric = self._core.SummaryMetricFamily(f"{self._prefix}_{name}", about, labels=labels)
        for values, count in times.items():
            metric.add_metric(values, count_value=count, sum_value=elapsed_ms[values] / 1000)
        return metric

    def _lag(self) -> GaugeMetricFamily:
        store, offsets = self._store, self._store.consumer_offsets
        lag: dict[tuple[str, ...], float] = {}
        for topic, group in sorted(offsets.pairs()):
            places = offsets.offsets(group, topic).items()
            lag[topic, group] = sum(max(0, store.max_offset(topic, queue_id) - place) for queue_id, place in places)
        about = "Messages of a topic that a group has not consumed."
        return self._gauge("consumer_lag_messages", about, ("topic", "group"), lag.items())

    def _totals(self) -> Iterator[Metric]:
        counters = self._store.counters
        for name, about, value in (
            ("puts_failed", "Puts that were refused or not acknowledged.", counters.put_failed_times),
            ("gets_found", "Gets that returned messages.", counters.get_found_times),
            ("gets_missed", "Gets that returned none.", counters.get_miss_times),
            ("messages_transferred", "Messages that gets returned.", counters.get_transferred_count),
        ):
            yield self._counter(name, about, (), [((), value)])

    def _rates(self) -> Iterator[Metric]:
        counters = self._store.counters
        for name in _RATES:
            known = ((str(window), counters.rate(name, window)) for window in RATE_WINDOWS)
            rates = [((window,), rate) for window, rate in known if rate is not None]
            yield self._gauge(f"{name}_tps", "Counts a second over the last seconds.", ("window",), rates)
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
        for day, total in store.broker_stats.values().items():
            name = sub("(?<=[a-z])(?=[A-Z])", "_", day).lower()
            yield self._gauge(name, "Messages since the opening, up to a morning or to now.", (), [((), float(total))])
        for name, about, value in (
            ("storage_size", "Bytes of the log that can be read.", high - low),
            ("storage_min_offset", "Where the log begins.", low),
            ("storage_max_offset", "Where the log ends.", high),
            ("storage_flush_behind_bytes", "Bytes that are not on disk yet.", max(0, high - store.flushed_offset)),
            ("storage_dispatch_behind_bytes", "Bytes that are not visible yet.", found["dispatchBehindBytes"]),
            ("queues", "Number of queues.", len(store.queues())),
        ):
            yield self._gauge(name, about, (), [((), float(value))])
        prefix = "commitLogDiskRatio_"
        paths = {name.removeprefix(prefix): value for name, value in found.items() if name.startswith(prefix)}
        ratios = paths or {"commitlog": found["commitLogDiskRatio"]}
        ratios["consumequeue"] = found["consumeQueueDiskRatio"]
        shown = [((path,), float(ratio)) for path, ratio in ratios.items()]
        yield self._gauge("disk_used_ratio", "How full the disk of a directory is; -1: unknown.", ("path",), shown)

    def _counter(self, name: str, about: str, labels: tuple[str, ...], counted: Labelled) -> CounterMetricFamily:
        metric = self._core.CounterMetricFamily(f"{self._prefix}_{name}", about, labels=labels)
        for values, value in counted:
            metric.add_metric(values, value)
        return metric

    def _gauge(self, name: str, about: str, labels: tuple[str, ...], measured: Labelled) -> GaugeMetricFamily:
        metric = self._core.GaugeMetricFamily(f"{self._prefix}_{name}", about, labels=labels)
        for values, value in measured:
            metric.add_metric(values, value)
        return metric
