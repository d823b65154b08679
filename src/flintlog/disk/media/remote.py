"""A read-only medium over a byte source, for stores in an object store or in HDFS.

A file that is opened is fetched whole when its bytes are first read. Readers of logs use the source beside it, which
fetches ranges and keeps only a few whole files (`FetchedSource`). Every write raises an error.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from functools import cached_property
from pathlib import Path, PurePath
from typing import Final, NoReturn

from flintlog.disk.media.map_cache import MapCache
from flintlog.disk.media.medium import (
    MAX_SMALL_FILE_BYTES,
    DiskUsage,
    FileInfo,
    LockFile,
    Medium,
    RawFile,
    UnsyncedFile,
)
from flintlog.disk.media.source import DEFAULT_OPEN_FILES, ByteSource, MappedSource
from flintlog.errors import DiskError

WHOLE_FILES: Final = 8
"""How many whole files are kept; an index file may have 400 MiB."""


class FetchedFile(UnsyncedFile):
    """A file that is fetched when it is read."""

    def __init__(self, source: ByteSource, path: Path) -> None:
        self.path = path
        self.size = source.size(path)
        self._source = source

    @cached_property
    def buffer(self) -> memoryview:
        return self._source.view(self.path, 0, self.size)

    def write_at(self, position: int, data: memoryview) -> NoReturn:
        _refuse(self.path)

    def clear(self, start: int, stop: int) -> NoReturn:
        _refuse(self.path)

    def data_end(self, start: int) -> int:
        return max(start, self._source.data_end(self.path, start))


class RemoteMedium:
    """See the module."""

    def __init__(self, source: ByteSource) -> None:
        self.maps = MapCache()
        self._source = source

    @property
    def source(self) -> ByteSource:
        """The files in ranges."""
        return self._source

    def open(self, path: Path, writable: bool = False, *, in_steps: bool = False) -> RawFile:
        if writable:
            _refuse(path)
        return FetchedFile(self._source, path)

    def listing(self, directory: Path) -> list[FileInfo]:
        return self._source.listing(directory)

    def stat(self, path: Path) -> FileInfo | None:
        """The entry in its directory's listing; object stores have no empty directories."""
        return next((info for info in self._source.listing(path.parent) if info.name == path.name), None)

    def exists(self, path: Path) -> bool:
        return self.stat(path) is not None

    def read(self, path: Path, limit: int = MAX_SMALL_FILE_BYTES) -> bytes:
        size = self._source.size(path)
        if size > limit:
            raise DiskError(f"the file has {size} bytes, and {limit} at most are read", path=path)
        return bytes(self._source.view(path, 0, size))

    def head(self, path: Path, size: int) -> bytes:
        return bytes(self._source.view(path, 0, min(size, self._source.size(path))))

    def usage(self, path: Path) -> DiskUsage:
        raise DiskError("the space of this file system is unknown", path=path)

    def create(self, path: Path, size: int, allocated: int | None = None) -> NoReturn:
        _refuse(path)

    def write(self, path: Path, data: bytes) -> NoReturn:
        _refuse(path)

    def replace(self, path: Path, data: bytes) -> NoReturn:
        _refuse(path)

    def rename(self, source: Path, target: Path) -> NoReturn:
        _refuse(source)

    def remove(self, path: Path) -> NoReturn:
        _refuse(path)

    def remove_tree(self, path: Path) -> NoReturn:
        _refuse(path)

    def make_directories(self, path: Path) -> NoReturn:
        _refuse(path)

    def sync(self, path: Path) -> None:
        """Does nothing: nothing was written."""

    def sync_directory(self, path: Path) -> None:
        """Does nothing: nothing was written."""

    def lock(self, path: Path) -> LockFile:
        _refuse(path)


class FetchedSource:
    """Ranges of a source. A file that is asked for as a whole is kept, because it will be asked for again."""

    def __init__(self, source: ByteSource) -> None:
        self._source = source
        self._whole: OrderedDict[PurePath, memoryview] = OrderedDict()
        self._lock = threading.Lock()
        self.listing, self.size, self.version = source.listing, source.size, source.version
        self.sparse, self.data_end = source.sparse, source.data_end

    def view(self, path: PurePath, start: int, stop: int) -> memoryview:
        with self._lock:
            whole = self._whole.get(path)
        if whole is None:
            view = self._source.view(path, start, stop)
            if start > 0 or stop < self._source.size(path):
                return view
            with self._lock:
                self._whole[path] = whole = view
                if len(self._whole) > WHOLE_FILES:
                    self._whole.popitem(last=False)
        return whole[start:stop]

    def forget(self) -> None:
        """Drop what was read."""
        with self._lock:
            self._whole.clear()
        self._source.forget()


def source_of(medium: Medium, max_files: int = DEFAULT_OPEN_FILES) -> ByteSource:
    """The files of a medium for reading: mapped, or fetched if they are not on this machine."""
    return FetchedSource(medium.source) if isinstance(medium, RemoteMedium) else MappedSource(medium, max_files)


def _refuse(path: Path) -> NoReturn:
    raise DiskError("this file system is read-only here", path=path)
