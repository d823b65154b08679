"""Copies settings and offsets from a leader that is a Java broker, which does not share them in the log.

    every POLL_S, while the leader is a broker whose port is known:
        topics, groups, consumer offsets, delay offsets, request modes ──▶ the `config` folder

RocketMQ's own slaves send the same requests (`flintlog.replication.ha.metadata`). When a flintlog member leads again,
it shares the copied settings with the group.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from flintlog.errors import FlintlogError
from flintlog.remoting.client import RemotingClient
from flintlog.replication.ha.metadata import POLL_S, MetadataFollower
from flintlog.store.store import Store

log = logging.getLogger(__name__)


class LeaderPoll:
    """Asks the leader, if it is one of these brokers. For one asyncio loop."""

    def __init__(
        self, store: Store, leader: Callable[[], str | None], brokers: Mapping[str, str], *, poll_s: float = POLL_S
    ) -> None:
        self._store = store
        self._leader = leader
        self._followers = {
            member: MetadataFollower(store, RemotingClient(address)) for member, address in brokers.items()
        }
        self._poll_s = poll_s
        self._trouble: str | None = None
        self._polling: asyncio.Task[None] | None = None

    async def start(self) -> None:
        if self._followers:
            self._polling = asyncio.create_task(self._poll())

    async def stop(self) -> None:
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.gather(self._polling, return_exceptions=True)
        for follower in self._followers.values():
            await follower.stop()

    async def _poll(self) -> None:
        while True:
            try:
                await self.ask()
                self._trouble = None
            except FlintlogError as failure:
                if str(failure) != self._trouble:
                    self._trouble = str(failure)
                    log.warning("the leader's settings cannot be copied: %s", failure)
            await asyncio.sleep(self._poll_s)

    async def ask(self) -> None:
        """Ask once, if the leader is a known broker."""
        leader = self._leader()
        follower = None if leader is None else self._followers.get(leader)
        if follower is None:
            return
        received = await follower.ask_all()
        if self._leader() == leader:
            await asyncio.to_thread(self._store.replication.ledger.take_polled, lambda: follower.write_all(received))
