"""One slave's connection at its master: runs its `ReplicaFeed` and sends its frames.

Everything runs in the loop. Frames are sent before waiting puts are woken, so that the slave works while their callers
put again. Each report also sends the records that were put since the last frame, so under load no put has to wake the
loop.

A slave that reports but reads none of the sent bytes is disconnected too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from flintlog.errors import FlintlogError
from flintlog.replication.ha.feed import (
    Acknowledged,
    Close,
    Event,
    FeedOptions,
    LogBounds,
    ReplicaFeed,
    Reported,
    Send,
    Tick,
)
from flintlog.replication.ha.wire import ReportReader, encode_frame
from flintlog.store.read.raw_log import RawLog

FRAMES_A_TURN: Final = 16
PATIENCE_S: Final = 0.002
"""How long new records may wait for the report on the last frames; only a slow connection takes that long."""
STUCK_INTERVALS: Final = 3
"""A full socket may make no progress for this many times the longest allowed silence: a slow connection needs time."""
_READ_BYTES: Final = 4096
_TICK: Final = Tick()


@dataclass(frozen=True, slots=True)
class ConnectionOwner:
    """Callbacks of a connection; all are called in the loop."""

    opened: Callable[[SlaveConnection], None]
    acknowledged: Callable[[], None]
    closed: Callable[[SlaveConnection, str | None], None]
    """With the reason if the master closed the connection, else None."""


class SlaveConnection(asyncio.BufferedProtocol):
    """See the module. Other threads may read `address` and `feed`'s positions."""

    def __init__(
        self, raw_log: RawLog, options: FeedOptions, owner: ConnectionOwner, *, most_bytes_a_second: int | None = None
    ) -> None:
        self.host = ""
        self.address = ""
        self.feed = ReplicaFeed(options, _now_ms())
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._raw = raw_log
        self._owner = owner
        self._most_bytes_a_second = most_bytes_a_second
        self._frames_a_turn = FRAMES_A_TURN if most_bytes_a_second is None else 1
        self._reports = ReportReader()
        # One buffer for all reads: otherwise the transport would allocate and free a quarter of a MiB for each report.
        self._buffer = bytearray(_READ_BYTES)
        self._transport: asyncio.Transport | None = None
        self._reason: str | None = None
        self._is_full = False
        self._unsent_bytes = 0
        self._unsent_since_ms = 0
        self._most_stuck_ms = STUCK_INTERVALS * options.housekeeping_ms
        self._is_held_back = False
        self._is_watched = False

    @property
    def is_in_flight(self) -> bool:
        """Whether a report on sent bytes is still expected."""
        return self.feed.position is not None and self.feed.position > self.feed.acknowledged

    @property
    def is_closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def close(self, reason: str | None = None) -> None:
        """Close the connection."""
        self._reason = self._reason or reason
        if self._transport is not None:
            self._transport.abort()  # drops unsent bytes, which a closed slave does not need

    def look(self) -> None:
        """Run a step: the log may have grown, or time passed."""
        if self._is_full:
            self._close_if_stuck()
        self._take(_TICK)

    # ------------------------------------------------------------------ called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        host, port = transport.get_extra_info("peername")[:2]
        self.host, self.address = host, f"{host}:{port}"
        self._owner.opened(self)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        report = self._reports.feed(bytes(self._buffer[:nbytes]))
        if report is not None:
            self._take(Reported(report))

    def pause_writing(self) -> None:
        assert self._transport is not None
        self._is_full = True
        self._unsent_bytes, self._unsent_since_ms = self._transport.get_write_buffer_size(), _now_ms()

    def resume_writing(self) -> None:
        self._is_full = False
        self.look()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.closed.set_result(None)
        self._owner.closed(self, self._reason)

    def _close_if_stuck(self) -> None:
        """Close the connection when a full socket has sent nothing for too long."""
        if self._transport is None:
            return
        unsent_bytes, now_ms = self._transport.get_write_buffer_size(), _now_ms()
        if unsent_bytes < self._unsent_bytes:
            self._unsent_bytes, self._unsent_since_ms = unsent_bytes, now_ms
        elif now_ms - self._unsent_since_ms > self._most_stuck_ms:
            self.close(f"the slave has taken nothing for {now_ms - self._unsent_since_ms} ms")

    # ------------------------------------------------------------------ sending

    def _take(self, event: Event) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        try:
            self._step(event, self._transport)
        except (FlintlogError, OSError) as failure:
            self.close(str(failure))

    def _step(self, event: Event, transport: asyncio.Transport) -> None:
        """Run steps of the feed until there is nothing to send, or enough for one turn."""
        frames: list[bytes] = []
        acknowledged = self.feed.acknowledged
        sent = 0
        for _ in range(self._frames_a_turn + 1):
            size = self._one_step(event, frames)
            sent += size
            # A put that sees bytes in flight does not wake the loop. So look at the log once more after a report.
            if not size and event is _TICK:
                break
            event = _TICK
            if len(frames) == self._frames_a_turn:
                break
        if frames:
            transport.write(b"".join(frames))
            self._pace(sent, is_more=len(frames) == self._frames_a_turn)
        if self.feed.acknowledged > acknowledged:
            self._owner.acknowledged()

    def _one_step(self, event: Event, frames: list[bytes]) -> int:
        """Run one step and add its frames to `frames`; returns their number of log bytes."""
        raw = self._raw
        bounds = LogBounds(raw.start, raw.end, raw.segment_size)
        can_send = not self._is_full and not self._is_held_back
        sent = 0
        for action in self.feed.step(event, bounds, _now_ms(), can_send=can_send):
            if isinstance(action, Send):
                sent += self._read_frame(action, frames)
            elif isinstance(action, Close):
                self.close(action.reason)
            else:
                assert isinstance(action, Acknowledged)
        return sent

    def _read_frame(self, wanted: Send, frames: list[bytes]) -> int:
        data = self._raw.read(wanted.offset, wanted.size) if wanted.size else b""
        if len(data) != wanted.size:
            self.close(f"the bytes that it needs at {wanted.offset} cannot be read")
            return 0
        frames.append(encode_frame(wanted.offset, data))
        return len(data)

    def _pace(self, sent: int, *, is_more: bool) -> None:
        """Schedule the next turn: when the rate allows it, or at once unless the socket is full."""
        loop = asyncio.get_running_loop()
        if not self._is_watched:
            self._is_watched = True
            loop.call_later(PATIENCE_S, self._look_again)
        if self._most_bytes_a_second is not None:
            self._is_held_back = True
            loop.call_later(sent / self._most_bytes_a_second, self._resume)
        elif is_more and not self._is_full:
            loop.call_soon(self.look)

    def _look_again(self) -> None:
        self._is_watched = False
        self.look()

    def _resume(self) -> None:
        self._is_held_back = False
        self.look()


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
