"""The report of `report.py` in this process, without Spark: the same messages, the same figures, for the same page.

Only counts are kept: of each size, each delay, each tenth of a second, each queue and each key. So memory grows with
their distinct values and not with the messages. Only distinct keys may be very many; then use Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from math import ceil
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from flintlog.pipeline.reading.known_topics import no_messages_of
from flintlog.pipeline.reading.logs import find_damage, find_end
from flintlog.pipeline.reading.options import SPLIT_BYTES
from flintlog.pipeline.reading.partitions import plan
from flintlog.pipeline.reading.reading import Reading
from flintlog.pipeline.reading.rows import RowShape
from flintlog.pipeline.report import (
    COLUMNS,
    GROUP_FIELDS,
    PERCENTILES,
    STEPS_MS,
    Report,
    Stores,
    choose_step,
    group_rows,
)

if TYPE_CHECKING:
    from flintlog.store.options.store_config import StoreConfig
    from flintlog.store.runtime.jobs import Progress

_COUNTED_AT_ONCE: Final = 1 << 18
"""So many rows are counted together: less would cost a call for few rows, more would be memory for nothing."""

Histogram = Sequence[tuple[int, int]]
"""(value, count), by growing value."""


class Tally:
    """Counts and sums by some columns. What is added is counted at once, and counts are added up when they are many."""

    def __init__(self, by: Sequence[str], sums: Sequence[str] = ("messages",)) -> None:
        self._by, self._sums = list(by), list(sums)
        self._parts: list[pa.Table] = []

    def add(self, rows: pa.Table) -> None:
        self._parts.append(self._counted(rows.select([*self._by, *self._sums])))
        if len(self._parts) > 1 and sum(part.num_rows for part in self._parts[1:]) > _COUNTED_AT_ONCE:
            self._parts = [self.table()]

    def table(self) -> pa.Table:
        """A row for each value, with its sums."""
        return self._counted(pa.concat_tables(self._parts)) if self._parts else pa.table({})

    def rows(self) -> list[dict[str, object]]:
        found: list[dict[str, object]] = self.table().to_pylist()
        return found

    def _counted(self, rows: pa.Table) -> pa.Table:
        counted = rows.group_by(self._by).aggregate([(name, "sum") for name in self._sums])
        return counted.rename_columns([name.removesuffix("_sum") for name in counted.column_names])


class _Tallies:
    """Everything that is counted."""

    def __init__(self) -> None:
        self.sizes = Tally(("topic", "size"))
        self.delays = Tally(("topic", "delay_ms"))
        self.times = Tally(("from_ms",), ("messages", "bytes"))
        self.queues = Tally(("topic", "queue_id"), ("messages", "bytes"))
        self.keys = Tally(("topic", "key"))
        self.first_ms: int | None = None
        self.last_ms: int | None = None

    def add(self, records: pa.Table) -> None:
        times = records.column("store_timestamp")
        seen = pc.min_max(times).as_py()
        self.first_ms = seen["min"] if self.first_ms is None else min(self.first_ms, seen["min"])
        self.last_ms = seen["max"] if self.last_ms is None else max(self.last_ms, seen["max"])
        ones = pa.repeat(pa.scalar(1, pa.int64()), records.num_rows)
        rows = pa.table(
            {
                "topic": records.column("topic"),
                "queue_id": records.column("queue_id"),
                "size": records.column("size"),
                "delay_ms": pc.subtract(times, records.column("born_timestamp")),
                "from_ms": pc.multiply(pc.divide(times, STEPS_MS[0]), STEPS_MS[0]),
                "messages": ones,
                "bytes": records.column("size").cast(pa.int64()),
            }
        )
        for tally in (self.sizes, self.delays, self.times, self.queues):
            tally.add(rows)
        self._add_keys(records)

    def _add_keys(self, records: pa.Table) -> None:
        keys = records.column("keys")
        if not len(found := pc.list_flatten(keys)):
            return
        topics = records.column("topic").take(pc.list_parent_indices(keys))
        ones = pa.repeat(pa.scalar(1, pa.int64()), len(found))
        self.keys.add(pa.table({"topic": topics, "key": found, "messages": ones}))


def report_here(
    stores: Stores,
    *,
    config: StoreConfig | None = None,
    topics: Sequence[str] = (),
    top: int = 20,
    progress: Progress | None = None,
) -> Report:
    """The figures of stores; `progress` gets the bytes of the logs that were read, and those to read."""
    tallies = _Tallies()
    for records in _gathered(_records(stores, topics, progress)):
        tallies.add(records)
    if tallies.first_ms is None and topics:
        raise no_messages_of(topics, stores.paths)
    step_ms = choose_step((tallies.last_ms or 0) - (tallies.first_ms or 0))
    queues = tallies.queues.rows()
    by_topic = _topics(queues, tallies)
    counts = {str(row["topic"]): _int(row["messages"]) for row in by_topic}
    damage = find_damage(stores.logs)
    return Report(
        ", ".join(stores.paths),
        step_ms,
        _totals(queues, tallies),
        _over_time(tallies.times.rows(), step_ms),
        by_topic,
        _sizes(tallies),
        _skewed(queues),
        _top_keys(tallies.keys, counts, top),
        [dict(zip(GROUP_FIELDS, row, strict=True)) for row in group_rows(stores.logs, config)],
        None if damage is None else str(damage),
    )


def _records(stores: Stores, topics: Sequence[str], progress: Progress | None) -> Iterator[pa.RecordBatch]:
    """The messages, as the source on Spark reads them for its report."""
    reading = Reading(RowShape(chosen=COLUMNS), topics=tuple(topics) or None, fail_on_data_loss=False)
    ranges = [(log, log.first, find_end(log)) for log in stores.logs]
    splits = plan(ranges, split_bytes=SPLIT_BYTES // 8, least_count=1)
    total, done = sum(each.split.size for each in splits), 0
    for split in splits:
        if progress is not None:
            progress(done, total)
        yield from reading.read(split)
        done += split.split.size
    if progress is not None:
        progress(total, total)


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Tables of many rows from batches of few."""
    kept: list[pa.RecordBatch] = []
    for batch in batches:
        kept.append(batch)
        if sum(each.num_rows for each in kept) >= _COUNTED_AT_ONCE:
            yield pa.Table.from_batches(kept)
            kept = []
    if kept:
        yield pa.Table.from_batches(kept)


