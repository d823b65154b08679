"""The two ports of a broker: its main port, and the "fast" port two below, where a Java slave asks for the topics."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from flintlog.errors import InvalidConfig
from flintlog.remoting.server import Handler, RemotingServer

log = logging.getLogger(__name__)

_FAST_PORT_BELOW: Final = 2


class BrokerPorts:
    """Serves the same handlers on both ports. For one asyncio loop."""

    def __init__(self, handlers: Mapping[int, Handler]) -> None:
        self._server, self._fast_server = RemotingServer(handlers), RemotingServer(handlers)

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port (a free one for 0). If the fast port is taken, this only logs a warning."""
        port = await self._server.start(host, port)
        try:
            await self._fast_server.start(host, max(1, port - _FAST_PORT_BELOW))
        except InvalidConfig as failure:
            log.warning("Java slaves cannot read the topics from this node: %s", failure)
        return port

    async def stop(self) -> None:
        await self._server.stop()
        await self._fast_server.stop()
