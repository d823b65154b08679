"""A slave's connection to its master: received frames go through a `Follower` into the log, and reports are sent back.

Everything runs in the loop. Appending blocks the loop; frames that arrive meanwhile are appended, synced and reported
together.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

from flintlog.errors import FlintlogError, FormatError
from flintlog.replication.ha.follower import Action, Append, Appended, Close, Connected, Event, Follower, Received
from flintlog.replication.ha.wire import FrameReader, encode_report
from flintlog.store.read.raw_log import RawLog

log = logging.getLogger(__name__)

_READ_BYTES: Final = 512 * 1024


class MasterConnection(asyncio.BufferedProtocol):
    """See the module. `closed` is done when the connection is closed; its result is the reason."""

    def __init__(self, raw_log: RawLog, follower: Follower) -> None:
        self.closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.has_appended = False
        self._raw = raw_log
        self._follower = follower
        self._frames = FrameReader()
        # One buffer for all reads: otherwise the transport would allocate and free as much for each read.
        self._buffer = memoryview(bytearray(_READ_BYTES))
        self._transport: asyncio.Transport | None = None

    @property
    def local_address(self) -> str:
        """Our end of the connection."""
        if self._transport is None:
            return ""
        host, port = self._transport.get_extra_info("sockname")[:2]
        return f"{host}:{port}"

    def begin(self) -> None:
        """Report the end of our log, after which the master sends."""
        self.take(Connected(-1 if self._raw.is_empty else self._raw.end))

    def take(self, event: Event) -> None:
        """Run one step of the follower and perform its actions."""
        try:
            for action in self._follower.step(event, now_ms()):
                self._perform(action)
        except (FlintlogError, OSError) as failure:
            self.close(str(failure) or type(failure).__name__)

    def close(self, reason: str) -> None:
        """Close the connection. The first reason is kept."""
        if not self.closed.done():
            self.closed.set_result(reason)
        if self._transport is not None:
            self._transport.abort()

    def _perform(self, action: Action) -> None:
        if isinstance(action, Close):
            self.close(action.reason)
        elif isinstance(action, Append):
            for start, stop in action.damage:
                log.warning("the master's log is damaged from %d to %d; these bytes are copied unchanged", start, stop)
            end = self._raw.append(action.offset, action.data, damage=action.damage)
            self.has_appended = True
            self.take(Appended(end))
        elif self._transport is not None:
            self._transport.write(encode_report(action.log_end))

    # ------------------------------------------------------------------ called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self.closed.done():
            return
        try:
            frames = self._frames.feed(bytes(self._buffer[:nbytes]))
        except FormatError as error:
            self.close(f"the master sent {error.what}")
            return
        if frames:
            self.take(Received(tuple(frames)))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self.close("the master closed the connection" if exc is None else str(exc))


def now_ms() -> int:
    """Monotonic milliseconds."""
    return time.monotonic_ns() // 1_000_000
