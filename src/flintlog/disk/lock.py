"""The lock that keeps a second process, Java's or ours, out of a store.

Java takes an exclusive fcntl lock on byte 0 of the file `lock`. A classic fcntl lock belongs to the process: a
second opening in the same process would succeed, and closing its descriptor would silently drop
the first one's lock. So the lock is taken on the open file description where the system has that
(F_OFD_SETLK); against other processes, Java's included, the two kinds exclude each other.
"""

from __future__ import annotations

import fcntl
import os
import struct
from errno import EACCES, EAGAIN
from pathlib import Path

from flintlog.disk.medium import os_errors
from flintlog.errors import StoreInUse

LOCK_TEXT = b"lock"
_ATTEMPTS = 100
"""A destroyed store takes its lock file along, once; whoever loses it so often is not beside a store that ends."""


class LocalLock:
    """Byte 0 of a file, locked until `release` or the end of the process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1
        for _ in range(_ATTEMPTS):
            self._open_and_take()
            if self._is_held():
                return
            self.release()
        raise StoreInUse("the lock file goes away as fast as it is made", path=path, advice="who removes it?")

    def _open_and_take(self) -> None:
        with os_errors("open the lock file", self.path):
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self._take()
        except BaseException:
            self.release()
            raise

    def _is_held(self) -> bool:
        """Whether the locked file still has its name: a store may have been destroyed before it was locked."""
        try:
            return os.path.samestat(os.fstat(self._descriptor), os.stat(self.path))
        except FileNotFoundError:
            return False

    def _take(self) -> None:
        try:
            _lock_first_byte(self._descriptor)
        except OSError as error:
            if error.errno not in (EACCES, EAGAIN):
                raise
            raise StoreInUse(
                "the store is in use", path=self.path, advice="stop the other process, or open it read-only"
            ) from error
        if os.pread(self._descriptor, len(LOCK_TEXT) + 1, 0) != LOCK_TEXT:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, LOCK_TEXT, 0)

    def release(self) -> None:
        """Give the lock up; a second call does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _lock_first_byte(descriptor: int) -> None:
    command = getattr(fcntl, "F_OFD_SETLK", None)
    if command is None:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        return
    # struct flock: type, whence, start, length, and the process id, which must be 0 here.
    fcntl.fcntl(descriptor, command, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))


def is_locked(path: Path) -> bool:
    """Whether another process holds the store's lock; nothing is taken, and nothing written."""
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
