"""The job `dispatch`: Structured Streaming instead of a store's own dispatcher.

    store (another process)          driver                                       tasks
    readable end ──────────▶ stream: how far? ─▶ splits ──────────────────▶ queue entries to their places, synced
                             batch: do the splits meet?             ◀────── spans of the queues
                                    what was spilled ─────────────────────▶ index, extensions, batch queues, synced
    serves what was published ◀──── journal                         ◀────── where they end now

A Connect server would run the function of a stream's batches in its own process, which does not hold the claim. So in
a Connect session there is no stream: this process plans each batch, and runs its tasks like those of any other job.

The driver writes no byte of queues or index. It publishes each batch by a frame in the journal (`dispatch_driver.py`).
Only the journal says how far dispatch has come (docs/dispatch.md): Spark's checkpoint is a temporary directory. When
the store wants its files, to open, to stop or to delete queues, the stream is stopped and the claim released;
afterwards it starts again from the journal.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

from flintlog.disk.media.local import LocalMedium
from flintlog.disk.places import local_path
from flintlog.errors import DamagedStore, FlintlogError, InvalidConfig, JobFailed, StoreInUse
from flintlog.pipeline.building.dispatch_core import MAX_BATCH_BYTES
from flintlog.pipeline.building.dispatch_driver import DispatchDriver
from flintlog.pipeline.building.dispatch_ordered import Applied, OrderedTask
from flintlog.pipeline.building.dispatch_tasks import Derived, derive_group, plan_groups
from flintlog.pipeline.spark.failures import plain_errors, started_late, to_plain
from flintlog.pipeline.spark.tasks import Refusal, attempt_name, count_of, is_connect, parallelism, run_tasks
from flintlog.store.dispatch.external.dispatch_claim import is_wanted, load_owner
from flintlog.store.options.store_config import StoreConfig
from flintlog.store.paths import StorePaths
from flintlog.store.runtime.jobs import Progress
from flintlog.store.settings.written_with import dispatch_config

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

INTERVAL_S: Final = 0.1
_LOOK_INTERVAL_S: Final = 0.05
_LATE_STARTS: Final = 5
"""How often in a row a stream may fail to start because the machine is too busy."""


@dataclass(slots=True)
class DispatchReport:
    """The figures of one run of the job."""

    store: str
    log_start: int = 0
    """Where it began."""

    log_end: int = 0
    """Up to where everything is published."""

    batch_count: int = 0
    record_count: int = 0
    byte_count: int = 0
    """Of the log, as far as it was published."""

    damaged_count: int = 0
    """Places of the log that tasks found damaged."""

    entry_count: int = 0
    key_count: int = 0
    start_count: int = 0
    """How often it started from the journal: once, after each time the store wanted its files, and after each time
    Spark's process for the stream started too late."""

    serial_count: int = 0
    """Batches that were dispatched record by record."""

    seconds: float = 0.0
    serial_because: str | None = None


def dispatch(
    spark: SparkSession,
    store: str | Path,
    *,
    config: StoreConfig | None = None,
    once: bool = False,
    stop: threading.Event | None = None,
    interval_s: float = INTERVAL_S,
    max_bytes: int = MAX_BATCH_BYTES,
    progress: Progress | None = None,
) -> DispatchReport:
    """Build queues and index of a store that another process writes, until `stop` is set; with `once`, up to now.

    The store must have been opened with `dispatch="external"`. Raises `StoreInUse` when another dispatcher runs.
    """
    if interval_s <= 0 or max_bytes <= 0:
        raise InvalidConfig("interval_s and max_bytes are more than 0")
    root = local_path(store).absolute()
    job = _Dispatch(spark, root, config or StoreConfig(), stop or threading.Event(), progress)
    job.interval_s, job.max_bytes, job.is_once = interval_s, max_bytes, once
    return job.run()


