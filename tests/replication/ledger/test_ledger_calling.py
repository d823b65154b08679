"""The line to a peer that fell silent: given up and made again, as after a partition that nobody reported."""

from __future__ import annotations

import asyncio

import pytest

from flintlog.replication.ledger.core.interface import Answered, Call, CallFailed
from flintlog.replication.ledger.core.messages import HeartbeatRequest
from flintlog.replication.ledger.node import calling
from flintlog.replication.ledger.node.calling import PeerLine
from flintlog.replication.ledger.node.wire import Envelope

pytestmark = pytest.mark.timeout(60)


def test_a_line_on_which_nothing_is_heard_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calling, "CALL_TIMEOUT_S", 0.2)

    async def scenario() -> None:
        connected: list[asyncio.StreamWriter] = []
        both = asyncio.Event()

        async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connected.append(writer)
            if len(connected) == 2:
                both.set()
            while await reader.read(65536):
                pass

        server = await asyncio.start_server(swallow, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        failed: list[Answered | CallFailed] = []
        line = PeerLine("n1", f"127.0.0.1:{port}", Envelope("g", "n0", "n1"), failed.append)
        number = 0
        async with asyncio.timeout(30):
            while not both.is_set():
                number += 1
                line.send(Call("n1", number, HeartbeatRequest(1, "n0")))
                line.flush()
                await asyncio.sleep(0.1)
        assert failed
        await line.close()
        for writer in connected:
            writer.transport.abort()
        server.close()
        await server.wait_closed()
        await asyncio.sleep(0.05)

    asyncio.run(scenario())
