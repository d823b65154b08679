"""The source as a stream: an offset is where each log was read up to.

    {"broker-a": {"offset": 81920, "crc": 3735928559}, "broker-b": 0}

It holds the physical offset of each store, with the CRC of the bytes before it if there are any; checkpoints of earlier
versions hold the number alone. A store that is added later is read from its beginning.

The log's end is found by walking its chain of records from the last known end, so the cost is that of the new records
(`ends.py`); a trigger that finds the files unchanged reads nothing.
The store may be running, and retention may delete files meanwhile. `failOnDataLoss` says whether that is an error, and
whether a log that was cut or replaced is one (`positions.py`). The same class serves Spark 4.1 (`latestOffset()` has no
arguments, and the first batch after a restart takes everything) and 4.2 and newer (admission control, AvailableNow).
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from flintlog.errors import DamagedStore, FlintlogError
from flintlog.pipeline.reading.ends import EndFinder
from flintlog.pipeline.reading.logs import Log, find_logs
from flintlog.pipeline.reading.options import LATEST, SourceOptions, resolve
from flintlog.pipeline.reading.partitions import plan, start_at_time
from flintlog.pipeline.reading.positions import crc_before, next_record, stands
from flintlog.pipeline.reading.rows import RowShape
from flintlog.pipeline.reading.split_partition import SplitPartition, check_start, read_declared, reading_of

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit

warnings = logging.getLogger(__name__)

Offset = dict[str, Any]
"""As Spark keeps it."""

Position = dict[str, int]


class LogStreamReader(DataSourceStreamReader):
    """See the module. Runs in one process of the driver; only `read` runs in tasks."""

    def __init__(self, asked: SourceOptions, shape: RowShape, declared: pa.Schema | None = None) -> None:
        self.asked = asked
        self.shape = shape
        self.declared = shape.declared() if declared is None else declared
        self._ends = EndFinder()
        self._last: Offset | None = None
        self._target: Position | None = None
        self._batch_at = time.monotonic()
        """When there was last enough for a batch."""

    # ------------------------------------------------------------------ offsets

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        logs = {log.broker: log for log in self._logs()}
        self._last = _with_crcs({broker: self._initial(log, list(logs)) for broker, log in logs.items()}, logs, {})
        return self._last

    def _initial(self, log: Log, brokers: list[str]) -> int:
        asked = self.asked
        if asked.starting_timestamp is not None and asked.starting_offsets is None:
            return start_at_time(log, asked.starting_timestamp)
        offsets = asked.starting_offsets or LATEST
        end = self._ends.find(log, max(offsets.values(), default=0) if isinstance(offsets, dict) else 0)
        start = resolve(offsets, log.broker, log.first, end, "startingOffsets", brokers)
        check_start(start, log, asked.fail_on_data_loss)
        return start if start in (log.first, end) else min(end, next_record(log, start))

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: Offset | None = None, limit: ReadLimit | None = None
    ) -> Offset:
        logs = {log.broker: log for log in self._logs()}
        start = self._last if start is None else start
        return _with_crcs(self._latest(logs, None if start is None else places_of(start), limit), logs, start or {})

    def _latest(self, logs: dict[str, Log], start: Position | None, limit: ReadLimit | None) -> Position:
        read = start or {}
        newest = self._target or {broker: self._ends.find(log, read.get(broker, 0)) for broker, log in logs.items()}
        if start is None:
            return newest
        for broker, end in newest.items():
            if end < start.get(broker, 0) and broker in logs:
                self._lost(logs[broker], f"was read up to {start[broker]}, and now ends at {end}")
        if self._waits(logs, start, newest):
            return dict(start)
        self._batch_at = time.monotonic()
        most = self.asked.max_bytes_per_trigger if limit is None else getattr(limit, "max_bytes", None)
        if most is None:
            return {**start, **newest}  # a store that no longer exists keeps its position
        begins = {broker: max(start.get(broker, 0), log.first) for broker, log in logs.items()}
        stops = _limited({**start, **begins}, newest, most)
        return {**start, **{broker: self._record_from(logs.get(broker), stops[broker], newest) for broker in stops}}

    def _waits(self, logs: Mapping[str, Log], start: Position, newest: Position) -> bool:
        """Whether too little is there for a batch, and has not been for long."""
        least = self.asked.min_bytes_per_trigger
        if least is None or self._target is not None:
            return False
        unread = sum(max(0, newest[broker] - max(start.get(broker, 0), log.first)) for broker, log in logs.items())
        return unread < least and time.monotonic() - self._batch_at < self.asked.max_trigger_delay_s

    def _record_from(self, log: Log | None, stop: int, newest: Position) -> int:
        """The end of a batch: where a record begins, so that the position can be checked against the log later."""
        if log is None or stop >= newest[log.broker]:
            return stop
        return min(newest[log.broker], next_record(log, stop))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes

        most = self.asked.max_bytes_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxBytes(most)

    def reportLatestOffset(self) -> Position:  # noqa: N802 - Spark's name
        return dict(self._ends.known)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the ends: such a query reads only up to them."""
        self._target = {log.broker: self._ends.find(log) for log in self._logs()}

    def _logs(self) -> list[Log]:
        return find_logs(self.asked.paths, strict=self.asked.fail_on_data_loss)

    def _lost(self, log: Log, what: str) -> None:
        if self.asked.fail_on_data_loss:
            raise DamagedStore(
                f"the log of {log.broker} {what}",
                path=log.uri,
                advice="it was cut or replaced; start a new query, or set option failOnDataLoss=false",
            )
        warnings.warning("%s: the log of %s %s; it is read on from there", log.uri, log.broker, what)

    # ------------------------------------------------------------------ reading

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        self._last = end
        ranges = [self._range(log, start, end) for log in self._logs() if log.broker in end]
        planned = plan(ranges, split_bytes=self.asked.split_bytes, least_count=self.asked.min_partitions)
        return [SplitPartition(each) for each in planned]

    def _range(self, log: Log, start: Offset, end: Offset) -> tuple[Log, int, int]:
        begin, stop = places_of(start).get(log.broker, log.first), places_of(end)[log.broker]
        check_start(begin, log, self.asked.fail_on_data_loss)
        there = self._ends.known.get(log.broker, 0)
        if max(begin, stop) > there:
            there = self._ends.find(log, max(begin, stop))
        if max(begin, stop) > there:
            self._lost(log, f"was read up to {max(begin, stop)}, and now ends at {there}")
        elif log.first <= begin < stop and not stands(log, begin):
            self._lost(log, f"was read up to {begin}, where no record begins now")
        elif begin < stop:
            self._check_bytes(log, start)
            self._check_bytes(log, end)
        return log, max(begin, log.first), min(stop, there)

    def _check_bytes(self, log: Log, offset: Offset) -> None:
        """Compare the CRC: another log may have a record at the same place."""
        place, crc = places_of(offset).get(log.broker, 0), crcs_of(offset).get(log.broker)
        if crc is not None and crc_before(log, place) not in (crc, None):
            self._lost(log, f"was read up to {place}, and has other bytes before that now")

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, SplitPartition):
            yield from read_declared(reading_of(self.asked, self.shape), partition.value, self.declared)


