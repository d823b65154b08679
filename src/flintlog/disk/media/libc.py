"""Memory maps straight from the C library.

Python's own `mmap` keeps a file descriptor for each map and holds the GIL while it flushes. A store may have tens of
thousands of maps, so here a map owns no descriptor, and every call that may wait for the disk runs without the GIL.

A map is unmapped with its last memoryview, never before, so a reader's view never causes a segmentation fault.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import weakref
from errno import EBADF
from functools import cache

MS_SYNC = 0x10 if sys.platform == "darwin" else 4
MADV_POPULATE_WRITE = 23
_FALLOC_FL_ZERO_RANGE = 0x10
_WRITE_AND_WAIT = 7  # SYNC_FILE_RANGE_WAIT_BEFORE, _WRITE, _WAIT_AFTER
_MAP_FAILED = ctypes.c_void_p(-1).value


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    libc.mmap.restype = pointer
    libc.mmap.argtypes = [pointer, size, number, number, number, ctypes.c_long]
    libc.munmap.argtypes = [pointer, size]
    libc.msync.argtypes = [pointer, size, number]
    libc.madvise.argtypes = [pointer, size, number]
    libc.mlock.argtypes = [pointer, size]
    libc.munlock.argtypes = [pointer, size]
    libc.memset.argtypes = [pointer, number, size]
    libc.fallocate.argtypes = [number, number, ctypes.c_long, ctypes.c_long]
    if hasattr(libc, "sync_file_range"):  # Linux
        libc.sync_file_range.argtypes = [number, ctypes.c_long, ctypes.c_long, ctypes.c_uint]
    return libc


def _last_error() -> OSError:
    code = ctypes.get_errno()
    return OSError(code, os.strerror(code))


def zero_range(descriptor: int, start: int, length: int) -> None:
    """Set a range of a file to zero without writing it; raises OSError if the file system cannot do that."""
    if _libc().fallocate(descriptor, _FALLOC_FL_ZERO_RANGE, start, length):
        raise _last_error()


def sync_descriptor(descriptor: int) -> None:
    """Make all bytes of an open file durable, also those of other processes; read-only is enough. Raises OSError."""
    getattr(os, "fdatasync", os.fsync)(descriptor)  # macOS has no fdatasync


def write_out(descriptor: int, start: int, length: int) -> bool:
    """Write the dirty pages of a range and wait for that; they are not durable yet. False where it is not possible.

    A failure is reported again by a sync through another descriptor or a map.
    """
    libc = _libc()
    return hasattr(libc, "sync_file_range") and not libc.sync_file_range(descriptor, start, length, _WRITE_AND_WAIT)


def scratch_memory(size: int) -> memoryview:
    """So many zero bytes; the system provides memory only for the pages that are written."""
    return MemoryMap(size, None, writable=True).buffer


class MemoryMap:
    """A map of a whole file, or anonymous memory when `descriptor` is None. The descriptor may be closed at once.

    A map is shared with all processes, unless it is `private`: then writes stay in this process.
    """

    __slots__ = ("_address", "buffer", "is_writable", "size")

    def __init__(self, size: int, descriptor: int | None, *, writable: bool, private: bool = False) -> None:
        self.size = size
        self.is_writable = writable
        if size == 0:
            self._address = 0
            self.buffer = memoryview(b"")
            return
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        flags = mmap.MAP_PRIVATE if private or descriptor is None else mmap.MAP_SHARED
        flags |= mmap.MAP_ANONYMOUS if descriptor is None else 0
        address = _libc().mmap(None, size, protection, flags, -1 if descriptor is None else descriptor, 0)
        if address is None or address == _MAP_FAILED:
            raise _last_error()
        self._address = int(address)
        cells = (ctypes.c_ubyte * size).from_address(address)
        weakref.finalize(cells, _libc().munmap, address, size).atexit = False
        view = memoryview(cells).cast("B")
        self.buffer = view if writable else view.toreadonly()

    def _pages(self, start: int, stop: int) -> tuple[int, int]:
        """Address and length of the pages that hold the bytes from start to stop."""
        start = max(0, start) // mmap.PAGESIZE * mmap.PAGESIZE
        return self._address + start, max(0, min(stop, self.size) - start)

    def sync(self, start: int, stop: int) -> None:
        """Write dirty pages of the range and wait for the disk; raises OSError.

        Unlike `fdatasync` this does not write the pages that were touched ahead of the writer. Only for a writable map:
        through a read-only one Linux syncs nothing but reports success, even if another process left dirty pages.
        """
        if not self.is_writable:
            raise OSError(EBADF, "a read-only map syncs nothing")
        address, length = self._pages(start, stop)
        if length and _libc().msync(address, length, MS_SYNC):
            raise _last_error()

    def advise(self, advice: int, start: int, stop: int) -> bool:
        """madvise; False when the system refused."""
        address, length = self._pages(start, stop)
        return length == 0 or _libc().madvise(address, length, advice) == 0

    def lock(self) -> bool:
        """mlock the whole map; False when that is not allowed."""
        return self.size == 0 or _libc().mlock(self._address, self.size) == 0

    def unlock(self) -> bool:
        """munlock the whole map."""
        return self.size == 0 or _libc().munlock(self._address, self.size) == 0

    def clear(self) -> None:
        """Set every byte to zero, without the GIL."""
        if self.size:
            _libc().memset(self._address, 0, self.size)
