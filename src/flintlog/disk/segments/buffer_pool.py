"""Write buffers that take appends in place of the page cache: RocketMQ's TransientStorePool.

Appends to a segment with a buffer go to plain memory, locked where that is allowed. A commit thread writes the bytes to
the file, and from then on readers see them. Uncommitted bytes are lost when the process dies: that is the price of this
option.

A buffer is cleared before it is reused, so that a file never holds another file's bytes after its last record (Java's
may).
"""

from __future__ import annotations

import logging
import threading
from functools import partial

from flintlog.disk.media.libc import MemoryMap
from flintlog.disk.segments.segment import WriteBuffer
from flintlog.errors import DiskError

log = logging.getLogger(__name__)


class TransientStorePool:
    """`count` buffers of one segment each. Any thread may borrow and give back."""

    def __init__(self, count: int, buffer_size: int) -> None:
        self.count = count
        self.buffer_size = buffer_size
        self.is_locked_in_memory = False
        self._lock = threading.Lock()
        self._free: list[MemoryMap] = []
        self._is_open = False

    def start(self) -> None:
        """Allocate the memory of all buffers."""
        try:
            buffers = [MemoryMap(self.buffer_size, None, writable=True) for _ in range(self.count)]
        except OSError as error:
            raise DiskError(f"no memory for {self.count} write buffers of {self.buffer_size} bytes") from error
        locked = [buffer.lock() for buffer in buffers]
        self.is_locked_in_memory = all(locked)
        if not self.is_locked_in_memory:
            log.warning("the system refuses to lock %d write buffers in memory", locked.count(False))
        with self._lock:
            self._free = buffers
            self._is_open = True

    @property
    def available_buffers(self) -> int:
        return len(self._free)

    def borrow(self) -> WriteBuffer | None:
        """A cleared buffer; None when all are in use."""
        with self._lock:
            if not self._free:
                return None
            buffer = self._free.pop()
        return WriteBuffer(buffer.buffer, partial(self._give_back, buffer))

    def _give_back(self, buffer: MemoryMap) -> None:
        if not self._is_open:
            return
        buffer.clear()
        with self._lock:
            if self._is_open:
                self._free.append(buffer)

    def shut_down(self) -> None:
        """Free the memory; borrowed buffers are freed with their segments."""
        with self._lock:
            self._is_open = False
            free, self._free = self._free, []
        for buffer in free:
            buffer.unlock()
