"""The job `rebuild`: consume queues and index of a store, from its log alone.

    driver   lock the store, find the log's end, plan splits
    tasks    read a split: queue entries to their places, keys and the rest spilled          rebuild_scan.py
    driver   do the splits meet? do queue offsets follow each other? else: serially          rebuild_serial.py
    tasks    queues with extension or batches; index files                 rebuild_build.py, rebuild_index.py
    driver   fill up the beginnings, look for holes, sync meanwhile; swap directories        store/recovery/swap.py

The bytes are those of the embedded dispatcher; only index files are named after their first key instead of the clock.
Nothing of the store changes before the swap, and with `into` nothing at all.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from flintlog import kernel
from flintlog.derive.chains import Span, find_log_end, find_mismatch, join_spans
from flintlog.derive.index_plan import index_file_names, plan_index_files
from flintlog.derive.splits import SPLIT_BYTES, Split
from flintlog.disk.media.durable_names import sync_files
from flintlog.disk.media.leftovers import remove_leftovers
from flintlog.disk.media.local import LocalMedium
from flintlog.disk.media.medium import LockFile, Medium
from flintlog.disk.media.overlay import OverlayMedium
from flintlog.disk.places import local_path
from flintlog.errors import DamagedStore, InvalidConfig
from flintlog.format.checkpoint import Checkpoint
from flintlog.format.index_file import IndexLayout
from flintlog.format.names import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, CONSUME_QUEUE_EXT, INDEX, segment_name
from flintlog.format.queue_entry import ENTRY_SIZE, PREFILL_ENTRY, QueueKey, encode_queue_entry
from flintlog.kernel import KEY
from flintlog.maintenance.inspect.store_files import StoreFiles, look_at
from flintlog.maintenance.repair.kept_codes import bring_times_back
from flintlog.pipeline.building.given_offsets import note_given_offsets
from flintlog.pipeline.building.rebuild_build import QueueTask, build_queue
from flintlog.pipeline.building.rebuild_index import IndexTask, build_index_file, thread_count
from flintlog.pipeline.building.rebuild_scan import BuildPlan, ScanTask, Spilled, SplitResult, index_layout, read_split
from flintlog.pipeline.building.rebuild_serial import rebuild_serially
from flintlog.pipeline.building.staging import sync_tree
from flintlog.pipeline.reading.known_topics import no_messages_of
from flintlog.pipeline.reading.logs import Log, committed_end, find_logs
from flintlog.pipeline.reading.partitions import plan as plan_log_splits
from flintlog.pipeline.spark.new_directory import new_directory
from flintlog.pipeline.spark.tasks import Item, Result, count_of, run_tasks
from flintlog.store.components import load_queue_types, make_components
from flintlog.store.dispatch.external.handshake import without_dispatcher
from flintlog.store.log.checkpoint import CheckpointFile
from flintlog.store.options.store_config import StoreConfig
from flintlog.store.paths import StorePaths, with_found_ledger
from flintlog.store.queues.deleted_queues import load_deleted
from flintlog.store.recovery.swap import begin_swap, finish_swap, rebuild_room
from flintlog.store.runtime.jobs import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DERIVED = (CONSUME_QUEUE_EXT, BATCH_CONSUME_QUEUE, CONSUME_QUEUE, INDEX)
"""In the order of their renames: a queue after its extension."""

MIN_TASK_BYTES = 32 * 1024 * 1024


@dataclass(slots=True)
class RebuildReport:
    """The figures of a rebuild."""

    store: str
    log_start: int = 0
    log_end: int = 0
    split_count: int = 0
    record_count: int = 0
    queue_count: int = 0
    entry_count: int = 0
    index_file_count: int = 0
    key_count: int = 0
    seconds: float = 0.0
    serial_because: str | None = None
    """Why it was done record by record; None if it was not."""

    findings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Readings:
    """The results of the splits, up to the log's end."""

    splits: list[Split]
    results: list[SplitResult]
    end: int

    @classmethod
    def of(cls, splits: list[Split], results: list[SplitResult], first: int) -> _Readings:
        """Leave out everything after the last record: it is no damage."""
        end = find_log_end(splits, [each.reach for each in results], [each.gaps for each in results]) or first
        kept = [(split, result) for split, result in zip(splits, results, strict=True) if split.start < end]
        return cls(
            [replace(split, stop=min(split.stop, end)) for split, _ in kept],
            [result.up_to(end) for _, result in kept],
            end,
        )

    def problem(self) -> str | None:
        """Why the results do not fit together or have gaps; None if they are fine."""
        gap = next((gap for result in self.results for gap in result.gaps), None)
        if gap is not None:
            return f"the log is damaged at {gap.start} ({gap.reason.name})"
        return find_mismatch(self.splits, [result.reach for result in self.results])


