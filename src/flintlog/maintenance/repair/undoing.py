"""Undoes a repair: its changes are reversed from the last to the first, with the bytes kept beside the store.

Invariant: every change is noted together with what reverses it. Small files (configuration, notes, checkpoint) are
remembered whole, because the opening at the end of a repair may change any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from pathlib import Path

from flintlog.disk.media.medium import MAX_SMALL_FILE_BYTES, Medium
from flintlog.errors import DiskError
from flintlog.maintenance.repair.kept import copy_file, copy_tree


class Undo:
    """The changes of one repair, over all its rounds."""

    def __init__(self, medium: Medium) -> None:
        self._medium = medium
        self._changes: list[Callable[[], None]] = []
        self._small: dict[Path, dict[str, bytes]] = {}
        self._names: dict[Path, Container[str] | None] = {}
        self._moved: dict[str, Path] = {}

    def remember(self, directory: Path, names: Container[str] | None = None) -> None:
        """Remember the small files of a directory, or only those with these names; the first call counts."""
        if directory not in self._small:
            self._names[directory] = names
            self._small[directory] = {name: self._medium.read(directory / name) for name in self._listed(directory)}

    def moved(self, source: Path, target: Path) -> None:
        """A file or a directory was moved away."""
        self._moved.setdefault(source.name, target)
        self._changes.append(lambda: self._move_back(source, target))

    def first_moved(self, name: str) -> Path | None:
        """Where the file or directory that had this name before the repair was moved, if it was."""
        return self._moved.get(name)

    def overwritten(self, path: Path, start: int, old: bytes) -> None:
        """Bytes of a file were replaced."""
        self._changes.append(lambda: self._write_back(path, start, old))

    def resized(self, path: Path, size: int, surplus: bytes) -> None:
        """A file got another length; `surplus` was cut off its end."""
        self._changes.append(lambda: self._resize_back(path, size, surplus))

    def renamed(self, source: Path, target: Path) -> None:
        """A file got another name."""
        self._changes.append(lambda: self._rename_back(source, target))

    def run(self) -> None:
        """Put everything back."""
        for change in reversed(self._changes):
            change()
        for directory, files in self._small.items():
            self._put_back(directory, files)

    # ------------------------------------------------------------------ one change

    def _move_back(self, source: Path, target: Path) -> None:
        info = self._medium.stat(source)
        if info is not None:
            self._medium.remove_tree(source) if info.is_directory else self._medium.remove(source)
        try:
            self._medium.rename(target, source)
        except DiskError:  # the store is a mount point: the kept files are on another disk
            copy_tree(self._medium, target, source)
        self._medium.sync_directory(source.parent)

    def _write_back(self, path: Path, start: int, old: bytes) -> None:
        raw = self._medium.open(path, writable=True)
        try:
            raw.write_at(start, memoryview(old))
            raw.sync(start, start + len(old))
        finally:
            raw.close()

    def _resize_back(self, path: Path, size: int, surplus: bytes) -> None:
        working = path.with_name(f".{path.name}.flintlog-new")
        copy_file(self._medium, path, working, size=size)
        if surplus:
            self._write_back(working, size - len(surplus), surplus)
        self._medium.rename(working, path)
        self._medium.sync_directory(path.parent)

    def _rename_back(self, source: Path, target: Path) -> None:
        self._medium.rename(target, source)
        self._medium.sync_directory(source.parent)

    def _put_back(self, directory: Path, files: dict[str, bytes]) -> None:
        for name in self._listed(directory):
            if name not in files:
                self._medium.remove(directory / name)
        for name, data in files.items():
            path = directory / name
            if self._medium.stat(path) is None or self._medium.read(path) != data:
                self._medium.replace(path, data)

    def _listed(self, directory: Path) -> list[str]:
        names = self._names[directory]
        found = (info for info in self._medium.listing(directory) if names is None or info.name in names)
        return [info.name for info in found if not info.is_directory and info.size <= MAX_SMALL_FILE_BYTES]
