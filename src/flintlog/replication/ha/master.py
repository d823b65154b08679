"""The master: listens on the HA port, has a `SlaveConnection` for each slave, and counts their acknowledgements.

Everything runs in the loop it was started in. A put that starts to wait calls `ring`. The loop then sends new bytes,
once for all puts that rang meanwhile; without such puts it does so every POLL_S. An acknowledgement belongs to its
connection and is dropped with it.

The number of connections is bounded, per host and in total. One too many replaces the oldest connection that has not
reported its log's end yet; if all have, the new one is refused.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import Callable
from typing import Final

from flintlog.remoting.server import naming_the_port
from flintlog.replication.ha.feed import FeedOptions
from flintlog.replication.ha.slave_connection import ConnectionOwner, SlaveConnection
from flintlog.replication.ha.wire import MAX_DATA_BYTES
from flintlog.replication.status import ReplicaStatus
from flintlog.store.options.store_config import StoreConfig
from flintlog.store.store import Store

log = logging.getLogger(__name__)

POLL_S: Final = 0.02
MOST_CONNECTIONS: Final = 64
MOST_CONNECTIONS_OF_A_HOST: Final = 16
_FIGURES_S: Final = 0.1
_MOST_COMPLAINTS: Final = 1000
_NUMBER: Final = re.compile(r"\d+")


class HaMaster:
    """Sends the log of a store to its slaves."""

    def __init__(self, store: Store) -> None:
        config = store.config
        self._port = store.replication
        self._raw = store.replication.raw_log
        self._config = config
        self._options = _feed_options(config)
        self._owner = ConnectionOwner(self._opened, self._report_to_store, self._closed)
        self.on_opened: Callable[[SlaveConnection], None] | None = None
        self._connections: tuple[SlaveConnection, ...] = ()  # replaced as a whole, because other threads read it
        self._complained: set[tuple[str, str]] = set()
        self._server: asyncio.Server | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0
        self._keeping: list[asyncio.Task[None]] = []
        self._is_rung = False

    @property
    def connections(self) -> tuple[SlaveConnection, ...]:
        """The open connections."""
        return self._connections

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port (a free one for 0)."""
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        with naming_the_port(host, port):
            self._server = await self._loop.create_server(self._make_connection, host, port)
        self._keeping = [asyncio.create_task(self._keep_figures()), asyncio.create_task(self._keep_looking())]
        self._port.on_waiting_for_replicas(self.ring)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Close the port and every connection."""
        self._port.on_waiting_for_replicas(None)
        for keeping in self._keeping:
            keeping.cancel()
        if self._server is not None:
            self._server.close()
        connections = self._connections
        for connection in connections:
            connection.close()
        await asyncio.gather(*self._keeping, *(connection.closed for connection in connections), return_exceptions=True)

    def ring(self, end: int) -> None:
        """Announce that the log has grown to `end` and a put waits for it. Any thread may call."""
        if threading.get_ident() == self._loop_thread:
            self._ring_here(end)
        elif not self._is_rung and self._loop is not None and not self._expects_reports():
            self._is_rung = True
            self._loop.call_soon_threadsafe(self._wake)

    def _ring_here(self, end: int) -> None:
        """Handle a put from the loop itself: send a full frame at once, and the rest after this turn of the loop."""
        for connection in self._connections:
            if end - (connection.feed.position or end) >= self._options.transfer_bytes:
                connection.look()
        if not self._is_rung and self._loop is not None:
            self._is_rung = True
            self._loop.call_soon(self._wake)

    def _expects_reports(self) -> bool:
        """Whether every slave is about to report. Each report sends new bytes, so the loop need not be woken."""
        for connection in self._connections:
            if not connection.is_in_flight:
                return False
        return bool(self._connections)

    def _wake(self) -> None:
        self._is_rung = False
        self._look()
        self._report_to_store()

    def _look(self) -> None:
        for connection in self._connections:
            connection.look()

    def status(self) -> list[ReplicaStatus]:
        """Every connected slave. Any thread may call."""
        end = self._raw.end
        return [
            ReplicaStatus(
                each.address,
                each.feed.acknowledged,
                each.feed.position or 0,
                end - each.feed.acknowledged,
                self._is_in_sync(each, end),
            )
            for each in sorted(self._connections, key=lambda each: each.address)
        ]

    # ------------------------------------------------------------------ one slave

    def _make_connection(self) -> SlaveConnection:
        config = self._config
        most = config.max_ha_transfer_byte_in_second if config.ha_flow_control_enable else None
        return SlaveConnection(self._raw, self._options, self._owner, most_bytes_a_second=most)

    def _opened(self, connection: SlaveConnection) -> None:
        of_host = tuple(each for each in self._connections if each.host == connection.host)
        self._connections = (*self._connections, connection)
        if self.on_opened is not None:
            self.on_opened(connection)
        for connections, most in ((of_host, MOST_CONNECTIONS_OF_A_HOST), (self._connections[:-1], MOST_CONNECTIONS)):
            if len(connections) >= most:
                silent = (each for each in connections if each.feed.position is None and not each.is_closing)
                next(silent, connection).close("there are too many connections")
                return

    def _closed(self, connection: SlaveConnection, reason: str | None) -> None:
        self._connections = tuple(each for each in self._connections if each is not connection)
        self._report_to_store()
        if reason is None:
            log.debug("the connection of slave %s ended", connection.address)
            return
        complaint = connection.host, _NUMBER.sub("", reason)
        if complaint not in self._complained and len(self._complained) < _MOST_COMPLAINTS:
            self._complained.add(complaint)
            log.warning("the connection of slave %s was closed: %s", connection.address, reason)

    # ------------------------------------------------------------------ all slaves

    async def _keep_figures(self) -> None:
        """Update the figures regularly: a slave falls out of sync when our log grows, even without a report."""
        while True:
            self._report_to_store()
            await asyncio.sleep(_FIGURES_S)

    async def _keep_looking(self) -> None:
        """Send the bytes of puts that do not wait, send heartbeats, and close silent connections."""
        while True:
            await asyncio.sleep(POLL_S)
            self._look()

    def _report_to_store(self) -> None:
        end = self._raw.end
        acknowledged = sorted((each.feed.acknowledged for each in self._connections), reverse=True)
        in_sync = 1 + sum(self._is_in_sync(each, end) for each in self._connections)
        needed = self._needed(in_sync) - 1
        held = acknowledged[needed - 1] if 0 < needed <= len(acknowledged) else 0
        confirmed = end if needed <= 0 else held
        self._port.set_replicas(confirmed_where=confirmed, in_sync_count=in_sync)

    def _needed(self, in_sync_count: int) -> int:
        config = self._config
        if not config.enable_auto_in_sync_replicas:
            return config.in_sync_replicas
        return max(config.min_in_sync_replicas, min(config.in_sync_replicas, in_sync_count))

    def _is_in_sync(self, connection: SlaveConnection, end: int) -> bool:
        return (
            connection.feed.position is not None
            and end - connection.feed.acknowledged < self._config.ha_max_gap_not_in_sync
        )


def _feed_options(config: StoreConfig) -> FeedOptions:
    return FeedOptions(
        transfer_bytes=min(config.ha_transfer_batch_size, MAX_DATA_BYTES),
        heartbeat_ms=config.ha_send_heartbeat_interval,
        housekeeping_ms=config.ha_housekeeping_interval,
        from_last_file=config.sync_from_last_file,
    )