def rebuild(
    spark: SparkSession,
    store: str | Path,
    *,
    config: StoreConfig | None = None,
    topics: Sequence[str] = (),
    into: str | Path | None = None,
    split_bytes: int = SPLIT_BYTES,
    progress: Progress | None = None,
) -> RebuildReport:
    """Build a store's queues and index again, in place or `into` an empty directory; of some topics, or of all.

    Without a `config` it is inferred from the store's files. Raises `StoreInUse` when the store runs, unless `into` is
    given.
    """
    started = time.perf_counter()
    root = local_path(store).absolute()
    target = None if into is None else local_path(into).absolute()
    files = look_at(root) if config is None else None
    config = guessed_config(files) if files is not None else config or StoreConfig()
    doubtful = frozenset() if files is None else files.doubtful_levels
    job = _Rebuild(spark, root, config, frozenset(topics), doubtful, split_bytes, progress)
    report = job.run_in_place() if target is None else job.run_into(target)
    report.seconds = time.perf_counter() - started
    return report


def guessed_config(files: StoreFiles) -> StoreConfig:
    """The configuration inferred from the files, with light queues enabled.

    The files do not show whether the store serves light queues. As in a repair, they are built for the messages that
    name them, because a store that had them would otherwise lose them.
    """
    return files.config.with_changes(enable_lmq=True, enable_multi_dispatch=True)


