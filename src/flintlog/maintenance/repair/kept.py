"""Keeps what a repair replaces, in a directory beside the store: `<store>.repaired-<time>`.

The old bytes are written and synced there before the store is changed, and never replaced. A repair that is run again
after an interruption finds the directory through `flintlog/repair.json` and continues in it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

from flintlog.disk.media.medium import Medium
from flintlog.errors import DiskError
from flintlog.store.runtime.jobs import Counted

COPY_BYTES = 4 * 1024 * 1024


class Kept:
    """The directory for one repair."""

    def __init__(self, directory: Path, medium: Medium) -> None:
        self.directory = directory
        self._medium = medium

    def keep_bytes(self, name: str, data: bytes) -> Path:
        """Keep bytes under a name, or under the next free one when other bytes have it."""
        for path in self._paths(name):
            there = self._medium.stat(path)
            if there is None:
                self._medium.make_directories(path.parent)
                self._medium.replace(path, data)
                return path
            if there.size == len(data) and self._medium.read(path, len(data)) == data:
                self._medium.sync_directory(path.parent)  # a killed process may have left the name unsynced
                return path
        raise AssertionError("counting does not end")

    def _paths(self, name: str) -> Iterator[Path]:
        yield self.directory / name
        yield from (self.directory / f"{name}.{number}" for number in itertools.count(1))

    def move(self, source: Path, name: str) -> Path:
        """Move a file or directory here under a name, or under the next free one; returns its new path."""
        target = next(path for path in self._paths(name) if not self._medium.exists(path))
        self._medium.make_directories(target.parent)
        try:
            self._medium.rename(source, target)
        except DiskError:
            # The store is a mount point, so the directory beside it is on another disk.
            copy_tree(self._medium, source, target)
            self._medium.remove_tree(source) if self._is_directory(source) else self._medium.remove(source)
        self._medium.sync_directory(target.parent)
        self._medium.sync_directory(source.parent)
        return target

    def _is_directory(self, path: Path) -> bool:
        info = self._medium.stat(path)
        return info is not None and info.is_directory


def free_path(path: Path, medium: Medium) -> Path:
    """The path, or the same with the first free number after its name: -2, -3, …"""
    numbered = (path.with_name(f"{path.name}-{number}") for number in itertools.count(2))
    return next(each for each in itertools.chain([path], numbered) if not medium.exists(each))


def copy_tree(medium: Medium, source: Path, target: Path) -> None:
    """Copy a file, or a directory with everything in it, durably."""
    info = medium.stat(source)
    if info is None:
        return
    if not info.is_directory:
        copy_file(medium, source, target)
        return
    medium.make_directories(target)
    for each in medium.listing(source):
        copy_tree(medium, source / each.name, target / each.name)
    medium.sync_directory(target)


def copy_file(
    medium: Medium, source: Path, target: Path, *, size: int | None = None, counted: Counted | None = None
) -> None:
    """Copy a file's bytes into a new file of the same size or of `size`; missing bytes are zeros."""
    info = medium.stat(source)
    length = 0 if info is None else info.size
    wanted = length if size is None else size
    medium.remove(target)
    if wanted == 0:
        medium.write(target, b"")
        return
    made = medium.create(target, wanted)
    try:
        if length:
            read = medium.open(source)
            end = min(length, wanted, read.data_end(0))
            for start in range(0, end, COPY_BYTES):
                stop = min(start + COPY_BYTES, end)
                made.write_at(start, read.buffer[start:stop])
                if counted is not None:
                    counted.add(stop - start)
            read.close()
        made.sync()
    finally:
        made.close()
