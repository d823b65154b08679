"""The slave: connects to the master's HA port, follows it, and reconnects.

    compare with the master ─▶ connect ─▶ announce ─▶ frames ─▶ append ─▶ report ─▶ ... ─▶ closed ─▶ a pause ─▶ ...

Everything runs in the loop it was started in. `master_connection.py` handles the connection itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from flintlog.errors import FlintlogError
from flintlog.replication.ha.follower import Follower, FollowOptions, Suspicions, Tick
from flintlog.replication.ha.master_connection import MasterConnection, now_ms
from flintlog.store.log.log import RECORD_SLACK_BYTES
from flintlog.store.log.record_crc import crc_to_check
from flintlog.store.store import Store

log = logging.getLogger(__name__)

RECONNECT_S: Final = 5.0
_TICK_S: Final = 0.5
_CONNECT_TIMEOUT_S: Final = 5.0

Compare = Callable[[], Awaitable[bool]]
"""Whether our log is a prefix of the master's; called before each connection."""

Announce = Callable[[str], Awaitable[None]]
"""Announces our end of a connection to the master, before the first report."""


class HaSlave:
    """Copies the master's log into a store."""

    def __init__(
        self,
        store: Store,
        address: str,
        *,
        compare: Compare | None = None,
        announce: Announce | None = None,
        reconnect_s: float = RECONNECT_S,
    ) -> None:
        host, _, port = address.rpartition(":")
        self.address = address
        self.is_connected = False
        self._trouble: str | None = None
        self._connection: MasterConnection | None = None
        self._host, self._port = host.strip("[]"), int(port)
        self._raw = store.replication.raw_log
        self._compare = compare
        self._announce = announce
        self._reconnect_s = reconnect_s
        self._suspicions = Suspicions()
        self._following: asyncio.Task[None] | None = None
        self._options = FollowOptions(
            self._raw.segment_size,
            store.config.max_message_size + RECORD_SLACK_BYTES,
            crc_to_check(store.config),
            report_ms=store.config.ha_send_heartbeat_interval,
            housekeeping_ms=store.config.ha_housekeeping_interval,
        )

    @property
    def trouble(self) -> str | None:
        """Why it does not follow now; None when it does. Any thread may call."""
        connection = self._connection
        return None if connection is not None and connection.has_appended else self._trouble

    async def start(self) -> None:
        self._following = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        """Close the connection and stop reconnecting."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)

    async def _follow(self) -> None:
        while True:
            try:
                if self._compare is None or await self._compare():
                    self._complain(await self._session())
            except (FlintlogError, OSError, TimeoutError) as failure:
                self._complain(str(failure) or type(failure).__name__)
            self.is_connected = False
            await asyncio.sleep(self._reconnect_s)

    async def _session(self) -> str:
        """Follow on one connection; returns why it ended."""
        loop = asyncio.get_running_loop()
        follower = Follower(self._options, now_ms(), self._suspicions)
        connection = MasterConnection(self._raw, follower)
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            await loop.create_connection(lambda: connection, self._host, self._port)
        try:
            if self._announce is not None:
                await self._announce(connection.local_address)
            connection.begin()
            self.is_connected = True
            self._connection = connection
            while not connection.closed.done():
                await asyncio.wait([connection.closed], timeout=_TICK_S)
                connection.take(Tick())
            return connection.closed.result()
        finally:
            connection.close("the slave has stopped")
            if connection.has_appended:
                self._trouble = None
            self._connection = None

    def _complain(self, reason: str) -> None:
        """Log a reason once: every attempt repeats it."""
        if reason != self._trouble:
            self._trouble = reason
            log.warning("following %s: %s", self.address, reason)
