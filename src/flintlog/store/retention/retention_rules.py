"""The rules of retention, without a disk: which files are deleted, when and why.

    an hour of `delete_when`                                    expired files are deleted
    a disk above `disk_max_used_space_ratio` (75 %)             expired files are deleted at any hour
    a disk above `disk_space_clean_forcibly_ratio` (85 %)       files of any age are deleted, the oldest first
    a disk above `disk_space_warning_level_ratio` (90 %)        the same, and puts are refused
    a call of `Cleaning.delete_expired_files`                   expired files are deleted

After a disk was above 90 %, puts are refused until it is at 85 % or below. Percentages are rounded up. Of several log
paths the emptiest counts, because new files are created there. The queues' disk has the same limits. Files are deleted
in log order, and never the last one, so a file that is kept keeps all later ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from flintlog.store.log.disk_use import UNKNOWN_PERCENT, full_above_percent
from flintlog.store.options.store_config import StoreConfig
from flintlog.store.retention.holds import Hold

HOUR_MS: Final = 3_600_000
_HOURS_TO_LOOK: Final = 49
"""Two days, because one hour does not exist on the day when the clock is put forward."""


@dataclass(frozen=True, slots=True)
class RetentionRules:
    """The options of retention, converted and clamped."""

    reserved_ms: int
    hours: tuple[int, ...]
    expired_above_percent: int
    forced_above_percent: int
    refused_above_percent: int
    may_force: bool
    stores_a_disk: int
    forced_above_share: float
    protects_unconsumed: bool

    @classmethod
    def of(cls, config: StoreConfig) -> RetentionRules | None:
        """The rules of a configuration; None when it keeps everything."""
        if config.retention == "off":
            return None
        return cls(
            reserved_ms=config.file_reserved_time * HOUR_MS,
            hours=parse_hours(config.delete_when),
            expired_above_percent=_clamp(config.disk_max_used_space_ratio, 10, 95),
            forced_above_percent=full_above_percent(config),
            refused_above_percent=_clamp(config.disk_space_warning_level_ratio, 35, 90),
            may_force=config.clean_file_forcibly_enable,
            stores_a_disk=config.replicas_per_disk_partition,
            forced_above_share=config.logical_disk_space_clean_forcibly_threshold,
            protects_unconsumed=config.protect_unconsumed,
        )


@dataclass(frozen=True, slots=True)
class Space:
    """The consequences of how full the disks are. A flag that is None stays as it is."""

    log_is_full: bool | None
    queues_are_full: bool | None
    deletes: bool
    at_once: bool
    why: str


@dataclass(frozen=True, slots=True)
class LogFile:
    """The facts about a log file that retention needs."""

    path: Path
    base: int
    size: int
    modified_ms: int

    @property
    def end(self) -> int:
        return self.base + self.size


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """When a file will be deleted: `goes_at_ms` is None when no time can be foreseen."""

    file: LogFile
    expires_at_ms: int | None
    goes_at_ms: int | None
    why: str
    holds: tuple[Hold, ...]
    """The holds in this file or an earlier one."""


def parse_hours(text: str) -> tuple[int, ...]:
    """The hours of a `delete_when` text.

    >>> parse_hours("04;16")
    (4, 16)
    """
    return tuple(int(part) for part in text.split(";") if part.strip())


def _clamp(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)


def judge_space(
    rules: RetentionRules, log_percents: Iterable[int], queue_percent: int, own_share: float | None = None
) -> Space:
    """Decide by how full the disks are.

    `own_share` is the used share of the store's part, if several stores divide a disk.
    """
    log_percent = min(log_percents, default=UNKNOWN_PERCENT)
    if log_percent > rules.forced_above_percent:
        is_full = True if log_percent > rules.refused_above_percent else None
        return Space(is_full, None, True, True, f"the disk of the log is {log_percent} % full")
    if queue_percent > rules.forced_above_percent:
        is_full = True if queue_percent > rules.refused_above_percent else None
        return Space(False, is_full, True, True, f"the disk of the queues is {queue_percent} % full")
    if own_share is not None and rules.stores_a_disk > 1:
        return _judge_share(rules, own_share)
    for name, percent in (("log", log_percent), ("queues", queue_percent)):
        if percent < 0:
            return Space(False, False, True, False, f"the usage of the disk of the {name} is unknown")
        if percent > rules.expired_above_percent:
            return Space(False, False, True, False, f"the disk of the {name} is {percent} % full")
    return Space(False, False, False, False, "")


def _judge_share(rules: RetentionRules, own_share: float) -> Space:
    at_once = own_share > rules.forced_above_share
    deletes = at_once or own_share > rules.expired_above_percent / 100
    why = f"the store has used {own_share:.0%} of its part of the disk" if deletes else ""
    return Space(False, False, deletes, at_once, why)


def is_delete_hour(now_ms: int, hours: Sequence[int]) -> bool:
    """Whether the local time is in one of these hours."""
    return datetime.fromtimestamp(now_ms / 1000).hour in hours


def next_delete_time(at_ms: int, hours: Sequence[int]) -> int | None:
    """The first time from `at_ms` on that is in one of these hours; None when there is none."""
    if is_delete_hour(at_ms, hours):
        return at_ms
    start = datetime.fromtimestamp(at_ms / 1000).replace(minute=0, second=0, microsecond=0)
    for ahead in range(1, _HOURS_TO_LOOK):
        moment = start + timedelta(hours=ahead)
        moment_ms = int(moment.timestamp() * 1000)
        if moment_ms > at_ms and is_delete_hour(moment_ms, hours):
            return moment_ms
    return None


def plan_files(
    files: Sequence[LogFile],
    rules: RetentionRules,
    space: Space,
    now_ms: int,
    holds: Sequence[Hold] = (),
    to_free_bytes: int = 0,
) -> Iterator[PlannedFile]:
    """When each file of the log will be deleted, the oldest first, if nothing but the time changes.

    `to_free_bytes` is how much must be deleted before the disk is below the limit for deletion at any age.
    """
    kept_by: str | None = None
    expired_at_ms = now_ms
    for number, file in enumerate(files):
        needed = tuple(each for each in holds if each.physical_offset < file.end)
        expires_at_ms = file.modified_ms + rules.reserved_ms
        expired_at_ms = max(expired_at_ms, expires_at_ms)
        if number == len(files) - 1:
            yield PlannedFile(file, expires_at_ms, None, "the newest file is never deleted", needed)
        elif space.at_once and rules.may_force and to_free_bytes > 0:
            to_free_bytes -= file.size
            yield PlannedFile(file, expires_at_ms, now_ms, f"{space.why}: files of any age are deleted", needed)
        else:
            kept_by = kept_by or _reason_to_keep(needed, rules)
            yield _plan_by_age(file, rules, space, now_ms, expired_at_ms, needed, kept_by)


def _reason_to_keep(holds: Sequence[Hold], rules: RetentionRules) -> str | None:
    if not holds or not rules.protects_unconsumed:
        return None
    reasons = dict.fromkeys(each.why for each in holds)
    others = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
    return f"{next(iter(reasons))}{others}"


def _plan_by_age(
    file: LogFile,
    rules: RetentionRules,
    space: Space,
    now_ms: int,
    expired_at_ms: int,
    needed: tuple[Hold, ...],
    kept_by: str | None,
) -> PlannedFile:
    expires_at_ms = file.modified_ms + rules.reserved_ms
    if kept_by is not None:
        return PlannedFile(file, expires_at_ms, None, kept_by, needed)
    if space.deletes:
        return PlannedFile(file, expires_at_ms, expired_at_ms, f"expired, and {space.why}", needed)
    goes_at_ms = next_delete_time(expired_at_ms, rules.hours)
    if goes_at_ms is None:
        return PlannedFile(file, expires_at_ms, None, "delete_when names no hour", needed)
    why = "expired" if expires_at_ms <= now_ms else f"{rules.reserved_ms // HOUR_MS} hours old by then"
    return PlannedFile(file, expires_at_ms, goes_at_ms, why, needed)
