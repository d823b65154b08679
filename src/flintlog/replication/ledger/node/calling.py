"""The connection to one peer: sends calls, matches answers by their opaque, and reconnects after a break.

A connection without any answer while calls timed out is closed: after a partition a new one works at once, while an old
one waits for TCP. A few calls wait while the connection is being made. A call that cannot be sent, is not answered in
time, or whose connection breaks, has failed. It is not sent again here, because the state machine decides what to send
next.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

from flintlog.errors import FormatError
from flintlog.remoting.frame import Command, FrameReader, encode_frame
from flintlog.replication.ledger.core.interface import Answered, Call, CallFailed
from flintlog.replication.ledger.core.messages import RequestCode
from flintlog.replication.ledger.node.wire import Envelope, encode_request, parse_peer_response

log = logging.getLogger(__name__)

CALL_TIMEOUT_S: Final = 3.0
CONNECT_TIMEOUT_S: Final = 3.0
MAX_WAITING_CALLS: Final = 64
MAX_UNSENT_BYTES: Final = 64 * 1024 * 1024
"""Calls fail when a peer does not read and its socket's buffer holds more than this."""
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 1.0

Report = Callable[[Answered | CallFailed], None]


@dataclass(slots=True)
class _Open:
    call: Call
    code: RequestCode
    due: float


class PeerLine:
    """Calls to one peer, for one loop. `report` gets every answer and every failure; `send` never calls it directly."""

    def __init__(self, peer: str, address: str, envelope: Envelope, report: Report) -> None:
        host, _, port = address.rpartition(":")
        self.peer = peer
        self._host, self._port = host.strip("[]"), int(port)
        self._envelope = envelope
        self._report = report
        self._opaques = itertools.count(1)
        self._open: dict[int, _Open] = {}
        self._waiting: list[Call] = []
        self._out: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._pause_s = _FIRST_PAUSE_S
        self._not_before = 0.0
        self._is_closed = False
        self._complained = False
        self._heard_at = 0.0
        self._loop = asyncio.get_running_loop()
        self._sweep = self._loop.call_later(1.0, self._fail_late)

    @property
    def is_connected(self) -> bool:
        return self._transport is not None

    def send(self, call: Call) -> None:
        """Send a call with the next flush, or as soon as there is a connection."""
        if self._transport is not None:
            if self._transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
                self._fail(call)
            else:
                self._put_out(call)
        elif self._is_closed or len(self._waiting) >= MAX_WAITING_CALLS or not self._may_connect():
            self._fail(call)
        else:
            self._waiting.append(call)

    def flush(self) -> None:
        """Write all calls since the last flush to the socket at once."""
        if self._out and self._transport is not None:
            self._transport.write(b"".join(self._out))
        self._out.clear()

    async def close(self) -> None:
        """Close the connection; from then on nothing is reported."""
        self._is_closed = True
        self._sweep.cancel()
        if self._connecting is not None:
            self._connecting.cancel()
        if self._transport is not None:
            self._transport.abort()

    # ------------------------------------------------------------------ the connection

    def _may_connect(self) -> bool:
        if self._connecting is not None:
            return True
        if self._loop.time() < self._not_before:
            return False
        self._connecting = self._loop.create_task(self._connect())
        return True

    async def _connect(self) -> None:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                made = await self._loop.create_connection(lambda: _Answers(self), self._host, self._port)
        except (OSError, TimeoutError) as error:
            self._connecting = None
            self._pause(error)
            return
        self._connecting = None
        self._transport = made[0]
        self._heard_at = self._loop.time()
        self._pause_s = _FIRST_PAUSE_S
        self._complained = False
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            self._put_out(call)
        self.flush()

    def _pause(self, error: Exception) -> None:
        if not self._complained:
            self._complained = True
            log.info("the peer %s cannot be reached: %s", self.peer, error)
        self._not_before = self._loop.time() + self._pause_s
        self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            self._report(CallFailed(self.peer, call.call_id))

    def lost(self, transport: asyncio.BaseTransport, reason: str) -> None:
        """Fail the open calls of a connection that broke."""
        if transport is not self._transport:
            return
        self._transport = None
        self._out.clear()
        open_calls, self._open = self._open, {}
        if self._is_closed:
            return
        log.info("the connection to the peer %s ended: %s", self.peer, reason)
        for each in open_calls.values():
            self._report(CallFailed(self.peer, each.call.call_id))

    # ------------------------------------------------------------------ calls

    def _put_out(self, call: Call) -> None:
        opaque = next(self._opaques) & 0x7FFFFFFF
        code, body = encode_request(call.request, self._envelope)
        self._out.append(encode_frame(Command(code, opaque, body=body)))
        self._open[opaque] = _Open(call, code, self._loop.time() + CALL_TIMEOUT_S)

    def take(self, frame: Command) -> None:
        """Handle an answer; FormatError if it is malformed."""
        self._heard_at = self._loop.time()
        known = self._open.pop(frame.opaque, None) if frame.is_response else None
        if known is None:
            return  # too late, or not an answer to a call of ours
        self._report(Answered(self.peer, known.call.call_id, parse_peer_response(known.code, frame.body)))

    def _fail(self, call: Call) -> None:
        self._loop.call_soon(self._report, CallFailed(self.peer, call.call_id))

    def _fail_late(self) -> None:
        """Fail the calls that are due. `_open` is in the order of the calls, and so of their due times."""
        now = self._loop.time()
        late: list[int] = []
        for opaque, each in self._open.items():
            if each.due > now:
                break
            late.append(opaque)
        for opaque in late:
            self._report(CallFailed(self.peer, self._open.pop(opaque).call.call_id))
        if late and self._transport is not None and now - self._heard_at >= CALL_TIMEOUT_S:
            self._transport.abort()  # perhaps a partition: TCP's own retries have growing pauses
        self._sweep = self._loop.call_later(1.0, self._fail_late)


class _Answers(asyncio.Protocol):
    """Receives the answers of one connection."""

    def __init__(self, line: PeerLine) -> None:
        self._line = line
        self._frames = FrameReader()
        self._reason = "it was closed"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._frames.feed(data):
                self._line.take(frame)
        except FormatError as error:
            self._reason = f"it sent {error.what}"
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._line.lost(self._transport, str(exc or self._reason))
