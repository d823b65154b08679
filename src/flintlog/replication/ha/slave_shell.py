"""The slave's socket: connects to the master's HA port, runs a `Follower`, appends what it asks for, and comes back.

    compare with the master ─▶ connect ─▶ frames ─▶ append ─▶ report ─▶ ... ─▶ closed ─▶ a pause ─▶ compare ...

Everything runs in the loop it was started in. Appending blocks that loop: what arrives meanwhile is appended, synced
and reported together.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final

from flintlog.errors import FlintlogError, FormatError
from flintlog.replication.ha.slave import (
    Action,
    Append,
    Appended,
    Close,
    Connected,
    Event,
    Follower,
    FollowOptions,
    Received,
    Suspicions,
    Tick,
)
from flintlog.replication.ha.wire import FrameReader, encode_report
from flintlog.store.store import Store

log = logging.getLogger(__name__)

RECONNECT_S: Final = 5.0
_TICK_S: Final = 0.5
_CONNECT_TIMEOUT_S: Final = 5.0
_READ_BYTES: Final = 1024 * 1024

Compare = Callable[[], Awaitable[bool]]
"""Whether the master's log goes on where ours ends; asked before each connection."""


class HaSlave:
    """Keeps the log of a store like its master's."""

    def __init__(
        self, store: Store, address: str, *, compare: Compare | None = None, reconnect_s: float = RECONNECT_S
    ) -> None:
        host, _, port = address.rpartition(":")
        self.address = address
        self.is_connected = False
        self.trouble: str | None = None
        self._host, self._port = host.strip("[]"), int(port)
        self._raw = store.raw_log
        self._compare = compare
        self._reconnect_s = reconnect_s
        self._suspicions = Suspicions()
        self._following: asyncio.Task[None] | None = None
        self._options = FollowOptions(
            self._raw.segment_size,
            report_ms=store.config.ha_send_heartbeat_interval,
            housekeeping_ms=store.config.ha_housekeeping_interval,
        )

    async def start(self) -> None:
        self._following = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        """Close the connection, and come back no more."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)

    async def _follow(self) -> None:
        while True:
            try:
                if self._compare is None or await self._compare():
                    await self._session()
            except (FlintlogError, OSError, TimeoutError) as failure:
                self._complain(str(failure) or type(failure).__name__)
            self.is_connected = False
            await asyncio.sleep(self._reconnect_s)

    async def _session(self) -> None:
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(self._host, self._port, limit=_READ_BYTES)
        self.is_connected = True
        follower = Follower(self._options, _now_ms(), self._suspicions)
        frames = FrameReader()
        try:
            is_going_on = self._step(follower, Connected(-1 if self._raw.is_empty else self._raw.end), writer)
            while is_going_on:
                data = await _read(reader)
                if data == b"":
                    self._complain("the master closed the connection")
                    return
                event = Tick() if data is None else Received(tuple(frames.feed(data)))
                is_going_on = self._step(follower, event, writer)
                if is_going_on and data is not None:
                    is_going_on = self._step(follower, Tick(), writer)
                await writer.drain()
        except FormatError as error:
            self._complain(f"the master sent {error.what}")
        finally:
            writer.close()

    def _step(self, follower: Follower, event: Event, writer: asyncio.StreamWriter) -> bool:
        """One step and what it asks for; False when the connection is over."""
        return all(self._perform(action, follower, writer) for action in follower.step(event, _now_ms()))

    def _perform(self, action: Action, follower: Follower, writer: asyncio.StreamWriter) -> bool:
        if isinstance(action, Close):
            self._complain(action.reason)
            return False
        if isinstance(action, Append):
            for start, stop in action.damage:
                log.warning("the master's log is damaged from %d to %d; it is taken as it is", start, stop)
            end = self._raw.append(action.offset, action.data, damage=action.damage)
            self.trouble = None
            return self._step(follower, Appended(end), writer)
        writer.write(encode_report(action.log_end))
        return True

    def _complain(self, reason: str) -> None:
        """Say it once: the same trouble comes back with every attempt."""
        if reason != self.trouble:
            self.trouble = reason
            log.warning("following %s: %s", self.address, reason)


async def _read(reader: asyncio.StreamReader) -> bytes | None:
    """What came; nothing at the connection's end, None when it is time to look at the clock."""
    try:
        async with asyncio.timeout(_TICK_S):
            return await reader.read(_READ_BYTES)
    except TimeoutError:
        return None


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
