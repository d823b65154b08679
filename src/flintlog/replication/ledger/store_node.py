"""A store whose log is a ledger, and its node: one member of a group, which accepts puts while it leads.

    put ──▶ store ── propose ──▶ node ──▶ the group      the leader places the record: that is its physical offset
    get ◀── store ◀─ committed ── node                   a record is readable once it is durable on a majority

A leader accepts puts once all entries of its log are committed and dispatched. A group may have flintlog members and
Java members; all need the same `mapped_file_size_commit_log`.

If the group has deleted the entries that a returning member needs next, the member is emptied and opened again. From
then on `store` is another object.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Final

from flintlog.disk.media.medium import Medium
from flintlog.disk.places import local_path
from flintlog.errors import FlintlogError, InvalidConfig, LedgerHalted, LedgerLeftBehind, StoreClosed
from flintlog.format.ledger import seal_record
from flintlog.format.message_id import parse_host
from flintlog.format.record import Record, encode_record, with_host_bits
from flintlog.format.sys_flag import TransactionType
from flintlog.remoting.codes import GET_BROKER_HA_STATUS, SUCCESS
from flintlog.remoting.frame import Command
from flintlog.replication.broker_ports import BrokerPorts
from flintlog.replication.ha.metadata import POLL_S, handlers_for
from flintlog.replication.ledger.core.interface import LedgerConfig, Role, RoleChange
from flintlog.replication.ledger.core.messages import AppendResponse, ResponseCode
from flintlog.replication.ledger.node.file_storage import FileStorage
from flintlog.replication.ledger.node.node import LedgerListeners, LedgerNode
from flintlog.replication.ledger.node.polling import LeaderPoll
from flintlog.replication.loop_thread import LoopThread
from flintlog.replication.status import NodeStatus, ReplicaStatus, encode_status
from flintlog.store.ledger.ledger_emptying import empty_member
from flintlog.store.ledger.ledger_tail import body_check
from flintlog.store.ledger.proposals import ProposalAnswer
from flintlog.store.model.message import PutStatus
from flintlog.store.open_store import open_store
from flintlog.store.options.store_config import StoreConfig
from flintlog.store.paths import StorePaths
from flintlog.store.runtime.clock import Clock, Milliseconds
from flintlog.store.store import Store

log = logging.getLogger(__name__)

LEADER_TOPIC: Final = "rmq_sys_flintlog_leader"
"""The topic of a leader's first record: a prepared transaction, so it is in no queue and no consumer gets it."""

_STOP_TIMEOUT_S: Final = 120.0
"""Long enough for the last sync of a slow disk."""

# Other codes mean that the entry may have been written: the leader changed, halted or was stopped. UNKNOWN_ERROR.
_STATUS: Final[Mapping[int, PutStatus]] = {
    ResponseCode.SUCCESS: PutStatus.PUT_OK,
    ResponseCode.NOT_LEADER: PutStatus.SERVICE_NOT_AVAILABLE,
    ResponseCode.INCONSISTENT_LEADER: PutStatus.SERVICE_NOT_AVAILABLE,
    ResponseCode.DISK_FULL: PutStatus.SERVICE_NOT_AVAILABLE,
    ResponseCode.LEADER_NOT_READY: PutStatus.SERVICE_NOT_AVAILABLE,
    ResponseCode.LEADER_TRANSFERRING: PutStatus.SERVICE_NOT_AVAILABLE,
    ResponseCode.WAIT_QUORUM_ACK_TIMEOUT: PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH,
    ResponseCode.LEADER_PENDING_FULL: PutStatus.OS_PAGE_CACHE_BUSY,
}


def parse_peers(text: str) -> dict[str, str]:
    """Parse the members in `dLegerPeers`.

    >>> parse_peers("n0-127.0.0.1:40911;n1-host:40912")
    {'n0': '127.0.0.1:40911', 'n1': 'host:40912'}
    """
    peers: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        member, dash, address = part.partition("-")
        host, colon, port = address.rpartition(":")
        if not (dash and member and colon and host and port.isdecimal() and int(port) < 65536):
            raise InvalidConfig(f"not a member of a group: {part!r}", advice="id-host:port, separated by semicolons")
        if member in peers:
            raise InvalidConfig(f"the member {member} is listed twice: {text!r}")
        peers[member] = address
    return peers