def places_of(offset: Offset) -> Position:
    """The physical offsets alone.

    >>> places_of({"broker-a": {"offset": 81920, "crc": 7}, "broker-b": 4096})
    {'broker-a': 81920, 'broker-b': 4096}
    """
    return {broker: each["offset"] if isinstance(each, dict) else each for broker, each in offset.items()}


def crcs_of(offset: Offset) -> Position:
    """The CRCs of the bytes before them, where they were kept."""
    return {broker: each["crc"] for broker, each in offset.items() if isinstance(each, dict)}


def _with_crcs(position: Position, logs: Mapping[str, Log], before: Offset) -> Offset:
    """The offset that Spark keeps for a position. Unmoved entries stay the same, because Spark compares the text."""
    places = places_of(before)
    found: Offset = {}
    for broker, place in position.items():
        if places.get(broker) == place:
            found[broker] = before[broker]
            continue
        crc = crc_before(logs[broker], place) if broker in logs else None
        found[broker] = place if crc is None else {"offset": place, "crc": crc}
    return found


class RunnersReader(LogStreamReader):
    """The reader in the process that Spark runs for it, which ends with the first error."""

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        with _in_a_sentence():
            return super().initialOffset()

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: Offset | None = None, limit: ReadLimit | None = None
    ) -> Offset:
        with _in_a_sentence():
            return super().latestOffset(start, limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        with _in_a_sentence():
            super().prepareForTriggerAvailableNow()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        with _in_a_sentence():
            return super().partitions(start, end)


@contextmanager
def _in_a_sentence() -> Iterator[None]:
    """Report an error of flintlog's without Python's frames, by a setting of Spark's that streams do not pass on."""
    try:
        yield
    except FlintlogError:
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


def make_stream_reader(asked: SourceOptions, shape: RowShape, declared: pa.Schema) -> DataSourceStreamReader:
    """The reader, with what this version of Spark can do."""
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
    except ImportError:  # Spark 4.1
        return RunnersReader(asked, shape, declared)

    class AvailableNowReader(RunnersReader, SupportsTriggerAvailableNow):
        """With Trigger.AvailableNow."""

    return AvailableNowReader(asked, shape, declared)


def _limited(start: Position, newest: Position, most: int) -> Position:
    """No more than `most` bytes from `start` on, shared among the logs by what each has."""
    unread = {broker: max(0, end - start.get(broker, 0)) for broker, end in newest.items()}
    total = sum(unread.values())
    if total <= most:
        return newest
    return {
        broker: start.get(broker, 0) + max(1, most * size // total) if size else newest[broker]
        for broker, size in unread.items()
    }
