"""The slave's state machine for one connection to its master.

    connected ─▶ report our end ─▶ frames ─▶ whole, intact records ─▶ append ─▶ report the new end

Invariant: the log holds only whole records that name their own offset and whose bodies match their CRC. A frame may end
in the middle of a record; an incomplete record waits in memory, and is requested again after a reconnect. RocketMQ
writes any bytes that arrive. Here a frame that does not continue our log, or an invalid record, closes the connection,
and nothing of it is written. If the same invalid bytes arrive again, the master's own log is damaged, not the transfer.
Then they are appended unchanged, as soon as an intact record follows them.

This module uses no sockets, files or clocks: `step` takes an event and returns actions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from flintlog import kernel
from flintlog.format.record import BLANK_MAGIC, SIZE_AND_MAGIC
from flintlog.kernel import Crc, ScanStop
from flintlog.replication.ha.wire import Frame

REPORT_MS: Final = 5_000
HOUSEKEEPING_MS: Final = 20_000
SUSPECT_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class Connected:
    """A connection was made; `log_end` is the end of our log, -1 when there is no log yet."""

    log_end: int


@dataclass(frozen=True, slots=True)
class Received:
    """Frames arrived."""

    frames: tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class Appended:
    """The last `Append` is in the log, as durable as an acknowledgement requires."""

    log_end: int


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed."""


Event: TypeAlias = Connected | Received | Appended | Tick


@dataclass(frozen=True, slots=True)
class Append:
    """Write whole records at this offset: the end of our log, or the start of an empty one."""

    offset: int
    data: bytes
    damage: tuple[tuple[int, int], ...] = ()
    """Offset ranges that are damaged in the master's log too."""


@dataclass(frozen=True, slots=True)
class Report:
    """Report the end of our log to the master."""

    log_end: int


@dataclass(frozen=True, slots=True)
class Close:
    """Close the connection for this reason."""

    reason: str


Action: TypeAlias = Append | Report | Close


@dataclass(frozen=True, slots=True)
class FollowOptions:
    """The intervals of RocketMQ's configuration, and sizes that master and slave share."""

    segment_size: int
    max_record_bytes: int = 4 * 1024 * 1024
    """A record that claims a larger size is invalid as soon as an intact record lies within that size."""
    checked_crc: Crc = Crc.BODY
    report_ms: int = REPORT_MS
    housekeeping_ms: int = HOUSEKEEPING_MS


class Suspicions:
    """The offset and first bytes of the invalid record that earlier connections to the same master refused."""

    def __init__(self) -> None:
        self._place = -1
        self._bytes = b""

    def came_before(self, offset: int, data: bytes) -> bool:
        """Whether these bytes were refused at this offset before; if not, remember them."""
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
        """Return the actions for an event. After a `Close` there are none."""
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
                    return self._close(f"the master begins at {frame.offset}, which is not the start of a file")
                self._end = expected = frame.offset
            if frame.offset != expected:
                return self._close(f"the master sends offset {frame.offset}, ours ends at {expected}")
            parts.append(frame.data)
            size += len(frame.data)
        return self._take_whole(b"".join(parts))

    def _take_whole(self, pending: bytes) -> list[Action]:
        """Append the whole, intact records at the start of `pending`, with a closing blank."""
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
        """Why the next bytes can never become a record, even if more arrive; None when they can."""
        left = len(pending) - place
        if left < SIZE_AND_MAGIC.size:
            return None
        size, magic = SIZE_AND_MAGIC.unpack_from(pending, place)
        rest = self._rest_of_segment(self._end + place)
        if magic == BLANK_MAGIC:
            return None if size == rest else f"the blank at {self._end + place} does not fill its file"
        if left < size <= rest and reason is ScanStop.SHORT:
            if size <= self._options.max_record_bytes or not self._is_record_after(pending, place):
                return None
            return f"the record at {self._end + place} claims {size} bytes, but other records lie within"
        return f"the master sent no intact record for {self._end + place}: {reason.name}"

    def _is_record_after(self, pending: bytes, place: int) -> bool:
        return kernel.find_record(pending, place + 1, len(pending), self._end) >= 0

    def _close(self, reason: str) -> list[Action]:
        self._is_closed = True
        return [Close(reason)]
