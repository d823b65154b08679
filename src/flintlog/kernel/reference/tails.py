"""The growing end of a file, and of a consume queue.

A `Tail` is a buffer (one segment), the offset of its first byte, and the position behind the last byte
written. One thread at a time moves it forward; others may read `position` and `end` whenever they like,
because bytes are in place before the position passes them.
"""

from __future__ import annotations

import contextlib
import os
import threading

from flintlog.errors import StoreClosed
from flintlog.kernel.types import Buffer

_THROUGH_FILE = range(16 * 1024, 256 * 1024 + 1)
"""Batches of so many bytes are written through the file: less is sooner copied into pages that are ready."""


class Tail:
    """Where the next record or entry of one file goes.

    Invariant: 0 <= position <= capacity, as long as the buffer is held.
    """

    __slots__ = (
        "_buffer",
        "_descriptor",
        "_file_lock",
        "_position",
        "_view",
        "base",
        "is_through_file",
        "store_timestamp",
    )

    def __init__(self, buffer: Buffer, base: int, position: int = 0) -> None:
        self.is_through_file = False
        """Whether what was appended last was written through the file."""
        self._descriptor = -1
        self._file_lock = threading.Lock()  # a number that was closed while it is written to may be another file's
        self._buffer: Buffer | None = buffer
        self._view: memoryview | None = memoryview(buffer).cast("B")
        self.base = base
        self.store_timestamp = 0
        self.position = position

    @property
    def buffer(self) -> Buffer | None:
        """The buffer that was given; None after `release`."""
        return self._buffer

    @property
    def position(self) -> int:
        return self._position

    @position.setter
    def position(self, position: int) -> None:
        if not 0 <= position <= self.capacity:
            raise ValueError(f"position {position} is outside of a file of {self.capacity} bytes")
        self._position = position
        self.is_through_file = False

    @property
    def capacity(self) -> int:
        """The bytes of the file; 0 after `release`."""
        return 0 if self._view is None else self._view.nbytes

    @property
    def end(self) -> int:
        """The offset of the next byte in the whole log or queue."""
        return self.base + self._position

    def release(self) -> None:
        """Give the buffer back, so that its mapping can be closed. The position stays readable."""
        if self._view is not None:
            self._view.release()
        self._view = self._buffer = None
        self.leave_file()

    def __del__(self) -> None:
        if hasattr(self, "_file_lock"):
            self.leave_file()

    @property
    def has_file(self) -> bool:
        return self._descriptor >= 0

    def take_file(self, descriptor: int) -> None:
        """From now on write large batches through this descriptor of the buffer's file; it is closed with the tail.

        The first write to a page of a mapped file traps into the kernel, which may cost several times as much as a call
        that brings many pages.
        """
        if self.has_file or self._view is None:
            raise StoreClosed("the file's buffer was released, or has a descriptor")
        self._descriptor = descriptor

    def leave_file(self) -> None:
        """Write no more through the file: close it."""
        with self._file_lock:
            descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with contextlib.suppress(OSError):  # nothing that was written there is known from this
                os.close(descriptor)

    def _append(self, records: bytes, store_timestamp: int, *, through_file: bool = False) -> None:
        """Put records behind the last one, their first 8 bytes last; through the file, if one takes them."""
        position = self._position
        self.is_through_file = through_file and len(records) in _THROUGH_FILE and self._write(records)
        view = self._writable()
        if not self.is_through_file:
            view[position + 8 : position + len(records)] = records[8:]
            view[position : position + 8] = records[:8]
        self.store_timestamp = store_timestamp
        self._position += len(records)

    def _write(self, records: bytes) -> bool:
        """Whether the file took them. Who releases the tail waits for the end of this."""
        rest, place = records[8:], self._position + 8
        with self._file_lock, contextlib.suppress(OSError):
            return (
                self.has_file
                and os.pwrite(self._descriptor, rest, place) == len(rest)
                and os.pwrite(self._descriptor, records[:8], self._position) == 8
            )
        return False

    def _writable(self) -> memoryview:
        """The bytes to write into, for the kernel's own use."""
        if self._view is None:
            raise StoreClosed("the file's buffer was released")
        if self._view.readonly:
            raise StoreClosed("the file's buffer is read-only")
        return self._view

    def _room(self) -> memoryview | None:
        """The writable bytes, or None when there are none to be had."""
        return None if self._view is None or self._view.readonly else self._view


class QueueEnd:
    """The growing end of one consume queue: its last file, how far into the log it goes, and what it took in.

    `record_bytes` is the size of all records whose entries were appended in this process.
    """

    __slots__ = ("max_physical_offset", "record_bytes", "tail")

    def __init__(self, tail: Tail | None, max_physical_offset: int = -1) -> None:
        self.tail = tail
        self.max_physical_offset = max_physical_offset
        self.record_bytes = 0
