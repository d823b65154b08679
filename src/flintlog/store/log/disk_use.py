"""How full the disks of a store are, in whole percent, as RocketMQ counts."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Final

from flintlog.disk.media.medium import DiskUsage, Medium
from flintlog.errors import FlintlogError
from flintlog.store.options.store_config import StoreConfig
from flintlog.store.paths import StorePaths

UNKNOWN_PERCENT: Final = -1
_FULL_LOW, _FULL_HIGH = 30, 85


def used_percent(usage: DiskUsage) -> int:
    """How full a disk is, rounded up; -1 when that is not known.

    >>> used_percent(DiskUsage(total=1000, free=249, used_ratio=0.751))
    76
    """
    if usage.used_ratio < 0:
        return UNKNOWN_PERCENT
    return math.ceil(round(usage.used_ratio * 100, 6))


def path_percent(path: Path, root: Path, medium: Medium) -> int:
    """How full the disk of a directory is; -1 when that is unknown."""
    try:
        return used_percent(medium.usage(existing(path, root, medium)))
    except FlintlogError:
        return UNKNOWN_PERCENT


def existing(path: Path, root: Path, medium: Medium) -> Path:
    """A directory that was not made yet will be made on the root's disk."""
    return path if medium.exists(path) else root


def full_above_percent(config: StoreConfig) -> int:
    """Above this a disk counts as full: old files are deleted at any age, new ones are made on other paths."""
    return min(max(config.disk_space_clean_forcibly_ratio, _FULL_LOW), _FULL_HIGH)


def full_log_paths(paths: StorePaths, config: StoreConfig, medium: Medium) -> list[Path]:
    """The log paths that are too full for a new file; asked when one is made, so that the answer is fresh."""
    if len(paths.commit_logs) < 2:
        return []
    limit = full_above_percent(config)
    return [path for path in paths.commit_logs if path_percent(path, paths.root, medium) > limit]
