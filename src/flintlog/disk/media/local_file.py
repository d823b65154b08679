"""One file of the real disk: mapped in full, synced and prepared without the GIL.

Its map needs no descriptor. One is opened to write through the file, and briefly for other calls to the file system. If
another file has the name by then, it is not written. After a failed sync, every later sync fails.

Reasons and costs: docs/decisions/0007.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from errno import ENOSYS, ENOTSUP, ENXIO, EOPNOTSUPP, ESTALE
from pathlib import Path

from flintlog.disk.media.libc import MADV_POPULATE_WRITE, MemoryMap, sync_descriptor, write_out, zero_range
from flintlog.disk.media.medium import Advice, check_range, os_errors
from flintlog.errors import DiskError, SyncFailed

_ADVICE = {
    Advice.NORMAL: mmap.MADV_NORMAL,
    Advice.RANDOM: mmap.MADV_RANDOM,
    Advice.SEQUENTIAL: mmap.MADV_SEQUENTIAL,
    Advice.WILL_NEED: mmap.MADV_WILLNEED,
    Advice.DONT_NEED: mmap.MADV_DONTNEED,
}
_CLEAR_STEP_BYTES = 65_536


class LocalFile:
    """One mapped file. Any thread may sync it while another one writes its buffer."""

    def __init__(
        self, path: Path, mapping: MemoryMap, sync_name: Callable[[Path], None], status: os.stat_result
    ) -> None:
        """`status` is that of the file when it was mapped."""
        self._identity = status.st_dev, status.st_ino
        self.path = path
        self.size = mapping.size
        self._mapping: MemoryMap | None = mapping
        self._sync_name = sync_name
        self._sync_failure: SyncFailed | None = None
        self._descriptor = -1

    @property
    def buffer(self) -> memoryview:
        return self._map().buffer

    def _map(self) -> MemoryMap:
        if self._mapping is None:
            raise DiskError("the file was closed", path=self.path)
        return self._mapping

    def sync(self, start: int = 0, stop: int | None = None) -> None:
        if self._sync_failure is not None:
            raise self._sync_failure
        mapping = self._map()
        try:
            if mapping.is_writable:
                mapping.sync(start, self.size if stop is None else stop)
            else:
                self._sync_by_descriptor()
            self._sync_name(self.path)
        except OSError as error:
            self._sync_failure = sync_failed(error, self.path, start)
            raise self._sync_failure from error

    def _sync_by_descriptor(self) -> None:
        descriptor = self._open_again(os.O_RDONLY)
        try:
            sync_descriptor(descriptor)
        finally:
            os.close(descriptor)

    def write_at(self, position: int, data: memoryview) -> None:
        check_range(self.path, self.size, position, position + len(data))
        with os_errors("write", self.path):
            descriptor = self._open_descriptor()
            while data:
                count = os.pwrite(descriptor, data, position)
                data, position = data[count:], position + count

    def allocate(self, start: int, stop: int) -> None:
        check_range(self.path, self.size, start, stop)
        if start == stop:
            return
        with os_errors(f"make room for {stop - start} bytes", self.path):
            descriptor = self._open_again()
            try:
                os.posix_fallocate(descriptor, start, stop - start)
            finally:
                os.close(descriptor)

    def clear(self, start: int, stop: int) -> None:
        check_range(self.path, self.size, start, stop)
        if start == stop:
            return
        with os_errors("clear", self.path):
            try:
                zero_range(self._open_descriptor(), start, stop - start)
            except OSError as error:
                if error.errno not in (ENOTSUP, EOPNOTSUPP, ENOSYS):
                    raise
                clear_by_writing(self.buffer, start, stop)

    def _open_descriptor(self) -> int:
        if self._descriptor < 0:
            self._descriptor = self._open_again()
        return self._descriptor

    def _open_again(self, access: int = os.O_RDWR) -> int:
        """Open the mapped file again, by default for writing; raises OSError when another file has its name."""
        descriptor = os.open(self.path, access | os.O_CLOEXEC)
        status = os.fstat(descriptor)
        if (status.st_dev, status.st_ino) != self._identity:
            os.close(descriptor)
            raise OSError(ESTALE, os.strerror(ESTALE), str(self.path))
        return descriptor

    def new_descriptor(self) -> int:
        try:
            return self._open_again()
        except OSError:
            return -1

    def data_end(self, start: int) -> int:
        with os_errors("look for data", self.path):
            descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                return min(_data_end(descriptor, start), self.size)
            finally:
                os.close(descriptor)

    def touch(self, start: int, stop: int) -> bool:
        mapping = self._mapping
        return mapping is not None and mapping.advise(MADV_POPULATE_WRITE, start, stop)

    def prepare(self, start: int, stop: int) -> bool:
        """Remove two causes of slow syncs of a few pages, ahead of the writer.

        Pages from readahead belong to larger folios, and a sync writes the whole folio. And allocated space that was
        never written needs a commit of the file system's journal when it is first written, for which the sync would
        wait. So pages are faulted in one by one, and their zeros are written once.
        """
        mapping = self._mapping
        if mapping is None:
            return False
        mapping.advise(mmap.MADV_RANDOM, start, stop)
        try:
            return self.touch(start, stop) and self._write_out(start, stop) and self.touch(start, stop)
        finally:
            mapping.advise(mmap.MADV_NORMAL, start, stop)

    def _write_out(self, start: int, stop: int) -> bool:
        # Through its own descriptor: each reports a failed write once, and the report to the map is for `sync`.
        try:
            descriptor = self._open_again()
        except OSError:
            return False
        try:
            return write_out(descriptor, start, stop - start)
        finally:
            os.close(descriptor)

    def advise(self, advice: Advice, start: int = 0, stop: int | None = None) -> bool:
        mapping = self._mapping
        return mapping is not None and mapping.advise(_ADVICE[advice], start, self.size if stop is None else stop)

    def lock_memory(self) -> bool:
        return self._mapping is not None and self._mapping.lock()

    def unlock_memory(self) -> bool:
        return self._mapping is not None and self._mapping.unlock()

    def close(self) -> None:
        self._mapping = None
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def sync_failed(error: OSError, path: Path, offset: int | None = None) -> SyncFailed:
    """flintlog's error for a sync that failed in the operating system."""
    return SyncFailed(
        f"the disk did not take the data: {error.strerror}",
        path=path,
        offset=offset,
        advice="pages may be lost: restart the store so that it recovers",
    )


def clear_by_writing(buffer: memoryview, start: int, stop: int) -> None:
    """Write zeros only where other bytes are, so that unused pages do not become dirty."""
    zeros = bytes(_CLEAR_STEP_BYTES)
    for position in range(start, stop, _CLEAR_STEP_BYTES):
        part = buffer[position : min(position + _CLEAR_STEP_BYTES, stop)]
        if bytes(part) != zeros[: len(part)]:
            part[:] = zeros[: len(part)]


def _data_end(descriptor: int, start: int) -> int:
    """The end of the last data; space that was allocated but never written is a hole, not data."""
    end = start
    while True:
        try:
            end = os.lseek(descriptor, os.lseek(descriptor, end, os.SEEK_DATA), os.SEEK_HOLE)
        except OSError as error:
            if error.errno == ENXIO:  # only a hole up to the end
                return end
            raise
