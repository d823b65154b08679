"""The commands of `ha_scripts`: masters, slaves and promotions. `scripting.py` says what a script is.

The stores are real, and so is everything that decides: what a master sends and a slave takes, how logs are compared,
whose epoch is noted, what is cut. Only sockets and clocks are missing. Every record has 100 bytes, and a frame at most
250: so 300 is the place behind three records, and a frame may end within one.

    stores a b               empty ones
    lead a                   a is started as a master; one that was a slave is promoted by that
    follow b a [cutting]     b is started as a's slave: compares its log with a's, then connects; `cutting` is
                             --cut-to-master
    put a x y                records with these bodies; they are not sent before a's clock runs, or it hears a report
    tick a 500               a's clock runs on by so many milliseconds
    run 500                  all clocks run on in steps of ten, everything is delivered
    full a b, drained a b    b takes nothing more from its connection to a; does again
    break a b                the connection ends, and what was on it is lost
    stop a                   a stops, its connections end
    lose a 2                 a's power fails: it is down, and its last two records, which no sync had covered, are gone
    show                     the logs, and what was cut off them

A broken connection is made again by another `follow`. Heartbeats are not shown, nor are reports that say nothing new.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.replication.scripting import Letter, Player
from tests.store.small_store import SMALL

from flintlog import Message, Store, StoreConfig, open_store
from flintlog.errors import FlintlogError
from flintlog.remoting.frame import Command
from flintlog.replication.ha import feed as master
from flintlog.replication.ha import follower as slave
from flintlog.replication.ha.compare import Compared, Comparisons, agreed_end, ask_master
from flintlog.replication.ha.feed import ReplicaFeed
from flintlog.replication.ha.follower import Follower
from flintlog.replication.ha.master_epoch import MasterEpoch, MasterEpochFile
from flintlog.replication.ha.wire import Frame
from flintlog.store.read.raw_log import RawLog

RECORD_BYTES = 100
TOPIC = "messages"
"""As long as it must be for records of RECORD_BYTES."""
BODY_AT = 88
_FEED = master.FeedOptions(transfer_bytes=250)


@dataclass(slots=True)
class _Node:
    name: str
    path: Path
    store: Store | None = None
    is_master: bool = False
    epoch: MasterEpoch | None = None
    now_ms: int = 0
    left: str = ""
    """What its log held when it stopped."""
    suspicions: slave.Suspicions = field(default_factory=slave.Suspicions)

    @property
    def raw(self) -> RawLog:
        assert self.store is not None, f"{self.name} is down"
        return self.store.replication.raw_log


@dataclass(slots=True)
class _Connection:
    master: _Node
    slave: _Node
    feed: ReplicaFeed
    follower: Follower
    is_open: bool = True
    is_full: bool = False
    last_report: int = -1


class _Line:
    """Asks a master's comparisons without a socket between."""

    def __init__(self, node: _Node) -> None:
        self.address = node.name
        self._comparisons = Comparisons(node.raw, node.epoch)

    async def call(self, request: Command, timeout_s: float) -> Command:
        return await self._comparisons.answer(request)


