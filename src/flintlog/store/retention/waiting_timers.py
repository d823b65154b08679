"""The first timed message that still waits, from the timer's files.

    entered       a unit of the timer log whose slot is after the checkpoint's read time; units are in the order of
                  the commit log, so the first of them points to the oldest message. Rolled messages come later
    not entered   the timer's queue, from the checkpoint's offset on
    unknown       without a checkpoint, or if the timer log ends before the checkpoint's position, the whole queue
                  waits: the timer's next start builds its files again from it

A unit that is over stays over, so the next search begins where the last one ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from flintlog.errors import FormatError
from flintlog.format.names import CONFIG, TIMER_CHECK, TIMER_LOG, parse_segment_name
from flintlog.format.properties import TIMER_OUT_MS
from flintlog.format.record import parse_record
from flintlog.format.timer import (
    TIMER_CHECKPOINT_SIZE,
    TIMER_TOPIC,
    UNIT,
    UNIT_SIZE,
    TimerCheckpoint,
    TimerUnit,
    parse_timer_checkpoint,
    parse_unit,
    units_per_file,
)
from flintlog.store.components import Components
from flintlog.store.retention.holds import Hold, first_entry, say_time

_QUEUE_ID: Final = 0
_UNKNOWN: Final = "timers wait, and it is not known which were delivered"


@dataclass(frozen=True, slots=True)
class _LogFile:
    path: Path
    base: int
    size: int


class WaitingTimers:
    """Finds the first message that waits. It remembers where the last search ended."""

    def __init__(self, parts: Components) -> None:
        self._parts = parts
        self._over_before = 0
        self._read_ms = 0

    def find(self) -> Iterator[Hold]:
        """One hold, or none when no timer waits."""
        queue = self._parts.queues.get(TIMER_TOPIC, _QUEUE_ID)
        if first_entry(queue, 0) is None:
            return
        checkpoint = self._load_checkpoint()
        files = self._log_files()
        covers = checkpoint is not None and _covers(files, checkpoint)
        unit = self._first_waiting(files, checkpoint) if checkpoint is not None and covers else None
        if unit is not None:
            yield Hold(unit.physical_offset, self._why(unit.physical_offset), TIMER_TOPIC, _QUEUE_ID, -1)
            return
        entry = first_entry(queue, checkpoint.queue_offset if checkpoint is not None and covers else 0)
        if entry is not None:
            why = self._why(entry.physical_offset) if covers else _UNKNOWN
            yield Hold(entry.physical_offset, why, TIMER_TOPIC, _QUEUE_ID, entry.queue_offset)

    def _load_checkpoint(self) -> TimerCheckpoint | None:
        medium, path = self._parts.medium, self._parts.paths.root / CONFIG / TIMER_CHECK
        held = medium.stat(path)
        if held is None or held.size != TIMER_CHECKPOINT_SIZE:
            return None
        data = medium.read(path)
        try:
            return parse_timer_checkpoint(data) if any(data) else None
        except FormatError:
            return None

    def _log_files(self) -> list[_LogFile]:
        directory, found = self._parts.paths.root / TIMER_LOG, []
        for info in self._parts.medium.listing(directory):
            try:
                found.append(_LogFile(directory / info.name, parse_segment_name(info.name), info.size))
            except FormatError:
                continue  # not a file of the timer's
        return sorted(found, key=lambda file: file.base)

    def _first_waiting(self, files: list[_LogFile], checkpoint: TimerCheckpoint) -> TimerUnit | None:
        if checkpoint.read_ms < self._read_ms or checkpoint.log_flushed < self._over_before:
            self._over_before = 0  # the files were built again
        self._read_ms = checkpoint.read_ms
        for file in files:
            found = self._find_in(file, checkpoint.read_ms)
            if found is not None:
                self._over_before, unit = found
                return unit
        self._over_before = checkpoint.log_flushed
        return None

    def _find_in(self, file: _LogFile, read_ms: int) -> tuple[int, TimerUnit] | None:
        """The first unit of a file that waits, and its position."""
        end = units_per_file(file.size) * UNIT_SIZE
        start = max(0, self._over_before - file.base) // UNIT_SIZE * UNIT_SIZE
        if start >= end:
            return None
        log_begin = self._parts.segments.min_offset
        raw = self._parts.medium.open(file.path)
        try:
            # There may be millions of units that are over, so only the one that waits is parsed.
            with memoryview(raw.buffer)[start:end] as view:
                for number, (size, _, _, entered_ms, delay_ms, offset, *_) in enumerate(UNIT.iter_unpack(view)):
                    if size != UNIT_SIZE:
                        return None
                    if entered_ms + delay_ms >= read_ms and offset >= log_begin:
                        place = start + number * UNIT_SIZE
                        return file.base + place, parse_unit(raw.buffer, place)
        except FormatError:
            return None
        finally:
            raw.close()
        return None

    def _why(self, physical_offset: int) -> str:
        """The reason of a hold with the delivery time, which is in the message; a rolled unit has an earlier time."""
        data = self._parts.commit_log.record_at(physical_offset)
        try:
            text = "" if data is None else parse_record(data).property_map().get(TIMER_OUT_MS, "")
        except FormatError:
            text = ""
        is_time = text.isascii() and text.isdecimal()
        return f"a timer waits until {say_time(int(text))}" if is_time else "a timer waits"


def _covers(files: list[_LogFile], checkpoint: TimerCheckpoint) -> bool:
    """Whether the timer log reaches the checkpoint's position."""
    if checkpoint.log_flushed == 0:
        return checkpoint.queue_offset == 0
    return bool(files) and files[0].base <= checkpoint.log_flushed <= files[-1].base + files[-1].size
