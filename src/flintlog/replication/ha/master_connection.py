"""A slave's connection to its master: frames in, through a `Follower`, into the log; reports out.

Everything runs in the loop. Appending blocks it: what arrives meanwhile is appended, synced and reported together.
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


class MasterLine(asyncio.BufferedProtocol):
    """See the module. `gone` is done when the connection is over, and says why."""

    def __init__(self, raw_log: RawLog, follower: Follower) -> None:
        self.gone: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.has_appended = False
        self._raw = raw_log
        self._follower = follower
        self._frames = FrameReader()
        # One for all reads: a transport would allocate as much, and give it back, for each of them.
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
        """Tell the master where our log ends: from then on it sends."""
        self.take(Connected(-1 if self._raw.is_empty else self._raw.end))

    def take(self, event: Event) -> None:
        """One step of the follower and what it asks for."""
        try:
            for action in self._follower.step(event, now_ms()):
                self._perform(action)
        except (FlintlogError, OSError) as failure:
            self.close(str(failure) or type(failure).__name__)

    def close(self, reason: str) -> None:
        """End the connection. The first reason counts."""
        if not self.gone.done():
            self.gone.set_result(reason)
        if self._transport is not None:
            self._transport.abort()

    def _perform(self, action: Action) -> None:
        if isinstance(action, Close):
            self.close(action.reason)
        elif isinstance(action, Append):
            for start, stop in action.damage:
                log.warning("the master's log is damaged from %d to %d; it is taken as it is", start, stop)
            end = self._raw.append(action.offset, action.data, damage=action.damage)
            self.has_appended = True
            self.take(Appended(end))
        elif self._transport is not None:
            self._transport.write(encode_report(action.log_end))

    # ------------------------------------------------------------------ what the transport tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self.gone.done():
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
    """A clock that only goes forward."""
    return time.monotonic_ns() // 1_000_000
