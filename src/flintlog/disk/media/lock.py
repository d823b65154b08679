"""The lock that prevents a second process, Java's or flintlog's, from opening a store for writing.

Java takes an exclusive fcntl lock on byte 0 of the file `lock`. A classic fcntl lock belongs to the process: a second
opening in the same process would succeed, and closing its descriptor would silently drop the first lock. So the lock is
taken on the open file description where the system supports that (F_OFD_SETLK). The two kinds exclude each other
between processes, including Java's.

The lock file can be deleted or replaced while it is locked, and then the next writer would lock another file. So the
store's directory is locked too (flock), which cannot be replaced without moving the store. Java does not know that
lock; it separates flintlog's own writers, whatever happens to the file.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from errno import EACCES, EAGAIN
from pathlib import Path

from flintlog.disk.media.medium import os_errors
from flintlog.errors import StoreInUse
from flintlog.format.names import LOCK

LOCK_TEXT = b"lock"
_ATTEMPTS = 100
"""Destroying a store deletes its lock file once. If the file is deleted this often, something else removes it."""


_LOOK_PATIENCE_S = 0.05
_LOOK_INTERVAL_S = 0.005
"""`is_locked` briefly takes the directory's lock shared; a writer that starts at that moment retries this long."""


class LocalLock:
    """Byte 0 of a file, locked until `release` or the end of the process; for a store's `lock`, its directory too."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = self._directory = -1
        for _ in range(_ATTEMPTS):
            self._open_and_take()
            if self._is_held():
                return
            self.release()
        raise StoreInUse("the lock file is deleted as fast as it is created", path=path, advice="find what deletes it")

    def _open_and_take(self) -> None:
        try:
            with os_errors("open the lock file", self.path):
                if self.path.name == LOCK:
                    self._directory = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                    self._take_directory()
                self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            self._take()
        except BaseException:
            self.release()
            raise

    def _is_held(self) -> bool:
        """Whether the locked files still have their names: a store may be destroyed just before it is locked."""
        held = [(self._descriptor, self.path)]
        if self._directory >= 0:
            held.append((self._directory, self.path.parent))
        try:
            return all(os.path.samestat(os.fstat(descriptor), os.stat(path)) for descriptor, path in held)
        except FileNotFoundError:
            return False

    def _take_directory(self) -> None:
        until = time.monotonic() + _LOOK_PATIENCE_S
        while not _flock(self._directory, fcntl.LOCK_EX):
            if time.monotonic() >= until:
                raise self._refused()
            time.sleep(_LOOK_INTERVAL_S)

    def _take(self) -> None:
        try:
            _lock_first_byte(self._descriptor)
        except OSError as error:
            if error.errno not in (EACCES, EAGAIN):
                raise
            raise self._refused() from error
        if os.pread(self._descriptor, len(LOCK_TEXT) + 1, 0) != LOCK_TEXT:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, LOCK_TEXT, 0)

    def _refused(self) -> StoreInUse:
        return StoreInUse("the store is in use", path=self.path, advice="stop the other process, or open it read-only")

    def release(self) -> None:
        """Release the lock; a second call does nothing, unless the first was interrupted."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
        directory, self._directory = self._directory, -1
        if directory >= 0:
            os.close(directory)


def _flock(directory: int, kind: int) -> bool:
    """Lock a directory; False when another process has it. Where the file system cannot (NFS), this does nothing."""
    try:
        fcntl.flock(directory, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _lock_first_byte(descriptor: int) -> None:
    command = getattr(fcntl, "F_OFD_SETLK", None)
    if command is None:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        return
    # struct flock: type, whence, start, length, and the process id, which must be 0 here.
    fcntl.fcntl(descriptor, command, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))


def is_locked(path: Path) -> bool:
    """Whether another process holds the store's lock; nothing is written or kept locked."""
    return _is_file_locked(path) or (path.name == LOCK and _is_directory_locked(path.parent))


def _is_file_locked(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        command = getattr(fcntl, "F_OFD_GETLK", None) or fcntl.F_GETLK
        asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        answer = fcntl.fcntl(descriptor, command, asked)
        return bool(struct.unpack_from("h", answer)[0] != fcntl.F_UNLCK)
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _is_directory_locked(directory: Path) -> bool:
    """Whether there is a writer whose lock file was deleted or replaced."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not _flock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)
