"""The source as a stream: every message once, across batches, restarts, a running writer and retention."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException
from tests.pipeline.conftest import SEGMENT_BYTES, fill, small_config

from flintlog import Message, open_store
from flintlog.errors import DamagedStore, InvalidConfig
from flintlog.pipeline.reading.options import check_kind, parse_source_options
from flintlog.pipeline.reading.rows import RowShape
from flintlog.pipeline.reading.stream import LogStreamReader, Offset, places_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

DEADLINE_S = 120
LONGEST_RECORD = 1_000


class Stream:
    """A query that counts the messages it got, by where they lie."""

    def __init__(self, spark: SparkSession, store: Path, checkpoint: Path) -> None:
        self.seen: Counter[int] = Counter()
        self._spark = spark
        self._store = store
        self._checkpoint = checkpoint

    def start(self, *, available_now: bool = False, **options: object) -> StreamingQuery:
        reader = self._spark.readStream.format("flintlog").option("includeBody", "false")
        for name, value in options.items():
            reader = reader.option(name, str(value))
        frame = reader.load(str(self._store)).select("physical_offset")
        writer = frame.writeStream.foreachBatch(self._take).option("checkpointLocation", str(self._checkpoint))
        return (writer.trigger(availableNow=True) if available_now else writer).start()

    def run(self, **options: object) -> StreamingQuery:
        """Read all there is now."""
        query = self.start(available_now=True, **options)
        assert query.awaitTermination(DEADLINE_S)
        return query

    def _take(self, batch: DataFrame, _number: int) -> None:
        self.seen.update(row[0] for row in batch.collect())


def test_a_log_is_read_in_batches_of_bounded_bytes_and_continues_after_a_restart(
    spark: SparkSession, tmp_path: Path
) -> None:
    store = fill(tmp_path / "store", 100)
    stream = Stream(spark, store, tmp_path / "checkpoint")
    query = stream.run(startingOffsets="earliest", maxBytesPerTrigger=15_000)
    assert len(stream.seen) == 100
    assert sum(progress.numInputRows > 0 for progress in query.recentProgress) > 1
    lags = [lag_of(progress) for progress in query.recentProgress]
    assert lags == sorted(lags, reverse=True)
    assert lags[0] > lags[-1] == 0, "the query's progress shows its lag"
    fill(store, 50)
    stream.run(startingOffsets="earliest")
    assert len(stream.seen) == 150
    assert set(stream.seen.values()) == {1}


def lag_of(progress: StreamingQueryProgress) -> int:
    """How many bytes of the log were not read, as docs/guides/notebook.md computes it."""
    (source,) = progress.sources
    ((store, reached),) = json.loads(source.latestOffset).items()
    return int(reached) - int(json.loads(source.endOffset)[store]["offset"])


def test_a_store_being_written_is_followed(spark: SparkSession, tmp_path: Path) -> None:
    store = fill(tmp_path / "store", 20)
    stream = Stream(spark, store, tmp_path / "checkpoint")
    with open_store(store, small_config()) as running:
        query = stream.start()  # from the latest on
        wait_until(lambda: bool(query.recentProgress), query)
        expected = {running.put(Message("orders", b"x" * 500)).physical_offset for _ in range(400)}
        wait_until(lambda: len(stream.seen) >= len(expected), query)
        query.stop()
    assert dict(stream.seen) == dict.fromkeys(expected, 1)


def wait_until(is_so, query) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline, query.lastProgress
        assert query.exception() is None, query.exception()
        time.sleep(0.05)


def test_files_that_were_deleted_underneath_are_an_error_or_left_out(spark: SparkSession, tmp_path: Path) -> None:
    store = fill(tmp_path / "store", 30)
    stream = Stream(spark, store, tmp_path / "checkpoint")
    stream.run(startingOffsets="earliest")
    fill(store, 300)
    min((store / "commitlog").iterdir()).unlink()
    with pytest.raises(StreamingQueryException, match="failOnDataLoss=false"):
        stream.run(startingOffsets="earliest")
    stream.run(startingOffsets="earliest", failOnDataLoss="false")
    assert min(offset for offset in stream.seen if offset > 30_000) >= SEGMENT_BYTES
    assert set(stream.seen.values()) == {1}


def test_a_stream_waits_for_a_topic_that_is_not_there_yet(spark: SparkSession, tmp_path: Path) -> None:
    store = fill(tmp_path / "store", 20)
    stream = Stream(spark, store, tmp_path / "checkpoint")
    stream.run(startingOffsets="earliest", topics="late")
    assert not stream.seen
    with open_store(store, small_config()) as running:
        place = running.put(Message("late", b"!")).physical_offset
    stream.run(startingOffsets="earliest", topics="late")
    assert stream.seen == {place: 1}


def place(offset: Offset, broker: str = "store") -> int:
    return places_of(offset)[broker]


def reader(store: Path, **options: object) -> LogStreamReader:
    given = {"path": str(store), **{name: str(value) for name, value in options.items()}}
    return LogStreamReader(parse_source_options(given), RowShape())


def test_offsets_as_spark_4_1_asks_for_them(tmp_path: Path) -> None:
    store = fill(tmp_path / "store", 100)
    asked = reader(store, startingOffsets="earliest", maxBytesPerTrigger=10_000)
    start = asked.initialOffset()
    assert start == {"store": 0}
    rows = 0
    while (end := asked.latestOffset()) != start:
        assert place(end) - place(start) <= 10_000 + LONGEST_RECORD  # a batch ends where a record does
        for partition in asked.partitions(start, end):
            rows += sum(batch.num_rows for batch in asked.read(partition))
        start = end
    assert rows == 100


def test_a_batch_waits_for_enough_bytes_but_not_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    store = lengths(tmp_path / "store", 10, 100)
    asked = reader(store, startingOffsets="earliest", minBytesPerTrigger="5k", maxTriggerDelay="30s")
    start = asked.initialOffset()
    assert asked.latestOffset(start) == start
    lengths(store, 40, 100)
    enough = asked.latestOffset(start)
    assert bodies(asked, start, enough) == 50
    lengths(store, 1, 100)
    assert asked.latestOffset(enough) == enough
    now += 31
    assert bodies(asked, enough, asked.latestOffset(enough)) == 1
    asked = reader(store, startingOffsets="earliest", minBytesPerTrigger="1m")
    asked.prepareForTriggerAvailableNow()
    assert bodies(asked, start, asked.latestOffset(asked.initialOffset())) == 51


def test_a_stream_reads_the_topics_of_a_pattern(tmp_path: Path) -> None:
    store = fill(tmp_path / "store", 30)
    asked = reader(store, startingOffsets="earliest", topicPattern="pay.*")
    start = asked.initialOffset()
    assert bodies(asked, start, asked.latestOffset(start)) == 10


def test_a_log_that_was_cut_below_what_was_read_is_an_error(tmp_path: Path) -> None:
    store = fill(tmp_path / "store", 10)
    asked = reader(store, startingOffsets="earliest")
    with pytest.raises(Exception, match="was read up to 10000000"):
        asked.partitions({"store": 0}, {"store": 10_000_000})


def lengths(store: Path, count: int, size: int) -> Path:
    """A store of messages whose bodies have one length."""
    with open_store(store, small_config()) as running:
        for number in range(count):
            running.put(Message("orders", bytes([number % 256]) * size))
    return store


def bodies(asked: LogStreamReader, start: Offset, end: Offset) -> int:
    return sum(batch.num_rows for each in asked.partitions(start, end) for batch in asked.read(each))


@pytest.mark.parametrize("others", [20, 200, 600], ids=["shorter", "as long", "longer"])
@pytest.mark.parametrize("is_restarted", [True, False], ids=["restarted", "running"])
def test_a_log_that_was_replaced_is_an_error_or_read_on_with_a_warning(
    tmp_path: Path,
    others: int,
    is_restarted: bool,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("flintlog.pipeline.reading.ends.SEARCH_INTERVAL_S", 0.0)
    store, other = lengths(tmp_path / "store", 100, 200), lengths(tmp_path / "other", others, 133)
    asked = {kind: reader(store, startingOffsets="earliest", failOnDataLoss=kind) for kind in ("true", "false")}
    start, _ = [each.latestOffset(each.initialOffset()) for each in asked.values()]
    store.rename(tmp_path / "old")
    other.rename(store)
    if is_restarted:
        asked = {kind: reader(store, startingOffsets="earliest", failOnDataLoss=kind) for kind in asked}
    with pytest.raises(DamagedStore, match="cut or replaced"):
        asked["true"].partitions(start, asked["true"].latestOffset(start))
    end = asked["false"].latestOffset(start)
    found = bodies(asked["false"], start, end)
    assert "was read up to" in caplog.text
    assert place(end) == place(reader(store, startingOffsets="latest").initialOffset())
    assert (found > 0) == (place(end) > place(start))
    lengths(store, 5, 77)
    assert bodies(asked["false"], end, asked["false"].latestOffset(end)) == 5


@pytest.mark.parametrize("count", [100, 150], ids=["as long", "longer"])
@pytest.mark.parametrize("is_restarted", [True, False], ids=["restarted", "running"])
def test_another_log_with_records_at_the_same_places_is_recognized(
    tmp_path: Path, count: int, is_restarted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    store, other = lengths(tmp_path / "store", 100, 200), lengths(tmp_path / "other", count, 200)
    asked = {kind: reader(store, startingOffsets="earliest", failOnDataLoss=kind) for kind in ("true", "false")}
    start = asked["true"].latestOffset(asked["true"].initialOffset())
    asked["false"].latestOffset(asked["false"].initialOffset())
    old = {"store": place(start)}
    store.rename(tmp_path / "old")
    other.rename(store)
    if is_restarted:
        asked = {kind: reader(store, startingOffsets="earliest", failOnDataLoss=kind) for kind in asked}
    if count == 100:
        assert asked["true"].latestOffset(start) == start  # there is nothing to read, so nothing is compared
    lengths(store, 7, 77)
    with pytest.raises(DamagedStore, match=f"was read up to {place(start)}, and has other bytes before that now"):
        asked["true"].partitions(start, asked["true"].latestOffset(start))
    assert bodies(asked["false"], start, asked["false"].latestOffset(start)) == count - 100 + 7
    assert "has other bytes before that now" in caplog.text
    # What an earlier version kept cannot be compared.
    assert bodies(asked["true"], old, asked["true"].latestOffset(old)) == count - 100 + 7


def test_a_batch_that_was_planned_before_its_log_was_replaced_is_not_read_from_the_other(tmp_path: Path) -> None:
    store, other = lengths(tmp_path / "store", 100, 200), lengths(tmp_path / "other", 100, 200)
    asked = reader(store, startingOffsets="earliest")
    start = asked.initialOffset()
    end = asked.latestOffset(start)
    assert bodies(asked, start, end) == 100
    store.rename(tmp_path / "old")
    other.rename(store)
    with pytest.raises(DamagedStore, match="has other bytes before that now"):
        reader(store, startingOffsets="earliest").partitions(start, end)


def test_a_stream_continues_from_a_checkpoint_of_an_earlier_version(tmp_path: Path) -> None:
    store = lengths(tmp_path / "store", 100, 200)
    asked = reader(store, startingOffsets="earliest")
    old = {"store": place(asked.latestOffset(asked.initialOffset()))}
    assert asked.latestOffset(old) == old  # nothing came, so no batch begins
    lengths(store, 5, 77)
    end = reader(store).latestOffset(old)
    assert bodies(reader(store), old, end) == 5
    assert end["store"].keys() == {"offset", "crc"}


def test_a_log_that_only_grows_rolls_and_is_read_in_pieces_is_never_suspected(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = lengths(tmp_path / "store", 1, 10)
    start = reader(store, startingOffsets="earliest").initialOffset()
    rows = 0
    for size in (30, 500, 5_000, 60_000, 100):
        lengths(store, 40, size)
        asked = reader(store, startingOffsets="earliest", maxBytesPerTrigger=30_011)
        while (end := asked.latestOffset(start)) != start:
            rows += bodies(asked, start, end)
            start = end
    assert rows == 201
    assert not caplog.text


def test_a_store_that_comes_later_is_counted_from_its_first_file(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    lengths(tmp_path / "a" / "store", 10, 100)
    asked = reader(tmp_path / "*" / "store", startingOffsets="earliest", maxBytesPerTrigger=20_000)
    start = asked.latestOffset(asked.initialOffset())
    late = lengths(tmp_path / "b" / "store", 1_000, 300) / "commitlog"
    for _ in range(3):
        min(late.iterdir()).unlink()
    first = int(min(late.iterdir()).name)
    rows = 0
    while (end := asked.latestOffset(start)) != start:
        begin = places_of(start).get("b", first)
        assert begin < place(end, "b") <= begin + 20_000 + LONGEST_RECORD
        rows += bodies(asked, start, end)
        start = end
    assert 0 < rows < 1_000
    assert place(start, "b") == place(reader(tmp_path / "b" / "store", startingOffsets="latest").initialOffset())


def test_a_deleted_range_is_not_walked_through(tmp_path: Path) -> None:
    store = lengths(tmp_path / "store", 1_000, 300)
    for _ in range(3):
        min((store / "commitlog").iterdir()).unlink()
    asked = reader(store, startingOffsets="0", maxBytesPerTrigger=1_000, failOnDataLoss="false")
    assert place(asked.latestOffset({"store": 0})) > 3 * SEGMENT_BYTES


def test_an_offset_beyond_the_end_is_refused_and_one_inside_a_record_is_the_next(tmp_path: Path) -> None:
    store = lengths(tmp_path / "store", 10, 100)
    end = place(reader(store, startingOffsets="latest").initialOffset())
    with pytest.raises(InvalidConfig, match=f"startingOffsets = {end + 1} is beyond .* end at {end}"):
        reader(store, startingOffsets=end + 1).initialOffset()
    assert place(reader(store, startingOffsets=1).initialOffset()) == end // 10
    assert place(reader(store, startingOffsets=end).initialOffset()) == end


def test_options_of_the_other_kind_are_refused(tmp_path: Path) -> None:
    ending = parse_source_options({"path": "/x", "endingOffsets": "latest"})
    bounded = parse_source_options({"path": "/x", "maxBytesPerTrigger": "1m", "queryName": "mine"})
    check_kind(ending, is_streaming=False)
    check_kind(bounded, is_streaming=True)
    with pytest.raises(InvalidConfig, match="endingOffsets is not for streams"):
        check_kind(ending, is_streaming=True)
    with pytest.raises(InvalidConfig, match="maxBytesPerTrigger is for streams"):
        check_kind(bounded, is_streaming=False)


def test_a_stream_passes_damage_once_it_was_searched_for(tmp_path: Path) -> None:
    store = fill(tmp_path / "store", 50)
    whole = place(reader(store, startingOffsets="latest").initialOffset())
    log = min((store / "commitlog").iterdir())
    first = int.from_bytes(log.read_bytes()[:4], "big")
    with log.open("r+b") as file:
        file.seek(first)
        file.write(bytes(8))
    asked = reader(store, startingOffsets="earliest", failOnDataLoss="false")
    assert asked.initialOffset() == {"store": 0}
    assert asked.reportLatestOffset() == {"store": first}
    assert place(asked.latestOffset()) == whole
    found = sum(
        batch.num_rows for each in asked.partitions({"store": 0}, {"store": whole}) for batch in asked.read(each)
    )
    assert found == 49


def test_a_stream_may_begin_before_the_first_message(spark: SparkSession, tmp_path: Path) -> None:
    """A store that was opened just now has no log yet."""
    with open_store(tmp_path / "store", small_config()) as store:
        frame = spark.readStream.format("flintlog").option("startingOffsets", "earliest").load(str(tmp_path / "store"))
        rows = spark.read.format("flintlog").load(str(tmp_path / "store"))
        assert rows.count() == 0
        query = frame.writeStream.format("memory").queryName("before_the_first").start()
        try:
            query.processAllAvailable()
            store.put(Message("orders", b"first")).check()
            query.processAllAvailable()
            assert [bytes(row.body) for row in spark.table("before_the_first").collect()] == [b"first"]
        finally:
            query.stop()
