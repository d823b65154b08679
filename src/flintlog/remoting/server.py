"""A server of remoting commands: reads frames, calls the handler of each code, and sends the answers.

Everything runs in the asyncio loop that `start` was called in. A connection is closed when it sends a malformed frame,
is silent for the idle time, or exceeds the number of connections. What an address did wrong is logged once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from flintlog.errors import FlintlogError, FormatError, InvalidConfig
from flintlog.remoting.codes import REQUEST_CODE_NOT_SUPPORTED, SYSTEM_ERROR
from flintlog.remoting.frame import Command, FrameReader, encode_frame

log = logging.getLogger(__name__)

IDLE_S: Final = 120.0
MAX_CONNECTIONS: Final = 256
_MOST_COMPLAINTS: Final = 1000
_READ_BYTES: Final = 64 * 1024

Handler = Callable[[Command], Awaitable[Command]]


@contextmanager
def naming_the_port(host: str, port: int) -> Iterator[None]:
    """Turn an OSError from listening into an error that names the port."""
    try:
        yield
    except OSError as failure:
        advice = "another process may use it: stop that process, or choose another port"
        raise InvalidConfig(f"cannot listen on {host}:{port}: {failure.strerror or failure}", advice=advice) from None


class RemotingServer:
    """Answers requests by their codes."""

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        *,
        idle_s: float = IDLE_S,
    ) -> None:
        self._handlers = dict(handlers)
        self._idle_s = idle_s
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._complained: set[str] = set()

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port (a free one for 0)."""
        with naming_the_port(host, port):
            self._server = await asyncio.start_server(self._serve, host, port)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Close the port and every connection."""
        if self._server is not None:
            self._server.close()
            for writer in list(self._writers):
                writer.close()
            await self._server.wait_closed()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = str(writer.get_extra_info("peername")[0])
        self._writers.add(writer)
        try:
            if len(self._writers) > MAX_CONNECTIONS:
                self._complain(peer, f"is one of more than {MAX_CONNECTIONS} connections")
                return
            await self._answer_all(reader, writer)
        except FormatError as error:
            self._complain(peer, f"sent {error.what}")
        except (OSError, TimeoutError, asyncio.CancelledError):
            log.debug("the connection of %s ended", peer)
        finally:
            self._writers.discard(writer)
            writer.close()

    def _complain(self, peer: str, what: str) -> None:
        if peer not in self._complained and len(self._complained) < _MOST_COMPLAINTS:
            self._complained.add(peer)
            log.warning("a connection was closed: %s %s", peer, what)

    async def _answer_all(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames = FrameReader()
        while data := await asyncio.wait_for(reader.read(_READ_BYTES), self._idle_s):
            for request in frames.feed(data):
                if request.is_response:
                    continue
                reply = await self._answer(request)
                if not request.is_one_way:
                    writer.write(encode_frame(reply))
            await writer.drain()

    async def _answer(self, request: Command) -> Command:
        handler = self._handlers.get(request.code)
        if handler is None:
            return request.reply(REQUEST_CODE_NOT_SUPPORTED, remark=f"request type {request.code} not supported")
        try:
            return await handler(request)
        except FlintlogError as error:
            return request.reply(SYSTEM_ERROR, remark=str(error))
