"""Names and files that another process may have left without syncing them.

A medium sees to the names of what it has made itself (see `local`). What a process that was killed has made is found by
the next one, and is not necessarily on the disk: an acknowledged message in such a file would go with its name.
"""

from __future__ import annotations

from collections.abc import Iterable
from errno import EIO
from pathlib import Path

from flintlog.disk.media.medium import Medium
from flintlog.errors import SyncFailed


def sync_files(folders: Iterable[Path], medium: Medium) -> None:
    """Make every file in these directories durable, and its name."""
    folders = list(folders)
    for folder in folders:
        for info in medium.listing(folder):
            if not info.is_directory:
                medium.sync(folder / info.name)
    sync_names(folders, medium)


def sync_names(folders: Iterable[Path], medium: Medium) -> None:
    """Make durable what lies in these directories, if they are there, and all names on the way there, from the top."""
    there = {folder.absolute() for folder in folders if medium.exists(folder)}
    above = {parent for folder in there for parent in folder.parents} - there
    for folder in sorted(there | above):
        try:
            medium.sync_directory(folder)
        except SyncFailed as failure:
            is_ours = not isinstance(failure.__cause__, OSError) or failure.__cause__.errno == EIO
            if folder in there or is_ours:
                raise  # a folder above may be closed to us, or of a kind that is not synced: then others made it
