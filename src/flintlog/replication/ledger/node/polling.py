"""Copies settings and offsets from a leader that is a Java broker, which does not share them in the log.

    every POLL_S, while the leader is a broker whose port is known:
        topics, groups, consumer offsets, delay offsets, request modes ──▶ the `config` folder

RocketMQ's own slaves send the same requests (`flintlog.replication.ha.metadata`). When a flintlog member leads again,
it shares the copied settings with the group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from flintlog.remoting.client import RemotingClient
from flintlog.replication.ha.metadata import POLL_S, MetadataFollower, SettingsPoll
from flintlog.store.store import Store


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
        self._poll = SettingsPoll(self.ask, "leader's", poll_s)

    async def start(self) -> None:
        if self._followers:
            self._poll.start()

    async def stop(self) -> None:
        await self._poll.stop()
        for follower in self._followers.values():
            await follower.stop()

    async def ask(self) -> None:
        """Ask once, if the leader is a known broker."""
        leader = self._leader()
        follower = None if leader is None else self._followers.get(leader)
        if follower is None:
            return
        received = await follower.ask_all()
        if self._leader() == leader:
            await asyncio.to_thread(self._store.replication.ledger.take_polled, lambda: follower.write_all(received))
