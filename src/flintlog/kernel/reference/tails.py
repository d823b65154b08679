"""The growing end of a file, and of a consume queue.

A `Tail` is a buffer (one segment), the offset of its first byte, and the position after the last byte written. One
thread at a time moves it forward. Other threads may read `position` and `end` at any time: bytes are in place before
the position passes them.
"""

from __future__ import annotations

from collections.abc import Callable

from flintlog.errors import StoreClosed
from flintlog.format.record import END_RESERVE
from flintlog.kernel.types import Buffer, Moves


class Tail:
    """Where the next record or entry of one file goes.

    Invariant: 0 <= position <= capacity, as long as the buffer is held.
    """

    __slots__ = ("_buffer", "_position", "_view", "allocate", "allocated", "base", "store_timestamp")

    has_file = False
    is_through_file = False
    """Whether the last append was written through the file; in this kernel none is."""

    def __init__(self, buffer: Buffer, base: int, position: int = 0) -> None:
        self._buffer: Buffer | None = buffer
        self._view: memoryview | None = memoryview(buffer).cast("B")
        self.base = base
        self.store_timestamp = 0
        self.allocated = self.capacity
        """How many bytes of the file may be written. `allocate` gets space for more, and says for how many."""
        self.allocate: Callable[[int], int] | None = None
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
        self._view = self._buffer = self.allocate = None
        self.allocated = 0

    def make_room(self, size: int) -> None:
        """Get space on the disk for so many bytes at the position. Raises `DiskFull`, and nothing is changed."""
        stop = self._position + size
        if stop > self.allocated and self.allocate is not None:
            self.allocated = self.allocate(stop)

    def take_file(self, descriptor: int) -> bool:
        """Returns False: this kernel does not take the descriptor, and its caller closes it.

        The native kernel writes large batches through it and closes it with the tail.
        """
        return False

    def prefer_file(self) -> None:
        """Does nothing: this kernel never writes through the file."""

    def leave_file(self) -> None:
        """Does nothing: this kernel never writes through the file."""

    def _append(self, records: bytes, store_timestamp: int, moves: Moves | None = None) -> None:
        """Append records in their order, the first 8 bytes of each last."""
        self.make_room(len(records) + END_RESERVE)
        view, position = self._writable(), self._position
        start = 0
        while start < len(records):
            end = start + int.from_bytes(records[start : start + 4])
            view[position + start + 8 : position + end] = records[start + 8 : end]
            view[position + start : position + start + 8] = records[start : start + 8]
            start = end
        table, new, other_table, other_new = moves or ({}, {}, {}, {})
        end = position + len(records)
        # No call and no loop from here on: only there could a signal handler's exception interrupt these lines.
        self.store_timestamp = store_timestamp
        self._position = end
        table |= new
        other_table |= other_new

    def _writable(self) -> memoryview:
        """The bytes to write into; raises when they were released or are read-only."""
        if self._view is None:
            raise StoreClosed("the file's buffer was released")
        if self._view.readonly:
            raise StoreClosed("the file's buffer is read-only")
        return self._view

    def _room(self) -> memoryview | None:
        """The bytes to write into, or None when they were released or are read-only."""
        return None if self._view is None or self._view.readonly else self._view


class QueueEnd:
    """The growing end of one consume queue: its last file, and the end of the last record that has an entry.

    `record_bytes` is the size of all records whose entries were appended in this process.
    """

    __slots__ = ("max_physical_offset", "record_bytes", "tail")

    def __init__(self, tail: Tail | None, max_physical_offset: int = -1) -> None:
        self.tail = tail
        self.max_physical_offset = max_physical_offset
        self.record_bytes = 0
