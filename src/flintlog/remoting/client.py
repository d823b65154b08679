"""A connection that sends requests and matches the answers by their opaque. For one asyncio loop."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
from typing import Final

from flintlog.errors import FormatError, PeerFailed
from flintlog.remoting.frame import Command, FrameReader, encode_frame

TIMEOUT_S: Final = 3.0
_READ_BYTES: Final = 64 * 1024


class RemotingClient:
    """Requests to one address. It connects with the first call, and again after a connection broke."""

    def __init__(self, address: str, *, timeout_s: float = TIMEOUT_S) -> None:
        host, _, port = address.rpartition(":")
        self.address = address
        self._host, self._port = host.strip("[]"), int(port)
        self._timeout_s = timeout_s
        self._opaques = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Command]] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._connecting = asyncio.Lock()
        self._heard_count = 0

    async def call(self, request: Command, timeout_s: float | None = None) -> Command:
        """Send a request and wait for its answer; PeerFailed when there is none in time."""
        opaque = next(self._opaques) & 0x7FFFFFFF
        answer: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        waiting = self._waiting
        heard_before = self._heard_count
        try:
            async with asyncio.timeout(self._timeout_s if timeout_s is None else timeout_s):
                writer = await self._connected()
                waiting = self._waiting
                waiting[opaque] = answer
                writer.write(encode_frame(dataclasses.replace(request, opaque=opaque)))
                await writer.drain()
                return await answer
        except TimeoutError:
            if self._writer is not None and self._heard_count == heard_before:
                self._writer.transport.abort()  # perhaps a partition: the next call makes a new connection
            raise PeerFailed(f"{self.address} did not answer request {request.code} in time") from None
        except OSError as error:
            raise PeerFailed(f"{self.address} cannot be reached: {error.strerror or error}") from None
        finally:
            waiting.pop(opaque, None)

    async def _connected(self) -> asyncio.StreamWriter:
        async with self._connecting:
            if self._writer is None or self._writer.is_closing():
                reader, self._writer = await asyncio.open_connection(self._host, self._port)
                self._waiting = {}  # the old connection's reader fails the calls that wait on it
                self._reading = asyncio.create_task(self._read(reader, self._writer, self._waiting))
            return self._writer

    async def _read(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, waiting: dict[int, asyncio.Future[Command]]
    ) -> None:
        frames = FrameReader()
        reason = "the connection was closed"
        try:
            while data := await reader.read(_READ_BYTES):
                self._heard_count += 1
                for command in frames.feed(data):
                    answer = waiting.get(command.opaque) if command.is_response else None
                    if answer is not None and not answer.done():
                        answer.set_result(command)
        except FormatError as error:
            reason = f"it sent {error.what}"
        except OSError as error:
            reason = str(error.strerror or error)
        finally:
            writer.close()
            for answer in waiting.values():
                if not answer.done():
                    answer.set_exception(PeerFailed(f"{self.address}: {reason}"))

    async def close(self) -> None:
        """Close the connection; calls that still wait fail."""
        if self._writer is not None:
            self._writer.close()
        if self._reading is not None:
            self._reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reading
