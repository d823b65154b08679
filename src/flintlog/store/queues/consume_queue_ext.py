"""The extension of a consume queue: the filter bitmap of a message, which does not fit into 20 bytes.

A queue with extension keeps the *address* of a unit in the tags code of its entry; the unit holds the tags code itself.
Units lie one after another and never span files: if the next one does not fit, the file ends with a mark. The bytes are
described in `format/queue_entry.py`.

Invariant: a unit is complete before its address is returned, and is never changed.
"""

from __future__ import annotations

from typing import Final

from flintlog.disk.segments.segment import Segment
from flintlog.disk.segments.segment_queue import SegmentQueue
from flintlog.errors import FormatError
from flintlog.format.queue_entry import (
    ENTRY_SIZE,
    MAX_REAL_OFFSET,
    MAX_UNIT_SIZE,
    TAGS_CODE,
    UNIT_END_MARK,
    UNIT_END_RESERVE,
    ExtensionUnit,
    encode_extension_address,
    encode_extension_unit,
    is_extension_address,
    parse_extension_address,
    parse_extension_unit,
    parse_extension_units,
)
from flintlog.store.queues.queue_tail import TailKeeper, write_at_end

_MAX_TRIES: Final = 3
_FORCE_DELETE_AFTER_MS: Final = 1_000


class ConsumeQueueExt:
    """The extension units of one queue. Written by the dispatching thread alone."""

    def __init__(self, segments: SegmentQueue, tails: TailKeeper | None = None) -> None:
        self.segments = segments
        self._tails = TailKeeper() if tails is None else tails

    def load(self) -> None:
        """Find the files."""
        self.segments.load()

    def follow(self) -> None:
        """Another process writes the files; only addresses in published entries are looked up."""
        files = self.segments.files_there()
        if files:
            self.segments.follow(files[-1] + self.segments.segment_size)

    def put(self, tags_code: int, store_timestamp: int, bitmap: bytes | None = None) -> int:
        """Append a unit; its address, or the tags code itself when it could not be stored."""
        unit = ExtensionUnit(tags_code, store_timestamp, bitmap or b"")
        if unit.size > MAX_UNIT_SIZE or self.segments.max_wrote + unit.size > MAX_REAL_OFFSET:
            return tags_code
        segment = self._segment_with_room(unit.size)
        if segment is None:
            return tags_code
        address = encode_extension_address(segment.base + segment.wrote_position)
        write_at_end(segment, encode_extension_unit(unit), self._tails)
        return address

    def _segment_with_room(self, size: int) -> Segment | None:
        for _ in range(_MAX_TRIES):
            segment = self.segments.last_or_new(0)
            if segment is None:
                return None
            if size <= segment.size - segment.wrote_position - UNIT_END_RESERVE:
                return segment
            self._close(segment)
        return None

    def _close(self, segment: Segment) -> None:
        """Mark the end of the units, and the file as full."""
        if segment.wrote_position + len(UNIT_END_MARK) <= segment.size:
            write_at_end(segment, UNIT_END_MARK, self._tails)
        segment.wrote_position = segment.size

    def get(self, address: int) -> ExtensionUnit | None:
        """The unit at an address; None when there is none."""
        if not is_extension_address(address):
            return None
        offset = parse_extension_address(address)
        segment = self.segments.find(offset)
        selected = None if segment is None else segment.select(offset - segment.base)
        if selected is None:
            return None
        with selected:
            try:
                return parse_extension_unit(selected.view)
            except FormatError:  # the entry's tag is then unknown, and it passes every filter
                return None

    def recover(self) -> None:
        """Walk the units of all files, and cut after the last."""
        end = None
        for segment in self.segments.segments:
            selected = segment.select(0)
            end = segment.base
            if selected is not None:
                with selected:
                    end += _units_end(selected.view)
        if end is not None:
            self.segments.truncate(end)

    def resume(self, entries: SegmentQueue) -> None:
        """Continue after the unit that the newest entry refers to, without a walk over the units before it."""
        self.follow()
        address = _last_address(entries)
        if address is None or self.get(address) is None:
            self.recover()
        self.truncate_after(address)

    def drop_unused(self, entries: SegmentQueue) -> None:
        """Drop the units after the last one that an entry of the queue's last files refers to."""
        self.truncate_after(_last_address(entries))

    def truncate_after(self, address: int | None) -> None:
        """Drop the units after the one at this address."""
        unit = None if address is None else self.get(address)
        if address is not None and unit is not None:
            self.segments.truncate(parse_extension_address(address) + unit.size)

    def truncate_before(self, address: int, now_ms: int) -> None:
        """Delete the files that end before this address."""
        if is_extension_address(address):
            offset = parse_extension_address(address)
            self.segments.delete_before(offset, now_ms=now_ms, force_after_ms=_FORCE_DELETE_AFTER_MS)

    def flush(self, least_pages: int) -> bool:
        """Make data durable; True when nothing was left to do."""
        return self.segments.flush(least_pages)

    def destroy(self) -> None:
        """Delete every file."""
        self.segments.destroy()


def _last_address(entries: SegmentQueue) -> int | None:
    """The newest extension address in the queue files that recovery reads."""
    for segment in reversed(entries.segments[-3:]):
        selected = segment.select(0)
        if selected is None:
            continue
        with selected:
            for position in range(len(selected.view) - ENTRY_SIZE, -1, -ENTRY_SIZE):
                (code,) = TAGS_CODE.unpack_from(selected.view, position)
                if is_extension_address(code):
                    return int(code)
    return None


def _units_end(view: memoryview) -> int:
    """The end of the last whole unit."""
    end = 0
    try:
        for position, unit in parse_extension_units(view):
            end = position + unit.size
    except FormatError:  # a torn unit: those before it stay
        return end
    return end
