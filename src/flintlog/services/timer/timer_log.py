"""The timer log in use: `timerlog/`, an append-only log of 52-byte units in segments.

A unit's position is known before it is written, so a batch of units can be chained in memory and appended in few
writes. Units are entered in the order of the timer's queue, so their physical offsets only grow: recovery can
binary-search them. One thread at a time appends.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from flintlog.disk.media.durable_names import sync_names
from flintlog.disk.media.medium import Medium
from flintlog.disk.segments.segment import Segment
from flintlog.disk.segments.segment_queue import SegmentQueue
from flintlog.errors import DiskError, FormatError, WrongFileSize
from flintlog.format.names import is_segment_name
from flintlog.format.timer import (
    NO_UNIT,
    UNIT_SIZE,
    TimerUnit,
    encode_timer_blank,
    parse_unit,
    units_per_file,
)


class TimerLog:
    """The units of all slots, by position."""

    def __init__(self, path: Path, file_size: int, medium: Medium) -> None:
        self._path = path
        self._medium = medium
        self._per_file = units_per_file(file_size)
        self.segments = SegmentQueue([path], file_size, medium)

    # Loading

    def load(self) -> bool:
        """Find the files; False when a file has another size than configured, or one is missing between others."""
        try:
            self.segments.load()
        except WrongFileSize:
            return False
        sync_names([self._path], self._medium)  # a process that was killed may have made files
        return not self.segments.gaps()

    def remove_files(self) -> None:
        """Remove the log's files, and no other file in the directory."""
        self.segments.shut_down()
        for info in reversed(self._medium.listing(self._path)):
            if not info.is_directory and is_segment_name(info.name):
                self._medium.remove(self._path / info.name)
        if self._medium.exists(self._path):
            self._medium.sync_directory(self._path)
        self.segments = SegmentQueue([self._path], self.segments.segment_size, self._medium)
        self.segments.load()

    def cut(self, position: int) -> None:
        """Keep only the bytes before a position, and clear all after it."""
        self.segments.truncate(position, clear=True)

    # Places

    @property
    def start(self) -> int:
        return max(0, self.segments.min_offset)

    @property
    def end(self) -> int:
        """The end of the written bytes; the next unit goes there, or into a new file when this one is full."""
        return self.segments.max_wrote

    @property
    def flushed(self) -> int:
        return self.segments.flushed_where

    def flush(self) -> None:
        self.segments.flush_all()

    def step_back(self, position: int) -> int:
        """The place of the unit before a position; NO_UNIT when there is none."""
        base = (position - 1) // self.segments.segment_size * self.segments.segment_size
        count = min((position - base) // UNIT_SIZE, self._per_file)
        place = base + (count - 1) * UNIT_SIZE if count else NO_UNIT
        return place if place >= self.start else NO_UNIT

    def place(self, position: int) -> int:
        """The place of the unit at a position; after a file's last unit that is the start of the next file."""
        base = position // self.segments.segment_size * self.segments.segment_size
        return position if (position - base) // UNIT_SIZE < self._per_file else base + self.segments.segment_size

    def count_between(self, start: int, stop: int) -> int:
        """How many units lie between two places."""
        return self._number(stop) - self._number(start)

    def place_after(self, start: int, count: int) -> int:
        """The place `count` units after another."""
        file, rest = divmod(self._number(start) + count, self._per_file)
        return file * self.segments.segment_size + rest * UNIT_SIZE

    def _number(self, position: int) -> int:
        file, rest = divmod(position, self.segments.segment_size)
        return file * self._per_file + min(rest // UNIT_SIZE, self._per_file)

    # Reading

    def unit_at(self, position: int) -> TimerUnit | None:
        """The unit at a position; None when there is no valid one."""
        segment = self.segments.find(position)
        selected = None if segment is None else segment.select(position - segment.base, UNIT_SIZE)
        if selected is None:
            return None
        with selected:
            try:
                return parse_unit(selected.view)
            except FormatError:
                return None

    def chain(self, last: int) -> Iterator[tuple[int, TimerUnit]]:
        """The units of a slot with their positions, newest first; stops at a unit that was deleted."""
        position = last
        while position != NO_UNIT:
            unit = self.unit_at(position)
            if unit is None:
                return
            yield position, unit
            if unit.previous >= position:
                return
            position = unit.previous

    # Appending

    def room(self) -> tuple[int, int]:
        """The position for the next units and how many fit there; creates the next file when the last is full."""
        segment = self._last_with_room()
        return segment.base + segment.wrote_position, self._per_file - segment.wrote_position // UNIT_SIZE

    def _last_with_room(self) -> Segment:
        segment = self.segments.last
        if segment is not None and not segment.is_full and segment.wrote_position // UNIT_SIZE >= self._per_file:
            segment.append(encode_timer_blank(segment.size - segment.wrote_position))
            segment.wrote_position = segment.size
        segment = self.segments.last_or_new(0)
        if segment is None:
            raise self.segments.create_failure or DiskError("the next file cannot be made", path=self._path)
        return segment

    def append(self, units: bytes) -> None:
        """Append units, at most as many as `room` returned."""
        segment = self.segments.last
        if segment is None or not segment.append(units):
            raise DiskError(f"{len(units)} bytes do not fit into the timer log", path=self._path)

    # Deleting

    def delete_before(self, physical_offset: int, now_ms: int) -> int:
        """Delete files whose units all point below an offset of the commit log; the last file stays."""

        def is_over(segment: Segment) -> bool:
            last = self.unit_at(segment.base + (self._per_file - 1) * UNIT_SIZE)
            return last is not None and last.physical_offset < physical_offset

        return self.segments.delete_leading(is_over, now_ms=now_ms)

    def shut_down(self) -> None:
        self.segments.shut_down()
