"""A byte source on any file system that pyarrow knows (S3, GCS, Azure, HDFS), or fsspec.

A module of its own, so that reading local files does not load pyarrow.
"""

from __future__ import annotations

from pathlib import Path, PurePath

import pyarrow as pa
from pyarrow import fs

from flintlog.disk.media.medium import FileInfo, check_range, first_line, os_errors
from flintlog.errors import DiskError


class ArrowSource:
    """Files of a `pyarrow.fs.FileSystem`. Each view is one ranged read."""

    def __init__(self, filesystem: fs.FileSystem) -> None:
        self.file_system = filesystem

    @classmethod
    def from_uri(cls, uri: str) -> tuple[ArrowSource, PurePath]:
        """The source for a URI such as "s3://bucket/store", and the path in it."""
        try:
            filesystem, path = fs.FileSystem.from_uri(uri)
        except pa.ArrowInvalid:
            filesystem, path = _by_fsspec(uri)
        except (pa.ArrowException, OSError) as error:
            raise DiskError(f"this file system cannot be reached: {first_line(error)}", path=uri) from error
        return cls(filesystem), PurePath(path)

    def listing(self, directory: PurePath) -> list[FileInfo]:
        selector = fs.FileSelector(directory.as_posix(), allow_not_found=True)
        with os_errors("list", Path(directory)):
            found = self.file_system.get_file_info(selector)
        infos = [
            FileInfo(
                each.base_name, each.size or 0, (each.mtime_ns or 0) // 1_000_000, each.type is fs.FileType.Directory
            )
            for each in found
        ]
        return sorted(infos, key=lambda info: info.name)

    def size(self, path: PurePath) -> int:
        with os_errors("look at", Path(path)):
            info = self.file_system.get_file_info(path.as_posix())
        if info.type is not fs.FileType.File:
            raise DiskError("there is no such file", path=path)
        return int(info.size)

    def view(self, path: PurePath, start: int, stop: int) -> memoryview:
        with os_errors("read", Path(path)), self.file_system.open_input_file(path.as_posix()) as file:
            check_range(path, file.size(), start, stop)
            view = memoryview(file.read_at(stop - start, start))
        if len(view) != stop - start:
            raise DiskError(f"{len(view)} bytes came instead of {stop - start}", path=path, offset=start)
        return view

    def data_end(self, path: PurePath, start: int) -> int:
        return self.size(path)


def _by_fsspec(uri: str) -> tuple[fs.FileSystem, str]:
    """A file system of fsspec, for a URI that pyarrow does not know."""
    try:
        import fsspec
    except ModuleNotFoundError as error:
        raise DiskError("pyarrow knows no such file system", path=uri, advice="pip install fsspec") from error
    try:
        found, path = fsspec.core.url_to_fs(uri)
    except (ValueError, ImportError, OSError) as error:
        raise DiskError(f"there is no such file system: {first_line(error)}", path=uri) from error
    return fs.PyFileSystem(fs.FSSpecHandler(found)), path
