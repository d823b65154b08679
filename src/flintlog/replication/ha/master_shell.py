"""The master's sockets: listens on the HA port and runs a `ReplicaFeed` for each slave that connects.

Everything runs in the loop it was started in. A put that begins to wait rings the bell once a group; without such puts
the log is looked at every POLL_S. Acknowledgements belong to connections and go with them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import Final

from flintlog.errors import FlintlogError
from flintlog.replication.ha.master import (
    Acknowledged,
    Action,
    Close,
    FeedOptions,
    LogBounds,
    ReplicaFeed,
    Reported,
    Send,
    Tick,
)
from flintlog.replication.ha.wire import MAX_DATA_BYTES, ReportReader, encode_frame
from flintlog.store.config import StoreConfig
from flintlog.store.store import Store

log = logging.getLogger(__name__)

POLL_S: Final = 0.02
_FRAMES_A_TURN: Final = 16


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """One connected slave, as its master sees it."""

    address: str
    acknowledged: int
    sent: int
    lag_bytes: int
    is_in_sync: bool


class _Connection:
    """One slave: its feed, and what wakes it."""

    def __init__(self, address: str, options: FeedOptions) -> None:
        self.address = address
        self.feed = ReplicaFeed(options, _now_ms())
        self.bell = asyncio.Event()
        self.report: int | None = None
        self.is_over = False
        self.serving = asyncio.current_task()


class HaMaster:
    """Sends the log of a store to its slaves."""

    def __init__(self, store: Store) -> None:
        config = store.config
        self._store = store
        self._raw = store.raw_log
        self._config = config
        self._options = _feed_options(config)
        self._connections: set[_Connection] = set()
        self._complained: set[str] = set()
        self._server: asyncio.Server | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._is_rung = False

    async def start(self, host: str, port: int) -> int:
        """Listen; the port, which is a free one when 0 was asked for."""
        self._loop = asyncio.get_running_loop()
        self._server = await asyncio.start_server(self._serve, host, port)
        self._keeping = asyncio.create_task(self._keep_figures())
        self._store.on_waiting_for_replicas(self.ring)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Close the port and every connection."""
        self._store.on_waiting_for_replicas(None)
        if self._keeping is not None:
            self._keeping.cancel()
        if self._server is not None:
            self._server.close()
        for connection in self._connections:
            connection.is_over = True
            connection.bell.set()
        serving = [connection.serving for connection in self._connections if connection.serving is not None]
        await asyncio.gather(*serving, return_exceptions=True)

    def ring(self) -> None:
        """The log has grown and somebody waits for it; any thread may say so."""
        if not self._is_rung and self._loop is not None:
            self._is_rung = True
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._is_rung = False
        for connection in self._connections:
            connection.bell.set()
        self._tell_store()

    def status(self) -> list[ReplicaStatus]:
        """Every connected slave. Any thread may ask."""
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

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = writer.get_extra_info("peername")[:2]
        connection = _Connection(f"{host}:{port}", self._options)
        self._connections.add(connection)
        reading = asyncio.create_task(_read_reports(reader, connection))
        try:
            await self._send_all(connection, writer)
        except (OSError, asyncio.CancelledError):
            log.debug("the connection of slave %s ended", connection.address)
        except FlintlogError as failure:
            self._close(connection, str(failure))
        finally:
            reading.cancel()
            writer.close()
            self._connections.discard(connection)
            self._tell_store()

    async def _send_all(self, connection: _Connection, writer: asyncio.StreamWriter) -> None:
        frames_a_turn = 1 if self._config.ha_flow_control_enable else _FRAMES_A_TURN
        while not connection.is_over:
            sent = 0
            for _ in range(frames_a_turn):
                size = self._turn(connection, writer)
                sent += size
                if not size:
                    break
            await writer.drain()
            if sent and self._config.ha_flow_control_enable:
                await asyncio.sleep(sent / self._config.max_ha_transfer_byte_in_second)
            if not sent and not connection.is_over:
                await _wait(connection.bell, POLL_S)

    def _turn(self, connection: _Connection, writer: asyncio.StreamWriter) -> int:
        """One step of the feed and what it asks for; how many bytes of the log were sent."""
        report, connection.report = connection.report, None
        bounds = LogBounds(self._raw.start, self._raw.end, self._raw.segment_size)
        actions = connection.feed.step(Tick() if report is None else Reported(report), bounds, _now_ms())
        return sum(self._perform(action, connection, writer) for action in actions)

    def _perform(self, action: Action, connection: _Connection, writer: asyncio.StreamWriter) -> int:
        if isinstance(action, Close):
            self._close(connection, action.reason)
        elif isinstance(action, Acknowledged):
            self._tell_store()
        else:
            return self._send(action, connection, writer)
        return 0

    def _send(self, wanted: Send, connection: _Connection, writer: asyncio.StreamWriter) -> int:
        data = self._raw.read(wanted.offset, wanted.size) if wanted.size else b""
        if len(data) != wanted.size:
            self._close(connection, f"what it needs at {wanted.offset} cannot be read")
            return 0
        writer.write(encode_frame(wanted.offset, data))
        return len(data)

    def _close(self, connection: _Connection, reason: str) -> None:
        connection.is_over = True
        host = connection.address.rpartition(":")[0]
        if f"{host} {reason}" not in self._complained:
            self._complained.add(f"{host} {reason}")
            log.warning("the connection of slave %s was closed: %s", connection.address, reason)

    # ------------------------------------------------------------------ all slaves

    async def _keep_figures(self) -> None:
        """A slave falls out of sync by our growing, not only by what it says."""
        while True:
            self._tell_store()
            await asyncio.sleep(0.1)

    def _tell_store(self) -> None:
        end = self._raw.end
        acknowledged = sorted((each.feed.acknowledged for each in self._connections), reverse=True)
        in_sync = 1 + sum(self._is_in_sync(each, end) for each in self._connections)
        needed = self._needed(in_sync) - 1
        held = acknowledged[needed - 1] if 0 < needed <= len(acknowledged) else 0
        confirmed = end if needed <= 0 else held
        self._store.set_replicas(confirmed_where=confirmed, in_sync_count=in_sync)

    def _needed(self, in_sync_count: int) -> int:
        config = self._config
        if not config.enable_auto_in_sync_replicas:
            return config.in_sync_replicas
        return max(config.min_in_sync_replicas, min(config.in_sync_replicas, in_sync_count))

    def _is_in_sync(self, connection: _Connection, end: int) -> bool:
        return (
            connection.feed.position is not None
            and end - connection.feed.acknowledged < self._config.ha_max_gap_not_in_sync
        )


async def _read_reports(reader: asyncio.StreamReader, connection: _Connection) -> None:
    reports = ReportReader()
    try:
        while data := await reader.read(4096):
            report = reports.feed(data)
            if report is not None:
                connection.report = report
                connection.bell.set()
    except OSError:
        pass
    connection.is_over = True
    connection.bell.set()


async def _wait(bell: asyncio.Event, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await bell.wait()
    except TimeoutError:
        pass
    bell.clear()


def _feed_options(config: StoreConfig) -> FeedOptions:
    return FeedOptions(
        transfer_bytes=min(config.ha_transfer_batch_size, MAX_DATA_BYTES),
        heartbeat_ms=config.ha_send_heartbeat_interval,
        housekeeping_ms=config.ha_housekeeping_interval,
        from_last_file=config.sync_from_last_file,
    )


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
