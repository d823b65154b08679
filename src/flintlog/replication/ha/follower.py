"""What a slave does with what its master sends: a state machine for one connection.

    connected ─▶ report our end ─▶ frames ─▶ whole, intact records ─▶ append ─▶ report the new end

Invariant: the log only ever holds whole records that say their own place and whose bodies match their CRC. A frame may
end in the middle of a record; what is not whole yet waits here, in memory, and is asked for again
after a reconnect. RocketMQ writes whatever comes. A frame that does not follow what we have, and a record that
cannot be one, end the connection, and nothing of them is written. When the same bytes come again they are no
accident of the line but the master's own damage, which its store serves around: then they are taken as they
are, as soon as an intact record follows them.

Nothing here knows sockets, files or clocks: `step` takes what happened and gives what to do.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, TypeAlias

from flintlog import kernel
from flintlog.format.record import BLANK_MAGIC
from flintlog.kernel import Crc, ScanStop
from flintlog.replication.ha.wire import Frame

REPORT_MS: Final = 5_000
HOUSEKEEPING_MS: Final = 20_000
SUSPECT_BYTES: Final = 4096
_SIZE_AND_MAGIC = struct.Struct(">ii")


@dataclass(frozen=True, slots=True)
class Connected:
    """A connection was made; `log_end` is where our log ends, -1 when there is no log yet."""

    log_end: int


@dataclass(frozen=True, slots=True)
class Received:
    """Frames came."""

    frames: tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class Appended:
    """What was asked to be appended is in the log, as durable as an acknowledgement must be."""

    log_end: int


@dataclass(frozen=True, slots=True)
class Tick:
    """Time went on."""


Event: TypeAlias = Connected | Received | Appended | Tick


@dataclass(frozen=True, slots=True)
class Append:
    """Whole records, to be written at this offset: the end of our log, or its beginning."""

    offset: int
    data: bytes
    damage: tuple[tuple[int, int], ...] = ()
    """Ranges of offsets that the master itself holds damaged."""


@dataclass(frozen=True, slots=True)
class Report:
    """Tell the master how far our log goes."""

    log_end: int


@dataclass(frozen=True, slots=True)
class Close:
    """End the connection, and say why."""

    reason: str


Action: TypeAlias = Append | Report | Close


@dataclass(frozen=True, slots=True)
class FollowOptions:
    """The intervals of RocketMQ's configuration, and sizes that both sides share."""

    segment_size: int
    max_record_bytes: int = 4 * 1024 * 1024
    """One that calls itself larger is not waited for once an intact record lies within what it claims."""
    checked_crc: Crc = Crc.BODY
    report_ms: int = REPORT_MS
    housekeeping_ms: int = HOUSEKEEPING_MS


class Suspicions:
    """What was refused on earlier connections to the same master: where, and how it began."""

    def __init__(self) -> None:
        self._place = -1
        self._bytes = b""

    def came_before(self, offset: int, data: bytes) -> bool:
        """Whether these bytes were refused at this place before; if not they are from now on."""
        data = data[:SUSPECT_BYTES]
        common = min(len(data), len(self._bytes))
        if offset == self._place and common and data[:common] == self._bytes[:common]:
            return True
        self._place, self._bytes = offset, data
        return False


class Follower:
    """One connection to a master."""

    def __init__(self, options: FollowOptions, now_ms: int, suspicions: Suspicions | None = None) -> None:
        self._options = options
        self._suspicions = Suspicions() if suspicions is None else suspicions
        self._damaged_from = -1
        self._end = -1
        self._pending = b""
        self._reported_at_ms = now_ms
        self._heard_at_ms = now_ms
        self._is_closed = False

    def step(self, event: Event, now_ms: int) -> list[Action]:
        """What to do now. After a `Close` nothing more is asked for."""
        if self._is_closed:
            return []
        if isinstance(event, Connected):
            self._end = event.log_end
            self._heard_at_ms = now_ms
            return self._report(now_ms)
        if isinstance(event, Appended):
            return self._report(now_ms)
        if isinstance(event, Received):
            self._heard_at_ms = now_ms
            return self._take(event.frames)
        if now_ms - self._heard_at_ms > self._options.housekeeping_ms:
            return self._close(f"the master was silent for {now_ms - self._heard_at_ms} ms")
        return self._report(now_ms) if now_ms - self._reported_at_ms >= self._options.report_ms else []

    def _report(self, now_ms: int) -> list[Action]:
        self._reported_at_ms = now_ms
        return [Report(max(0, self._end))]

    def _take(self, frames: tuple[Frame, ...]) -> list[Action]:
        parts = [self._pending] if self._pending else []
        size = len(self._pending)
        for frame in frames:
            expected = self._end + size
            if self._end < 0:
                if frame.is_heartbeat:
                    continue
                if frame.offset % self._options.segment_size:
                    return self._close(f"the master begins at {frame.offset}, which is no file's beginning")
                self._end = expected = frame.offset
            if frame.offset != expected:
                return self._close(f"the master sends offset {frame.offset}, ours ends at {expected}")
            parts.append(frame.data)
            size += len(frame.data)
        return self._take_whole(b"".join(parts))

    def _take_whole(self, pending: bytes) -> list[Action]:
        """Everything at the front of what is pending that is whole and intact, a closing blank included."""
        self._pending = pending
        place = 0
        damage: list[tuple[int, int]] = []
        while place < len(pending):
            seen = kernel.scan(pending, place, len(pending), self._end, check_crc=self._options.checked_crc)
            place = seen.end
            if seen.reason is ScanStop.BLANK:
                filler = self._rest_of_segment(self._end + place)
                if len(pending) - place < filler:
                    break
                place += filler
                continue
            fault = self._fault_at(pending, place, seen.reason)
            if fault is None:
                break
            offset = self._end + place
            if offset != self._damaged_from and not self._suspicions.came_before(offset, pending[place:]):
                return self._close(fault)
            self._damaged_from = offset
            following = kernel.find_record(pending, place + 1, len(pending), self._end)
            if following < 0:
                if len(pending) - place > 2 * self._options.segment_size:
                    return self._close(f"nothing intact follows the damage at {offset}")
                break
            damage.append((offset, self._end + following))
            place = following
        if not place:
            return []
        self._pending = pending[place:]
        offset, self._end = self._end, self._end + place
        return [Append(offset, pending[:place], tuple(damage))]

    def _rest_of_segment(self, offset: int) -> int:
        return self._options.segment_size - offset % self._options.segment_size

    def _fault_at(self, pending: bytes, place: int, reason: ScanStop) -> str | None:
        """Why what follows cannot become a record, however many bytes are still to come."""
        left = len(pending) - place
        if left < _SIZE_AND_MAGIC.size:
            return None
        size, magic = _SIZE_AND_MAGIC.unpack_from(pending, place)
        rest = self._rest_of_segment(self._end + place)
        if magic == BLANK_MAGIC:
            return None if size == rest else f"the blank at {self._end + place} does not fill its file"
        if left < size <= rest and reason is ScanStop.SHORT:
            if size <= self._options.max_record_bytes or not self._is_record_behind(pending, place):
                return None
            return f"the record at {self._end + place} claims {size} bytes, and others lie within"
        return f"what the master sent for {self._end + place} is no intact record: {reason.name}"

    def _is_record_behind(self, pending: bytes, place: int) -> bool:
        return kernel.find_record(pending, place + 1, len(pending), self._end) >= 0

    def _close(self, reason: str) -> list[Action]:
        self._is_closed = True
        return [Close(reason)]
