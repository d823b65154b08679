"""The part of dispatch in which order matters, done by tasks: the index, and queues whose entries have no fixed place.

    keys of all splits       ─▶ one task: the newest index file, and the next ones                    IndexTask
    entries of dense queues  ─▶ one task for some queues: batch queues, queues with an extension      QueuesTask
    records                  ─▶ one task: everything, by the store's own dispatcher                    RedoTask

Such a task changes bytes that depend on those before, so it may not run twice at the same time, and it must find the
files as they were published. A lock keeps a second attempt out. Each attempt takes back what an earlier one did, and
leaves its name before it begins. The driver publishes a result only if the attempt that made it was the last that
began; then nobody can have changed the files since (`dispatch_driver.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from flintlog import kernel
from flintlog.disk.media.local import LocalMedium
from flintlog.disk.media.medium import Medium
from flintlog.errors import DiskFull
from flintlog.format.index_file import ENTRY_SIZE
from flintlog.format.queue_entry import QueueKey
from flintlog.kernel import KEY
from flintlog.pipeline.building.dispatch_files import DispatchFiles, make_index
from flintlog.pipeline.building.dispatch_tasks import DispatchPlan
from flintlog.pipeline.building.rebuild_build import make_table, spilled
from flintlog.pipeline.building.rebuild_scan import DENSE, IS_OWN, Spilled
from flintlog.pipeline.building.staging import open_or_create
from flintlog.pipeline.spark.tasks import attempt_name
from flintlog.store.dispatch.external.dispatch_claim import working_for
from flintlog.store.dispatch.external.dispatch_journal import Published, QueueMark
from flintlog.store.dispatch.external.rollback import index_mark, mark_of, set_back
from flintlog.store.index.index_service import IndexService
from flintlog.store.queues.consume_queue import ConsumeQueue
from flintlog.store.queues.logical_queue import LogicalQueue
from flintlog.store.queues.queue_table import QueueTable

_NAME_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class IndexTask:
    """Add the keys of these splits, which have some, to the index as it was published."""

    plan: DispatchPlan
    name: str
    count: int
    splits: tuple[int, ...]
    unit: str = "index"


@dataclass(frozen=True, slots=True)
class QueuesTask:
    """Add spilled entries to queues: for each where it was published to end, and its pieces in order."""

    plan: DispatchPlan
    queues: tuple[tuple[QueueKey, int, tuple[tuple[int, Spilled], ...]], ...]
    unit: str


@dataclass(frozen=True, slots=True)
class RedoTask:
    """Set everything back to what was published; then dispatch the records up to `stop`, one after another."""

    plan: DispatchPlan
    published: Published
    stop: int
    readable_end: int
    unit: str = "range"


OrderedTask = IndexTask | QueuesTask | RedoTask


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of one attempt: where the changed queues and the index end now."""

    attempt: str
    end: int = 0
    moved: list[QueueMark] = field(default_factory=list)
    index: tuple[str, int] | None = None
    problem: str | None = None


def apply_ordered(task: OrderedTask) -> Applied:
    """The task."""
    with _attempt(task) as (attempt, medium):
        if isinstance(task, IndexTask):
            return Applied(attempt, index=_fill_index(task, medium))
        if isinstance(task, QueuesTask):
            moved, problem = _fill_queues(task, medium)
            return Applied(attempt, moved=moved, problem=problem)
        return _apply_range(task, attempt, medium)


@contextmanager
def _attempt(task: OrderedTask) -> Iterator[tuple[str, Medium]]:
    """Be the only attempt at this work, and leave its name."""
    medium, plan = LocalMedium(), task.plan
    with working_for(plan.claim, plan.paths.dispatch, medium, alone=task.unit):
        attempt = attempt_name()
        with_name = open_or_create(medium, _begun_path(plan, task.unit), _NAME_BYTES)
        with_name.write_at(0, memoryview(attempt.encode()))
        with_name.close()
        yield attempt, medium


def is_last_attempt(task: OrderedTask, attempt: str, medium: Medium) -> bool:
    """Whether no other attempt has begun since; asked when none can begin any more."""
    return medium.read(_begun_path(task.plan, task.unit)) == attempt.encode()


def _begun_path(plan: DispatchPlan, unit: str) -> Path:
    return Path(plan.build.spill) / f"begun-{unit}"


# ---------------------------------------------------------------------- the index


