"""The port of a ledger node: accepts connections, reads requests, and sends answers.

Only the configured peers are accepted. A connection from another address is refused. So is one that speaks for another
node, names another group or node, or sends a malformed frame or body: it is closed, and its address logged once.
Reading pauses on a connection with too many open requests, or whose peer does not read its answers.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections.abc import Callable, Mapping
from typing import Final, cast

from flintlog.errors import FormatError
from flintlog.remoting.codes import REQUEST_CODE_NOT_SUPPORTED
from flintlog.remoting.frame import Command, FrameReader, encode_frame
from flintlog.remoting.server import naming_the_port
from flintlog.replication.ledger.core.messages import (
    AppendRequest,
    GetRequest,
    MetadataRequest,
    Request,
    RequestCode,
    Response,
    ResponseCode,
    TransferRequest,
)
from flintlog.replication.ledger.node.wire import (
    FRAME_SUCCESS,
    Envelope,
    encode_refusal,
    encode_response,
    parse_request,
)

log = logging.getLogger(__name__)

MAX_OPEN_REQUESTS: Final = 4_096
"""A Java leader has up to 1,000 pushes under way."""
IDLE_S: Final = 120.0
MAX_COMPLAINTS: Final = 1_000
MAX_CONNECTIONS: Final = 512
MAX_CONNECTIONS_A_HOST: Final = 128
MAX_OPEN_BYTES: Final = 64 * 1024 * 1024
"""The limit for unanswered requests of one connection; above it reading pauses."""
_VARYING: Final = re.compile(r"'[^']*'|\d+")
"""The text that differs between two refusals of the same kind."""
_LOOK_UP_INTERVAL_S: Final = 1.0

_CODES: Final = frozenset(int(code) for code in RequestCode)

Deliver = Callable[["Question"], None]


class Question:
    """A request, and the connection for its answer."""

    __slots__ = ("_connection", "_envelope", "_frame", "request", "sender")

    def __init__(self, connection: _Connection, frame: Command, envelope: Envelope, request: Request) -> None:
        self._connection = connection
        self._frame = frame
        self._envelope = envelope
        self.sender = envelope.local_id
        self.request = request

    def answer(self, response: Response) -> None:
        """Send the answer with the connection's next flush."""
        self._connection.answer(self._frame, encode_response(response, self._envelope.turned()))

    def refuse(self, response: Response, what: str) -> None:
        """Send the answer, then close the connection and log why."""
        self.answer(response)
        self._connection.flush()
        self._connection.refuse(what)


class PeerHosts:
    """The addresses of the configured peers. Names are looked up again when an unknown address connects."""

    def __init__(self, peers: Mapping[str, str]) -> None:
        self._names = {peer: address.rpartition(":")[0].strip("[]") for peer, address in peers.items()}
        self._known: dict[str, frozenset[str]] = {}
        self._looked_up_at = float("-inf")

    async def look_up(self) -> None:
        """Look up the addresses of every peer; a name that cannot be resolved keeps its old ones."""
        loop = asyncio.get_running_loop()
        self._looked_up_at = loop.time()
        for peer, name in self._names.items():
            try:
                found = await loop.getaddrinfo(name, None, type=socket.SOCK_STREAM)
            except OSError as error:
                log.warning("the address of the peer %s (%s) cannot be found: %s", peer, name, error)
                continue
            self._known[peer] = frozenset(str(each[4][0]) for each in found)

    def look_up_again(self) -> None:
        """Look the names up again, unless that was done within the last second."""
        loop = asyncio.get_running_loop()
        if loop.time() - self._looked_up_at >= _LOOK_UP_INTERVAL_S:
            self._looked_up_at = loop.time()
            self._looking = loop.create_task(self.look_up())

    def knows(self, host: str) -> bool:
        """True if some peer has this address."""
        return any(host in known for known in self._known.values())

    def has(self, peer: str, host: str) -> bool:
        """True if this peer has this address."""
        return host in self._known.get(peer, ())


class LedgerListener:
    """Passes every request for this node to `deliver`, in the loop that `start` was called in."""

    def __init__(
        self,
        group: str,
        self_id: str,
        peers: Mapping[str, str],
        deliver: Deliver,
        *,
        peers_only: bool = True,
        takes_appends: bool = True,
    ) -> None:
        """Without `takes_appends` clients cannot append: a store's entries are its own records."""
        self.group = group
        self.self_id = self_id
        self.peers = dict(peers)
        self.peers_only = peers_only
        self.takes_appends = takes_appends
        self.hosts = PeerHosts(peers)
        self.deliver = deliver
        self.connections: set[_Connection] = set()
        self._dirty: set[_Connection] = set()
        self._server: asyncio.Server | None = None
        self._complained: set[str] = set()

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port (a free one for 0)."""
        await self.hosts.look_up()
        loop = asyncio.get_running_loop()
        with naming_the_port(host, port):
            self._server = await loop.create_server(lambda: _Connection(self), host, port)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Close the port and every connection."""
        if self._server is not None:
            self._server.close()
            for connection in list(self.connections):
                connection.close()
            await self._server.wait_closed()
            self._server = None

    def flush(self) -> None:
        """Send all answers since the last flush, with one write per connection."""
        dirty, self._dirty = self._dirty, set()
        for connection in dirty:
            connection.flush()

    def has_answers(self, connection: _Connection) -> None:
        """Note that a connection has answers to send."""
        self._dirty.add(connection)

    def complain(self, host: str, what: str) -> None:
        """Log why a connection was closed: once per address and reason, and at most MAX_COMPLAINTS times."""
        complaint = f"{host} {_VARYING.sub('…', what)}"
        if complaint not in self._complained and len(self._complained) < MAX_COMPLAINTS:
            self._complained.add(complaint)
            log.warning("a connection was closed: %s %s", host, what)

    def count_from(self, host: str) -> int:
        """How many connections an address has."""
        return sum(connection.host == host for connection in self.connections)


