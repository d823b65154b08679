"""The placing way of a rebuild: tasks write entries to their places in shared files, where maps are coherent.

    tasks    read a split: queue entries to their places, keys and the rest spilled          rebuild_scan.py
    driver   do the splits meet? which queues have offsets that do not follow each other?    rebuild_readings.py
    tasks    spill the entries of those queues
    tasks    finish queues, build the others entry by entry, build index files, sync         rebuild_build.py,
                                                                                             rebuild_index.py
    driver   give the result its name

An abandoned attempt may still write into the directories of its pass, the same bytes to the same places. The entries of
a queue whose offsets do not follow are wrong there, so that queue is moved in when the pass has lost its name.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from flintlog import kernel
from flintlog.derive.chains import Span
from flintlog.derive.index_plan import index_file_names, plan_index_files
from flintlog.disk.media.local import LocalMedium
from flintlog.disk.media.medium import Medium
from flintlog.errors import DamagedStore
from flintlog.format.names import CONSUME_QUEUE, segment_name
from flintlog.format.queue_entry import ENTRY_SIZE, PREFILL, QueueKey
from flintlog.kernel import KEY
from flintlog.maintenance.repair.kept_codes import bring_times_back
from flintlog.pipeline.building.rebuild_build import QUEUE_FOLDERS, BuiltQueue, LogFacts, QueueTask, build_queue
from flintlog.pipeline.building.rebuild_index import IndexTask, build_index_file, thread_count
from flintlog.pipeline.building.rebuild_order import Built, Order
from flintlog.pipeline.building.rebuild_scan import BuildPlan, ScanTask, Spilled, SplitResult, read_split
from flintlog.pipeline.building.staging import give_name, sync_all
from flintlog.pipeline.reading.partitions import LogSplit

QUEUES_A_TASK: Final = 256


@dataclass(frozen=True, slots=True)
class FinishTask:
    """Finish queues whose entries are in their places."""

    plan: BuildPlan
    queues: tuple[tuple[QueueKey, Span], ...]


@dataclass(frozen=True, slots=True)
class TimesTask:
    """Carry the delivery times of a delay level of unknown length over from the store's own queue."""

    old: str
    new: str
    level: int


Step = IndexTask | QueueTask | FinishTask


def place_files(order: Order, room: Path) -> Built:
    """Build everything below `room / "staged"`, durably."""
    return _Placing(order, room).run()


