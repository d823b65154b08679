"""The part of dispatch that runs in tasks: one split of the readable log.

    records ─▶ fast dispatch ─▶ consume queue entries, each at its place in the store's own files, synced
            └─▶ index keys, and entries without a fixed place ─▶ spilled; other tasks add them (`dispatch_ordered.py`)

A task of a rebuild does the same (`rebuild_scan.py`), with staged files instead of the store's. The entries lie after
the published ends, so they are not served yet. A task that is retried, or run twice, writes the same bytes. A task that
outlives its driver stops before its next piece, and no other dispatcher starts while it writes (docs/dispatch.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from flintlog.derive.log_files import log_files
from flintlog.derive.splits import Split, plan_splits
from flintlog.disk.media.local import LocalMedium
from flintlog.disk.media.medium import Medium
from flintlog.errors import FlintlogError
from flintlog.pipeline.building.rebuild_scan import BuildPlan, SplitResult, derive_split
from flintlog.pipeline.reading.partitions import LogSplit
from flintlog.pipeline.spark.tasks import Refusal
from flintlog.store.components import load_queue_types
from flintlog.store.dispatch.external.dispatch_claim import working_for
from flintlog.store.dispatch.external.handshake import SPILL
from flintlog.store.options.store_config import StoreConfig
from flintlog.store.paths import StorePaths
from flintlog.store.queues.deleted_queues import load_deleted

TASK_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class DispatchPlan:
    """The part of a plan that all tasks of a dispatcher share."""

    paths: StorePaths
    config: StoreConfig
    build: BuildPlan
    claim: str
    """The name of the dispatcher's claim: a task whose dispatcher has lost or renewed it writes nothing more."""

    @classmethod
    def of(cls, root: Path, config: StoreConfig, medium: Medium, claim: str) -> DispatchPlan:
        """The plan for a store as it is now."""
        paths = StorePaths.of(root, config)
        types = load_queue_types(paths, medium)
        deleted = load_deleted(paths.deleted, medium).all()
        build = BuildPlan.of(config, types, staged=root, spill=paths.dispatch / SPILL, deleted=deleted)
        return cls(paths, config, build, claim)


@dataclass(frozen=True, slots=True)
class RangeTask:
    """One split, and where its first record begins, if that is known."""

    planned: LogSplit
    start: int | None


class RangeGroup(NamedTuple):
    """The work of one Spark task: neighbouring splits, several if the log's files are small."""

    plan: DispatchPlan
    tasks: tuple[RangeTask, ...]


class Derived(NamedTuple):
    """The result of one split."""

    split: Split
    result: SplitResult


def plan_ranges(
    paths: StorePaths, medium: Medium, start: int, stop: int, *, cores: int, is_record: bool
) -> list[RangeTask]:
    """The tasks of a range of the log; `is_record` when a record begins where the range does."""
    folders = {info.name: folder for folder in _folders(paths) for info in medium.listing(folder)}
    sizes = ((info.name, info.size) for folder in _folders(paths) for info in medium.listing(folder))
    splits = plan_splits(log_files(sizes), start, stop, split_bytes=TASK_BYTES, least_count=cores)
    return [
        RangeTask(
            LogSplit("", str(folders[split.file.name]), split),
            start if is_record and split.start == start else None,
        )
        for split in splits
    ]


def plan_groups(plan: DispatchPlan, start: int, stop: int, *, cores: int, is_record: bool = True) -> list[RangeGroup]:
    """The same in groups, one for each Spark task."""
    tasks = plan_ranges(plan.paths, LocalMedium(), start, stop, cores=cores, is_record=is_record)
    count = min(len(tasks), max(cores, -(-(stop - start) // TASK_BYTES)))
    cuts = [len(tasks) * number // count for number in range(count + 1)] if tasks else [0]
    return [RangeGroup(plan, tuple(tasks[first:after])) for first, after in pairwise(cuts)]


def _folders(paths: StorePaths) -> tuple[Path, ...]:
    return tuple(dict.fromkeys((*paths.commit_logs, *paths.read_only_commit_logs)))


def derive_range(plan: DispatchPlan, task: RangeTask) -> Derived | Refusal:
    """The task. An error of flintlog's is returned as a value, so that Spark does not retry it."""
    try:
        with working_for(plan.claim, plan.paths.dispatch, LocalMedium()) as check:
            return Derived(task.planned.split, derive_split(plan.build, task.planned, task.start, check))
    except FlintlogError as error:
        return Refusal(type(error), error.what, error.path, error.offset, error.advice)


def derive_group(group: RangeGroup) -> list[Derived | Refusal]:
    """The tasks of a group, one after another."""
    return [derive_range(group.plan, task) for task in group.tasks]