def _fill_index(task: IndexTask, medium: Medium) -> tuple[str, int]:
    plan = task.plan
    index = make_index(plan.paths.index, plan.config, medium)
    index.load(last_exit_ok=True, index_safe_timestamp=0)
    if not _is_as_published(task, index):
        _set_index_back(task, medium)
        index.load(last_exit_ok=True, index_safe_timestamp=0)
    for split in task.splits:
        raw = medium.open(plan.build.keys_path(split))
        _put_keys(index, raw.buffer)
    index.flush()
    found = index_mark(index)
    index.shut_down()
    return found


def _is_as_published(task: IndexTask, index: IndexService) -> bool:
    """Whether no earlier attempt has added a key, not even half of one."""
    if not index.files or not task.name:
        return not index.files and not task.name
    file = index.files[-1]
    if file.name != task.name or file.header.next_entry != task.count:
        return False
    next_entry = file.layout.entry_position(max(1, task.count))
    return not any(file.buffer[next_entry : next_entry + ENTRY_SIZE])


def _set_index_back(task: IndexTask, medium: Medium) -> None:
    plan = task.plan
    with DispatchFiles(plan.paths.root, plan.config, medium) as files:
        assert files.index is not None
        files.index.load(last_exit_ok=True, index_safe_timestamp=0)
        published = Published(0, 0, 0, {}, task.name, task.count)
        set_back(published, QueueTable(plan.paths.root, medium, now_ms=lambda: 0), files.index, files.store_time_at)


def _put_keys(index: IndexService, keys: memoryview) -> None:
    while keys:
        if not index.roll():
            raise DiskFull("no room for an index file", path=index.directory)
        layout = index.layout
        count = kernel.index_fill(index.files[-1].buffer, layout.slot_count, layout.index_count, keys)
        keys = keys[count * KEY.size :]


# ---------------------------------------------------------------------- queues


def _fill_queues(task: QueuesTask, medium: Medium) -> tuple[list[QueueMark], str | None]:
    """Where the queues end now; and why one of them needs the store's own rules, which is seen before it is changed."""
    build = task.plan.build
    table = make_table(build, task.plan.paths.root, medium)
    filled: list[LogicalQueue] = []
    try:
        for key, end, pieces in task.queues:
            queue = _resumed(table, key, end)
            for split, place in pieces:
                problem = _put_entries(queue, spilled(build, split, place, medium))
                if problem is not None:
                    return [], problem
            filled.append(queue)
        table.sync.flush_all()
        return [mark_of(queue) for queue in filled], None
    finally:
        table.shut_down()


def _resumed(table: QueueTable, key: QueueKey, end: int) -> LogicalQueue:
    queue = table.get_or_create(*key)
    queue.load()
    if end:
        queue.resume(end)
    else:  # of an earlier attempt
        table.drop(queue)
        queue = table.get_or_create(*key)
    return queue


def _put_entries(queue: LogicalQueue, entries: memoryview) -> str | None:
    for offset, size, tags_code, queue_offset, store_timestamp, messages, marks in DENSE.iter_unpack(entries):
        if isinstance(queue, ConsumeQueue) and queue_offset != queue.max_offset:
            return f"the queue {queue.topic}/{queue.queue_id} does not go on at {queue.max_offset}"
        entry = (offset, size, tags_code, queue_offset, store_timestamp, None, messages)
        if not queue.put(*entry, is_extended=bool(marks & IS_OWN)):
            raise DiskFull(f"no room for a file of queue {queue.topic}/{queue.queue_id}")
    return None


# ---------------------------------------------------------------------- everything


def _apply_range(task: RedoTask, attempt: str, medium: Medium) -> Applied:
    plan, published = task.plan, task.published
    with DispatchFiles(plan.paths.root, plan.config, medium) as files:
        files.set_back(published)
        position = max(published.end, files.first)
        while position < task.stop and (end := files.apply(position, task.stop, task.readable_end)) > position:
            position = end
        files.sync()
        return Applied(attempt, position, files.moved(published), files.index_mark)


def queue_tasks(
    plan: DispatchPlan, published: Published, pieces: Sequence[tuple[int, dict[QueueKey, Spilled]]], count: int
) -> list[QueuesTask]:
    """At most so many tasks for the spilled entries of splits, which are given in the log's order."""
    by_queue: dict[QueueKey, list[tuple[int, Spilled]]] = {}
    for split, found in pieces:
        for key, place in found.items():
            by_queue.setdefault(key, []).append((split, place))
    shares: list[list[tuple[QueueKey, int, tuple[tuple[int, Spilled], ...]]]] = [[] for _ in range(count)]
    for number, (key, places) in enumerate(sorted(by_queue.items())):
        mark = published.queues.get(key)
        shares[number % count].append((key, 0 if mark is None else mark.end_byte, tuple(places)))
    return [QueuesTask(plan, tuple(share), f"queues-{number}") for number, share in enumerate(shares) if share]
