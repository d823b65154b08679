"""Replacing derived directories by rebuilt ones, so that a crash at any step costs nothing.

    flintlog/rebuild/staged/consumequeue …       complete and synced before the swap begins
    flintlog/rebuild/old/consumequeue …          what it replaces, until the swap is over
    flintlog/swap.json                           the journal: exists during the swap

The order:

    1  write the journal
    2  mark the store as not cleanly stopped, and let the checkpoint vouch for nothing derived
    3  for each directory: move the old one away, the new one into its place
    4  let the checkpoint vouch for the new ones, and mark the store as it was
    5  remove the old directories, then the journal

Every step can be done again, so the next opening finishes what a crash left (`finish_swap`). RocketMQ ignores the
journal; from step 2 on it finds a store that was not cleanly stopped, and builds its queues again from the log. If it
also put messages, the log has grown and the staged files are too old: they are dropped.

A journal whose checksum is missing or wrong is not followed. Step 2 is done without it, and the opening builds queues
and index from the log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from flintlog.derive.log_files import log_files
from flintlog.disk.media.durable_names import sync_names
from flintlog.disk.media.leftovers import remove_leftovers
from flintlog.disk.media.medium import Medium
from flintlog.format.checkpoint import Checkpoint
from flintlog.format.names import BATCH_CONSUME_QUEUE, is_number, parse_queue_id
from flintlog.store.log.checkpoint import CheckpointFile
from flintlog.store.paths import StorePaths
from flintlog.store.recovery.stop_marker import StopMarker, stop_vouching
from flintlog.store.runtime.note_file import NoteFile, Offset

REBUILD = "rebuild"
TAIL_BYTES = 64


class SwapJournal(msgspec.Struct, frozen=True):
    """What a swap does. Paths are relative to the store's root."""

    staged: tuple[str, ...]
    """Directories to replace, in order."""

    removed: tuple[str, ...]
    """Directories that are removed: nothing was staged in their place."""

    log_end: Offset
    tail: str
    """The bytes after the log's end, in hex; another log, or one that has grown, has other bytes there."""

    checkpoint: tuple[int, ...]
    """The checkpoint's fields when all is done."""

    was_clean: bool
    marked_end: Offset | None
    """The log's end in the stop marker, if there was one."""


def rebuild_room(paths: StorePaths) -> Path:
    """Where a rebuild works: on the same disk, in a directory that RocketMQ does not read."""
    return paths.own / REBUILD


def begin_swap(paths: StorePaths, medium: Medium, names: Sequence[str], log_end: int, checkpoint: Checkpoint) -> None:
    """Write the journal; the caller holds the store's lock, and everything staged is synced.

    `names` are the directories that are replaced or, if nothing was staged for them, removed; `log_end` is how far the
    log was read, and `checkpoint` what holds when all is done.
    """
    room = rebuild_room(paths)
    staged = tuple(name for name in names if medium.exists(room / "staged" / name))
    removed = tuple(name for name in names if name not in staged)
    marker = StopMarker(paths.stop_marker, medium)
    held = CheckpointFile(paths.checkpoint, medium)
    held.load()
    marker.load(held.values)
    was_clean = not medium.exists(paths.abort)
    fields = tuple(getattr(checkpoint, name) for name in Checkpoint.__slots__)
    journal = SwapJournal(staged, removed, log_end, _tail(paths, medium, log_end), fields, was_clean, marker.log_end)
    NoteFile(paths.swap, medium, SwapJournal).save(journal)


def finish_swap(paths: StorePaths, medium: Medium, at_step: Callable[[str], None] | None = None) -> bool:
    """Begin or continue the swap of the journal; False when there is none. The caller holds the store's lock.

    `at_step` is called with the name of each step before it is done.
    """
    if not medium.exists(paths.swap):
        return False
    sync_names([paths.root, paths.own], medium)  # the process that wrote the journal may have been killed
    note = NoteFile(paths.swap, medium, SwapJournal)
    journal = note.load().checked
    report = at_step or (lambda step: None)
    if journal is None:
        report("unclean")
        stop_vouching(paths, medium)
    elif _tail(paths, medium, journal.log_end) == journal.tail:
        report("unclean")
        stop_vouching(paths, medium)
        for name in journal.removed:
            _move_away(paths, medium, name, report)
        for name in journal.staged:
            if medium.exists(rebuild_room(paths) / "staged" / name):
                _move_away(paths, medium, name, report)
                _move_in(paths, medium, name, report)
        report("settle")
        _settle(paths, medium, journal)
    report("clean")
    remove_leftovers(rebuild_room(paths), medium)
    report("forget")
    note.remove()
    return True


def _tail(paths: StorePaths, medium: Medium, log_end: int) -> str:
    """The bytes after the log's end, which the next append changes."""
    for folder in paths.commit_logs:
        files = log_files(((info.name, info.size) for info in medium.listing(folder)), strict=False)
        for file in files:
            if file.base <= log_end < file.end:
                place = log_end - file.base
                return medium.open(folder / file.name).buffer[place : place + TAIL_BYTES].hex()
    return ""


def _move_away(paths: StorePaths, medium: Medium, name: str, report: Callable[[str], None]) -> None:
    target, old = paths.root / name, rebuild_room(paths) / "old" / name
    if not medium.exists(target):
        return
    report(f"old {name}")
    if medium.exists(old):
        medium.remove_tree(target)  # RocketMQ, which ignores the journal, has made it meanwhile
    else:
        medium.make_directories(old.parent)
        medium.rename(target, old)
        medium.sync_directory(old.parent)
    medium.sync_directory(target.parent)


def _move_in(paths: StorePaths, medium: Medium, name: str, report: Callable[[str], None]) -> None:
    target = paths.root / name
    report(f"new {name}")
    medium.make_directories(target.parent)
    medium.rename(rebuild_room(paths) / "staged" / name, target)
    medium.sync_directory(target.parent)


def _settle(paths: StorePaths, medium: Medium, journal: SwapJournal) -> None:
    checkpoint = CheckpointFile(paths.checkpoint, medium)
    checkpoint.load()
    checkpoint.values = Checkpoint(*journal.checkpoint)
    checkpoint.flush()
    checkpoint.close()
    if not journal.was_clean:
        return
    if journal.marked_end is not None:
        queues = _find_queues(paths, medium)
        StopMarker(paths.stop_marker, medium).write(
            checkpoint.values,
            log_end=journal.marked_end,
            queue_count=len(queues),
            queue_file_count=sum(info.size > 0 for queue in queues for info in medium.listing(queue)),
            index_file_count=_count_index(paths, medium),
        )
    medium.remove(paths.abort)
    medium.sync_directory(paths.root)


def _find_queues(paths: StorePaths, medium: Medium) -> list[Path]:
    folders = [paths.consume_queue, paths.root / BATCH_CONSUME_QUEUE]
    return [
        folder / topic.name / info.name
        for folder in folders
        for topic in medium.listing(folder)
        if topic.is_directory
        for info in medium.listing(folder / topic.name)
        if info.is_directory and parse_queue_id(info.name) is not None
    ]


def _count_index(paths: StorePaths, medium: Medium) -> int:
    return sum(not info.is_directory and is_number(info.name) for info in medium.listing(paths.index))
