"""The master's state machine for one slave connection.

    waiting ──first report──▶ sending ──▶ (frame, frame, ..., heartbeat when nothing was sent for a while)
       │                         │
       └──────── closed ◀────────┘        silence, a report beyond our own end, one below what we still have

Rules that RocketMQ does not have: an empty slave is served from the log's start, not from the last file (unless
`sync_from_last_file` is set); a report beyond our own end closes the connection, so it can never make a put succeed; a
connection's acknowledgement never moves backwards.

This module uses no sockets, files or clocks: `step` takes an event and returns actions.
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
    """The slave reported the end of its log."""

    log_end: int


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed, the log may have grown, or a frame was sent."""


Event: TypeAlias = Reported | Tick


@dataclass(frozen=True, slots=True)
class Send:
    """Send a frame with this range of the log; an empty one is a heartbeat."""

    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The slave holds all bytes below this offset."""

    offset: int


@dataclass(frozen=True, slots=True)
class Close:
    """Close the connection for this reason."""

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
    """One connection of a slave. `position` is the next offset to send; None before the first report."""

    def __init__(self, options: FeedOptions, now_ms: int) -> None:
        self.position: int | None = None
        self.acknowledged = 0
        self._options = options
        self._heard_at_ms = now_ms
        self._sent_at_ms = now_ms
        self._is_closed = False

    def step(self, event: Event, log: LogBounds, now_ms: int, *, can_send: bool = True) -> list[Action]:
        """Return the actions for an event; none are sends without `can_send`. After a `Close` there are no actions."""
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
            return self._close(f"the slave needs {position}, which was deleted: our log begins at {log.start}")
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
