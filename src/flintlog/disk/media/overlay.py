"""A medium over another one, which it never writes: changes stay in memory.

Opening a store read-only runs the same recovery as any opening. Through an overlay, its cuts and rebuilds exist only in
this process. A written file is mapped copy-on-write (unwritten pages still show the changes of other processes); a new
file is plain memory; a deletion is only remembered.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from flintlog.disk.media.libc import MemoryMap
from flintlog.disk.media.local import LocalMedium
from flintlog.disk.media.map_cache import MapCache
from flintlog.disk.media.medium import (
    MAX_SMALL_FILE_BYTES,
    DiskUsage,
    FileInfo,
    Medium,
    RawFile,
    UnsyncedFile,
    os_errors,
)
from flintlog.errors import DiskError
from flintlog.kernel import written_end


class OverlayFile(UnsyncedFile):
    """A file that was written or created through an overlay. It is kept until the overlay is dropped."""

    def __init__(self, path: Path, buffer: memoryview, data_end: Callable[[int], int] | None = None) -> None:
        """`data_end` returns where the data of the file below ends; it is used until `buffer` is accessed."""
        self.path = path
        self.size = len(buffer)
        self._buffer = buffer
        self._data_end = data_end

    @property
    def buffer(self) -> memoryview:
        self._data_end = None  # from here on the caller may write anywhere
        return self._buffer

    def write_at(self, position: int, data: memoryview) -> None:
        self.buffer[position : position + len(data)] = data

    def clear(self, start: int, stop: int) -> None:
        # Only bytes that are not zero, because every written page becomes memory of this process.
        stop = written_end(self._buffer, start, max(start, min(stop, self.data_end(start))))
        self._buffer[start:stop] = bytes(stop - start)

    def data_end(self, start: int) -> int:
        return self.size if self._data_end is None else self._data_end(start)


class OverlayLock:
    """Not a real lock: an overlay does not disturb a writer."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def release(self) -> None:
        """Does nothing."""


class OverlayMedium:
    """See the module."""

    def __init__(self, below: Medium) -> None:
        self.maps = MapCache()
        self._below = below
        self._files: dict[Path, OverlayFile] = {}
        self._deleted: set[Path] = set()

    def create(self, path: Path, size: int, allocated: int | None = None) -> RawFile:
        if path in self._files:
            raise DiskError("the file exists", path=path)
        # If the file exists below, another process created it after the directory was listed: it is hidden here.
        return self._keep(path, MemoryMap(size, None, writable=True).buffer)

    def open(self, path: Path, writable: bool = False, *, in_steps: bool = False) -> RawFile:
        held = self._held(path)
        if held is not None:
            return held
        if not writable:
            return self._below.open(path)
        return self._keep(path, self._private(path), lambda start: self._data_end_below(path, start))

    def sync(self, path: Path) -> None:
        """Does nothing: nothing of an overlay is durable."""

    def _private(self, path: Path) -> memoryview:
        if isinstance(self._below, LocalMedium):
            # Not Python's own map, which keeps a descriptor for each file until it is collected.
            with os_errors("open", path), open(path, "rb") as file:
                return MemoryMap(os.fstat(file.fileno()).st_size, file.fileno(), writable=True, private=True).buffer
        with closing(self._below.open(path)) as file:
            return memoryview(bytearray(file.buffer))

    def _data_end_below(self, path: Path, start: int) -> int:
        with closing(self._below.open(path)) as file:
            return file.data_end(start)

    def _keep(self, path: Path, buffer: memoryview, data_end: Callable[[int], int] | None = None) -> OverlayFile:
        self._deleted.discard(path)
        file = self._files[path] = OverlayFile(path, buffer, data_end)
        return file

    def _held(self, path: Path) -> OverlayFile | None:
        """The overlay's own file; None if the file below counts, `DiskError` if it was deleted."""
        held = self._files.get(path)
        if held is None and self._is_deleted(path):
            raise DiskError("there is no such file", path=path)
        return held

    def _is_deleted(self, path: Path) -> bool:
        # Called for every file of a store, and mostly nothing was deleted.
        deleted = self._deleted
        return bool(deleted) and (path in deleted or any(parent in deleted for parent in path.parents))

    # Names

    def listing(self, directory: Path) -> list[FileInfo]:
        below = [] if self._is_deleted(directory) else self._below.listing(directory)
        found = {info.name: info for info in below if directory / info.name not in self._deleted}
        found |= {info.name: info for info in self._own(directory)}
        return [found[name] for name in sorted(found)]

    def _own(self, directory: Path) -> Iterator[FileInfo]:
        for path, file in self._files.items():
            if path.parent == directory:
                yield FileInfo(path.name, file.size, 0, False)
            elif directory in path.parents:
                yield FileInfo(path.relative_to(directory).parts[0], 0, 0, True)

    def stat(self, path: Path) -> FileInfo | None:
        held = self._files.get(path)
        if held is not None:
            return FileInfo(path.name, held.size, 0, False)
        if any(path in file.parents for file in self._files):
            return FileInfo(path.name, 0, 0, True)
        return None if self._is_deleted(path) else self._below.stat(path)

    def exists(self, path: Path) -> bool:
        return self.stat(path) is not None

    def read(self, path: Path, limit: int = MAX_SMALL_FILE_BYTES) -> bytes:
        held = self._held(path)
        if held is None:
            return self._below.read(path, limit)
        if held.size > limit:
            raise DiskError(f"the file is longer than {limit} bytes", path=path)
        return bytes(held.buffer)

    def head(self, path: Path, size: int) -> bytes:
        held = self._held(path)
        return self._below.head(path, size) if held is None else bytes(held.buffer[:size])

    def write(self, path: Path, data: bytes) -> None:
        self._keep(path, memoryview(bytearray(data)))

    replace = write

    def rename(self, source: Path, target: Path) -> None:
        data = self.read(source)
        self.remove(source)
        self.write(target, data)

    def remove(self, path: Path) -> None:
        self._files.pop(path, None)
        self._deleted.add(path)

    def remove_tree(self, path: Path) -> None:
        for held in [held for held in self._files if path in held.parents]:
            del self._files[held]
        self.remove(path)

    def make_directories(self, path: Path) -> None:
        """Does nothing: an overlay has the directories of its files."""

    def sync_directory(self, path: Path) -> None:
        """Does nothing: nothing of an overlay is durable."""

    def usage(self, path: Path) -> DiskUsage:
        return self._below.usage(path)

    def lock(self, path: Path) -> OverlayLock:
        return OverlayLock(path)