class HaPlayer(Player):
    """Stores in a directory; `close` when the script is over."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory
        self._nodes: dict[str, _Node] = {}
        self._connections: list[_Connection] = []

    def close(self) -> None:
        for node in self._nodes.values():
            self._stop(node)

    def _say(self, node: _Node, what: str) -> None:
        self.lines.append(f"{node.name}  {what}")

    # Roles.

    def _do_stores(self, *names: str) -> None:
        for name in names:
            self._nodes[name] = _Node(name, self._directory / name)

    def _do_lead(self, name: str) -> None:
        node = self._nodes[name]
        store = self._open(node, "ASYNC_MASTER")
        before = MasterEpochFile(store).load()
        node.is_master, node.epoch = True, MasterEpochFile(store).begin()
        if node.epoch == before:
            self._say(node, "leads: its epoch goes on")
        else:
            self._say(node, "is promoted: a new epoch" if node.epoch.is_promoted else "leads: an epoch begins")

    def _do_follow(self, name: str, master_name: str, *options: str) -> None:
        node, leading = self._nodes[name], self._nodes[master_name]
        store = self._open(node, "SLAVE")
        node.is_master = False
        epochs = MasterEpochFile(store)
        try:
            end, epoch = self._compare(node, leading, epochs.load(), cuts_for_any="cutting" in options)
        except FlintlogError as failure:
            self._say(node, f"takes nothing from {master_name}: {failure.what}")
            return
        if end < store.replication.raw_log.end:
            self._cut(node, end)
            epochs = MasterEpochFile(self._open(node, "SLAVE"))
        epochs.follow(epoch)
        self._connect(node, leading)

    def _compare(self, node: _Node, leading: _Node, own: MasterEpoch | None, *, cuts_for_any: bool) -> tuple[int, str]:
        """Where the node's log has to end, and whose epoch it follows."""
        line = _Line(leading)

        async def ask(start: int, stop: int) -> Compared:
            answer = await ask_master(line, start, stop)  # type: ignore[arg-type]
            assert answer is not None
            return answer

        async def compare() -> tuple[int, str]:
            raw = node.raw
            theirs = await ask(raw.end, raw.end)
            most = StoreConfig().max_checksum_range
            end = await agreed_end(raw, theirs, ask, own, max_range_bytes=most, cuts_for_any=cuts_for_any)
            return end, theirs.epoch

        return asyncio.run(compare())

    def _cut(self, node: _Node, end: int) -> None:
        self._say(node, f"cuts its log at {end}, keeps {self._bodies(node, end)} aside")
        node.raw.ask_for_cut(end)

    def _open(self, node: _Node, role: str) -> Store:
        self._stop(node)
        node.store = open_store(node.path, SMALL.with_changes(broker_role=role))
        return node.store

    def _do_stop(self, name: str) -> None:
        self._stop(self._nodes[name])

    def _stop(self, node: _Node) -> None:
        for connection in self._connections:
            if node in (connection.master, connection.slave):
                self._disconnect(connection)
        if node.store is not None:
            node.left = self._bodies(node)
            node.store.shutdown()
            node.store = None

    def _do_lose(self, name: str, count: str) -> None:
        node = self._nodes[name]
        node.raw.ask_for_cut(node.raw.end - int(count) * RECORD_BYTES)
        self._open(node, "SLAVE")
        self._stop(node)
        for kept in (node.path / "flintlog" / "cut").iterdir():
            kept.unlink()

    # Connections.

    def _connect(self, node: _Node, leading: _Node) -> None:
        options = slave.FollowOptions(node.raw.segment_size)
        follower = Follower(options, node.now_ms, node.suspicions)
        connection = _Connection(leading, node, ReplicaFeed(_FEED, leading.now_ms), follower)
        self._connections.append(connection)
        self._step_slave(connection, slave.Connected(-1 if node.raw.is_empty else node.raw.end))

    def _disconnect(self, connection: _Connection) -> None:
        if connection.is_open:
            connection.is_open = False
            self.take_letters(connection.master.name, connection.slave.name)

    def _between(self, master_name: str, slave_name: str) -> _Connection:
        for connection in self._connections:
            if connection.is_open and (connection.master.name, connection.slave.name) == (master_name, slave_name):
                return connection
        raise AssertionError(f"{slave_name} is not connected to {master_name}")

    def _do_break(self, master_name: str, slave_name: str) -> None:
        self._disconnect(self._between(master_name, slave_name))

    def _do_full(self, master_name: str, slave_name: str) -> None:
        self._between(master_name, slave_name).is_full = True

    def _do_drained(self, master_name: str, slave_name: str) -> None:
        connection = self._between(master_name, slave_name)
        connection.is_full = False
        self._step_master(connection, master.Tick())

    # Time and records.

    def _do_put(self, name: str, *bodies: str) -> None:
        store = self._nodes[name].store
        assert store is not None
        for body in bodies:
            assert store.put(Message(TOPIC, body.encode())).check().size == RECORD_BYTES

    def _do_tick(self, name: str, duration_ms: str) -> None:
        self._pass_time([self._nodes[name]], int(duration_ms))

    def _do_run(self, duration_ms: str) -> None:
        for _ in range(0, int(duration_ms), 10):
            self._pass_time(list(self._nodes.values()), 10)
            self.deliver()

    def _pass_time(self, nodes: list[_Node], duration_ms: int) -> None:
        for _ in range(0, duration_ms, 10):
            for node in nodes:
                node.now_ms += 10
                for connection in [each for each in self._connections if each.is_open]:
                    if node is connection.master:
                        self._step_master(connection, master.Tick())
                    elif node is connection.slave:
                        self._step_slave(connection, slave.Tick())

    # Steps.

    def _step_master(self, connection: _Connection, event: master.Event) -> None:
        node = connection.master
        while connection.is_open:
            bounds = master.LogBounds(node.raw.start, node.raw.end, node.raw.segment_size)
            actions = connection.feed.step(event, bounds, node.now_ms, can_send=not connection.is_full)
            for action in actions:
                self._do_of_master(connection, action)
            if not any(isinstance(action, master.Send) for action in actions):
                return
            event = master.Tick()

    def _do_of_master(self, connection: _Connection, action: master.Action) -> None:
        node, peer = connection.master, connection.slave
        if isinstance(action, master.Close):
            self._say(node, f"closes {peer.name}'s connection: {action.reason}")
            self._disconnect(connection)
        elif isinstance(action, master.Acknowledged):
            self._say(node, f"knows that {peer.name} has all up to {action.offset}")
        else:
            frame = Frame(action.offset, node.raw.read(action.offset, action.size) if action.size else b"")
            text = f"{action.offset} to {action.offset + action.size}"
            self._post(connection, node, peer, text, lambda: self._take_frame(connection, frame), not action.size)

    def _take_frame(self, connection: _Connection, frame: Frame) -> None:
        self._step_slave(connection, slave.Received((frame,)))

    def _step_slave(self, connection: _Connection, event: slave.Event) -> None:
        for action in connection.follower.step(event, connection.slave.now_ms):
            self._do_of_slave(connection, action)

    def _do_of_slave(self, connection: _Connection, action: slave.Action) -> None:
        node, peer = connection.slave, connection.master
        if isinstance(action, slave.Close):
            self._say(node, f"closes its connection: {action.reason}")
            self._disconnect(connection)
        elif isinstance(action, slave.Append):
            end = node.raw.append(action.offset, action.data, damage=action.damage)
            self._say(node, f"writes {self._bodies(node, action.offset)}")
            self._step_slave(connection, slave.Appended(end))
        else:
            is_known, connection.last_report = action.log_end == connection.last_report, action.log_end
            report = master.Reported(action.log_end)
            text = f"has all up to {action.log_end}"
            self._post(connection, node, peer, text, lambda: self._step_master(connection, report), is_known)

    def _post(
        self,
        connection: _Connection,
        source: _Node,
        target: _Node,
        text: str,
        deliver: Callable[[], None],
        is_idle: bool,
    ) -> None:
        arrow = "→" if source is connection.master else "←"
        names = f"{connection.master.name} {arrow} {connection.slave.name}"
        self.letters.append(Letter(source.name, target.name, f"{names}  {text}", deliver, is_idle))

    # Showing.

    def _bodies(self, node: _Node, start: int = 0) -> str:
        return _bodies_of(node.raw.read(start, node.raw.end - start)) if node.store is not None else node.left

    def _do_show(self) -> None:
        logs = {node.name: self._bodies(node).split() for node in self._nodes.values()}
        places = "".join(f"{place * RECORD_BYTES:<5}" for place in range(max(map(len, logs.values()), default=0)))
        self.lines.append(f"          {places}".rstrip())
        for node in self._nodes.values():
            what = "down" if node.store is None else "master" if node.is_master else "slave"
            cells = "".join(f"{body:<5}" for body in logs[node.name])
            self.lines.append(f"{node.name} {what:<8}{cells}".rstrip())
            for kept in sorted((node.path / "flintlog" / "cut").glob("*")):
                self.lines.append(f"{node.name} aside   {int(kept.name)}: {_bodies_of(kept.read_bytes())}")


def _bodies_of(records: bytes) -> str:
    return " ".join(chr(body) for body in records[BODY_AT::RECORD_BYTES])
