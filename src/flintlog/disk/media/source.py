"""Read-only access to the bytes of a store, on this machine or elsewhere.

Verification, export and Spark's executors read ranges of files through a `ByteSource`. On this machine it maps the
files; `arrow_source` fetches ranges from an object store or HDFS. A range is returned in full or not at all.

Many functions take a view of a whole file and read little of it. On a map that costs nothing. Elsewhere they get a
`sparse` view, which holds only the bytes that they read.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path, PurePath
from typing import Protocol

from flintlog import kernel
from flintlog.disk.media.libc import scratch_memory
from flintlog.disk.media.medium import FileInfo, Medium, RawFile, check_range
from flintlog.errors import DiskError

DEFAULT_OPEN_FILES = 64
FETCHED_AT_ONCE = 32 * 1024 * 1024


class ByteSource(Protocol):
    """Read-only access to the files of a store."""

    def listing(self, directory: PurePath) -> list[FileInfo]:
        """The entries of a directory by name; empty when there is none."""

    def size(self, path: PurePath) -> int:
        """The length of a file; `DiskError` when there is none."""

    def view(self, path: PurePath, start: int, stop: int) -> memoryview:
        """These bytes, read-only; `DiskError` when the file does not hold them all."""

    def sparse(self, path: PurePath, start: int, stop: int) -> memoryview:
        """A view as long as the file that has these bytes at their places; all others may be zeros instead."""

    def data_end(self, path: PurePath, start: int) -> int:
        """The offset, at least `start`, after which nothing was written, as far as the file system or samples say."""

    def version(self, path: PurePath) -> str:
        """A text that is another one after the file was replaced or written, as far as the file system notes that."""

    def forget(self) -> None:
        """Drop what is kept of files: they are opened and read again."""


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

    def sparse(self, path: PurePath, start: int, stop: int) -> memoryview:
        """The whole file: it is mapped."""
        file = self._file(Path(path))
        check_range(path, file.size, start, stop)
        return file.buffer

    def version(self, path: PurePath) -> str:
        """Size and time. A writer that writes through a map may change the file without a new time."""
        info = self._medium.stat(Path(path))
        return "" if info is None else f"{info.size} {info.mtime_ms}"

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


class SparseFile:
    """A file of which ranges are fetched as they are asked for: a view as long as the file, elsewhere zeros.

    Ranges that follow each other are fetched once.
    """

    def __init__(self, source: ByteSource, path: PurePath, size: int) -> None:
        self._source = source
        self._path = path
        self._memory = scratch_memory(size)
        self._start = self._stop = 0

    def fetch(self, start: int, stop: int) -> memoryview:
        """The view, with these bytes in it."""
        if not self._start <= start <= self._stop:
            self._start = self._stop = start
        while self._stop < stop:
            end = min(stop, self._stop + FETCHED_AT_ONCE)
            piece = self._source.view(self._path, self._stop, end)
            if kernel.written_end(piece, 0, len(piece)):  # zeros are there already, and cost no memory
                self._memory[self._stop : end] = piece
            self._stop = end
        return self._memory.toreadonly()
