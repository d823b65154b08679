"""A medium that only reads, over a byte source: stores in an object store or in HDFS are looked at through it.

A file is fetched whole when its bytes are first asked for, so who opens files here holds few of them at a time. Nothing
can be written: whatever tries is told so.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import NoReturn

from flintlog.disk.media.map_cache import MapCache
from flintlog.disk.media.medium import MAX_SMALL_FILE_BYTES, Advice, DiskUsage, FileInfo, LockFile, RawFile
from flintlog.disk.media.source import ByteSource
from flintlog.errors import DiskError


class FetchedFile:
    """A file that is fetched when it is read."""

    def __init__(self, source: ByteSource, path: Path) -> None:
        self.path = path
        self.size = source.size(path)
        self._source = source

    @cached_property
    def buffer(self) -> memoryview:
        return self._source.view(self.path, 0, self.size)

    def sync(self, start: int = 0, stop: int | None = None) -> None:
        """There is nothing that could be lost."""

    def write_at(self, position: int, data: memoryview) -> NoReturn:
        _refuse(self.path)

    def clear(self, start: int, stop: int) -> NoReturn:
        _refuse(self.path)

    def data_end(self, start: int) -> int:
        return max(start, self._source.data_end(self.path, start))

    def touch(self, start: int, stop: int) -> bool:
        return False

    def prepare(self, start: int, stop: int) -> bool:
        return False

    def advise(self, advice: Advice, start: int = 0, stop: int | None = None) -> bool:
        return False

    def lock_memory(self) -> bool:
        return False

    def unlock_memory(self) -> bool:
        return False

    def close(self) -> None:
        """Its bytes go with the last view of them."""


class RemoteMedium:
    """See the module."""

    def __init__(self, source: ByteSource) -> None:
        self.maps = MapCache()
        self._source = source

    def open(self, path: Path, writable: bool = False) -> RawFile:
        if writable:
            _refuse(path)
        return FetchedFile(self._source, path)

    def listing(self, directory: Path) -> list[FileInfo]:
        return self._source.listing(directory)

    def stat(self, path: Path) -> FileInfo | None:
        """What its directory says; object stores have no other directories than those that hold something."""
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
        raise DiskError("nobody knows how full this file system is", path=path)

    def create(self, path: Path, size: int) -> NoReturn:
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
        """There is nothing that could be lost."""

    def sync_directory(self, path: Path) -> None:
        """There is nothing that could be lost."""

    def lock(self, path: Path) -> LockFile:
        _refuse(path)


def _refuse(path: Path) -> NoReturn:
    raise DiskError("this file system is only read", path=path)
