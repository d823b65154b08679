"""Requests over real sockets: answers, errors, garbage, silence."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from flintlog.errors import FlintlogError, PeerFailed
from flintlog.remoting.client import RemotingClient
from flintlog.remoting.frame import BINARY_FORM, Command
from flintlog.remoting.server import Handler, RemotingServer

pytestmark = pytest.mark.timeout(30)
HOST = "127.0.0.1"

Talk = Callable[[RemotingClient], Awaitable[None]]


async def _echo(request: Command) -> Command:
    return request.reply(0, request.body, fields=request.fields)


async def _fail(request: Command) -> Command:
    raise FlintlogError("out of luck")


async def _be_silent(request: Command) -> Command:
    await asyncio.sleep(60)
    return request.reply(0)


HANDLERS: dict[int, Handler] = {1: _echo, 2: _fail, 4: _be_silent}


def talk(conversation: Talk, server: RemotingServer | None = None) -> None:
    async def run() -> None:
        serving = server or RemotingServer(HANDLERS)
        client = RemotingClient(f"{HOST}:{await serving.start(HOST, 0)}", timeout_s=5)
        try:
            await conversation(client)
        finally:
            await client.close()
            await serving.stop()

    asyncio.run(run())


def test_many_requests_at_once_get_their_own_answers() -> None:
    async def conversation(client: RemotingClient) -> None:
        requests = [Command(1, body=b"%d" % number, form=number % 2 * BINARY_FORM) for number in range(50)]
        answers = await asyncio.gather(*map(client.call, requests))
        assert [answer.body for answer in answers] == [request.body for request in requests]
        assert all(answer.code == 0 and answer.is_response for answer in answers)

    talk(conversation)


def test_an_unknown_code_and_a_failing_handler_are_answered() -> None:
    async def conversation(client: RemotingClient) -> None:
        assert (await client.call(Command(99))).code == 3
        failed = await client.call(Command(2))
        assert (failed.code, failed.remark) == (1, "out of luck")
        assert (await client.call(Command(1, body=b"x"))).body == b"x"

    talk(conversation)


def test_a_server_that_says_nothing_is_given_up_on() -> None:
    async def conversation(client: RemotingClient) -> None:
        with pytest.raises(PeerFailed, match="did not answer request 4 in time"):
            await client.call(Command(4), timeout_s=0.05)

    talk(conversation)


def test_a_silent_connection_is_given_up_and_one_that_speaks_is_not() -> None:
    async def conversation(client: RemotingClient) -> None:
        await client.call(Command(1))
        first = client._writer
        with pytest.raises(PeerFailed):
            await client.call(Command(4), timeout_s=0.05)
        await client.call(Command(1))
        assert client._writer is not first
        second = client._writer
        assert second is not None
        slow = asyncio.create_task(client.call(Command(4), timeout_s=0.2))
        await asyncio.sleep(0.05)
        client._heard_count += 1  # as when something else is answered meanwhile
        with pytest.raises(PeerFailed):
            await slow
        assert not second.is_closing()

    talk(conversation)


def test_a_call_to_a_closed_port_fails() -> None:
    async def run() -> None:
        server = RemotingServer(HANDLERS)
        port = await server.start(HOST, 0)
        await server.stop()
        with pytest.raises(PeerFailed, match="cannot be reached"):
            await RemotingClient(f"{HOST}:{port}").call(Command(1))

    asyncio.run(run())


def test_a_broken_connection_is_made_again() -> None:
    async def run() -> None:
        server = RemotingServer(HANDLERS)
        port = await server.start(HOST, 0)
        client = RemotingClient(f"{HOST}:{port}")
        assert (await client.call(Command(1))).code == 0
        await server.stop()
        again = RemotingServer(HANDLERS)
        await again.start(HOST, port)
        await asyncio.sleep(0.05)
        assert (await client.call(Command(1))).code == 0
        await client.close()
        await again.stop()

    asyncio.run(run())


async def _send_raw(port: int, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(data)
    answered = await asyncio.wait_for(reader.read(), 5)
    writer.close()
    return answered


@pytest.mark.parametrize("noise", [b"\x7f\xff\xff\xff\0\0\0\0", b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\x08\0\0\0\x04[]]]"])
def test_noise_closes_the_connection_and_is_logged_once(noise: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        server = RemotingServer(HANDLERS)
        port = await server.start(HOST, 0)
        for _ in range(3):
            assert await _send_raw(port, noise) == b""
        await server.stop()

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    assert len(caplog.records) == 1


def test_an_idle_connection_is_closed() -> None:
    async def run() -> None:
        server = RemotingServer(HANDLERS, idle_s=0.05)
        port = await server.start(HOST, 0)
        assert await _send_raw(port, b"") == b""
        await server.stop()

    asyncio.run(run())
