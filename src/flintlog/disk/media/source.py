"""Read-only access to the bytes of a store, on this machine or elsewhere.

Verification, export and Spark's executors read ranges of files through a `ByteSource`. On this machine it maps the
files; `arrow_source` fetches ranges from an object store or HDFS. A range is returned in full or not at all.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path, PurePath
from typing import Protocol

from flintlog.disk.media.medium import FileInfo, Medium, RawFile, check_range
from flintlog.errors import DiskError

DEFAULT_OPEN_FILES = 64


class ByteSource(Protocol):
    """Read-only access to the files of a store."""

    def listing(self, directory: PurePath) -> list[FileInfo]:
        """The entries of a directory by name; empty when there is none."""

    def size(self, path: PurePath) -> int:
        """The length of a file; `DiskError` when there is none."""

    def view(self, path: PurePath, start: int, stop: int) -> memoryview:
        """These bytes, read-only; `DiskError` when the file does not hold them all."""

    def data_end(self, path: PurePath, start: int) -> int:
        """The offset, at least `start`, after which nothing was ever written, as far as the file system knows."""


class MappedSource:
    """Files of a medium, mapped. Views are not copies; the last `max_files` files stay mapped."""

    def __init__(self, medium: Medium, max_files: int = DEFAULT_OPEN_FILES) -> None:
        self._medium = medium
        self._max_files = max_files
        self._files: OrderedDict[Path, RawFile] = OrderedDict()
        self._lock = threading.Lock()

    def listing(self, directory: PurePath) -> list[FileInfo]:
        return self._medium.listing(Path(directory))

    def size(self, path: PurePath) -> int:
        info = self._medium.stat(Path(path))
        if info is None:
            raise DiskError("there is no such file", path=path)
        return info.size

    def view(self, path: PurePath, start: int, stop: int) -> memoryview:
        file = self._file(Path(path))
        check_range(path, file.size, start, stop)
        return file.buffer[start:stop]

    def forget(self) -> None:
        """Drop all files; each is unmapped with the last view of it, and mapped again on use."""
        with self._lock:
            self._files.clear()

    def data_end(self, path: PurePath, start: int) -> int:
        return self._file(Path(path)).data_end(start)

    def _file(self, path: Path) -> RawFile:
        with self._lock:
            file = self._files.pop(path, None)
            if file is None:
                file = self._medium.open(path)
            self._files[path] = file
            if len(self._files) > self._max_files:
                self._files.popitem(last=False)  # not closed: another thread may be about to slice it
        return file
