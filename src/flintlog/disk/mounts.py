"""Which file system a path is on: whether all processes that map a file of it share the file's pages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

MOUNTS: Final = Path("/proc/self/mountinfo")

COHERENT: Final = frozenset(
    {"bcachefs", "btrfs", "erofs", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "ramfs", "tmpfs", "xfs", "zfs"}
)
"""File systems of one machine's own disks. Of network and user-space file systems it is not known, nor of new ones."""

_ESCAPE: Final = re.compile(r"\\([0-7]{3})")


def is_coherent(path: Path, mounts: Path = MOUNTS) -> bool:
    """Whether a path is on a file system of this machine's own; where mounts are not listed, it is taken for one."""
    try:
        listed = mounts.read_text("utf-8", "surrogateescape")
    except OSError:
        return True  # not Linux
    kind = parse_type(listed, path.resolve())
    return kind is None or kind in COHERENT


def parse_type(listed: str, path: Path) -> str | None:
    r"""The type of the file system that a path is on, by the lines of mountinfo; of equal mounts the last counts.

    >>> lines = "1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 0:5 / /mnt/a\\040b rw,x shared:1 - nfs4 h:/ rw\n"
    >>> parse_type(lines, Path("/mnt/a b/store")), parse_type(lines, Path("/mnt/a"))
    ('nfs4', 'ext4')
    """
    found: tuple[int, str] | None = None
    for line in listed.splitlines():
        mounted, _, device = line.partition(" - ")
        fields, kind = mounted.split(), device.partition(" ")[0]
        if len(fields) < 5 or not kind:
            continue
        point = Path(_ESCAPE.sub(lambda match: chr(int(match[1], 8)), fields[4]))
        if path.is_relative_to(point) and (found is None or len(point.parts) >= found[0]):
            found = len(point.parts), kind
    return None if found is None else found[1]
