"""Emptying a member whose log ends before its group's begins, so that the group fills it again.

    mark `emptying` ─▶ queues, index, an earlier plain log ─▶ the ledger's files ─▶ its checkpoint ─▶ mark removed

The group has deleted these entries, because they had expired, or never committed them. Term and vote are kept, and so
is the end of the log (`promised`): without it the member could elect a leader that lacks entries which this member has
acknowledged. Topics, groups and consumers' offsets are kept too. After a crash the next opening finds the mark and
continues.
"""

from __future__ import annotations

from pathlib import Path

from flintlog.disk.media.medium import Medium
from flintlog.format.names import is_segment_name
from flintlog.store.paths import StorePaths

_DERIVED = ("consumequeue", "consumequeue_ext", "batchconsumequeue", "index", "dispatch")


def finish_emptying(paths: StorePaths, medium: Medium) -> None:
    """Continue an emptying that a crash interrupted."""
    if paths.ledger is not None and medium.exists(_mark(paths.ledger)):
        empty_member(paths, medium)


def empty_member(paths: StorePaths, medium: Medium) -> None:
    """Remove the log of a member and what follows from it. Its store must be closed, and is locked meanwhile."""
    if paths.ledger is None:
        return
    lock = medium.lock(paths.lock)
    try:
        _empty(paths, paths.ledger, medium)
    finally:
        lock.release()


def _empty(paths: StorePaths, ledger: Path, medium: Medium) -> None:
    mark = _mark(ledger)
    medium.replace(mark, b"")
    for name in _DERIVED:
        medium.remove_tree(paths.root / name)
    for file in (paths.checkpoint, paths.stop_marker, paths.batches, paths.swap):
        _remove(file, medium)
    for directory in (*paths.read_only_commit_logs, *paths.commit_logs, ledger / "index"):
        for info in medium.listing(directory):
            if not info.is_directory and is_segment_name(info.name):
                medium.remove(directory / info.name)
        if medium.exists(directory):
            medium.sync_directory(directory)
    for name in ("checkpoint", "checkpoint.bak"):
        _remove(ledger / name, medium)
    # A power loss may bring back any of these names. While the mark exists, the next opening removes them again.
    for directory in (paths.own, paths.root, ledger):
        if medium.exists(directory):
            medium.sync_directory(directory)
    medium.remove(mark)
    medium.sync_directory(ledger)


def _mark(ledger: Path) -> Path:
    return ledger / "emptying"


def _remove(path: Path, medium: Medium) -> None:
    if medium.exists(path):
        medium.remove(path)
