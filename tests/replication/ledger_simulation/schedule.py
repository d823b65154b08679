"""What befalls a cluster in one seed's run: how bad its lines are, and when who crashes, is cut off, or shall lead.

The chances are bent towards what breaks groups: leaders that are cut off while clients still write to them, power that
goes away everywhere at once, messages of old times that arrive late and twice. And each seed draws which of these
befall it at all and how often, because what rarely happens together is seen best when nothing else happens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from tests.replication.ledger_simulation.cluster import Cluster, Node
from tests.replication.ledger_simulation.disk import ShellRules

from flintlog.format.ledger import NO_INDEX
from flintlog.replication.ledger.core.interface import SafetyRules
from flintlog.replication.ledger.core.messages import Entry, HeartbeatRequest, PushRequest, PushType, VoteRequest

CHAOS_MS = 6_000
CALM_MS = 6_000
STRANGER = "n9"

RULES = (
    "commit_own_term_only",
    "sync_before_acknowledging",
    "clamp_committed",
    "agree_once_a_term",
    "peers_only",
    "lead_once_a_term",
    "zero_tails",
    "persist_before_sending",
)
SECOND_LINE = "keep_committed"
"""While the others hold nothing asks for what this rule forbids: it is seen when one of them is off as well."""


@dataclass(slots=True)
class Run:
    """One seed."""

    seed: int
    without: tuple[str, ...] = ()
    trace: list[str] | None = None
    watched: frozenset[str] | None = None
    """The kinds of violations to look for; None for all."""

    def simulate(self) -> Cluster:
        """Chaos, then calm. Raises Violation."""
        random = Random(self.seed)
        core = {rule: False for rule in self.without if hasattr(SafetyRules(), rule)}
        shell = {rule: False for rule in self.without if hasattr(ShellRules(), rule)}
        size = random.choice((3, 3, 3, 3, 5, 5, 4, 2, 1))
        is_mixed = random.random() < 0.25
        cluster = Cluster(
            random,
            size,
            rules=replace(SafetyRules(), **core),
            shell_rules=replace(ShellRules(), **shell),
            file_size=random.choice((600, 2_000, 1 << 20)),
            terse=frozenset(f"n{number}" for number in range(size) if is_mixed and random.random() < 0.6),
            watched=self.watched,
        )
        cluster.trace = self.trace
        network = cluster.network
        network.loss = random.choice((0.0, 0.01, 0.05, 0.2))
        network.repeat = random.choice((0.0, 0.02, 0.2))
        network.straggle = random.choice((0.0, 0.02, 0.2))
        if is_mixed:
            # A Java leader may have cut what it wants cut, so what is late must be no later than on a connection.
            network.keeps_order, network.repeat = True, 0.0
        _Chaos(cluster).begin()
        cluster.run_until(CHAOS_MS)
        calm(cluster)
        return cluster


def command(seed: int, without: tuple[str, ...]) -> str:
    """What repeats a seed's run."""
    options = "".join(f" --without {rule}" for rule in without)
    return f".venv/bin/python -m tests.replication.ledger_simulation {seed}{options}"


