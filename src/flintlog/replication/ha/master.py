"""The master's side: listens on the HA port, has a `SlaveLine` for each slave, and counts what they hold.

Everything runs in the loop it was started in. A put that begins to wait rings; the log is looked at once for all that
rang meanwhile, and without such puts every POLL_S. Acknowledgements belong to connections and go with them.

Connections are bounded, for each host and in all. One too many takes the place of the oldest that has not said yet how
far its log goes; when all have, it is refused.
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
from flintlog.replication.ha.slave_connection import LineOwner, SlaveLine
from flintlog.replication.ha.wire import MAX_DATA_BYTES
from flintlog.replication.status import ReplicaStatus
from flintlog.store.options.store_config import StoreConfig
from flintlog.store.store import Store

log = logging.getLogger(__name__)

POLL_S: Final = 0.02
MOST_LINES: Final = 64
MOST_LINES_OF_A_HOST: Final = 16
_FIGURES_S: Final = 0.1
_MOST_COMPLAINTS: Final = 1000
_NUMBER: Final = re.compile(r"\d+")


class HaMaster:
    """Sends the log of a store to its slaves."""

    def __init__(self, store: Store) -> None:
        config = store.config
        self._store = store
        self._raw = store.raw_log
        self._config = config
        self._options = _feed_options(config)
        self._owner = LineOwner(self._opened, self._tell_store, self._closed)
        self.on_opened: Callable[[SlaveLine], None] | None = None
        self._lines: tuple[SlaveLine, ...] = ()  # replaced as a whole: other threads look at it
        self._complained: set[tuple[str, str]] = set()
        self._server: asyncio.Server | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0
        self._keeping: list[asyncio.Task[None]] = []
        self._is_rung = False

    @property
    def lines(self) -> tuple[SlaveLine, ...]:
        """The connections."""
        return self._lines

    async def start(self, host: str, port: int) -> int:
        """Listen; the port, which is a free one when 0 was asked for."""
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        with naming_the_port(host, port):
            self._server = await self._loop.create_server(self._make_line, host, port)
        self._keeping = [asyncio.create_task(self._keep_figures()), asyncio.create_task(self._keep_looking())]
        self._store.on_waiting_for_replicas(self.ring)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Close the port and every connection."""
        self._store.on_waiting_for_replicas(None)
        for keeping in self._keeping:
            keeping.cancel()
        if self._server is not None:
            self._server.close()
        lines = self._lines
        for line in lines:
            line.close()
        await asyncio.gather(*self._keeping, *(line.gone for line in lines), return_exceptions=True)

    def ring(self, end: int) -> None:
        """The log has grown to `end` and somebody waits for it; any thread may say so."""
        if threading.get_ident() == self._loop_thread:
            self._ring_here(end)
        elif not self._is_rung and self._loop is not None and not self._is_heard_of_soon():
            self._is_rung = True
            self._loop.call_soon_threadsafe(self._wake)

    def _ring_here(self, end: int) -> None:
        """A coroutine puts: others of this turn may follow, but a whole frame is sent at once."""
        for line in self._lines:
            if end - (line.feed.position or end) >= self._options.transfer_bytes:
                line.look()
        if not self._is_rung and self._loop is not None:
            self._is_rung = True
            self._loop.call_soon(self._wake)

    def _is_heard_of_soon(self) -> bool:
        """Whether every slave is about to report: then the log is looked at without anyone waking the loop."""
        for line in self._lines:
            if not line.is_in_flight:
                return False
        return bool(self._lines)

    def _wake(self) -> None:
        self._is_rung = False
        self._look()
        self._tell_store()

    def _look(self) -> None:
        for line in self._lines:
            line.look()

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
            for each in sorted(self._lines, key=lambda each: each.address)
        ]

    # ------------------------------------------------------------------ one slave

    def _make_line(self) -> SlaveLine:
        config = self._config
        most = config.max_ha_transfer_byte_in_second if config.ha_flow_control_enable else None
        return SlaveLine(self._raw, self._options, self._owner, most_bytes_a_second=most)

    def _opened(self, line: SlaveLine) -> None:
        of_host = tuple(each for each in self._lines if each.host == line.host)
        self._lines = (*self._lines, line)
        if self.on_opened is not None:
            self.on_opened(line)
        for lines, most in ((of_host, MOST_LINES_OF_A_HOST), (self._lines[:-1], MOST_LINES)):
            if len(lines) >= most:
                silent = (each for each in lines if each.feed.position is None and not each.is_closing)
                next(silent, line).close("there are too many connections")
                return

    def _closed(self, line: SlaveLine, reason: str | None) -> None:
        self._lines = tuple(each for each in self._lines if each is not line)
        self._tell_store()
        if reason is None:
            log.debug("the connection of slave %s ended", line.address)
            return
        complaint = line.host, _NUMBER.sub("", reason)
        if complaint not in self._complained and len(self._complained) < _MOST_COMPLAINTS:
            self._complained.add(complaint)
            log.warning("the connection of slave %s was closed: %s", line.address, reason)

    # ------------------------------------------------------------------ all slaves

    async def _keep_figures(self) -> None:
        """A slave falls out of sync by our growing, not only by what it says."""
        while True:
            self._tell_store()
            await asyncio.sleep(_FIGURES_S)

    async def _keep_looking(self) -> None:
        """For puts that wait for nobody, heartbeats and silence."""
        while True:
            await asyncio.sleep(POLL_S)
            self._look()

    def _tell_store(self) -> None:
        end = self._raw.end
        acknowledged = sorted((each.feed.acknowledged for each in self._lines), reverse=True)
        in_sync = 1 + sum(self._is_in_sync(each, end) for each in self._lines)
        needed = self._needed(in_sync) - 1
        held = acknowledged[needed - 1] if 0 < needed <= len(acknowledged) else 0
        confirmed = end if needed <= 0 else held
        self._store.set_replicas(confirmed_where=confirmed, in_sync_count=in_sync)

    def _needed(self, in_sync_count: int) -> int:
        config = self._config
        if not config.enable_auto_in_sync_replicas:
            return config.in_sync_replicas
        return max(config.min_in_sync_replicas, min(config.in_sync_replicas, in_sync_count))

    def _is_in_sync(self, line: SlaveLine, end: int) -> bool:
        return line.feed.position is not None and end - line.feed.acknowledged < self._config.ha_max_gap_not_in_sync


def _feed_options(config: StoreConfig) -> FeedOptions:
    return FeedOptions(
        transfer_bytes=min(config.ha_transfer_batch_size, MAX_DATA_BYTES),
        heartbeat_ms=config.ha_send_heartbeat_interval,
        housekeeping_ms=config.ha_housekeeping_interval,
        from_last_file=config.sync_from_last_file,
    )