class _Placing:
    """One run."""

    def __init__(self, order: Order, room: Path) -> None:
        self._order = order
        self._room = room
        self._medium: Medium = LocalMedium()
        self._plan = self._new_pass()

    def run(self) -> Built:
        planned, readings = self._order.read(self._read)
        spans, serial = readings.queues()
        facts = self._order.facts(readings)
        again = self._new_pass(serial)
        entries = self._order.run(read_split, self._scans(again, planned), "read", "split") if serial else []
        index = self._index_tasks(readings.results)
        queued = [(self._plan, readings.results), (again, entries)]
        steps: list[Step] = [*index, *(task for each in queued for task in self._queue_tasks(*each, facts))]
        built = self._order.run(run_step, [*steps, *self._finish_tasks(spans)], "build", "file")
        queues = [each for each in built if isinstance(each, BuiltQueue)]
        self._check_keys(sum(each for each in built[: len(index)] if isinstance(each, int)), readings.results)
        staged = self._assemble(Path(self._plan.staged), Path(again.staged), serial)
        self._keep_times(staged)
        placed_count = sum(span.next - span.first for span in spans.values())
        return Built(readings, len(planned), placed_count, frozenset(spans), queues, serial, len(index))

    def _new_pass(self, serial: frozenset[QueueKey] | None = None) -> BuildPlan:
        """Directories of this pass alone: abandoned attempts may still write into theirs."""
        own = self._room / uuid.uuid4().hex
        staged, spill = own / "staged", own / "spill"
        self._medium.make_directories(staged)
        self._medium.make_directories(spill)
        plan = self._order.plan(staged, spill)
        return plan if serial is None else replace(plan, serial=serial, index=None)

    def _read(self, planned: list[LogSplit]) -> list[SplitResult]:
        self._plan = self._new_pass()
        tasks = self._scans(self._plan, planned)
        return self._order.run(read_split, tasks, "read", "split", self._order.progress)

    def _scans(self, plan: BuildPlan, planned: Sequence[LogSplit]) -> list[ScanTask]:
        return [ScanTask(plan, number, each, self._order.in_place) for number, each in enumerate(planned)]

    # ------------------------------------------------------------------ building

    def _queue_tasks(self, plan: BuildPlan, results: Sequence[SplitResult], facts: LogFacts) -> list[QueueTask]:
        pieces: dict[QueueKey, list[tuple[int, Spilled]]] = {}
        for number, result in enumerate(results):
            for key, place in result.dense.items():
                pieces.setdefault(key, []).append((number, place))
        order = self._order
        return [
            QueueTask(plan, key, tuple(found), order.root, facts, order.notes_of(key)) for key, found in pieces.items()
        ]

    def _finish_tasks(self, spans: dict[QueueKey, Span]) -> list[FinishTask]:
        """Queues of one topic in one task, so that few directories are synced twice."""
        queues = sorted(spans.items())
        size = max(1, min(QUEUES_A_TASK, -(-len(queues) // (2 * self._order.cores))))
        return [FinishTask(self._plan, tuple(queues[start : start + size])) for start in range(0, len(queues), size)]

    def _index_tasks(self, results: Sequence[SplitResult]) -> list[IndexTask]:
        plan = self._plan
        if plan.index is None:
            return []
        planned = plan_index_files([result.key_count for result in results], plan.index)
        names = index_file_names([self._key(*each.ranges[0][:2])[0] for each in planned])
        threads = thread_count(self._order.cores, len(planned))
        tasks = []
        for name, each in zip(names, planned, strict=True):
            previous = None if each.previous is None else self._key(*each.previous[:2])
            tasks.append(IndexTask(plan, name, each.ranges, previous, threads))
        return tasks

    def _key(self, split: int, number: int) -> tuple[int, int]:
        """Store time and physical offset of one spilled key."""
        view = self._medium.open(self._plan.keys_path(split)).buffer
        physical_offset, store_timestamp, _ = KEY.unpack_from(view, number * KEY.size)
        return store_timestamp, physical_offset

    def _check_keys(self, count: int, results: Sequence[SplitResult]) -> None:
        if self._plan.index is not None and count != sum(result.key_count for result in results):
            raise DamagedStore("keys of the rebuilt index are missing", path=self._plan.staged, advice="run it again")

    # ------------------------------------------------------------------ the result

    def _assemble(self, staged: Path, built: Path, serial: Iterable[QueueKey]) -> Path:
        """Give the pass its final name, then replace the queues whose entries are wrong there."""
        medium, target = self._medium, self._room / "staged"
        medium.rename(staged, target)
        for topic, queue_id in serial:
            for folder in QUEUE_FOLDERS:
                place, made = target / folder / topic / str(queue_id), built / folder / topic / str(queue_id)
                medium.remove_tree(place)
                if medium.exists(made):
                    give_name(medium, made, place, target)
        medium.sync_directory(self._room)
        return target

    def _keep_times(self, staged: Path) -> None:
        old, new = str(Path(self._order.root) / CONSUME_QUEUE), str(staged / CONSUME_QUEUE)
        tasks = [TimesTask(old, new, level) for level in sorted(self._order.doubtful_levels)]
        self._order.run(keep_times, tasks, "keep", "delay level")


def run_step(step: Step) -> BuiltQueue | int:
    """A task: returns the queue that was built, or how many keys or entries are in the files."""
    if isinstance(step, IndexTask):
        return build_index_file(step)
    return build_queue(step) if isinstance(step, QueueTask) else finish_queues(step)


def keep_times(task: TimesTask) -> None:
    """A task."""
    bring_times_back(Path(task.old), Path(task.new), [task.level], LocalMedium())


def finish_queues(task: FinishTask) -> int:
    """A task: fill the beginnings of queues, check that no entry is missing, sync; returns how many there are."""
    medium = LocalMedium()
    top = Path(task.plan.staged) / CONSUME_QUEUE
    files: list[Path] = []
    count = 0
    for (topic, queue_id), span in task.queues:
        files += _finish_queue(top / topic / str(queue_id), task.plan.consume_queue_bytes, span, medium)
        count += span.next - span.first
    sync_all(medium, files, (), top.parent)
    return count


def _finish_queue(folder: Path, size: int, span: Span, medium: Medium) -> list[Path]:
    """Fill the beginning of a queue that starts in the middle of a file; returns its files."""
    first, end = span.first * ENTRY_SIZE, span.next * ENTRY_SIZE
    files = [folder / segment_name(base) for base in range(first - first % size, end, size)]
    for base, path in zip(range(first - first % size, end, size), files, strict=True):
        raw = medium.open(path, writable=True)
        start, stop = max(0, first - base), min(size, end - base)
        if start:
            raw.buffer[:start] = PREFILL * (start // ENTRY_SIZE)
        if kernel.count_entries(raw.buffer, 0, stop) != stop:
            raise DamagedStore("an entry of a rebuilt queue is missing", path=path, advice="run it again")
        raw.close()
    return files