# ---------------------------------------------------------------------- figures


def _totals(queues: Sequence[Mapping[str, object]], tallies: _Tallies) -> dict[str, object]:
    totals: dict[str, object] = {
        "first_ms": tallies.first_ms,
        "last_ms": tallies.last_ms,
        "topics": len({row["topic"] for row in queues}),
        "queues": len(queues),
    }
    return totals | _figures(queues, _histogram(tallies.sizes, "size"), _histogram(tallies.delays, "delay_ms"))


def _topics(queues: Sequence[Mapping[str, object]], tallies: _Tallies) -> list[dict[str, object]]:
    sizes, delays = _by_topic(tallies.sizes, "size"), _by_topic(tallies.delays, "delay_ms")
    own: dict[str, list[Mapping[str, object]]] = {}
    for row in queues:
        own.setdefault(str(row["topic"]), []).append(row)
    found = [{"topic": topic, **_figures(rows, sizes[topic], delays[topic])} for topic, rows in own.items()]
    return sorted(found, key=lambda row: (-_int(row["messages"]), str(row["topic"])))


def _figures(queues: Sequence[Mapping[str, object]], sizes: Histogram, delays: Histogram) -> dict[str, object]:
    """Count, bytes, percentiles of size and of delay."""
    count, total = sum(_int(row["messages"]) for row in queues), sum(_int(row["bytes"]) for row in queues)
    figures: dict[str, object] = {
        "messages": count,
        "bytes": total if count else None,
        "mean_size": total / count if count else None,
    }
    for name, histogram in (("size", sizes), ("delay_ms", delays)):
        shown = percentiles(histogram, PERCENTILES)
        figures |= {f"{name}_p{round(share * 100)}": value for share, value in zip(PERCENTILES, shown, strict=True)}
        figures[f"{name}_max"] = histogram[-1][0] if histogram else None
    return figures


def percentiles(histogram: Histogram, shares: Sequence[float]) -> list[int | None]:
    """For each share the least value that so many of the values do not exceed; `shares` grow.

    >>> percentiles([(3, 1), (7, 98), (100, 1)], (0.01, 0.5, 0.99, 1.0))
    [3, 7, 7, 100]
    """
    count, seen, found = sum(each for _, each in histogram), 0, []
    places = iter(histogram)
    value: int | None = None
    for share in shares:
        while seen < ceil(share * count):
            value, more = next(places)
            seen += more
        found.append(value)
    return found


def _histogram(tally: Tally, name: str) -> Histogram:
    counts: dict[int, int] = {}
    for row in tally.rows():
        counts[_int(row[name])] = counts.get(_int(row[name]), 0) + _int(row["messages"])
    return sorted(counts.items())


def _by_topic(tally: Tally, name: str) -> dict[str, Histogram]:
    rows = sorted((str(row["topic"]), _int(row[name]), _int(row["messages"])) for row in tally.rows())
    return {topic: [each[1:] for each in own] for topic, own in groupby(rows, key=lambda row: row[0])}


def _over_time(rows: Sequence[Mapping[str, object]], step_ms: int) -> list[dict[str, object]]:
    steps: dict[int, list[int]] = {}
    for row in rows:
        step = steps.setdefault(_int(row["from_ms"]) // step_ms * step_ms, [0, 0])
        step[0] += _int(row["messages"])
        step[1] += _int(row["bytes"])
    return [
        {"from_ms": begin, "messages": count, "bytes": total, "per_second": count * 1000 / step_ms}
        for begin, (count, total) in sorted(steps.items())
    ]


def _sizes(tallies: _Tallies) -> list[dict[str, object]]:
    counts: dict[int, int] = {}
    for size, count in _histogram(tallies.sizes, "size"):
        bound = 1 << (max(1, size) - 1).bit_length()
        counts[bound] = counts.get(bound, 0) + count
    return [{"up_to_bytes": bound, "messages": count} for bound, count in sorted(counts.items())]


def _skewed(queues: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
    counts: dict[object, list[int]] = {}
    for row in queues:
        counts.setdefault(row["topic"], []).append(_int(row["messages"]))
    means = {topic: sum(own) / len(own) for topic, own in counts.items()}
    found = [{**row, "skew": _int(row["messages"]) / means[row["topic"]]} for row in queues]
    return sorted(found, key=lambda row: (-row["skew"], row["topic"], row["queue_id"]))  # type: ignore[operator]


def _top_keys(keys: Tally, counts: Mapping[str, int], top: int) -> list[dict[str, object]]:
    table = keys.table()
    if not table.num_rows:
        return []
    ordered = table.sort_by([("messages", "descending"), ("topic", "ascending"), ("key", "ascending")])
    return [
        {**{name: row[name] for name in ("topic", "key", "messages")}, "share": row["messages"] / counts[row["topic"]]}
        for row in ordered.slice(0, top).to_pylist()
    ]


def _int(value: object) -> int:
    return value if isinstance(value, int) else 0