class _Connection(asyncio.Protocol):
    def __init__(self, listener: LedgerListener) -> None:
        self._listener = listener
        self._frames = FrameReader()
        self._out: list[bytes] = []
        self._open = 0
        self._open_bytes = 0
        self._is_closed = False
        self._is_paused = False
        self._cannot_write = False
        self.host = ""
        self._heard_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._loop = asyncio.get_running_loop()
        self.host = str(transport.get_extra_info("peername")[0])
        self._listener.connections.add(self)
        if len(self._listener.connections) > MAX_CONNECTIONS:
            self.refuse("came when there were too many connections")
            return
        if self._listener.count_from(self.host) > MAX_CONNECTIONS_A_HOST:
            self.refuse("has too many connections")
            return
        if self._listener.peers_only and not self._listener.hosts.knows(self.host):
            self._listener.hosts.look_up_again()
            self.refuse("is none of the configured peers")
            return
        self._heard_at = self._loop.time()
        self._idle_check = self._loop.call_later(IDLE_S, self._check_idle)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_closed = True
        self._listener.connections.discard(self)
        if hasattr(self, "_idle_check"):
            self._idle_check.cancel()

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._loop.time()
        try:
            for frame in self._frames.feed(data):
                if self._is_closed:
                    return
                if not frame.is_response:
                    self._take(frame)
        except FormatError as error:
            self.refuse(f"sent {error.what}")

    def pause_writing(self) -> None:
        self._cannot_write = True
        self._pace()

    def resume_writing(self) -> None:
        self._cannot_write = False
        self._pace()

    def answer(self, frame: Command, body: bytes) -> None:
        self._open -= 1
        self._open_bytes -= len(frame.body)
        if self._is_closed:
            return
        if not frame.is_one_way:
            self._out.append(encode_frame(frame.reply(FRAME_SUCCESS, body)))
            self._listener.has_answers(self)
        self._pace()

    def flush(self) -> None:
        if self._out and not self._is_closed:
            self._transport.write(b"".join(self._out))
        self._out.clear()

    def close(self) -> None:
        self._is_closed = True
        self._transport.close()

    def _take(self, frame: Command) -> None:
        if frame.code not in _CODES:
            remark = f"request type {frame.code} not supported"
            self._transport.write(encode_frame(frame.reply(REQUEST_CODE_NOT_SUPPORTED, remark=remark)))
            return
        envelope, request = parse_request(frame.code, frame.body)
        refusal = self._refusal(envelope, request)
        if refusal is not None:
            code, what = refusal
            self._transport.write(encode_frame(frame.reply(FRAME_SUCCESS, encode_refusal(code, envelope.turned()))))
            self.refuse(what)
            return
        self._open += 1
        self._open_bytes += len(frame.body)
        self._listener.deliver(Question(self, frame, envelope, request))
        self._pace()

    def _refusal(self, envelope: Envelope, request: Request) -> tuple[ResponseCode, str] | None:
        mine = self._listener
        if envelope.group != mine.group:
            return ResponseCode.UNKNOWN_GROUP, f"asked for the group {envelope.group!r}, this is {mine.group!r}"
        if envelope.remote_id != mine.self_id:
            return ResponseCode.UNKNOWN_MEMBER, f"asked for the node {envelope.remote_id!r}, this is {mine.self_id!r}"
        if isinstance(request, AppendRequest) and not mine.takes_appends:
            return ResponseCode.UNEXPECTED_ARGUMENT, "wants to append to a store's ledger"
        if not mine.peers_only or isinstance(request, AppendRequest | GetRequest | MetadataRequest):
            return None
        sender = envelope.local_id
        if not sender and isinstance(request, TransferRequest):
            return None  # from a client: DLedger's own command line sends no id
        if sender == mine.self_id or sender not in mine.peers:
            return ResponseCode.UNKNOWN_MEMBER, f"speaks for {sender!r}, which is no other node of the group"
        if not mine.hosts.has(sender, self.host):
            return ResponseCode.UNKNOWN_MEMBER, f"speaks for {sender!r}, which has another address"
        return None

    def refuse(self, what: str) -> None:
        self._listener.complain(self.host, what)
        self.close()

    def _pace(self) -> None:
        is_full = self._open >= MAX_OPEN_REQUESTS or self._open_bytes >= MAX_OPEN_BYTES
        wants_pause = self._cannot_write or is_full
        if wants_pause == self._is_paused or self._is_closed:
            return
        self._is_paused = wants_pause
        if wants_pause:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _check_idle(self) -> None:
        rest = self._heard_at + IDLE_S - self._loop.time()
        if rest <= 0 and self._open == 0:
            self.close()
        else:
            self._idle_check = self._loop.call_later(max(rest, 1.0), self._check_idle)
