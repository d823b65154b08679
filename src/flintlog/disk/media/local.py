"""The real disk: files that are allocated before they are written, mapped, and synced without the GIL.

A new file is created without a name (O_TMPFILE), allocated, and linked under its name when it has its full size, so a
crash or a full disk in between leaves no file. Where the file system cannot do that, it is created in place and removed
if it cannot be allocated.

The names of new files and directories become durable with the first sync of the file, not at `create`. Otherwise a
store with 100,000 consume queues would wait for 100,000 directory syncs, and nothing may be acknowledged before its
file was synced anyway.
"""

from __future__ import annotations

import os
import shutil
import threading
from contextlib import suppress
from errno import EEXIST, EISDIR, ENOENT, ENOSYS, ENOTSUP, EOPNOTSUPP, EPERM, EXDEV
from operator import attrgetter
from pathlib import Path
from stat import S_IMODE, S_ISDIR

from flintlog.disk.media.libc import MemoryMap, sync_descriptor
from flintlog.disk.media.local_file import LocalFile, sync_failed
from flintlog.disk.media.lock import LocalLock
from flintlog.disk.media.map_cache import DEFAULT_MAX_MAPS, MapCache
from flintlog.disk.media.medium import MAX_SMALL_FILE_BYTES, DiskUsage, FileInfo, disk_error, os_errors
from flintlog.errors import DiskError, FlintlogError, SyncFailed

_NAMELESS_UNSUPPORTED = {EISDIR, ENOENT, ENOSYS, ENOTSUP, EOPNOTSUPP, EPERM, EXDEV}
_FILE_MODE = 0o644
_READ_AT_ONCE = 100
"""The system reads a directory in pieces of 32 KiB, which hold so many entries at least."""
_name_of = attrgetter("name")


