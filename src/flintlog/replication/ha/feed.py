"""What a master does with one slave: a state machine of its own for each connection.

    waiting ──first report──▶ sending ──▶ (frame, frame, ..., heartbeat when nothing was sent for a while)
       │                         │
       └──────── closed ◀────────┘        silence, a report beyond our own end, one below what we still have

Rules that RocketMQ does not have: an empty slave is served from where the log begins, not from the last file (unless
`sync_from_last_file` asks for that); a report beyond our own end is refused, so it can never make a put
succeed; reports of a connection never move its acknowledgement backwards.

Nothing here knows sockets, files or clocks: `step` takes what happened and gives what to do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

TRANSFER_BYTES: Final = 32 * 1024
HEARTBEAT_MS: Final = 5_000
HOUSEKEEPING_MS: Final = 20_000


@dataclass(frozen=True, slots=True)
class LogBounds:
    """The master's log at the moment of a step."""

    start: int
    end: int
    segment_size: int

    def rest_of_segment(self, offset: int) -> int:
        return self.segment_size - offset % self.segment_size


@dataclass(frozen=True, slots=True)
class Reported:
    """The slave said how far its log goes."""

    log_end: int


@dataclass(frozen=True, slots=True)
class Tick:
    """Time went on, the log may have grown, or a frame has left: see what is to be done."""


Event: TypeAlias = Reported | Tick


@dataclass(frozen=True, slots=True)
class Send:
    """Send a frame with this range of the log; an empty one is a heartbeat."""

    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The slave holds everything below this offset."""

    offset: int


@dataclass(frozen=True, slots=True)
class Close:
    """End the connection, and say why."""

    reason: str


Action: TypeAlias = Send | Acknowledged | Close


@dataclass(frozen=True, slots=True)
class FeedOptions:
    """The intervals and sizes of RocketMQ's configuration."""

    transfer_bytes: int = TRANSFER_BYTES
    heartbeat_ms: int = HEARTBEAT_MS
    housekeeping_ms: int = HOUSEKEEPING_MS
    from_last_file: bool = False


class ReplicaFeed:
    """One connection of a slave. `position` is what is sent next; None before the first report."""

    def __init__(self, options: FeedOptions, now_ms: int) -> None:
        self.position: int | None = None
        self.acknowledged = 0
        self._options = options
        self._heard_at_ms = now_ms
        self._sent_at_ms = now_ms
        self._is_closed = False

    def step(self, event: Event, log: LogBounds, now_ms: int, *, can_send: bool = True) -> list[Action]:
        """What to do now; without `can_send` nothing is to be sent. After a `Close` nothing more is asked for."""
        if self._is_closed:
            return []
        actions: list[Action] = []
        if isinstance(event, Reported):
            actions += self._on_report(event.log_end, log, now_ms)
        if not self._is_closed:
            actions += self._next(log, now_ms, can_send)
        return actions

    def _on_report(self, log_end: int, log: LogBounds, now_ms: int) -> list[Action]:
        self._heard_at_ms = now_ms
        if log_end < 0 or log_end > log.end:
            return self._close(f"the slave reports {log_end}, our log ends at {log.end}")
        if self.position is None:
            if log_end and log_end < log.start:
                return self._close(f"the slave is at {log_end}, our log begins at {log.start}: it needs a copy")
            self.position = log_end or self._first_position(log)
        if log_end > self.position:
            return self._close(f"the slave reports {log_end}, it was sent bytes up to {self.position}")
        if log_end <= self.acknowledged:
            return []
        self.acknowledged = log_end
        return [Acknowledged(log_end)]

    def _first_position(self, log: LogBounds) -> int:
        return log.end - log.end % log.segment_size if self._options.from_last_file else log.start

    def _next(self, log: LogBounds, now_ms: int, can_send: bool) -> list[Action]:
        if now_ms - self._heard_at_ms > self._options.housekeeping_ms:
            return self._close(f"the slave was silent for {now_ms - self._heard_at_ms} ms")
        position = self.position
        if position is None:
            return []
        if position < log.start:
            return self._close(f"what the slave needs at {position} was deleted: our log begins at {log.start}")
        if not can_send:
            return []
        size = min(log.end - position, self._options.transfer_bytes, log.rest_of_segment(position))
        if size > 0:
            self.position = position + size
        elif now_ms - self._sent_at_ms < self._options.heartbeat_ms:
            return []
        self._sent_at_ms = now_ms
        return [Send(position, max(0, size))]

    def _close(self, reason: str) -> list[Action]:
        self._is_closed = True
        return [Close(reason)]
