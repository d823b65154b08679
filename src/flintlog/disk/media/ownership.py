"""Copies owners and modes, so that files that one user repairs or restores stay readable for the broker's user."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from stat import S_IMODE


def take_after(path: Path, like: Path) -> None:
    """Give a file or directory the owner, the group and the mode of another one, as far as that is allowed."""
    with suppress(FileNotFoundError):
        status = os.stat(like)
        with suppress(PermissionError):
            os.chown(path, status.st_uid, status.st_gid)
        with suppress(PermissionError):
            os.chmod(path, S_IMODE(status.st_mode))


def take_all_after(root: Path, file: Path, directory: Path) -> None:
    """The same for everything below a directory: files get them from `file`, directories from `directory`."""
    for folder, _, names in os.walk(root):
        take_after(Path(folder), directory)
        for name in names:
            take_after(Path(folder, name), file)