class _Chaos:
    """Something bad every now and then, while clients write and read."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._random = cluster.random
        self._pace_ms = cluster.random.choice((100, 300, 1_000))
        self._body = 0
        self._body_size = cluster.random.choice((None, 20, 20))
        self._quiet_until_ms = 0
        """Clients write nothing before."""
        self._fragility = cluster.random.choice((0.0, 0.0, 0.1, 0.5))
        self._write_pace_ms = cluster.random.choice((40, 80, 400, 1_000))
        what = (
            (self._crash_one, 3),
            (self._lose_power, 1),
            (self._strand_leader, 4),
            (self._strand_two, 6),
            (self._split, 3),
            (self._cut_late, 3),
            (self._transfer, 2),
            (self._delete_old, 1),
            (self._be_strange, 2),
        )
        self._actions: list[tuple[Callable[[], None], int]] = [
            (action, weight * cluster.random.choice((0, 1, 1, 3))) for action, weight in what
        ]
        if cluster.random.random() < 0.4:
            self._actions = cluster.random.choices(what, [weight for _, weight in what])
            self._pace_ms = 1_500

    def begin(self) -> None:
        self._cluster.on_turning_point = self._on_turning_point
        self._write()
        self._befall()

    def _befall(self) -> None:
        if self._cluster.now_ms < CHAOS_MS:
            actions, weights = zip(*self._actions, (self._heal, 3), strict=True)
            self._random.choices(actions, weights)[0]()
            self._cluster.after(self._random.randint(1, 2 * self._pace_ms), self._befall)

    def _write(self) -> None:
        cluster, random = self._cluster, self._random
        if cluster.now_ms < CHAOS_MS:
            is_quiet = cluster.now_ms < self._quiet_until_ms
            for leader in [] if is_quiet else cluster.leaders() or [self._anyone()]:
                if random.random() < 0.7:
                    cluster.propose(leader, *(self._next_body() for _ in range(random.choice((1, 1, 1, 2, 5)))))
                if random.random() < 0.2 and cluster.invariants.committed:
                    cluster.read(leader, random.choice(list(cluster.invariants.committed)))
            cluster.after(random.randint(1, self._write_pace_ms), self._write)

    def _next_body(self) -> bytes:
        self._body += 1
        size = self._body_size or self._random.choice((0, 10, 100, 300))
        return b"%06d" % self._body + b"." * size

    def _anyone(self) -> Node:
        return self._random.choice(list(self._cluster.nodes.values()))

    def _someone_leading(self) -> Node:
        leaders = self._cluster.leaders()
        return self._random.choice(leaders) if leaders else self._anyone()

    def _crash_one(self) -> None:
        node = self._someone_leading() if self._random.random() < 0.5 else self._anyone()
        self._crash(node)

    def _lose_power(self) -> None:
        nodes = list(self._cluster.nodes.values())
        for node in self._random.sample(nodes, self._random.randint((len(nodes) + 1) // 2, len(nodes))):
            self._crash(node)

    def _on_turning_point(self, node: Node) -> None:
        if self._cluster.now_ms < CHAOS_MS and self._random.random() < self._fragility:
            self._cluster.after(self._random.randint(1, 40), lambda: self._crash(node))

    def _crash(self, node: Node) -> None:
        self._cluster.crash(node)
        self._cluster.after(self._random.choice((5, 50, 400, 1_500)), lambda: self._cluster.restart(node))

    def _strand_leader(self) -> None:
        """Cut a leader off, let it write what it cannot replicate, and perhaps fall."""
        cluster, random = self._cluster, self._random
        node = self._someone_leading()
        cluster.network.isolate({node.node_id}, list(cluster.nodes))
        cluster.note(f"{node.node_id} is cut off")
        for _ in range(random.randint(0, 3)):
            cluster.propose(node, self._next_body())
        healed_ms = random.randint(100, 900)
        cluster.after(healed_ms, self._heal)
        if random.random() < 0.5:
            crash_ms = random.choice((random.randint(1, 60), healed_ms + random.randint(1, 200)))
            cluster.after(crash_ms, lambda: self._crash(node))

    def _strand_two(self) -> None:
        """A leader is cut off with what it wrote last, then its successor with other entries; then the first comes
        back alone and is cut off again, and then the second: figure 8 of the Raft paper, if all goes badly.
        """
        cluster, random = self._cluster, self._random
        names = list(cluster.nodes)
        first = self._someone_leading()
        second: list[Node] = []

        def only(*nodes: Node) -> None:
            cluster.network.blocked.clear()
            for node in nodes:
                cluster.network.isolate({node.node_id}, names)
            cluster.note(f"only {[node.node_id for node in nodes]} are cut off")

        def strand_next() -> None:
            second.extend(node for node in cluster.leaders() if node is not first)
            only(first, *second)
            for node in second:
                cluster.propose(node, self._next_body())

        def crash_second() -> None:
            for node in second:
                self._crash(node)

        only(first)
        cluster.propose(first, self._next_body())
        at = random.randint(150, 500)
        cluster.after(at, strand_next)
        at += random.randint(10, 200)
        cluster.after(at, lambda: only(*second))
        self._quiet_until_ms = cluster.now_ms + at + random.choice((0, 1_500))
        if random.random() < 0.5:
            cluster.after(at + random.randint(100, 600), self._heal)
            cluster.after(at + random.randint(100, 700), crash_second)
            return
        at += random.randint(200, 700)
        cluster.after(at, lambda: only(first))
        at += random.randint(300, 900)
        cluster.after(at, self._heal)

    def _cut_late(self) -> None:
        """A leader commits something with as few as it needs, a TRUNCATE that it sent to them long ago arrives, and
        then it is cut off: the others are left with what the TRUNCATE left them.
        """
        cluster, random = self._cluster, self._random
        names = list(cluster.nodes)
        leader = self._someone_leading()
        company = random.sample([node for node in cluster.nodes.values() if node is not leader], len(names) // 2)

        def arrive() -> None:
            for node in company:
                cluster.cut_late(leader, node)
            cluster.network.blocked.clear()
            cluster.network.isolate({leader.node_id}, names)

        cluster.network.isolate({leader.node_id, *(node.node_id for node in company)}, names)
        cluster.propose(leader, self._next_body())
        at = random.randint(10, 120)
        cluster.after(at, arrive)
        cluster.after(at + random.randint(200, 900), self._heal)

    def _split(self) -> None:
        cluster = self._cluster
        names = list(cluster.nodes)
        group = set(self._random.sample(names, self._random.randint(0, len(names))))
        cluster.note(f"{sorted(group)} are cut off")
        cluster.network.isolate(group, names)

    def _heal(self) -> None:
        self._cluster.note("the network is whole")
        self._cluster.network.blocked.clear()

    def _transfer(self) -> None:
        node = self._someone_leading()
        if node.is_up:
            self._cluster.transfer(node, self._anyone().node_id)

    def _delete_old(self) -> None:
        """Retention on one node: only what is committed may go, and never the last entry."""
        node = self._anyone()
        log = node.disk.log
        if node.is_up and node.core.committed > log.begin >= 0:
            index = self._random.randint(log.begin, min(node.core.committed, log.end))
            self._cluster.note(f"{node.node_id} deletes what is before {index}")
            node.disk.delete_before(index)

    def _be_strange(self) -> None:
        """Somebody who is no peer, and knows the term, wants to be followed and then pushes; or speaks as a peer."""
        cluster, random, node = self._cluster, self._random, self._anyone()
        term, log = node.core.term, node.disk.log
        index = max(0, log.end + random.randint(-2, 1))
        position = log.entry(index).position if log.begin <= index <= log.end else log.end_position
        entry = Entry(index, term, position, b"strange")
        requests = (
            VoteRequest(term + random.randint(0, 1), STRANGER, log.end + 9, term),
            HeartbeatRequest(term, STRANGER),
            PushRequest(PushType.TRUNCATE, term, STRANGER, (entry,), NO_INDEX),
            PushRequest(PushType.APPEND, term, STRANGER, (entry,), index),
            PushRequest(PushType.COMMIT, term, node.core.leader_id or STRANGER, (), log.end),
        )
        for request in requests:
            if node.is_up:
                cluster.request(node, STRANGER, request, lambda answer: None)


def calm(cluster: Cluster) -> None:
    """Everything is well again: a leader must be found, and everybody must come to hold the same."""
    cluster.network.heal()
    for node in cluster.nodes.values():
        cluster.restart(node)

    def retry() -> None:
        for leader in cluster.leaders():
            cluster.propose(leader, b"last %d" % cluster.now_ms)
        cluster.after(200, retry)

    def is_done() -> bool:
        last = cluster.invariants.last_acknowledged
        return last > before and all(node.core.committed >= last for node in cluster.nodes.values())

    before = cluster.invariants.last_acknowledged
    retry()
    if not cluster.run_until(cluster.now_ms + CALM_MS, is_done):
        state = [(n.node_id, n.core.role.name, n.core.term, n.disk.log.end) for n in cluster.nodes.values()]
        cluster.invariants.report("progress", f"nothing is committed everywhere after {CALM_MS} ms: {state}")
    cluster.invariants.check_exactly_once()
