"""Whether the timer's files agree: every slot's chain is whole, every unit points at its record, the checkpoint fits.

    timercheck ──▶ timer log [ unit unit unit … ]  up to `log_flushed`; an opening reads the rest by itself
    timerwheel     slot ──last──▶ unit ──previous──▶ unit ──▶ … ──▶ first;  as many as the slot says
                                   └──▶ the record in the log, of the size that the unit says

Slots whose time is over are never read again and may point at units that were deleted: only their own place is
checked. A chain whose begin was deleted with the oldest files is followed as far as it goes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from flintlog.checks.derived_files import DataFile, Read, file_at
from flintlog.checks.finding import WARNING, Finding
from flintlog.checks.log_judgement import LogFacts, LogJudgement
from flintlog.errors import FormatError
from flintlog.format.queue_entry import QueueKey
from flintlog.format.record import HEAD_TO_OFFSET
from flintlog.format.timer import (
    NO_UNIT,
    SLOT_SIZE,
    TIMER_TOPIC,
    UNIT_SIZE,
    Slot,
    TimerCheckpoint,
    TimerUnit,
    is_timer_blank,
    parse_slot,
    parse_timer_checkpoint,
    parse_unit,
    units_per_file,
)

MaxOffset = Callable[[QueueKey], "int | None"]
RecordHead = Callable[[int], "bytes | None"]
"""The first bytes of the log at an offset; None when the log has none there."""

MAX_FINDINGS = 100
AGAIN = "move the timer's files away, as `repair` does: it reads its queue again"
ITSELF = "the next opening of the timer reads its queue again"

_CHUNK_BYTES = 1 << 16
_ZEROS = bytes(_CHUNK_BYTES)


@dataclass(frozen=True, slots=True)
class TimerFilesView:
    """The timer's files as far as they are there; `precision_ms` is 0 when it is not known."""

    log: tuple[DataFile, ...]
    wheel: DataFile | None
    check_path: str
    check: bytes | None
    precision_ms: int = 0


def check_timer(
    timer: TimerFilesView,
    read: Read,
    record_head: RecordHead,
    log: LogJudgement,
    facts: LogFacts,
    max_offset: MaxOffset,
    *,
    is_quick: bool = False,
) -> list[Finding]:
    """Findings about the timer's files. `is_quick` checks only the last file of the timer log."""
    return _TimerCheck(timer, read, record_head, log, facts).run(max_offset, is_quick=is_quick)