class _Dispatch:
    """One run of the job. The stream's batches run in a thread of Spark's, everything else in the caller's."""

    interval_s = INTERVAL_S
    max_bytes = MAX_BATCH_BYTES
    is_once = False

    def __init__(
        self, spark: SparkSession, root: Path, config: StoreConfig, stop: threading.Event, progress: Progress | None
    ) -> None:
        self._spark = spark
        self._config = config
        self._paths = StorePaths.of(root, config)
        self._stop = stop
        self._progress = progress
        self._medium = LocalMedium(config.max_mapped_files)
        self._report = DispatchReport(str(root))
        self._cores = parallelism(spark)
        self._late_starts = 0

    def run(self) -> DispatchReport:
        check_given_away(self._paths, self._medium)
        started = time.perf_counter()
        while not self._stop.is_set():
            driver = self._claim()
            if driver is None:
                continue
            with driver:
                self._report.start_count += 1
                start = driver.progress.end
                is_over = self._work(driver)
                if driver.progress.end > start:
                    self._late_starts = 0
                self._report.log_end = max(self._report.log_end, driver.progress.end)
            if is_over:
                break
            while is_wanted(self._paths.dispatch, self._medium) and not self._stop.wait(_LOOK_INTERVAL_S):
                pass
        self._report.seconds = time.perf_counter() - started
        return self._report

    def _claim(self) -> DispatchDriver | None:
        """A dispatcher that has the claim; None while the store has it."""
        try:
            with plain_errors("dispatch"):
                config = dispatch_config(self._config, self._paths, self._medium)
                return DispatchDriver(self._paths.root, config, self._medium, self._run_tasks, self._cores)
        except StoreInUse:
            owner = load_owner(self._paths.dispatch, self._medium)
            if owner is None or owner.kind != "store":
                raise
            self._stop.wait(_LOOK_INTERVAL_S)
            return None

    def _run_tasks(
        self, function: Callable[[OrderedTask], Applied], tasks: Sequence[OrderedTask], doing: str
    ) -> list[Applied]:
        return run_tasks(self._spark, function, tasks, doing=f"dispatch: {doing}")

    def _work(self, driver: DispatchDriver) -> bool:
        """Dispatch until the store wants its files, or all is done; returns whether all is done."""
        if self._report.start_count == 1:
            self._report.log_start = driver.progress.end
        readable = driver.readable()
        target = driver.progress.end if readable is None else readable.end
        if self.is_once and target <= driver.progress.end:
            return True
        batches = _Batches(driver, self._report)
        if is_connect(self._spark):
            return self._loop(driver, batches, target)
        query = self._start(driver, batches)
        try:
            while not self._wait(query, driver, batches):
                if self.is_once and driver.progress.end >= target:
                    return True
            return self._stop.is_set()
        finally:
            batches.close()
            query.stop()

    def _loop(self, driver: DispatchDriver, batches: _Batches, target: int) -> bool:
        """The same without a stream: one batch after another, in this thread, no more often than the interval says."""
        while not self._stop.is_set() and not driver.is_wanted:
            next_at = time.monotonic() + self.interval_s
            with plain_errors("dispatch"):
                self._run_batch(driver, batches)
            if self._progress is not None:
                self._show(driver, self._progress)
            if self.is_once and driver.progress.end >= target:
                return True
            while not driver.is_wanted and (left := next_at - time.monotonic()) > 0:
                if self._stop.wait(min(left, _LOOK_INTERVAL_S)):
                    break
        return self._stop.is_set()

    def _run_batch(self, driver: DispatchDriver, batches: _Batches) -> None:
        readable, start = driver.readable(), driver.progress.end
        if readable is None or readable.end <= start:
            return
        stop = min(readable.end, start + self.max_bytes)
        groups = plan_groups(driver.plan, start, stop, cores=self._cores)
        splits = count_of(sum(len(group.tasks) for group in groups), "split")
        doing = f"dispatch: read {splits} in {count_of(stop - start, 'byte')} of {self._paths.root}"
        batches.publish([*chain.from_iterable(run_tasks(self._spark, derive_group, groups, doing=doing))])

    def _wait(self, query: StreamingQuery, driver: DispatchDriver, batches: _Batches) -> bool:
        """Wait a moment while the stream runs; returns whether it has to end."""
        self._stop.wait(_LOOK_INTERVAL_S)
        if batches.failure is not None:
            raise batches.failure
        is_needed = not self._stop.is_set() and not driver.is_wanted
        if not query.isActive and is_needed:
            self._check_ended(query.exception())
            return True
        if self._progress is not None:
            self._show(driver, self._progress)
        return not is_needed

    def _check_ended(self, error: Exception | None) -> None:
        """Raise the error of a stream that has ended, unless its process started too late and may be started again."""
        if error is None:
            raise JobFailed("the stream of dispatch has ended")
        self._late_starts += 1
        if not started_late(error) or self._late_starts > _LATE_STARTS:
            raise to_plain(error, "dispatch")

    def _show(self, driver: DispatchDriver, progress: Progress) -> None:
        readable, start = driver.readable(), self._report.log_start
        end = driver.progress.end
        progress(end - start, (end if readable is None else max(end, readable.end)) - start)

    def _start(self, driver: DispatchDriver, batches: _Batches) -> StreamingQuery:
        from flintlog.pipeline.building.dispatch_source import NAME, Asked, DispatchSource

        root = self._paths.root
        asked = Asked(driver.plan, driver.progress.epoch, driver.progress.end, self.max_bytes, self._cores)
        with plain_errors("dispatch"):
            self._spark.dataSource.register(DispatchSource)
            stream = self._spark.readStream.format(NAME).option("asked", asked.to_option()).load()
            # A new name each time: where a session sets a place for checkpoints, an old one would be found by it.
            name = f"flintlog dispatch {root.name} {attempt_name()[:8]}".replace(":", "_")
            writer = stream.writeStream.queryName(name).foreachBatch(batches.take)
            return writer.trigger(processingTime=f"{round(self.interval_s * 1000)} milliseconds").start()


