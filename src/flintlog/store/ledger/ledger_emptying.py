"""Emptying a member that its group has left behind, so that the group fills it again from where its own log begins.

    mark `emptying` ─▶ queues, index, an earlier plain log ─▶ the ledger's files ─▶ its checkpoint ─▶ mark removed

What goes was deleted by the group, because it had expired, or was never committed. Term and vote stay, and so does
where the log ended (`promised`): without it the member could elect a leader that lacks what it has acknowledged.
Topics, groups and consumers' offsets stay too. A crash leaves the mark, and whoever opens the store goes on from there.
"""

from __future__ import annotations

from pathlib import Path

from flintlog.disk.media.medium import Medium
from flintlog.format.names import is_segment_name
from flintlog.store.paths import StorePaths

_DERIVED = ("consumequeue", "consumequeue_ext", "batchconsumequeue", "index", "dispatch")


def finish_emptying(paths: StorePaths, medium: Medium) -> None:
    """Go on where a crash stopped it, if it did."""
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
    # While the mark is there a power loss may bring back any of these names; without it nobody would remove them again.
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
