"""The extension of a consume queue: what does not fit into 20 bytes (the filter bitmap of a message).

A queue with extension keeps the *address* of a unit in the tags code of its entry; the unit holds the tags
code itself. Units lie one after another and never span files: where the next one does not fit, the
file ends with a unit size of -1.

Invariant: a unit is complete before its address is given out, and is never changed. An address is the
unit's byte offset minus 2^63, far below any tags code of 32 bits.
"""

from __future__ import annotations

import struct
from typing import Final

from flintlog.disk.segment import Segment
from flintlog.disk.segment_queue import SegmentQueue
from flintlog.format.queue_extension import QueueExtension

_UNIT = struct.Struct(">hqqh")
_UNIT_SIZE = struct.Struct(">h")
_BITMAP_AT: Final = _UNIT.size
_MAX_UNIT_SIZE: Final = 32767
_END_MARK: Final = -1
_END_RESERVE: Final = 4
_MAX_TRIES: Final = 3
_ADDRESS_BASE: Final = -(2**63)
_MAX_ADDRESS: Final = -(2**31) - 1
_MAX_OFFSET: Final = _MAX_ADDRESS - _ADDRESS_BASE
_FORCE_DELETE_AFTER_MS: Final = 1_000


def is_address(tags_code: int) -> bool:
    """Whether a queue entry's tags code is the address of an extension unit."""
    return tags_code <= _MAX_ADDRESS


class ConsumeQueueExt:
    """The extension units of one queue. Written by the dispatching thread alone."""

    def __init__(self, segments: SegmentQueue) -> None:
        self.segments = segments

    def load(self) -> None:
        """Find the files."""
        self.segments.load()

    def put(self, tags_code: int, store_timestamp: int, bitmap: bytes | None = None) -> int:
        """Append a unit; its address, or the tags code itself when it could not be stored."""
        bitmap = bitmap or b""
        size = _BITMAP_AT + len(bitmap)
        if size > _MAX_UNIT_SIZE or self.segments.max_wrote + size > _MAX_OFFSET:
            return tags_code
        segment = self._segment_with_room(size)
        if segment is None:
            return tags_code
        tail = segment.tail
        position = tail.position
        _UNIT.pack_into(tail.buffer, position, size, tags_code, store_timestamp, len(bitmap))
        tail.buffer[position + _BITMAP_AT : position + size] = bitmap
        tail.position = position + size
        return segment.base + position + _ADDRESS_BASE

    def _segment_with_room(self, size: int) -> Segment | None:
        for _ in range(_MAX_TRIES):
            segment = self.segments.last_or_new(0)
            if segment is None:
                return None
            if size <= segment.size - segment.wrote_position - _END_RESERVE:
                return segment
            self._close(segment)
        return None

    @staticmethod
    def _close(segment: Segment) -> None:
        """Mark the end of the units, and the file as full."""
        tail = segment.tail
        if tail.position + _UNIT_SIZE.size <= segment.size:
            _UNIT_SIZE.pack_into(tail.buffer, tail.position, _END_MARK)
        tail.position = segment.size

    def get(self, address: int) -> QueueExtension | None:
        """The unit at an address; None when there is none."""
        if not is_address(address):
            return None
        offset = address - _ADDRESS_BASE
        segment = self.segments.find(offset)
        selected = None if segment is None else segment.select(offset - segment.base)
        if selected is None:
            return None
        with selected:
            view = selected.view
            if len(view) < _BITMAP_AT:
                return None
            size, tags_code, store_timestamp, bitmap_size = _UNIT.unpack_from(view)
            if size < 1 or bitmap_size < 0 or _BITMAP_AT + bitmap_size > len(view):
                return None
            return QueueExtension(tags_code, store_timestamp, bytes(view[_BITMAP_AT : _BITMAP_AT + bitmap_size]))

    def recover(self) -> None:
        """Walk the units of all files, and cut behind the last."""
        end = None
        for segment in self.segments.segments:
            selected = segment.select(0)
            if selected is None:
                end = segment.base
                continue
            with selected:
                end = segment.base + _units_end(selected.view)
        if end is not None:
            self._cut(end)

    def truncate_behind(self, address: int | None) -> None:
        """Drop the units behind the one at this address: no entry refers to them."""
        unit = None if address is None else self.get(address)
        if address is not None and unit is not None:
            self._cut(address - _ADDRESS_BASE + unit_size(unit))

    def truncate_before(self, address: int, now_ms: int) -> None:
        """Delete the files that end before this address."""
        if is_address(address):
            self.segments.delete_before(
                address - _ADDRESS_BASE, now_ms=now_ms, force_after_ms=_FORCE_DELETE_AFTER_MS
            )

    def _cut(self, end: int) -> None:
        self.segments.truncate(end)
        self.segments.flushed_where = end
        self.segments.committed_where = end

    def flush(self, least_pages: int) -> bool:
        """Make data durable; True when nothing was left to do."""
        return self.segments.flush(least_pages)

    def destroy(self) -> None:
        """Delete every file."""
        self.segments.destroy()


def unit_size(unit: QueueExtension) -> int:
    """How many bytes a unit takes."""
    return _BITMAP_AT + len(unit.bitmap)


def _units_end(view: memoryview) -> int:
    """The end of the last whole unit; a file that was closed ends before its mark."""
    position = 0
    while position + _BITMAP_AT <= len(view):
        (size,) = _UNIT_SIZE.unpack_from(view, position)
        if size < _BITMAP_AT or position + size > len(view):
            break
        position += size
    return position
