"""A master or slave node: a store, its role, and its ports.

    master   HA port (the log)       remoting port: settings, comparison, status
    slave    follows a master        remoting port: the same for its own store

A Java slave asks for the topics at a broker's "fast" port, two below the remoting port; a node listens there too.

`promote` makes a slave a master by reopening its store in that role. When a slave's log is not a prefix of a promoted
master's log, the slave reopens its store and cuts the rest off, which is kept in `flintlog/cut/`. If the master was not
promoted, the slave takes nothing from it and waits for an operator's decision.

Threads: all sockets run in `flintlog-ha`. A reopening runs in `flintlog-ha-reopen`, because the loop cannot wait for
its own end.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from typing import Final

from flintlog.disk.media.local import LocalMedium
from flintlog.disk.places import local_path
from flintlog.errors import FlintlogError, InvalidConfig, PeerFailed, StoreClosed
from flintlog.remoting.client import RemotingClient
from flintlog.remoting.codes import ANNOUNCE_REPLICA, COMPARE_LOG, GET_BROKER_HA_STATUS, SUCCESS
from flintlog.remoting.frame import Command
from flintlog.replication.broker_ports import BrokerPorts
from flintlog.replication.ha.announce import Announced, announce
from flintlog.replication.ha.compare import Compared, Comparisons, agreed_end, ask_master
from flintlog.replication.ha.master import HaMaster
from flintlog.replication.ha.master_epoch import FOREIGN, MasterEpochFile
from flintlog.replication.ha.metadata import POLL_S, MetadataFollower, handlers_of
from flintlog.replication.ha.slave import RECONNECT_S, HaSlave
from flintlog.replication.loop_thread import LoopThread
from flintlog.replication.status import NodeStatus, encode_status
from flintlog.store.open_store import open_store
from flintlog.store.options.store_config import StoreConfig
from flintlog.store.paths import find_member
from flintlog.store.store import Store

log = logging.getLogger(__name__)

DEFAULT_PORT: Final = 10_911
_REOPEN_TIMEOUT_S: Final = 600.0


class HaNode:
    """A store and its role among its replicas. One thread calls `start` and `stop`; any thread the other methods."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        config: StoreConfig,
        *,
        host: str = "127.0.0.1",
        port: int = DEFAULT_PORT,
        master_remoting: str | None = None,
        cut_to_master: bool = False,
        compare_logs: bool = True,
        reconnect_s: float = RECONNECT_S,
        poll_s: float = POLL_S,
    ) -> None:
        """`port` is this node's remoting port; `master_remoting` the master's, by default one below its HA port.

        With `cut_to_master` a slave discards records that differ from the master's, even if it was not promoted.
        Without `compare_logs` a slave appends any bytes that follow its end, as RocketMQ's slaves do; use this for a
        master whose remoting port cannot be reached.
        """
        self.path = local_path(path)
        self.config = config
        self.host = host
        self.port = port
        self.ha_port = config.ha_listen_port
        self._master_remoting = master_remoting
        self._cut_to_master = cut_to_master
        self._compare_logs = compare_logs
        self._reconnect_s = reconnect_s
        self._poll_s = poll_s
        self._changing = threading.RLock()
        self._store: Store | None = None
        self._thread: LoopThread | None = None
        self._master: HaMaster | None = None
        self._slave: HaSlave | None = None
        self._metadata: MetadataFollower | None = None
        self._ports: BrokerPorts | None = None
        self._reopening: threading.Thread | None = None
        self._failure: FlintlogError | None = None

    @property
    def store(self) -> Store:
        """The open store; a promotion or a cut replaces it."""
        with self._changing:
            if self._store is None:
                raise StoreClosed("the node does not run", path=self.path)
            return self._store

    @property
    def failure(self) -> FlintlogError | None:
        """The error that ended it without a call of `stop`; None when it runs. Any thread may call."""
        return self._failure

    @property
    def is_slave(self) -> bool:
        return self.config.broker_role == "SLAVE"

    def start(self) -> None:
        """Open the store and start its role."""
        with self._changing:
            if self.is_slave and self.config.ha_master_address is None:
                raise InvalidConfig("a slave needs haMasterAddress", advice="give the master's HA host and port")
            member = find_member(self.path, LocalMedium())
            if member is not None:
                raise InvalidConfig(
                    f"the log of this store is a ledger, and {member} replicates it with its group",
                    path=self.path,
                    advice="serve it without --role",
                )
            self._failure = None
            self._store = open_store(self.path, self.config)
            self._thread = LoopThread()
            try:
                self._thread.call(self._take_up(self._store))
            except BaseException:
                self.stop()
                raise

    async def _take_up(self, store: Store) -> None:
        handlers = handlers_of(store)
        epochs = MasterEpochFile(store)
        epoch = epochs.load() if self.is_slave else epochs.begin()
        handlers[COMPARE_LOG] = Comparisons(store.replication.raw_log, epoch).answer
        handlers[GET_BROKER_HA_STATUS] = self._answer_status
        if not self.is_slave:
            self._master = HaMaster(store)
            handlers[ANNOUNCE_REPLICA] = Announced(self._master).answer
        self._ports = BrokerPorts(handlers)
        self.port = await self._ports.start(self.host, self.port)
        if self._master is not None:
            self.ha_port = await self._master.start(self.host, self.ha_port)
            return
        address = self.config.ha_master_address or ""
        remoting = self._master_remoting or remoting_address(address)
        client = RemotingClient(remoting)

        async def agrees() -> bool:
            return await self._agrees(store, client, epochs)

        async def announce_us(own_address: str) -> None:
            await announce(client, own_address, self.path)

        self._slave = HaSlave(
            store,
            address,
            compare=agrees,
            announce=announce_us if self._compare_logs else None,
            reconnect_s=self._reconnect_s,
        )
        await self._slave.start()
        self._metadata = MetadataFollower(store, RemotingClient(remoting), poll_s=self._poll_s)
        await self._metadata.start()

    def stop(self) -> None:
        """Stop the role and close the store. A second call does nothing."""
        with self._changing:
            thread, self._thread = self._thread, None
            try:
                if thread is not None:
                    thread.leave(self._leave())
            finally:
                store, self._store = self._store, None
                if store is not None:
                    store.shutdown()
        reopening = self._reopening
        if reopening is not None and reopening is not threading.current_thread():
            reopening.join(_REOPEN_TIMEOUT_S)

    async def _leave(self) -> None:
        parts = self._slave, self._metadata, self._master, self._ports
        self._slave = self._metadata = self._master = self._ports = None
        ends = await asyncio.gather(*(part.stop() for part in parts if part is not None), return_exceptions=True)
        for failure in filter(None, ends):
            raise failure

    # ------------------------------------------------------------------ changing the role

    def promote(self, role: str = "ASYNC_MASTER") -> None:
        """Make a slave a master: reopens its store, which then accepts puts."""
        with self._changing:
            self.stop()
            self.config = self.config.with_changes(broker_role=role)
            self.start()

    async def _agrees(self, store: Store, client: RemotingClient, epochs: MasterEpochFile) -> bool:
        """Whether our log is a prefix of the master's. If not, this raises or starts a reopening that cuts the log."""
        raw = store.replication.raw_log
        theirs = await ask_master(client, raw.end, raw.end) if self._compare_logs else None
        raw.follow(has_batches=theirs is not None)
        if theirs is None:
            epochs.follow(FOREIGN)
            return True

        async def ask(start: int, stop: int) -> Compared:
            answer = await ask_master(client, start, stop)
            if answer is None:
                raise PeerFailed(f"{client.address} no longer answers comparisons")
            return answer

        end = await agreed_end(
            raw,
            theirs,
            ask,
            epochs.load(),
            max_range_bytes=self.config.max_checksum_range,
            cuts_for_any=self._cut_to_master,
        )
        if end == raw.end:
            epochs.follow(theirs.epoch)
            return True
        log.warning("our log ends at %d, but differs from the master's from %d on", raw.end, end)
        raw.ask_for_cut(end)
        self._reopening = threading.Thread(target=self._reopen, args=(store,), name="flintlog-ha-reopen", daemon=True)
        self._reopening.start()
        return False

    def _reopen(self, store: Store) -> None:
        with self._changing:
            if self._store is not store:
                return
            try:
                self.stop()
                self.start()
            except Exception as error:
                log.exception("the store could not be reopened after its cut")
                self._failure = error if isinstance(error, FlintlogError) else StoreClosed(repr(error), path=self.path)

    # ------------------------------------------------------------------ status

    def status(self) -> NodeStatus:
        """Role, positions, and every peer."""
        return self._status_of(self.store)

    def _status_of(self, store: Store) -> NodeStatus:
        slave, master = self._slave, self._master
        return NodeStatus(
            role=self.config.broker_role,
            log_start=store.replication.raw_log.start,
            log_end=store.replication.raw_log.end,
            replicas=tuple(master.status()) if master is not None else (),
            master_address=None if slave is None else slave.address,
            is_connected=slave is not None and slave.is_connected,
            trouble=None if slave is None else slave.trouble,
        )

    async def _answer_status(self, request: Command) -> Command:
        store = self._store  # without the lock: its holder may be waiting for this loop
        if store is None:
            raise StoreClosed("the node is stopping", path=self.path)
        return request.reply(SUCCESS, encode_status(self._status_of(store)))


def remoting_address(ha_address: str) -> str:
    """RocketMQ's convention: the HA port is the one above the broker's.

    >>> remoting_address("10.0.0.7:10912")
    '10.0.0.7:10911'
    """
    host, _, port = ha_address.rpartition(":")
    if not host or not port.isdecimal():
        raise InvalidConfig(f"{ha_address!r} is not a host and port")
    return f"{host}:{int(port) - 1}"
