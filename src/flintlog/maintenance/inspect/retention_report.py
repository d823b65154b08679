"""What retention would do to a store directory, without opening it: nothing is locked, recovered or written.

Most files are only listed. Read are the first record of each log file, for its store time, the queues of topics that
groups read or messages wait in, and the timer's log. So it costs little, also beside a running store; the answer is
then that of the moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flintlog.disk.media.medium import DiskUsage, Medium
from flintlog.disk.media.overlay import OverlayMedium
from flintlog.disk.places import local_path
from flintlog.errors import DamagedStore
from flintlog.maintenance.inspect.forecast import room_bytes
from flintlog.maintenance.inspect.overview import emptiest_disk, log_disk
from flintlog.maintenance.inspect.store_files import look_at
from flintlog.store.components import Components, make_components
from flintlog.store.log.disk_use import UNKNOWN_PERCENT, used_percent
from flintlog.store.options.store_config import StoreConfig
from flintlog.store.retention.find_holds import HoldFinder
from flintlog.store.retention.holds import Hold
from flintlog.store.retention.retention_rules import (
    LogFile,
    PlannedFile,
    RetentionRules,
    judge_space,
    plan_files,
)
from flintlog.store.runtime.clock import Milliseconds


@dataclass(frozen=True, slots=True)
class RetentionReport:
    """When and why each log file is deleted, the oldest first."""

    files: tuple[PlannedFile, ...]
    first_stored_ms: tuple[int | None, ...]
    damage: str | None
    """Why it is not known which groups and services still need which files."""


def report_retention(root: Path, config: StoreConfig, medium: Medium, now_ms: Milliseconds) -> RetentionReport:
    """The report on a directory; `DamagedStore` when it holds no store."""
    root = local_path(root)
    disk = OverlayMedium(medium)
    looked = look_at(root, config, disk)
    parts = make_components(root, looked.config, disk, now_ms)
    parts.segments.load()
    stored = _first_stored(parts)
    files = [
        LogFile(segment.path, segment.base, segment.size, segment.modified_ms)
        for segment in parts.segments.segments[: len(stored)]
    ]
    holds, damage = _load_holds(parts)
    usages = log_disk(looked), emptiest_disk(looked, [looked.paths.consume_queue])
    planned = _plan(files, RetentionRules.of(config), usages, now_ms(), holds, damage)
    return RetentionReport(tuple(planned), tuple(stored), damage)


def _first_stored(parts: Components) -> list[int | None]:
    """The store time of each file's first record; files at the end that were allocated ahead are left out."""
    found: list[int | None] = []
    for segment in parts.segments.segments:
        stored_ms = parts.commit_log.store_time_at(segment.base)
        found.append(stored_ms if stored_ms > 0 else None)
    while len(found) > 1 and found[-1] is None:
        found.pop()
    return found


def _load_holds(parts: Components) -> tuple[list[Hold], str | None]:
    finder = HoldFinder(parts)
    try:
        finder.load()
    except DamagedStore as error:
        return [], str(error)
    parts.queues.load()
    for queue in parts.queues.all():
        if queue.topic in finder.topics:
            queue.recover(was_clean=True)
            queue.correct_min_offset(max(0, parts.segments.min_offset))
    return finder.find(), None


def _plan(
    files: Sequence[LogFile],
    rules: RetentionRules | None,
    usages: tuple[DiskUsage | None, DiskUsage | None],
    now_ms: int,
    holds: Sequence[Hold],
    damage: str | None,
) -> list[PlannedFile]:
    if rules is None:
        return [_kept(file, "this configuration keeps everything", holds) for file in files]
    log, queues = (UNKNOWN_PERCENT if each is None else used_percent(each) for each in usages)
    space = judge_space(rules, [log], queues)
    if damage is not None and rules.protects_unconsumed and not (space.at_once and rules.may_force):
        return [_kept(file, "it is not known who needs it", holds) for file in files]
    to_free_bytes = max(_to_free(each, rules) for each in usages) if space.at_once else 0
    return list(plan_files(files, rules, space, now_ms, holds, to_free_bytes))


def _kept(file: LogFile, why: str, holds: Sequence[Hold]) -> PlannedFile:
    return PlannedFile(file, None, None, why, tuple(each for each in holds if each.physical_offset < file.end))


def _to_free(usage: DiskUsage | None, rules: RetentionRules) -> int:
    """The bytes to delete until a disk is below the limit above which files of any age are deleted."""
    return 0 if usage is None else max(0, -int(room_bytes(usage, rules.forced_above_percent)))