@dataclass(slots=True)
class _TimerCheck:
    timer: TimerFilesView
    read: Read
    record_head: RecordHead
    log: LogJudgement
    facts: LogFacts
    findings: list[Finding] = field(default_factory=list)
    bad_units: set[int] = field(default_factory=set)
    end: int = 0
    """The place after the last unit."""

    def run(self, max_offset: MaxOffset, *, is_quick: bool) -> list[Finding]:
        checkpoint = self._parse_checkpoint()
        self.end = self._log_end()
        if checkpoint is not None:
            self._check_checkpoint(checkpoint, max_offset)
        vouched = self.end if checkpoint is None else min(self.end, checkpoint.log_flushed)
        for file in self.timer.log[-1:] if is_quick else self.timer.log:
            self._check_units(file, vouched)
        if self.timer.wheel is not None and not self.facts.is_running:
            self._check_wheel(self.timer.wheel, checkpoint or TimerCheckpoint(), vouched)
        return self.findings

    # ------------------------------------------------------------------ checkpoint

    def _parse_checkpoint(self) -> TimerCheckpoint | None:
        data, path = self.timer.check, self.timer.check_path
        if data is None:
            if any(self._units(file) for file in self.timer.log):
                self._report("damaged-timer", "the timer has a log and no timercheck", ITSELF, path)
            return None
        try:
            return parse_timer_checkpoint(data)
        except FormatError as error:
            self._report("damaged-checkpoint", f"timercheck: {error.what}", ITSELF, path)
            return None

    def _check_checkpoint(self, checkpoint: TimerCheckpoint, max_offset: MaxOffset) -> None:
        path, flushed = self.timer.check_path, checkpoint.log_flushed
        if flushed > self.end and not self.facts.is_running:
            evidence = f"timercheck vouches for {flushed} bytes of the timer log, which ends at {self.end}"
            self._report("timer-beyond-log", evidence, ITSELF, path, 8)
        elif flushed and file_at(self.timer.log, flushed - 1) is not None and not self._is_border(flushed):
            evidence = f"timercheck vouches for {flushed} bytes of the timer log, which is inside a unit"
            self._report("damaged-timer", evidence, AGAIN, path, 8)
        end = max_offset((TIMER_TOPIC, 0)) or 0
        if checkpoint.queue_offset > end and not self.facts.is_running:
            evidence = f"timercheck is at {checkpoint.queue_offset} of {TIMER_TOPIC}/0, which ends at {end}"
            self._report("timer-beyond-log", evidence, ITSELF, path, 16)

    def _is_border(self, position: int) -> bool:
        file = file_at(self.timer.log, position - 1)
        return file is not None and (position == file.end or (position - file.base) % UNIT_SIZE == 0)

    # ------------------------------------------------------------------ timer log

    def _units(self, file: DataFile) -> int:
        """How many units are written in a file."""
        view, count = self.read(file.path, 0, file.size), units_per_file(file.size)
        # Units are appended, so all written ones come first.
        return bisect_left(range(count), 1, key=lambda unit: not any(view[unit * UNIT_SIZE : (unit + 1) * UNIT_SIZE]))

    def _log_end(self) -> int:
        for file in reversed(self.timer.log):
            count = self._units(file)
            if count:
                return file.end if count == units_per_file(file.size) else file.base + count * UNIT_SIZE
        return self.timer.log[0].base if self.timer.log else 0

    def _check_units(self, file: DataFile, vouched: int) -> None:
        view, count = self.read(file.path, 0, file.size), units_per_file(file.size)
        count = max(self._units(file), min(count, (vouched - file.base) // UNIT_SIZE))
        for place in range(0, count * UNIT_SIZE, UNIT_SIZE):
            position = file.base + place
            if is_timer_blank(view, place):
                return
            try:
                unit = parse_unit(view, place)
            except FormatError as error:
                if position >= vouched:
                    return  # an opening cuts the timer log there
                self.bad_units.add(position)
                self._report("damaged-timer", error.what, AGAIN, file.path, place)
                continue
            if self._is_beyond(unit):
                stop = unit.physical_offset + unit.size
                evidence = f"a timer unit refers to [{unit.physical_offset}, {stop}) of the log"
                self._report("timer-beyond-log", f"{evidence}, which ends at {self.log.end}", ITSELF, file.path, place)
                self.bad_units.add(position)
            elif position < vouched and not self._is_sound(unit, position):
                self.bad_units.add(position)
                evidence = f"the timer unit at {position} is of no record of the log, or of no slot: {unit}"
                self._report("damaged-timer", evidence, AGAIN, file.path, place)

    def _is_beyond(self, unit: TimerUnit) -> bool:
        ends_after_log = unit.physical_offset + unit.size > self.log.end
        return ends_after_log and not (self.facts.is_running or self.log.is_damaged(unit.physical_offset))

    def _is_sound(self, unit: TimerUnit, position: int) -> bool:
        if unit.previous >= position or (unit.previous != NO_UNIT and not self._is_place(unit.previous)):
            return False
        at = unit.physical_offset
        if at < self.log.min_offset or self.log.is_damaged(at, at + unit.size):
            return True  # the log lost the record: no fault of the timer
        head = self.record_head(at)
        if head is None:
            return True
        size, *_, own_offset = HEAD_TO_OFFSET.unpack(head)
        return bool((size, own_offset) == (unit.size, at))

    def _is_place(self, position: int) -> bool:
        """Whether a unit may be there: in a file, or in one that was deleted."""
        file = file_at(self.timer.log, position)
        if file is None:
            return self._is_deleted(position)
        number, rest = divmod(position - file.base, UNIT_SIZE)
        return not rest and number < units_per_file(file.size)

    def _unit_at(self, position: int) -> TimerUnit | None:
        file = file_at(self.timer.log, position)
        if file is None or not self._is_place(position):
            return None
        place = position - file.base
        try:
            return parse_unit(self.read(file.path, place, place + UNIT_SIZE))
        except FormatError:
            return None

    # ------------------------------------------------------------------ wheel

    def _check_wheel(self, wheel: DataFile, checkpoint: TimerCheckpoint, vouched: int) -> None:
        count = wheel.size // SLOT_SIZE
        if wheel.size % SLOT_SIZE or not count:
            self._report("damaged-timer", f"the wheel has {wheel.size} bytes, which are no slots", AGAIN, wheel.path)
            return
        precision_ms = self.timer.precision_ms or self._precision_ms(wheel)
        for place, slot in _slots(wheel, self.read):
            wrong = ""
            if slot.magic or slot.time < 0 or (slot.time and slot.time % count != place // SLOT_SIZE):
                wrong = "is of another place, or has a magic other than 0"
            elif slot.time * precision_ms >= checkpoint.read_ms and slot.last != NO_UNIT:
                wrong = self._wrong_chain(slot, precision_ms, vouched)
            if wrong:
                evidence = f"slot {place // SLOT_SIZE} of the wheel {wrong}: {slot}"
                self._report("damaged-timer", evidence, AGAIN, wheel.path, place)

    def _precision_ms(self, wheel: DataFile) -> int:
        """The unit of a slot's time, by the first slot that has a timer unit; 0 when none has."""
        for _, slot in _slots(wheel, self.read):
            unit = self._unit_at(slot.last) if slot.time > 0 else None
            if unit is not None and unit.slot_ms > 0:
                return round(unit.slot_ms / slot.time)
        return 0

    def _wrong_chain(self, slot: Slot, precision_ms: int, vouched: int) -> str:
        """Why the chain of a slot that is still to come is wrong; empty if it is right, or a bad unit explains it."""
        if slot.time == 0 and not (slot.first or slot.last or slot.number):
            return ""
        if slot.last >= vouched:
            # After an unclean stop the wheel may be ahead of the checkpoint: an opening puts that right.
            return "points after the timer log's end" if self.facts.is_clean else ""
        number, position = 0, slot.last
        while position != NO_UNIT:
            unit = self._unit_at(position)
            if position in self.bad_units:
                return ""
            if unit is None:
                return "" if self._is_deleted(position) else f"has a chain that leads to {position}, where no unit is"
            if unit.slot_ms // precision_ms != slot.time:
                return f"has a unit of another time in its chain, at {position}"
            number += unit.step
            if position == slot.first:
                break
            if unit.previous >= position:
                return ""
            position = unit.previous
        if position != slot.first:
            return "has a chain that does not lead to its first unit"
        return "" if number == slot.number else f"has {number} units in its chain"

    def _is_deleted(self, position: int) -> bool:
        return bool(self.timer.log) and 0 <= position < self.timer.log[0].base

    def _report(self, kind: str, evidence: str, remedy: str, path: str, place: int | None = None) -> None:
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(Finding(kind, WARNING, evidence, remedy, path, place))


def _slots(wheel: DataFile, read: Read) -> Iterator[tuple[int, Slot]]:
    """The slots of a wheel that hold anything, with their places; most of a wheel is empty."""
    for start in range(0, wheel.size, _CHUNK_BYTES):
        stop = min(start + _CHUNK_BYTES, wheel.size)
        chunk = read(wheel.path, start, stop)
        if bytes(chunk) == _ZEROS[: stop - start]:
            continue
        for place in range(0, len(chunk) - SLOT_SIZE + 1, SLOT_SIZE):
            if any(chunk[place : place + SLOT_SIZE]):
                yield start + place, parse_slot(chunk, place)
