"""A store whose log is a ledger, and its node: one member of a group that takes puts while it leads.

    put ──▶ store ── propose ──▶ node ──▶ the group      the leader places the record: that is its physical offset
    get ◀── store ◀─ committed ── node                   nothing is read before a majority has it on disk

A leader takes puts once everything that it found in its log is committed and dispatched. Members of either kind, ours
and Java's, may be in a group; all need the same `mapped_file_size_commit_log`.

A member that was away for so long that the group has deleted what it needs next is emptied and opened again: from then
on `store` is another object.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Final

from flintlog.disk.media.medium import Medium
from flintlog.errors import FlintlogError, InvalidConfig, LedgerHalted, LedgerLeftBehind, StoreClosed
from flintlog.format.host import parse_host
from flintlog.format.ledger_entry import ENTRY_HEAD_SIZE, RECORD_OFFSET_PLACE
from flintlog.format.record import Record, encode_record, with_host_bits
from flintlog.format.sys_flag import TransactionType
from flintlog.remoting.codes import GET_BROKER_HA_STATUS, SUCCESS
from flintlog.remoting.frame import Command
from flintlog.replication.broker_ports import BrokerPorts
from flintlog.replication.figures import NodeFigures, PeerFigures
from flintlog.replication.ha.metadata import POLL_S, handlers_for
from flintlog.replication.ledger.node.file_storage import FileStorage
from flintlog.replication.ledger.core.interface import LedgerConfig, Role, RoleChange
from flintlog.replication.ledger.core.messages import AppendResponse, ResponseCode
from flintlog.replication.ledger.node.node import LedgerListeners, LedgerNode, LedgerStatus
from flintlog.replication.ledger.node.polling import LeaderPoll
from flintlog.replication.loop_thread import LoopThread
from flintlog.replication.status import NodeStatus, ReplicaStatus, encode_status
from flintlog.store.runtime.clock import Clock, Milliseconds
from flintlog.store.options.store_config import StoreConfig
from flintlog.store.ledger.ledger_emptying import empty_member
from flintlog.store.ledger.ledger_commit_log import ProposalAnswer
from flintlog.store.model.message import PutStatus
from flintlog.store.paths import StorePaths
from flintlog.store.store import Store, open_store

log = logging.getLogger(__name__)

LEADER_TOPIC: Final = "rmq_sys_flintlog_leader"
"""A leader's first record: half a transaction, so it stands in no queue and nobody is ever given it."""

_STOP_TIMEOUT_S: Final = 120.0
"""The last sync of a slow disk is waited for."""