class LocalMedium:
    """The file system of this machine. All methods may be called from any thread."""

    def __init__(self, max_maps: int = DEFAULT_MAX_MAPS) -> None:
        self.maps = MapCache(max_maps)
        self._fresh: set[Path] = set()  # files and directories that we created and whose names are not synced yet
        self._fresh_lock = threading.Lock()  # for every change of it; reading it needs none
        self._replace_lock = threading.Lock()

    def create(self, path: Path, size: int, allocated: int | None = None) -> LocalFile:
        """A new writable file of `size` zero bytes, the first ones allocated; raises if the name exists."""
        what = f"make a file of {size} bytes"
        if os.path.lexists(path):  # also true for a dangling link
            raise disk_error(FileExistsError(EEXIST, os.strerror(EEXIST)), what, path)
        self._note_fresh(path)
        try:
            with os_errors(what, path):
                descriptor = self._make_allocated(path, size, size if allocated is None else min(allocated, size))
                try:
                    status = os.fstat(descriptor)
                    mapping = MemoryMap(size, descriptor, writable=True)
                finally:
                    os.close(descriptor)
            return LocalFile(path, mapping, self._sync_name, status)
        except BaseException as failure:
            # Also if a signal handler raised: no caller will know of this file. A file that existed before is not ours.
            if not isinstance(failure.__cause__, FileExistsError):
                with suppress(FlintlogError):
                    self.remove(path)
            raise

    def _make_allocated(self, path: Path, size: int, allocated: int) -> int:
        try:
            return _make_nameless(path, size, allocated)
        except OSError as error:
            if error.errno not in _NAMELESS_UNSUPPORTED:
                raise
        return _make_in_place(path, size, allocated)

    def open(self, path: Path, writable: bool = False, *, in_steps: bool = False) -> LocalFile:
        """Map an existing file. If it is writable, its holes are allocated first, or `in_steps` by the caller.

        Otherwise writing to a hole on a full disk would kill the process.
        """
        with os_errors("open", path):
            descriptor = os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)
            try:
                status = os.fstat(descriptor)
                if writable and not in_steps and status.st_size > status.st_blocks * 512:
                    os.posix_fallocate(descriptor, 0, status.st_size)
                mapping = MemoryMap(status.st_size, descriptor, writable=writable)
            finally:
                os.close(descriptor)
        return LocalFile(path, mapping, self._sync_name, status)

    def sync(self, path: Path) -> None:
        with os_errors("open to sync", path):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            sync_descriptor(descriptor)
            self._sync_name(path)
        except OSError as error:
            raise sync_failed(error, path) from error
        finally:
            os.close(descriptor)

    def listing(self, directory: Path) -> list[FileInfo]:
        # Without `os_errors`: opening a store of 100,000 queues lists 100,000 directories.
        try:
            found = _entries(directory)
            if len(found) > _READ_AT_ONCE:
                # Files may be made meanwhile, and a later one be seen without the one before it. Those that were made
                # before the second reading began are all in it.
                last = found[-1].name
                found = [info for info in _entries(directory) if info.name <= last]
            return found
        except FileNotFoundError:
            return []
        except OSError as error:
            raise disk_error(error, "list", directory) from error

    def stat(self, path: Path) -> FileInfo | None:
        with os_errors("look at", path):
            try:
                return _file_info(path.name, os.stat(path))
            except FileNotFoundError:
                return None

    def exists(self, path: Path) -> bool:
        return os.path.exists(path)

    def read(self, path: Path, limit: int = MAX_SMALL_FILE_BYTES) -> bytes:
        with os_errors("read", path), open(path, "rb") as file:
            data = file.read(limit + 1)
        if len(data) > limit:
            raise DiskError(f"the file is longer than {limit} bytes", path=path)
        return data

    def head(self, path: Path, size: int) -> bytes:
        # Without `os_errors`: a store of 100,000 queues calls this 100,000 times.
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                return os.read(descriptor, size)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise disk_error(error, "read", path) from error

    def write(self, path: Path, data: bytes) -> None:
        with os_errors("write", path):
            if not path.exists():
                self._note_fresh(path)
            with open(path, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            self._sync_name(path)

    def replace(self, path: Path, data: bytes) -> None:
        target = Path(os.path.realpath(path))  # a link stays a link
        temporary = target.with_name(f".{target.name}.flintlog-new")
        with self._replace_lock, os_errors("replace", path):
            try:
                _write_like(temporary, data, target)
                os.rename(temporary, target)
            except BaseException:
                with suppress(FileNotFoundError):
                    os.unlink(temporary)
                raise
            self._note_fresh(target)
            self._sync_name(target)

    def rename(self, source: Path, target: Path) -> None:
        with os_errors(f"rename to {target}", source):
            os.rename(source, target)
        if source in self._fresh:
            self._forget_fresh(source)
            self._note_fresh(target)

    def remove(self, path: Path) -> None:
        with os_errors("remove", path), suppress(FileNotFoundError):
            os.unlink(path)
        self._forget_fresh(path)

    def remove_tree(self, path: Path) -> None:
        with os_errors("remove", path), suppress(FileNotFoundError):
            if path.is_symlink():
                path.unlink()
            else:
                shutil.rmtree(path)
        with self._fresh_lock:  # other threads create files meanwhile
            self._fresh -= {made for made in self._fresh if made.is_relative_to(path)}

    def make_directories(self, path: Path) -> None:
        with os_errors("make the directory", path):
            missing = []
            current = path
            while not current.exists():
                missing.append(current)
                current = current.parent
            os.makedirs(path, exist_ok=True)
            self._note_fresh(*missing)

    def sync_directory(self, path: Path) -> None:
        try:
            _sync_directory(path)
        except OSError as error:
            raise SyncFailed(f"the directory was not synced: {error.strerror}", path=path) from error

    def usage(self, path: Path) -> DiskUsage:
        """Space of the partition; `free` is the space for users without privileges."""
        with os_errors("ask for the space", path):
            status = os.statvfs(path)
        free = status.f_bavail * status.f_frsize
        used = (status.f_blocks - status.f_bfree) * status.f_frsize
        return DiskUsage(status.f_blocks * status.f_frsize, free, used / (used + free) if used + free else -1.0)

    def lock(self, path: Path) -> LocalLock:
        return LocalLock(path)

    def _sync_name(self, path: Path) -> None:
        """Make the name of a file durable if we created it, and those of directories above that we created."""
        while path in self._fresh:
            _sync_directory(path.parent)
            self._forget_fresh(path)
            path = path.parent

    def _note_fresh(self, *paths: Path) -> None:
        with self._fresh_lock:
            self._fresh.update(paths)

    def _forget_fresh(self, path: Path) -> None:
        with self._fresh_lock:
            self._fresh.discard(path)


def odd_names(directory: Path) -> dict[str, str]:
    """Names in a local directory that are no file, each with what it is instead."""
    found: dict[str, str] = {}
    with suppress(OSError):
        for name in sorted(os.listdir(directory)):
            path = directory / name
            if not os.path.exists(path):
                found[name] = "a link that leads nowhere"
            elif os.path.isdir(path):
                found[name] = "a directory"
    return found


def _make_nameless(path: Path, size: int, allocated: int) -> int:
    flag = getattr(os, "O_TMPFILE", None)
    if flag is None:
        raise OSError(ENOTSUP, os.strerror(ENOTSUP))
    descriptor = os.open(path.parent, flag | os.O_RDWR | os.O_CLOEXEC, _FILE_MODE)
    try:
        _allocate(descriptor, size, allocated)
        directory = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:  # linkat follows the link in /proc only with a directory descriptor
            os.link(f"/proc/self/fd/{descriptor}", path.name, dst_dir_fd=directory, follow_symlinks=True)
        finally:
            os.close(directory)
    finally:
        os.close(descriptor)
    # Opened again by name, because tools that list maps show a map of the nameless descriptor as deleted.
    return os.open(path, os.O_RDWR | os.O_CLOEXEC)


def _make_in_place(path: Path, size: int, allocated: int) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE_MODE)
    try:
        _allocate(descriptor, size, allocated)
    except BaseException:
        os.close(descriptor)
        os.unlink(path)
        raise
    return descriptor


def _allocate(descriptor: int, size: int, allocated: int) -> None:
    if allocated > 0:
        os.posix_fallocate(descriptor, 0, allocated)
    if allocated < size:
        os.ftruncate(descriptor, size)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_like(temporary: Path, data: bytes, target: Path) -> None:
    """Write and sync a file with the owner and the mode of the file that it will replace."""
    with open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        with suppress(FileNotFoundError):
            status = os.stat(target)
            with suppress(PermissionError):
                os.fchown(file.fileno(), status.st_uid, status.st_gid)
            os.fchmod(file.fileno(), S_IMODE(status.st_mode))
        os.fsync(file.fileno())


def _entries(directory: Path) -> list[FileInfo]:
    with os.scandir(directory) as entries:
        found = [_entry_info(entry) for entry in entries]
    return sorted((info for info in found if info is not None), key=_name_of)


def _entry_info(entry: os.DirEntry[str]) -> FileInfo | None:
    """The facts of an entry; None when another process deleted it meanwhile."""
    try:
        return _file_info(entry.name, entry.stat())
    except FileNotFoundError:
        return None


def _file_info(name: str, status: os.stat_result) -> FileInfo:
    return FileInfo(name, status.st_size, status.st_mtime_ns // 1_000_000, S_ISDIR(status.st_mode))
