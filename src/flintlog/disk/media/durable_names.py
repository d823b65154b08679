"""Syncs files and names that another process may have left without a sync.

A medium makes the names of its own new files durable (see `local`). The files of a killed process may not be durable: a
power loss would delete the name, and with it an acknowledged message in the file.
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
    """Make the names in these directories durable, if they exist, and those of all directories above, from the top."""
    there = {folder.absolute() for folder in folders if medium.exists(folder)}
    above = {parent for folder in there for parent in folder.parents} - there
    for folder in sorted(there | above):
        try:
            medium.sync_directory(folder)
        except SyncFailed as failure:
            is_ours = not isinstance(failure.__cause__, OSError) or failure.__cause__.errno == EIO
            if folder in there or is_ours:
                raise  # a directory above may be inaccessible or not syncable: then we did not create it