class _Batches:
    """Publishes the stream's batches, one after another, until it is closed."""

    def __init__(self, driver: DispatchDriver, report: DispatchReport) -> None:
        self.failure: Exception | None = None
        self._driver = driver
        self._report = report
        self._lock = threading.Lock()
        self._is_closed = False

    def take(self, frame: DataFrame, _number: int) -> None:
        """Publish a batch of the stream, unless it was closed."""
        try:
            found = [pickle.loads(row.derived) for row in frame.collect()]
            with self._lock:
                if not self._is_closed:
                    self.publish(found)
        except Exception as error:  # noqa: BLE001 - whatever it is, it ends the job
            if self._is_closed:
                return  # the stream was stopped in the middle of the batch; Spark's error says only that
            self.failure = error if isinstance(error, FlintlogError) else to_plain(error, "dispatch")
            # Short, because Spark searches the text of this error, and a long text breaks its search.
            raise JobFailed("dispatch failed") from None

    def publish(self, found: list[Derived | Refusal]) -> None:
        """Publish the results of one batch's tasks, or raise the first error among them."""
        for each in found:
            if isinstance(each, Refusal):
                raise each.error()
        derived = sorted((each for each in found if isinstance(each, Derived)), key=lambda each: each.split.start)
        if not derived:
            return
        report, start = self._report, self._driver.progress.end
        report.damaged_count += sum(len(each.result.gaps) for each in derived)
        problem = self._driver.take(derived, derived[-1].split.stop)
        report.byte_count += self._driver.progress.end - start
        report.batch_count += 1
        report.record_count += sum(each.result.record_count for each in derived)
        report.entry_count += sum(each.result.entry_count for each in derived)
        report.key_count += sum(each.result.key_count for each in derived)
        if problem is not None:
            report.serial_count += 1
            report.serial_because = problem

    def close(self) -> None:
        """Wait for the batch that is being published; no batch is published after it."""
        with self._lock:
            self._is_closed = True


def check_given_away(paths: StorePaths, medium: LocalMedium) -> None:
    """Raise unless this store leaves its queues and index to another process."""
    if not any(medium.exists(folder) for folder in (*paths.commit_logs, paths.dispatch)):
        raise DamagedStore("there is no store here", path=paths.root)
    if not medium.exists(paths.dispatch):
        raise InvalidConfig(
            "this store dispatches its messages itself", path=paths.root, advice='open it with dispatch="external"'
        )