class _Rebuild:
    """One run of the job."""

    def __init__(
        self,
        spark: SparkSession,
        root: Path,
        config: StoreConfig,
        topics: frozenset[str],
        doubtful_levels: frozenset[int],
        split_bytes: int,
        progress: Progress | None,
    ) -> None:
        self._spark = spark
        self._root = root
        self._config = config
        self._topics = topics
        self._doubtful_levels = doubtful_levels
        self._split_bytes = split_bytes
        self._progress = progress
        self._medium: Medium = LocalMedium()
        self._paths = with_found_ledger(StorePaths.of(root, config), self._medium)
        self._report = RebuildReport(str(root))

    # ------------------------------------------------------------------ in place, or into a new directory

    def run_in_place(self) -> RebuildReport:
        self._check_store()
        lock: LockFile = self._medium.lock(self._paths.lock)
        try:
            with without_dispatcher(self._paths.dispatch, self._medium):
                self._replace_derived()
        finally:
            lock.release()
        return self._report

    def _replace_derived(self) -> None:
        finish_swap(self._paths, self._medium)
        sync_files(self._paths.commit_logs, self._medium)  # the new checkpoint states that the log is durable
        room = rebuild_room(self._paths)
        self._medium.remove_tree(room)
        try:
            staged, checkpoint = self._build(room)
            self._medium.rename(staged, room / "staged")
            self._medium.sync_directory(room)
        except BaseException:
            remove_leftovers(room, self._medium)  # nothing of it is used before the swap has begun
            raise
        note_given_offsets(self._paths, self._config, self._medium, self._report.log_end)
        begin_swap(self._paths, self._medium, self._names(), self._report.log_end, checkpoint)
        finish_swap(self._paths, self._medium)

    def run_into(self, target: Path) -> RebuildReport:
        self._check_store()
        if self._medium.listing(target):
            raise InvalidConfig("the target of a rebuild must be an empty directory", path=target)
        with new_directory(target):
            try:
                staged, _ = self._build(target / "flintlog" / "rebuild")
                for info in self._medium.listing(staged):
                    self._medium.rename(staged / info.name, target / info.name)
                self._medium.sync_directory(target)
            finally:
                remove_leftovers(target / "flintlog", self._medium)
        return self._report

    def _check_store(self) -> None:
        """Raise unless the log exists, and the existing files have the sizes that the new ones will have."""
        find_logs((str(self._root),))
        probe = make_components(self._root, self._config, OverlayMedium(self._medium), lambda: 0)
        probe.queues.set_types({**load_queue_types(self._paths.topics, self._medium), **self._config.topic_queue_types})
        probe.segments.load()
        probe.queues.load()
        if probe.index is not None:
            probe.index.load(last_exit_ok=True, index_safe_timestamp=0)

    def _names(self) -> list[str]:
        """The directories to replace: everything derived, or those of the requested topics."""
        if not self._topics:
            return list(DERIVED) if self._layout() is not None else list(DERIVED[:-1])
        return [f"{folder}/{topic}" for folder in DERIVED[:-1] for topic in sorted(self._topics)]

    def _layout(self) -> IndexLayout | None:
        return None if self._topics else index_layout(self._config)

    # ------------------------------------------------------------------ building

    def _build(self, room: Path) -> tuple[Path, Checkpoint]:
        """Build and sync everything in a staged directory; returns it, and the checkpoint that fits it."""
        checkpoint = CheckpointFile(self._paths.checkpoint, self._medium)
        checkpoint.load()
        log, cut_at = self._find_log(checkpoint.values)
        plan = self._new_pass(room)
        limit = committed_end(log)
        readings = self._read(log, self._stop(log, cut_at, limit), plan)
        results, self._report.log_end = readings.results, readings.end
        spans, problem = self._judge(readings)
        if problem is None:
            self._finish(plan, results, spans)
        else:
            plan = self._new_pass(room)
            self._report.log_end = self._start_over(plan, problem, cut_at, limit)
            sync_tree(self._medium, Path(plan.staged))
        staged = Path(plan.staged)
        old, new = self._root / CONSUME_QUEUE, staged / CONSUME_QUEUE
        bring_times_back(old, new, self._doubtful_levels, self._medium)
        self._check_topics(staged)
        self._count(staged, results)
        return staged, self._checkpoint_after(checkpoint.values, results, problem)

    def _check_topics(self, staged: Path) -> None:
        """Raise for a topic with neither messages nor queues: it is misspelt, unless it was deleted.

        A topic whose messages have all expired still has queues.
        """
        deleted = {queue.topic for queue in load_deleted(self._paths.deleted, self._medium).all()}
        for topic in sorted(self._topics - deleted):
            places = [root / folder / topic for root in (staged, self._root) for folder in DERIVED[:-1]]
            if not any(self._medium.exists(place) for place in places):
                raise no_messages_of([topic], [str(self._root)])

    def _find_log(self, checkpoint: Checkpoint) -> tuple[Log, int | None]:
        """The log, and where Java's recovery cut it, if it did."""
        (log,) = find_logs((str(self._root),))
        self._report.log_start = log.first
        last = checkpoint.earlier_cut if not self._medium.exists(self._paths.abort) else None
        file = next((file for file in log.files if last is not None and file.base <= last < file.end), None)
        if last is None or file is None:
            return log, None
        view = self._medium.open(Path(log.uri) / file.name).buffer
        seen = kernel.scan(view, last - file.base, len(view), file.base, max_count=1)
        return log, file.base + seen.end if seen.count else None

    def _stop(self, log: Log, cut_at: int | None, limit: int | None) -> int:
        """How far to read. Entries that a ledger has not committed may still be cut."""
        stop = self._written_end(log) if cut_at is None else cut_at
        return stop if limit is None else min(stop, limit)

    def _written_end(self, log: Log) -> int:
        """An upper bound of the log's end; the tasks find the end itself."""
        for file in reversed(log.files):
            raw = self._medium.open(Path(log.uri) / file.name)
            # The file system counts pages that were only read as data, but they are zero.
            written = kernel.written_end(raw.buffer, 0, raw.data_end(0))
            if written:
                return file.base + written
        return log.first

    def _new_pass(self, room: Path) -> BuildPlan:
        """Directories of this pass alone: abandoned attempts may still write into theirs."""
        own = room / uuid.uuid4().hex
        staged, spill = own / "staged", own / "spill"
        self._medium.make_directories(staged)
        self._medium.make_directories(spill)
        types = load_queue_types(self._paths.topics, self._medium)
        topics, deleted = self._topics or None, load_deleted(self._paths.deleted, self._medium)
        return BuildPlan.of(self._config, types, staged=staged, spill=spill, topics=topics, deleted=deleted.all())

    def _read(self, log: Log, stop: int, plan: BuildPlan) -> _Readings:
        cores = self._spark.sparkContext.defaultParallelism
        wished = max(1, min(2 * cores, (stop - log.first) // MIN_TASK_BYTES))
        splits = plan_log_splits([(log, log.first, stop)], split_bytes=self._split_bytes, least_count=wished)
        self._report.split_count = len(splits)
        tasks = [ScanTask(plan, number, planned) for number, planned in enumerate(splits)]
        results = self._run(read_split, tasks, "read", "split", self._progress)
        return _Readings.of([planned.split for planned in splits], results, log.first)

    def _run(
        self,
        function: Callable[[Item], Result],
        items: Sequence[Item],
        verb: str,
        noun: str,
        progress: Progress | None = None,
    ) -> list[Result]:
        doing = f"rebuild: {verb} {count_of(len(items), noun)} of {self._root}"
        return run_tasks(self._spark, function, items, progress, doing=doing)

    def _judge(self, readings: _Readings) -> tuple[dict[QueueKey, Span], str | None]:
        """The queues, and why the parallel way cannot be taken, or None."""
        spans, out_of_step = join_spans(result.spans for result in readings.results)
        problem = readings.problem()
        if problem is None and out_of_step:
            names = ", ".join(f"{topic}/{queue_id}" for topic, queue_id in sorted(out_of_step)[:5])
            problem = f"the offsets of {len(out_of_step)} queues do not follow each other ({names})"
        return spans, problem

    def _start_over(self, plan: BuildPlan, problem: str, cut_at: int | None, limit: int | None) -> int:
        self._report.serial_because = problem
        staged = Path(plan.staged)
        end, findings = rebuild_serially(self._paths, self._config, plan, self._medium, cut_at, limit)
        self._report.findings += findings
        for folder in DERIVED if self._topics else ():
            for info in self._medium.listing(staged / folder):
                if info.name not in self._topics:
                    self._medium.remove_tree(staged / folder / info.name)
        if self._topics:
            self._medium.remove_tree(staged / INDEX)
        return end

    def _finish(self, plan: BuildPlan, results: list[SplitResult], spans: dict[QueueKey, Span]) -> None:
        """Finish the queues and build the index, durably; the queues are synced while tasks build the index."""
        self._finish_queues(plan, results, spans)
        staged = Path(plan.staged)
        folders = [staged / info.name for info in self._medium.listing(staged)]
        with ThreadPoolExecutor(1, "sync-queues") as beside:
            queues = [beside.submit(sync_tree, self._medium, folder) for folder in folders]
            self._build_index(plan, results)
        for synced in queues:
            synced.result()
        for folder in (staged / INDEX, staged):  # the index files themselves were synced by their tasks
            if self._medium.exists(folder):
                self._medium.sync_directory(folder)

    def _finish_queues(self, plan: BuildPlan, results: list[SplitResult], spans: dict[QueueKey, Span]) -> None:
        for (topic, queue_id), span in spans.items():
            self._finish_queue(Path(plan.staged) / CONSUME_QUEUE / topic / str(queue_id), plan, span)
        pieces: dict[QueueKey, list[tuple[int, Spilled]]] = {}
        for number, result in enumerate(results):
            for key, place in result.dense.items():
                pieces.setdefault(key, []).append((number, place))
        tasks = [QueueTask(plan, key, tuple(found), str(self._root)) for key, found in pieces.items()]
        for (topic, queue_id), _, out_of_step in self._run(build_queue, tasks, "build", "queue"):
            if out_of_step:
                self._report.findings.append(f"the offsets of {topic}/{queue_id} do not follow each other")

    def _finish_queue(self, folder: Path, plan: BuildPlan, span: Span) -> None:
        """Fill the beginning of a queue that starts in the middle of a file, and check that no entry is missing."""
        size = plan.consume_queue_bytes
        first, end = span.first * ENTRY_SIZE, span.next * ENTRY_SIZE
        for base in range(first - first % size, end, size):
            raw = self._medium.open(folder / segment_name(base), writable=True)
            start, stop = max(0, first - base), min(size, end - base)
            if start:
                raw.buffer[:start] = encode_queue_entry(PREFILL_ENTRY) * (start // ENTRY_SIZE)
            if kernel.count_entries(raw.buffer, 0, stop) != stop:
                raise DamagedStore("an entry of a rebuilt queue is missing", path=raw.path, advice="run it again")
            raw.close()

    def _build_index(self, plan: BuildPlan, results: list[SplitResult]) -> None:
        if plan.index is None:
            return
        planned = plan_index_files([result.key_count for result in results], plan.index)
        names = index_file_names([self._key(plan, *each.ranges[0][:2])[0] for each in planned])
        threads = thread_count(self._spark.sparkContext.defaultParallelism, len(planned))
        tasks = []
        for name, each in zip(names, planned, strict=True):
            previous = None if each.previous is None else self._key(plan, *each.previous[:2])
            tasks.append(IndexTask(plan, name, each.ranges, previous, threads))
        counts = self._run(build_index_file, tasks, "build", "index file")
        if sum(counts) != sum(result.key_count for result in results):
            raise DamagedStore("keys of the rebuilt index are missing", path=plan.staged, advice="run it again")

    def _key(self, plan: BuildPlan, split: int, number: int) -> tuple[int, int]:
        """Store time and physical offset of one spilled key."""
        view = self._medium.open(plan.keys_path(split)).buffer
        physical_offset, store_timestamp, _ = KEY.unpack_from(view, number * KEY.size)
        return store_timestamp, physical_offset

    # ------------------------------------------------------------------ the end

    def _count(self, staged: Path, results: list[SplitResult]) -> None:
        report, medium = self._report, self._medium
        report.record_count = sum(result.record_count for result in results)
        report.entry_count = sum(result.entry_count for result in results)
        report.key_count = sum(result.key_count for result in results)
        report.index_file_count = len(medium.listing(staged / INDEX))
        report.queue_count = sum(
            len(medium.listing(staged / folder / topic.name))
            for folder in (CONSUME_QUEUE, BATCH_CONSUME_QUEUE)
            for topic in medium.listing(staged / folder)
        )

    def _checkpoint_after(self, before: Checkpoint, results: list[SplitResult], problem: str | None) -> Checkpoint:
        """The checkpoint: after a clean stop it is still right; otherwise one that covers everything just built."""
        if not self._medium.exists(self._paths.abort):
            return before
        last = max(results, key=lambda result: result.last_physical_offset, default=None)
        if problem is not None or self._topics or last is None or last.last_physical_offset < 0:
            return replace(before, logics_physical_offset=0, logics_msg_timestamp=0, index_msg_timestamp=0)
        return replace(
            before,
            logics_physical_offset=last.last_physical_offset,
            logics_msg_timestamp=last.last_store_timestamp,
            index_msg_timestamp=last.last_store_timestamp,
        )
