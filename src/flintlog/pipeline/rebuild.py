"""The job `rebuild`: consume queues and index of a store, from its log alone.

    driver   lock the store, find the log's end, plan splits
    tasks    read splits, write queues and index files, sync them          building/rebuild_place.py or
                                                                           shuffling/rebuild_shuffle.py
    driver   swap directories                                              store/recovery/swap.py

The bytes are those of the embedded dispatcher; only index files are named after their first key instead of the clock.
Damage costs only the records that it covers. Nothing of the store changes before the swap, and with `into` nothing at
all.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from flintlog import kernel
from flintlog.derive.splits import SPLIT_BYTES
from flintlog.disk.media.durable_names import sync_names
from flintlog.disk.media.leftovers import remove_leftovers
from flintlog.disk.media.local import LocalMedium
from flintlog.disk.media.medium import LockFile
from flintlog.disk.media.overlay import OverlayMedium
from flintlog.disk.mounts import is_coherent
from flintlog.disk.places import absolute, is_uri, local_path
from flintlog.errors import InvalidConfig
from flintlog.format.checkpoint import Checkpoint
from flintlog.format.index_file import IndexLayout
from flintlog.maintenance.inspect.store_files import StoreFiles, look_at
from flintlog.pipeline.building.given_offsets import note_given_offsets
from flintlog.pipeline.building.rebuild_order import DERIVED, Built, Order
from flintlog.pipeline.building.rebuild_place import place_files
from flintlog.pipeline.building.rebuild_scan import index_layout
from flintlog.pipeline.reading.known_topics import no_messages_of
from flintlog.pipeline.reading.logs import Log, committed_end, find_logs, medium_of, open_source
from flintlog.pipeline.reading.partitions import LOOK_AHEAD_BYTES
from flintlog.pipeline.shuffling.published import new_result, publish
from flintlog.pipeline.shuffling.rebuild_shuffle import shuffle_files
from flintlog.pipeline.spark.new_directory import new_directory
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

Mode = Literal["place", "shuffle"]

REMOTE_SPLIT_BYTES = 64 * 1024 * 1024
"""A task holds its split in memory if it cannot be mapped."""

TAIL_BYTES = 4 * 1024 * 1024


@dataclass(slots=True)
class RebuildReport:
    """The figures of a rebuild."""

    store: str
    mode: Mode = "place"
    log_start: int = 0
    log_end: int = 0
    split_count: int = 0
    record_count: int = 0
    queue_count: int = 0
    entry_count: int = 0
    index_file_count: int = 0
    key_count: int = 0
    seconds: float = 0.0
    serial_queues: list[str] = field(default_factory=list)
    """The queues whose offsets do not follow each other: one task built each of them, entry by entry."""

    findings: list[str] = field(default_factory=list)


def rebuild(
    spark: SparkSession,
    store: str | Path,
    *,
    config: StoreConfig | None = None,
    topics: Sequence[str] = (),
    into: str | Path | None = None,
    mode: Mode | None = None,
    split_bytes: int = SPLIT_BYTES,
    progress: Progress | None = None,
) -> RebuildReport:
    """Build a store's queues and index again, in place or `into` an empty directory; of some topics, or of all.

    Without a `config` it is inferred from the store's files. Without a `mode`, entries are placed into shared files if
    the file system is this machine's own, and shuffled where it is not. Raises `StoreInUse` when the store runs, unless
    `into` is given.
    """
    started = time.perf_counter()
    root, target = absolute(store), None if into is None else absolute(into)
    mode = _checked_mode(mode, root, target)
    medium, path = medium_of(root)
    files = look_at(path, None, medium) if config is None else None
    config = guessed_config(files) if files is not None else config or StoreConfig()
    doubtful = frozenset() if files is None else files.doubtful_levels
    job = _Rebuild(spark, root, config, frozenset(topics), doubtful, mode, split_bytes, progress)
    report = job.run_in_place() if target is None else job.run_into(target)
    report.seconds = time.perf_counter() - started
    return report


def _checked_mode(mode: Mode | None, root: str, target: str | None) -> Mode:
    place = str(local_path(root)) if target is None else target
    if mode == "place" and is_uri(place):
        raise InvalidConfig("entries are placed only into files of a mounted disk", path=place, advice="mode shuffle")
    return mode or choose_mode(place)


def choose_mode(place: str) -> Mode:
    """How files are made there: entries are placed by many tasks where all share the pages of a mapped file."""
    return "place" if not is_uri(place) and is_coherent(Path(place)) else "shuffle"


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
        root: str,
        config: StoreConfig,
        topics: frozenset[str],
        doubtful_levels: frozenset[int],
        mode: Mode,
        split_bytes: int,
        progress: Progress | None,
    ) -> None:
        self._spark = spark
        self._uri = root
        self._config = config
        self._topics = topics
        self._doubtful_levels = doubtful_levels
        self._mode = mode
        self._split_bytes = min(split_bytes, REMOTE_SPLIT_BYTES) if is_uri(root) else split_bytes
        self._progress = progress
        self._medium, self._root = medium_of(root)
        self._paths = with_found_ledger(StorePaths.of(self._root, config), self._medium)
        self._report = RebuildReport(root, mode)

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
        sync_names(self._paths.commit_logs, self._medium)  # the new checkpoint states that the log is durable
        room = rebuild_room(self._paths)
        self._medium.remove_tree(room)
        try:
            built, checkpoint = self._build(room, in_place=True)
        except BaseException:
            remove_leftovers(room, self._medium)  # nothing of it is used before the swap has begun
            raise
        note_given_offsets(self._paths, self._config, self._medium, self._report.log_end)
        gaps = [note for queue in built.queues for note in queue.noted_gaps]
        load_deleted(self._paths.deleted, self._medium).add(gaps)
        begin_swap(self._paths, self._medium, self._names(), self._report.log_end, checkpoint)
        finish_swap(self._paths, self._medium)

    def run_into(self, target: str) -> RebuildReport:
        self._check_store()
        if is_uri(target):
            with new_result(target) as staged:
                order, checkpoint = self._prepare(in_place=False)
                self._finish(shuffle_files(order, staged), checkpoint)
                publish(order, target)
        else:
            self._run_into_directory(Path(target))
        return self._report

    def _run_into_directory(self, target: Path) -> None:
        medium = LocalMedium()
        if medium.listing(target):
            raise InvalidConfig("the target of a rebuild must be an empty directory", path=target)
        with new_directory(target):
            try:
                staged = target / "flintlog" / "rebuild" / "staged"
                self._build(staged.parent, in_place=False)
                for info in medium.listing(staged):
                    medium.rename(staged / info.name, target / info.name)
                medium.sync_directory(target)
            finally:
                remove_leftovers(target / "flintlog", medium)

    def _check_store(self) -> None:
        """Raise unless the log exists, and the existing files have the sizes that the new ones will have."""
        find_logs((self._uri,))
        probe = make_components(self._root, self._config, OverlayMedium(self._medium), lambda: 0)
        probe.queues.set_types({**load_queue_types(self._paths, self._medium), **self._config.topic_queue_types})
        probe.segments.load()
        probe.queues.load()
        if probe.index is not None and not is_uri(self._uri):  # each index file would be fetched
            probe.index.load(last_exit_ok=True, index_safe_timestamp=0)

    def _names(self) -> list[str]:
        """The directories to replace: everything derived, or those of the requested topics."""
        if not self._topics:
            return list(DERIVED) if self._layout() is not None else list(DERIVED[:-1])
        return [f"{folder}/{topic}" for folder in DERIVED[:-1] for topic in sorted(self._topics)]

    def _layout(self) -> IndexLayout | None:
        return None if self._topics else index_layout(self._config)

    # ------------------------------------------------------------------ building

    def _build(self, room: Path, *, in_place: bool) -> tuple[Built, Checkpoint]:
        """Build everything below `room / "staged"`, durably; returns also the checkpoint that fits it."""
        order, checkpoint = self._prepare(in_place=in_place)
        built = place_files(order, room) if self._mode == "place" else _shuffle(order, room / "staged")
        return built, self._finish(built, checkpoint)

    def _prepare(self, *, in_place: bool) -> tuple[Order, Checkpoint]:
        checkpoint = CheckpointFile(self._paths.checkpoint, self._medium)
        checkpoint.load()
        log, cut_at = self._find_log(checkpoint.values)
        return self._order(log, self._stop(log, cut_at, committed_end(log)), in_place), checkpoint.values

    def _finish(self, built: Built, checkpoint: Checkpoint) -> Checkpoint:
        self._check_topics(built)
        self._note(built)
        return self._checkpoint_after(checkpoint, built)

    def _order(self, log: Log, stop: int, in_place: bool) -> Order:
        return Order(
            self._spark,
            self._uri,
            self._config,
            log,
            stop,
            topics=self._topics,
            queue_types=load_queue_types(self._paths, self._medium),
            deleted=load_deleted(self._paths.deleted, self._medium).all(),
            doubtful_levels=self._doubtful_levels,
            split_bytes=self._split_bytes,
            in_place=in_place,
            progress=self._progress,
        )

    def _check_topics(self, built: Built) -> None:
        """Raise for a topic with neither messages nor queues: it is misspelt, unless it was deleted.

        A topic whose messages have all expired still has queues.
        """
        deleted = {queue.topic for queue in load_deleted(self._paths.deleted, self._medium).all()}
        for topic in sorted(self._topics - deleted - built.topics):
            places = [self._root / folder / topic for folder in DERIVED[:-1]]
            if not any(self._medium.exists(place) for place in places):
                raise no_messages_of([topic], [self._uri])

    def _find_log(self, checkpoint: Checkpoint) -> tuple[Log, int | None]:
        """The log, and where Java's recovery cut it, if it did."""
        (log,) = find_logs((self._uri,))
        self._report.log_start = log.first
        last = checkpoint.earlier_cut if not self._medium.exists(self._paths.abort) else None
        file = next((file for file in log.files if last is not None and file.base <= last < file.end), None)
        if last is None or file is None:
            return log, None
        source, folder = open_source(log.uri)
        start = last - file.base
        view = source.view(folder / file.name, start, min(file.size, start + LOOK_AHEAD_BYTES))
        seen = kernel.scan(view, 0, len(view), last, max_count=1)
        return log, last + seen.end if seen.count else None

    def _stop(self, log: Log, cut_at: int | None, limit: int | None) -> int:
        """How far to read. Entries that a ledger has not committed may still be cut."""
        stop = self._written_end(log) if cut_at is None else cut_at
        return stop if limit is None else min(stop, limit)

    def _written_end(self, log: Log) -> int:
        """An upper bound of the log's end; the tasks find the end itself."""
        source, folder = open_source(log.uri)
        for file in reversed(log.files):
            stop = source.data_end(folder / file.name, 0)
            while stop > 0:
                # The file system counts pages that were only read as data, but they are zero.
                view = source.view(folder / file.name, max(0, stop - TAIL_BYTES), stop)
                written = kernel.written_end(view, 0, len(view))
                if written:
                    return file.base + stop - len(view) + written
                stop -= len(view)
        return log.first

    # ------------------------------------------------------------------ the end

    def _note(self, built: Built) -> None:
        report, results = self._report, built.readings.results
        report.log_end = built.readings.end
        report.split_count = built.split_count
        report.record_count = sum(result.record_count for result in results)
        report.key_count = sum(result.key_count for result in results)
        report.entry_count = built.entry_count
        report.index_file_count = built.index_file_count
        report.queue_count = len(built.keys)
        report.serial_queues = [f"{topic}/{queue_id}" for topic, queue_id in sorted(built.serial)]
        report.findings += built.findings()

    def _checkpoint_after(self, before: Checkpoint, built: Built) -> Checkpoint:
        """The checkpoint: after a clean stop it is still right; otherwise one that covers everything just built."""
        if not self._medium.exists(self._paths.abort):
            return before
        last = max(built.readings.results, key=lambda result: result.last_physical_offset, default=None)
        is_whole = not built.readings.is_damaged and not built.serial and not self._topics
        if not is_whole or last is None or last.last_physical_offset < 0:
            return replace(before, logics_physical_offset=0, logics_msg_timestamp=0, index_msg_timestamp=0)
        return replace(
            before,
            logics_physical_offset=last.last_physical_offset,
            logics_msg_timestamp=last.last_store_timestamp,
            index_msg_timestamp=last.last_store_timestamp,
        )


def _shuffle(order: Order, staged: Path) -> Built:
    medium = LocalMedium()
    medium.make_directories(staged)
    built = shuffle_files(order, str(staged))
    medium.sync_directory(staged)
    medium.sync_directory(staged.parent)
    return built
