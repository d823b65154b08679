"""A byte source on any file system that pyarrow knows (S3, GCS, Azure, HDFS), or fsspec. Only ranges are read.

    a large view     pieces of `PIECE_BYTES`, several at a time
    a small view     a window around it, which is kept; windows grow while a reader goes on where the last one ended

Where the data of a file ends is found with samples (`data_end`): a file of the log has its full size from the
beginning, with zeros after its last record.

A module of its own, so that reading local files does not load pyarrow.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePath
from typing import Final

import pyarrow as pa
from pyarrow import fs

from flintlog import kernel
from flintlog.disk.media.file_systems import open_file_system, remote_errors
from flintlog.disk.media.libc import scratch_memory
from flintlog.disk.media.medium import FileInfo, check_range
from flintlog.disk.media.source import SparseFile
from flintlog.errors import DiskError

PIECE_BYTES: Final = 8 * 1024 * 1024
PIECES_AT_A_TIME: Final = 4
FIRST_WINDOW_BYTES: Final = 64 * 1024
WINDOW_BYTES: Final = 4 * 1024 * 1024
WINDOWS: Final = 32
OPEN_FILES: Final = 64

SAMPLE_BYTES: Final = 16 * 1024
SAMPLES: Final = 8
"""A range is halved three times by so many samples."""
LAST_RANGE_BYTES: Final = 256 * 1024
"""A range of this size is not sampled but read."""


class ArrowSource:
    """Files of a `pyarrow.fs.FileSystem`. Any thread may use it. What it has read it keeps: use it for a short time."""

    def __init__(self, filesystem: fs.FileSystem, prefix: str = "") -> None:
        self.file_system = filesystem
        self._prefix = prefix
        """What a path begins with in the errors, such as "s3://"."""
        self._files: OrderedDict[PurePath, pa.NativeFile] = OrderedDict()
        self._windows: OrderedDict[tuple[PurePath, int], memoryview] = OrderedDict()
        self._lock = threading.Lock()

    @classmethod
    def from_uri(cls, uri: str) -> tuple[ArrowSource, PurePath]:
        """The source for a URI such as "s3://bucket/store", and the path in it."""
        filesystem, path = open_file_system(uri)
        plain = uri.rstrip("/")
        prefix = plain[: -len(path)] if path and plain.endswith(path) else ""
        return cls(filesystem, prefix), PurePath(path)

    def listing(self, directory: PurePath) -> list[FileInfo]:
        where = self._where(directory)
        try:
            with remote_errors("list", where):
                found = self.file_system.get_file_info(fs.FileSelector(directory.as_posix()))
        except DiskError as error:
            if isinstance(error.__cause__, (FileNotFoundError, NotADirectoryError)):
                return []
            raise
        infos = [
            FileInfo(
                each.base_name, each.size or 0, (each.mtime_ns or 0) // 1_000_000, each.type is fs.FileType.Directory
            )
            for each in found
        ]
        return sorted(infos, key=lambda info: info.name)

    def size(self, path: PurePath) -> int:
        with remote_errors("look at", self._where(path)):
            info = self.file_system.get_file_info(path.as_posix())
        if info.type is not fs.FileType.File:
            raise DiskError("there is no such file", path=self._where(path))
        return int(info.size)

    def version(self, path: PurePath) -> str:
        """The object's ETag, or fsspec's own key of its facts; else its size and time."""
        where = self._where(path)
        filesystem = self.file_system
        with remote_errors("look at", where):
            if isinstance(filesystem, fs.PyFileSystem) and isinstance(filesystem.handler, fs.FSSpecHandler):
                return str(filesystem.handler.fs.ukey(path.as_posix()))
            with filesystem.open_input_file(path.as_posix()) as file:
                facts = file.metadata() or {}
            if "ETag" in facts:
                return str(facts["ETag"])
            info = filesystem.get_file_info(path.as_posix())
        return f"{info.size} {info.mtime_ns}"

    def view(self, path: PurePath, start: int, stop: int) -> memoryview:
        with remote_errors("read", self._where(path)):
            file = self._file(path)
            check_range(path, file.size(), start, stop)
            if stop - start >= WINDOW_BYTES:
                return self._read_pieces(path, file, start, stop)
            return self._read_window(path, file, start, stop)

    def sparse(self, path: PurePath, start: int, stop: int) -> memoryview:
        return SparseFile(self, path, self.size(path)).fetch(start, stop)

    def forget(self) -> None:
        """Drop what was read and the files that are open."""
        with self._lock:
            self._files.clear()
            self._windows.clear()

    def data_end(self, path: PurePath, start: int) -> int:
        """Looks at samples from the file's end on, and then between the last one with data and the next.

        Zeros that lie before data do not hide it, unless they fill every sample after it: then the end is too low, and
        a walk over the records goes on from there.
        """
        with remote_errors("read", self._where(path)):
            file = self._file(path)
            low, high = start, file.size()
            while high - low > LAST_RANGE_BYTES:
                step = -(-(high - low) // SAMPLES)
                places = range(low, high, step)
                last = next((each for each in reversed(places) if self._has_data(path, file, each, high)), low)
                low, high = last, min(high, last + step)
            return kernel.written_end(self._read(path, file, low, high), 0, high - low) + low

    def _has_data(self, path: PurePath, file: pa.NativeFile, place: int, high: int) -> bool:
        stop = min(high, place + SAMPLE_BYTES)
        return kernel.written_end(self._read(path, file, place, stop), 0, stop - place) > 0

    # ------------------------------------------------------------------ reading

    def _file(self, path: PurePath) -> pa.NativeFile:
        with self._lock:
            file = self._files.pop(path, None)
            if file is None:
                file = self.file_system.open_input_file(path.as_posix())
            self._files[path] = file
            if len(self._files) > OPEN_FILES:
                self._files.popitem(last=False)  # not closed: another thread may be about to read it
        return file

    def _read_window(self, path: PurePath, file: pa.NativeFile, start: int, stop: int) -> memoryview:
        """A part of a window that was read before, or of a new one."""
        with self._lock:
            near = [(at, view) for (of, at), view in self._windows.items() if of == path]
        for at, view in near:
            if at <= start and stop <= at + len(view):
                return view[start - at : stop - at]
        before = next((view for at, view in near if at <= start <= at + len(view)), None)
        size = FIRST_WINDOW_BYTES if before is None else min(WINDOW_BYTES, 4 * len(before))
        view = self._read(path, file, start, min(file.size(), max(stop, start + size)))
        with self._lock:
            self._windows[path, start] = view
            if len(self._windows) > WINDOWS:
                self._windows.popitem(last=False)
        return view[: stop - start]

    def _read_pieces(self, path: PurePath, file: pa.NativeFile, start: int, stop: int) -> memoryview:
        """A long range, in pieces that are on their way at the same time."""
        memory = scratch_memory(stop - start)

        def fetch(place: int) -> None:
            end = min(stop, place + PIECE_BYTES)
            memory[place - start : end - start] = self._read(path, file, place, end)

        with ThreadPoolExecutor(PIECES_AT_A_TIME, thread_name_prefix="flintlog-fetch") as pool:
            for _ in pool.map(fetch, range(start, stop, PIECE_BYTES)):
                pass
        return memory.toreadonly()

    def _read(self, path: PurePath, file: pa.NativeFile, start: int, stop: int) -> memoryview:
        if start == stop:
            return memoryview(b"")
        view = memoryview(file.read_at(stop - start, start)).toreadonly()
        if len(view) != stop - start:
            what = f"{len(view)} bytes came instead of {stop - start}"
            raise DiskError(what, path=self._where(path), offset=start)
        return view

    def _where(self, path: PurePath) -> str:
        return f"{self._prefix}{path.as_posix()}"
