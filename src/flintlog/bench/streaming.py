"""Measures whether Spark keeps up with a store that another process writes at a steady rate, and its delay.

    writer (a process)      20,000 messages of 1 KiB a second, in batches, with the time in each
    stream, source          readStream.format("flintlog"): from the store time of a message to its batch in the driver
    stream, dispatch        `flintlog pipeline dispatch`: from the store time to the moment a reader may get it

Delays are of single messages: the oldest of each batch of the source, or a sample of those that a reader gets.
`behind_s` is how long after the last put everything has arrived: large if the stream does not keep up.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from flintlog.bench.process_tree import ProcessWatch
from flintlog.errors import JobFailed
from flintlog.pipeline.dispatch import dispatch
from flintlog.store.model.message import Message
from flintlog.store.open_store import open_store
from flintlog.store.options.store_config import StoreConfig

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from flintlog.store.model.stored_message import Arrival

RATE: Final = 20_000
SECONDS: Final = 20.0
BATCH: Final = 200
BODY_BYTES: Final = 1024
INTERVAL_S: Final = 0.2
PATIENCE_S: Final = 120.0
SAMPLE: Final = 50
_EMBEDDED: Final = StoreConfig(
    flush="async", mapped_file_size_commit_log=64 * 1024 * 1024, max_hash_slot_num=500_000, max_index_num=2_000_000
)
_EXTERNAL: Final = _EMBEDDED.with_changes(dispatch="external")


class Streamed(NamedTuple):
    """The result of a stream over a store that is being written."""

    name: str
    seconds: float
    cpu_seconds: float
    message_count: int
    delay_ms: float
    delay_p99_ms: float
    behind_s: float
    memory_mib: float


class Delays:
    """Delays as they come in, and how many messages have arrived. Any thread may add."""

    def __init__(self) -> None:
        self.count = 0
        self._delays: list[float] = []

    def add(self, store_timestamp: int, count: int) -> None:
        self._delays.append(time.time() * 1000 - store_timestamp)
        self.count += count

    def start_over(self) -> None:
        self._delays = []

    @property
    def median_ms(self) -> float:
        return statistics.median(self._delays)

    @property
    def p99_ms(self) -> float:
        return statistics.quantiles(self._delays, n=100)[-1] if len(self._delays) > 1 else self._delays[0]


def measure_streams(
    spark: SparkSession, directory: Path, *, rate: int = RATE, seconds: float = SECONDS
) -> list[Streamed]:
    """Both streams, one after the other, each over a store of its own in an empty directory."""
    source = _Stream(directory / "source", _EMBEDDED, rate, seconds).run("stream, source", _source_of(spark))
    job = _Stream(directory / "dispatch", _EXTERNAL, rate, seconds).run("stream, dispatch", _dispatch_of(spark))
    return [source, job]


Arriving = Callable[[Path, Delays], "Iterator[None]"]


class _Stream:
    """One store, its writer, and the stream that follows it."""

    def __init__(self, store: Path, config: StoreConfig, rate: int, seconds: float) -> None:
        self._store = store
        self._config = config
        self._rate = rate
        self._seconds = seconds

    def run(self, name: str, follow: Arriving) -> Streamed:
        delays = Delays()
        with self._writer() as writer, contextmanager(follow)(self._store, delays):
            self._request(writer, BATCH)  # one batch, so that everything has run before the clock
            self._wait(delays, BATCH)
            delays.start_over()
            with ProcessWatch() as seen:
                began = time.perf_counter()
                count = round(self._rate * self._seconds) // BATCH * BATCH
                self._request(writer, count)
                written = time.perf_counter()
                self._wait(delays, BATCH + count)
                now = time.perf_counter()
        delayed = (delays.median_ms, delays.p99_ms, now - written)
        return Streamed(name, now - began, seen.cpu_seconds, count, *delayed, seen.mib)

    @contextmanager
    def _writer(self) -> Iterator[subprocess.Popen[bytes]]:
        command = [sys.executable, "-m", "flintlog.bench.streaming", str(self._store), self._config.dispatch]
        with subprocess.Popen([*command, str(self._rate)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            yield writer

    def _request(self, writer: subprocess.Popen[bytes], count: int) -> None:
        """Let the writer put so many messages; returns when it has."""
        assert writer.stdin is not None
        assert writer.stdout is not None
        writer.stdin.write(b"%d\n" % count)
        writer.stdin.flush()
        if not writer.stdout.readline():
            raise JobFailed("the writer of the benchmark has ended")

    def _wait(self, delays: Delays, count: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while delays.count < count:
            if time.monotonic() > deadline:
                raise JobFailed(f"{delays.count} of {count} messages arrived within {PATIENCE_S:.0f} seconds")
            time.sleep(0.005)


def _source_of(spark: SparkSession) -> Arriving:
    def follow(store: Path, delays: Delays) -> Iterator[None]:
        from pyspark.sql import functions

        def take(frame: DataFrame, _number: int) -> None:
            row = frame.agg(functions.count("*"), functions.unix_millis(functions.min("store_timestamp"))).collect()[0]
            if row[0]:
                delays.add(row[1], row[0])

        stream = spark.readStream.format("flintlog").option("startingOffsets", "earliest")
        stream = stream.option("includeBody", "false")
        writer = stream.load(str(store)).writeStream.foreachBatch(take)
        query = writer.trigger(processingTime=f"{round(INTERVAL_S * 1000)} milliseconds").start()
        try:
            yield
        finally:
            query.stop()

    return follow


def _dispatch_of(spark: SparkSession) -> Arriving:
    def follow(store: Path, delays: Delays) -> Iterator[None]:
        stop = threading.Event()
        config = _EXTERNAL
        job = threading.Thread(
            target=lambda: dispatch(spark, store, config=config, stop=stop, interval_s=INTERVAL_S),
            name="bench-dispatch",
        )

        def hear(arrival: Arrival) -> None:
            if arrival.queue_offset % SAMPLE == SAMPLE - 1:
                delays.add(arrival.store_timestamp, SAMPLE)

        with open_store(store, config, read_only=True) as reader:
            reader.on_arrival(hear)
            job.start()
            try:
                yield
            finally:
                stop.set()
                job.join()

    return follow


def write(store: Path, how: str, rate: int) -> None:
    """The writer: puts as many messages as a line of standard input says, at the rate, and answers with a line."""
    config = _EXTERNAL if how == "external" else _EMBEDDED
    with open_store(store, config) as opened:
        sys.stdout.write("open\n")
        sys.stdout.flush()
        for line in sys.stdin:
            began = time.monotonic()
            for number in range(0, int(line), BATCH):
                wait_s = began + number / rate - time.monotonic()
                if wait_s > 0:
                    time.sleep(wait_s)
                body = bytes(BODY_BYTES)
                messages = [Message("stream", body, keys=[f"k{number + each}"], tags="t") for each in range(BATCH)]
                opened.put_batch(messages)
            opened.flush()
            sys.stdout.write("put\n")
            sys.stdout.flush()


if __name__ == "__main__":
    write(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