# What is not here may have been written: a put whose leader changed, halted or was stopped is UNKNOWN_ERROR.
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
    """The members that `dLegerPeers` names.

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
            raise InvalidConfig(f"the member {member} is there twice: {text!r}")
        peers[member] = address
    return peers


def seal_record(body: bytes, position: int) -> bytes:
    """A record with the physical offset that it has in an entry at this position."""
    place = RECORD_OFFSET_PLACE
    return body[:place] + (position + ENTRY_HEAD_SIZE).to_bytes(8, "big") + body[place + 8 :]


class LedgerStoreNode(LedgerListeners):
    """One member of a group with its store. Any thread may put, get and ask for its status."""

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
        """Opens the store; `start` lets it take part. `fast`: timings for a group without Java.

        A member without a log votes once all peers have said that they have none, or the group has filled it;
        `new_group`: at once, because somebody knows that it never had one, or gives up what it had.
        `heartbeat_interval_ms` must be the same on all members, Java's among them, where it is 2000.
        On `port`, if there is one, it answers who asks for its status, and RocketMQ's questions for topics, groups and
        offsets. `clock` is the store's, not the group's. `brokers` are the ports of members that are Java brokers:
        while one of them leads it is asked for its topics, groups and offsets every `poll_s`.
        """
        peers, self_id = parse_peers(config.dleger_peers or ""), config.dleger_self_id
        if not config.dleger_group or self_id is None or self_id not in peers:
            raise InvalidConfig("a member needs a group, its own id, and itself among the peers", path=path)
        if not set(brokers or {}) <= peers.keys() - {self_id}:
            raise InvalidConfig(f"the brokers {sorted(brokers or {})} are not among the other members", path=path)
        self.group = config.dleger_group
        self._config = config.with_changes(enable_dleger_commit_log=True)
        self._path, self._medium, self._clock = Path(path), medium, clock
        ledger_config = LedgerConfig(
            self_id, peers, seal=seal_record, leader_record=lambda: leader_record(config, self.store.now_ms())
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
        """Open the store, and make its node."""
        self.store: Store = open_store(self._path, self._config, medium=self._medium, clock=self._clock)
        self._door = self.store.ledger
        self._halted: FlintlogError | None = None
        self.node = LedgerNode(self.group, self._ledger_config, self._storage(), self, takes_appends=False)

    def _storage(self) -> FileStorage:
        is_new, self._is_new = self._is_new, False
        return FileStorage(self._door.files, is_new=is_new)

    def start(self) -> None:
        """Listen, and take part in the group."""
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
        self._door.between_steps = self._between_steps
        self._door.on_failed = self._on_door_failed
        if self._poll is not None:
            await self._poll.stop()  # of the store that was emptied
        self._poll = LeaderPoll(self.store, lambda: self.node.status().leader_id, self._brokers, poll_s=self._poll_s)
        await self._poll.start()

    async def _stop(self) -> None:
        if self._poll is not None:
            await self._poll.stop()
        await self._ports.stop()
        await self.node.stop()

    def _between_steps(self, work: Callable[[], None]) -> None:
        """The node's loop does one thing at a time."""

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
                    self._door.resign()
                    loop.leave(self._stop(), _STOP_TIMEOUT_S)
            finally:
                self._door.stop()
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
        """Why it takes part no more, and will not by itself; None while it does. Any thread may ask."""
        halted = self._halted
        return None if isinstance(halted, LedgerLeftBehind) else halted

    @property
    def is_serving(self) -> bool:
        """Whether puts are taken here and now, and services run."""
        return self._door.is_ready

    def status(self) -> LedgerStatus:
        """The node as it is now."""
        return self.node.status()

    def hand_over(self, successor: str) -> bool:
        """Let another member lead instead of this one; whether it does now. Puts are refused meanwhile.

        What consumers have acknowledged so far is brought to the group before.
        """
        if self._loop is None:
            raise StoreClosed("this member has left its group", path=self.store.path)
        if self.is_serving:
            self.store.consumer_offsets.save()
        return self._loop.call(self.node.transfer_leadership(successor)) is ResponseCode.SUCCESS

    def figures(self) -> NodeFigures:
        """Role, positions, and how far behind every peer is, as a leader knows it."""
        told, files = self.node.status(), self._door.files
        end = files.end_position
        held = {view.peer: self._position_behind(view.watermark) for view in told.peers}
        peers = tuple(PeerFigures(peer, where, end - where, peer in told.connected) for peer, where in held.items())
        return NodeFigures(
            told.role.value,
            max(0, self.store.min_physical_offset),
            end,
            told.leader_id is not None,
            peers,
            {"term": told.term, "committed_offset": self._door.committed_position},
        )

    def _position_behind(self, index: int) -> int:
        """Where an entry ends that a peer has; a peer may be further back than this log begins."""
        files = self._door.files
        return files.position_behind(min(max(index, files.begin - 1), files.end))

    async def _answer_status(self, request: Command) -> Command:
        if self._refilling is not None:
            emptied = NodeStatus(Role.CANDIDATE.value, 0, 0, (), trouble=f"{self._halted}; it is being emptied")
            return request.reply(SUCCESS, body=encode_status(emptied))
        told = self.figures()
        replicas = tuple(
            ReplicaStatus(each.peer, each.acknowledged, each.acknowledged, each.lag_bytes, each.is_in_sync)
            for each in told.peers
        )
        trouble = self.node.status().trouble if self._halted is None else str(self._halted)
        committed, term = int(told.more["committed_offset"]), int(told.more["term"])
        status = NodeStatus(
            told.role, told.log_start, told.log_end, replicas, trouble=trouble, term=term, committed=committed
        )
        return request.reply(SUCCESS, body=encode_status(status))

    # ------------------------------------------------------------------ from the node, in its loop

    def on_role(self, change: RoleChange) -> None:
        """Take puts when leading, and only then."""
        if change.role is Role.LEADER:
            self._door.lead(TermProposer(self.node, change.term))
        else:
            self._door.follow()

    def on_committed(self, index: int) -> None:
        """Show what is committed."""
        self._door.committed(index)

    def on_halted(self, error: FlintlogError) -> None:
        """Serve what was committed, and take nothing more; who was left behind is emptied, and begins again."""
        self._halted = error
        self._door.follow()
        if isinstance(error, LedgerLeftBehind):
            self._refilling = threading.Thread(target=self._refill, name="flintlog-ledger-refill", daemon=True)
            self._refilling.start()

    def _refill(self) -> None:
        """Give up a log whose continuation the group has deleted; in a thread of its own, the loop cannot wait."""
        with self._changing:
            loop = self._loop
            try:
                if loop is None:
                    return  # stopped meanwhile: it will be left behind again when it is started
                log.warning("%s is emptied, and filled again by its group: %s", self._path, self._halted)
                loop.call(self.node.stop())
                self._door.stop()
                self.store.shutdown()
                empty_member(StorePaths.of(self._path, self._config), self.store.medium)
                self._open()
                loop.call(self._start_node())
            except Exception as error:
                log.exception("the member could not be emptied")
                self._halted = error if isinstance(error, FlintlogError) else LedgerHalted(repr(error))
            finally:
                self._refilling = None

    def _on_door_failed(self, error: Exception) -> None:
        """The store does not follow its log any more: let another lead."""
        loop = self._loop
        if loop is not None:
            loop.loop.call_soon_threadsafe(self.node.halt, error)


@dataclass(frozen=True, slots=True)
class TermProposer:
    """Brings puts to the group as long as this member leads in one term: queue offsets are given for that."""

    node: LedgerNode
    term: int

    def propose(self, bodies: Sequence[bytes], answer: Future[ProposalAnswer]) -> None:
        """Bring the records of one put to the group."""
        self.node.hand_over(bodies, answer, answer_of, self.term)


def answer_of(response: AppendResponse) -> ProposalAnswer:
    """What the group's answer says to whoever put."""
    status = _STATUS.get(response.code, PutStatus.UNKNOWN_ERROR)
    is_written = response.code in (ResponseCode.SUCCESS, ResponseCode.WAIT_QUORUM_ACK_TIMEOUT)
    return ProposalAnswer(status, response.positions, is_written)


def leader_record(config: StoreConfig, now_ms: int) -> bytes:
    """What a new leader writes, so that everything before it can be committed: a record that no queue shows."""
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