class LedgerStoreNode(LedgerListeners):
    """One member of a group with its store. Any thread may put, get and read the status."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        config: StoreConfig,
        *,
        fast: bool = False,
        heartbeat_interval_ms: int | None = None,
        host: str = "127.0.0.1",
        port: int | None = None,
        new_group: bool = False,
        medium: Medium | None = None,
        clock: Clock | Milliseconds | None = None,
        brokers: Mapping[str, str] | None = None,
        poll_s: float = POLL_S,
    ) -> None:
        """Open the store; `start` joins the group. `fast` selects shorter times, for a group without Java.

        A member without a log votes once all peers have answered that they have none, or the group has filled it. With
        `new_group` it votes at once: the operator knows that it never had a log, or gives up a lost one.
        `heartbeat_interval_ms` must be equal on all members, including Java's, where it is 2000.
        On `port`, if given, the member answers requests for its status, and RocketMQ's requests for topics, groups and
        offsets. `clock` is the store's, not the group's. `brokers` are the addresses of members that are Java brokers:
        while one of them leads, it is asked for its topics, groups and offsets every `poll_s`.
        """
        peers, self_id = parse_peers(config.dledger_peers or ""), config.dledger_self_id
        if not config.dledger_group or self_id is None or self_id not in peers:
            raise InvalidConfig("a member needs a group, its own id, and itself among the peers", path=path)
        if not set(brokers or {}) <= peers.keys() - {self_id}:
            raise InvalidConfig(f"the brokers {sorted(brokers or {})} are not among the other members", path=path)
        self.group = config.dledger_group
        self._config = config.with_changes(enable_dledger_commit_log=True)
        self._path, self._medium, self._clock = local_path(path), medium, clock
        ledger_config = LedgerConfig(
            self_id,
            peers,
            seal=seal_record,
            is_intact=body_check(config),
            leader_record=lambda: leader_record(config, self.store.replication.now_ms()),
        )
        if fast:
            ledger_config = ledger_config.with_fast_timings()
        if heartbeat_interval_ms is not None:
            ledger_config = replace(ledger_config, heartbeat_interval_ms=heartbeat_interval_ms)
        self._ledger_config = ledger_config
        self._is_new = new_group
        self._changing = threading.RLock()
        self._refilling: threading.Thread | None = None
        self._loop: LoopThread | None = None
        self.host, self.port = host, port
        handlers = handlers_for(lambda: self.store)
        self._ports = BrokerPorts({**handlers, GET_BROKER_HA_STATUS: self._answer_status})
        self._brokers, self._poll_s = dict(brokers or {}), poll_s
        self._poll: LeaderPoll | None = None
        self._open()

    def _open(self) -> None:
        """Open the store and create its node."""
        self.store: Store = open_store(self._path, self._config, medium=self._medium, clock=self._clock)
        self._node_port = self.store.replication.ledger
        self._halted: FlintlogError | None = None
        self.node = LedgerNode(self.group, self._ledger_config, self._storage(), self, takes_appends=False)

    def _storage(self) -> FileStorage:
        is_new, self._is_new = self._is_new, False
        return FileStorage(self._node_port.files, is_new=is_new)

    def start(self) -> None:
        """Listen and join the group."""
        with self._changing:
            self._loop = LoopThread()
            try:
                self._loop.call(self._start())
            except BaseException:
                self.stop()
                raise

    async def _start(self) -> None:
        await self._start_node()
        if self.port is not None:
            self.port = await self._ports.start(self.host, self.port)

    async def _start_node(self) -> None:
        await self.node.start()
        self._node_port.between_steps = self._between_steps
        self._node_port.on_failed = self._on_port_failed
        if self._poll is not None:
            await self._poll.stop()  # it belongs to the store that was emptied
        self._poll = LeaderPoll(self.store, lambda: self.node.status().leader_id, self._brokers, poll_s=self._poll_s)
        await self._poll.start()

    async def _stop(self) -> None:
        if self._poll is not None:
            await self._poll.stop()
        await self._ports.stop()
        await self.node.stop()

    def _between_steps(self, work: Callable[[], None]) -> None:
        """Run `work` in the node's loop, and so between two steps."""

        async def run() -> None:
            work()

        loop = self._loop
        if loop is None:
            raise StoreClosed("the node is stopping", path=self.store.path)
        try:
            loop.call(run())
        except (TimeoutError, CancelledError) as failure:
            raise StoreClosed("the node is stopping", path=self.store.path) from failure

    def stop(self) -> None:
        """Leave the group, then stop the store cleanly. A second call does nothing."""
        with self._changing:
            loop, self._loop = self._loop, None
            try:
                if loop is not None:
                    self._node_port.resign()
                    loop.leave(self._stop(), _STOP_TIMEOUT_S)
            finally:
                self._node_port.stop()
                self.store.shutdown()

    def __enter__(self) -> LedgerStoreNode:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def failure(self) -> FlintlogError | None:
        """Why it has left the group for good; None while it takes part. Any thread may call."""
        halted = self._halted
        return None if isinstance(halted, LedgerLeftBehind) else halted

    @property
    def is_serving(self) -> bool:
        """Whether this member accepts puts now, and runs services."""
        return self._node_port.is_ready

    def hand_over(self, successor: str) -> bool:
        """Hand the leadership to another member; returns whether it leads now. Puts are refused meanwhile.

        The consumers' offsets are shared with the group first.
        """
        if self._loop is None:
            raise StoreClosed("this member has left its group", path=self.store.path)
        if self.is_serving:
            self.store.consumer_offsets.save()
        return self._loop.call(self.node.transfer_leadership(successor)) is ResponseCode.SUCCESS

    def status(self) -> NodeStatus:
        """Role, positions, and a leader's view of every peer."""
        status, end = self.node.status(), self._node_port.files.end_position
        held = {view.peer: self._position_after(view.watermark) for view in status.peers}
        return NodeStatus(
            status.role.value,
            max(0, self.store.min_physical_offset),
            end,
            tuple(
                ReplicaStatus(peer, where, where, end - where, peer in status.connected) for peer, where in held.items()
            ),
            is_connected=status.leader_id is not None,
            trouble=status.trouble if self._halted is None else str(self._halted),
            term=status.term,
            committed=self._node_port.committed_position,
            refused_entries=status.refused_count,
        )

    def _position_after(self, index: int) -> int:
        """The end position of a peer's entry; a peer's log may end before this log begins."""
        files = self._node_port.files
        return files.position_after(min(max(index, files.begin - 1), files.end))

    async def _answer_status(self, request: Command) -> Command:
        if self._refilling is not None:
            emptied = NodeStatus(Role.CANDIDATE.value, 0, 0, (), trouble=f"{self._halted}; it is being emptied")
            return request.reply(SUCCESS, body=encode_status(emptied))
        return request.reply(SUCCESS, body=encode_status(self.status()))

    # ------------------------------------------------------------------ from the node, in its loop

    def on_role(self, change: RoleChange) -> None:
        """Accept puts while leading."""
        if change.role is Role.LEADER:
            self._node_port.lead(TermProposer(self.node, change.term))
        else:
            self._node_port.follow()

    def on_committed(self, index: int) -> None:
        """Make committed entries readable."""
        self._node_port.committed(index)

    def on_halted(self, error: FlintlogError) -> None:
        """Serve committed entries and refuse puts. If the group deleted this member's next entries, refill it."""
        self._halted = error
        self._node_port.follow()
        if isinstance(error, LedgerLeftBehind):
            self._refilling = threading.Thread(target=self._refill, name="flintlog-ledger-refill", daemon=True)
            self._refilling.start()

    def _refill(self) -> None:
        """Drop a log whose next entries the group has deleted. Runs in its own thread, because the loop cannot wait."""
        with self._changing:
            loop = self._loop
            try:
                if loop is None:
                    return  # stopped meanwhile: the next start finds the same
                log.warning("%s is emptied, and its group fills it again: %s", self._path, self._halted)
                loop.call(self.node.stop())
                self._node_port.stop()
                self.store.shutdown()
                empty_member(StorePaths.of(self._path, self._config), self.store.replication.medium)
                self._open()
                loop.call(self._start_node())
            except Exception as error:
                log.exception("the member could not be emptied")
                self._halted = error if isinstance(error, FlintlogError) else LedgerHalted(repr(error))
            finally:
                self._refilling = None

    def _on_port_failed(self, error: Exception) -> None:
        """Halt the node: the store no longer follows its log, so another member must lead."""
        loop = self._loop
        if loop is not None:
            loop.loop.call_soon_threadsafe(self.node.halt, error)


@dataclass(frozen=True, slots=True)
class TermProposer:
    """Proposes puts in one term of this member's leadership, because their queue offsets are valid only in it."""

    node: LedgerNode
    term: int

    def propose(self, bodies: Sequence[bytes], answer: Future[ProposalAnswer]) -> None:
        """Propose the records of one put."""
        self.node.hand_over(bodies, answer, answer_of, self.term)


def answer_of(response: AppendResponse) -> ProposalAnswer:
    """Translate the group's answer for the put."""
    status = _STATUS.get(response.code, PutStatus.UNKNOWN_ERROR)
    is_written = response.code in (ResponseCode.SUCCESS, ResponseCode.WAIT_QUORUM_ACK_TIMEOUT)
    return ProposalAnswer(status, response.positions, is_written)


def leader_record(config: StoreConfig, now_ms: int) -> bytes:
    """The first record of a new leader, in no queue; committing it commits all entries before it."""
    host = parse_host(config.store_host)
    record = Record(
        topic_bytes=LEADER_TOPIC.encode(),
        body=b"",
        sys_flag=int(TransactionType.PREPARED),
        born_timestamp=now_ms,
        born_host=host,
        store_timestamp=now_ms,
        store_host=host,
    )
    return encode_record(with_host_bits(record))
