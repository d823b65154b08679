"""A line between two nodes that a test can watch, cut, and mend: a TCP proxy with a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from flintlog.replication.loop_thread import LoopThread

Watch = Callable[[bool, bytes], None]
"""Called with True and bytes that went towards the target, with False and bytes that came back."""


class TcpLink:
    """Listens on a port of its own and passes everything on to `target` (`host:port`)."""

    def __init__(self, target: str, watch: Watch | None = None) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._watch = watch
        self._thread = LoopThread()
        self._open: set[asyncio.StreamWriter] = set()
        self._is_cut = False
        self._server = self._thread.call(self._listen())
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        """Close every connection and every new one, until `mend`."""
        self._thread.call(self._set_cut(True))

    def mend(self) -> None:
        """Pass new connections on again."""
        self._thread.call(self._set_cut(False))

    def close(self) -> None:
        """Close everything and end the thread."""
        self._server.close()
        self._thread.stop()

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._pass_on, "127.0.0.1", 0)

    async def _set_cut(self, is_cut: bool) -> None:
        self._is_cut = is_cut
        if is_cut:
            for writer in self._open:
                writer.transport.abort()

    def _refuses(self) -> bool:
        return self._is_cut

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        mine = {writer}
        try:
            if self._refuses():
                return
            there_reader, there_writer = await asyncio.open_connection(*self._target)
            mine.add(there_writer)
            self._open |= mine
            if self._refuses():
                return
            await asyncio.gather(
                self._pump(reader, there_writer, True),
                self._pump(there_reader, writer, False),
            )
        except OSError:
            pass
        finally:
            self._open -= mine
            for each in mine:
                each.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, towards: bool) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if self._watch is not None:
                    self._watch(towards, data)
                writer.write(data)
                await writer.drain()
        writer.transport.abort()
