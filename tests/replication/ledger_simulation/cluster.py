"""All nodes of a group in one process: a virtual clock, a network that loses, delays, repeats and reorders, disks that
forget what was not synced.

Everything that happens is an event on one heap; chance comes from one seeded generator. So a seed is a run.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

from tests.replication.ledger_simulation.disk import ShellRules, SimulatedDisk
from tests.replication.ledger_simulation.invariants import Invariants, Operation

from flintlog.errors import DamagedStore, LedgerHalted
from flintlog.format.ledger import NO_INDEX
from flintlog.replication.ledger.core.core import LedgerCore
from flintlog.replication.ledger.core.interface import (
    Answer,
    Answered,
    Call,
    Event,
    LedgerConfig,
    Proposal,
    Propose,
    Received,
    Role,
    SafetyRules,
    Synced,
    Tick,
)
from flintlog.replication.ledger.core.messages import (
    JAVA,
    NO_TERM,
    AppendResponse,
    GetRequest,
    GetResponse,
    HeartbeatResponse,
    PeerResponse,
    PushRequest,
    PushResponse,
    PushType,
    ResponseCode,
    TransferRequest,
    TransferResponse,
    VoteResponse,
)

TICK_MS = 20
LEADER_RECORD = b"leads " + b"." * 20
"""As long as most bodies, so that entries of different histories lie at the same places."""


@dataclass(slots=True)
class Network:
    """How bad the lines are now."""

    loss: float = 0.0
    repeat: float = 0.0
    straggle: float = 0.0
    """How often a message takes up to `straggle_ms` instead of a few milliseconds."""
    straggle_ms: int = 600
    blocked: set[tuple[str, str]] = field(default_factory=set)
    keeps_order: bool = False
    """What is not lost arrives in the order in which it was sent, as on a connection."""

    def isolate(self, group: set[str], everyone: list[str]) -> None:
        """Nothing passes between this group and the rest."""
        for one in everyone:
            for other in everyone:
                if (one in group) != (other in group):
                    self.blocked.add((one, other))

    def heal(self) -> None:
        self.loss = self.repeat = self.straggle = 0.0
        self.blocked.clear()


@dataclass(slots=True)
class Node:
    """A process and its disk. `run` counts its starts."""

    node_id: str
    disk: SimulatedDisk
    core: LedgerCore
    run: int = 0
    is_up: bool = True
    is_syncing: bool = False
    is_halted: bool = False
    """It has stopped for good, because somebody contradicts what it knows as committed."""


def as_java(response: PeerResponse) -> PeerResponse:
    """A response without what Java does not say."""
    if isinstance(response, PushResponse):
        return replace(response, dialect=JAVA, conflict_term=NO_TERM, conflict_index=NO_INDEX)
    return replace(response, dialect=JAVA)


class Cluster:
    """The group, its clients and the clock. `terse` nodes say no more than Java does, and are taken for it."""

    def __init__(
        self,
        random: Random,
        size: int,
        *,
        rules: SafetyRules,
        shell_rules: ShellRules,
        file_size: int = 2_000,
        terse: frozenset[str] = frozenset(),
        watched: frozenset[str] | None = None,
    ) -> None:
        self.random = random
        self.now_ms = 0
        self.network = Network()
        self.invariants = Invariants(watched)
        self.trace: list[str] | None = None
        self.on_turning_point: Callable[[Node], None] = lambda node: None
        """Called when a node has cut its log, or changed its term or vote: a good moment for something bad."""
        self._rules = rules
        self._shell_rules = shell_rules
        self._terse = terse
        self._batches_to_java = random.random() < 0.3
        self._arrivals: dict[tuple[str, str], int] = {}
        self._last_cuts: dict[tuple[str, str], Callable[[], None]] = {}
        """The last TRUNCATE from each node to each."""
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._answers: dict[int, Callable[[Answer], None]] = {}
        self._peers = {f"n{number}": f"host{number}:40911" for number in range(size)}
        self.nodes: dict[str, Node] = {}
        for node_id in self._peers:
            disk = SimulatedDisk(file_size, random, shell_rules)
            self.nodes[node_id] = Node(node_id, disk, self._start(node_id, disk))
            self._tick(node_id)

    # Time.

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._heap, (self.now_ms + delay_ms, self._count, action))

    def run_until(self, end_ms: int, is_done: Callable[[], bool] = lambda: False) -> bool:
        """Whether `is_done` before the time was over."""
        while self._heap and self._heap[0][0] <= end_ms:
            self.now_ms, _, action = heapq.heappop(self._heap)
            action()
            if is_done():
                return True
        self.now_ms = end_ms
        return is_done()

    def note(self, what: str) -> None:
        if self.trace is not None:
            self.trace.append(f"{self.now_ms:6} {what}")

    def _tick(self, node_id: str) -> None:
        if node_id in self.nodes:
            self._step(self.nodes[node_id], Tick())
        self.after(TICK_MS + self.random.randint(-5, 5), lambda: self._tick(node_id))

    # Nodes.

    def _start(self, node_id: str, disk: SimulatedDisk) -> LedgerCore:
        config = LedgerConfig(
            node_id,
            self._peers,
            heartbeat_interval_ms=50,
            min_vote_interval_ms=20,
            max_vote_interval_ms=100,
            vote_wait_ms=60,
            push_timeout_ms=100,
            call_timeout_ms=400,
            commit_interval_ms=60,
            acknowledge_timeout_ms=500,
            max_batch_bytes=400,
            max_pushes=8,
            batch_to_java=self._batches_to_java,
            java_batch_bytes=200,
            max_parked=20,
            rules=self._rules,
            leader_record=lambda: LEADER_RECORD,
        )
        return LedgerCore(
            config, disk.log, disk.hard_state, disk.committed, now_ms=self.now_ms, random=Random(self.random.random())
        )

    def _step(self, node: Node, event: Event) -> None:
        if not node.is_up:
            return
        try:
            output = node.core.step(event, self.now_ms)
        except LedgerHalted as error:
            self.invariants.report("halted", f"{node.node_id}: {error}")
            node.is_up, node.is_halted = False, True
            return
        if output.hard_state is not None:
            self._persist(node, output.hard_state)
        node.disk.apply(output)
        if self.trace is not None:
            self._note_output(node, event, output)
        self.invariants.on_step(node.node_id, node.run, node.core, node.disk.log, output)
        if output.committed is not None and self.random.random() < 0.5:
            node.disk.committed = output.committed
        for call in output.calls:
            self._send(node, call)
        for answer in output.answers:
            self._answers.pop(answer.answer_to)(answer)
        self._sync(node)
        if output.truncation is not None or output.hard_state is not None:
            self.on_turning_point(node)

    def _persist(self, node: Node, hard_state: object) -> None:
        run = node.run

        def write() -> None:
            if node.run == run:
                node.disk.hard_state = hard_state  # type: ignore[assignment]

        if self._shell_rules.persist_before_sending:
            write()
        else:
            self.after(self.random.randint(1, 300), write)

    def _sync(self, node: Node) -> None:
        """One sync at a time; it covers what was written when it began."""
        if node.is_syncing or node.disk.is_synced:
            return
        node.is_syncing = True
        run, end, generation = node.run, node.disk.log.end, node.disk.generation

        def finish() -> None:
            if node.run == run and node.is_up:
                node.is_syncing = False
                if node.disk.sync(end, generation):
                    self._step(node, Synced(end, generation))
                self._sync(node)

        self.after(self.random.choice((1, 2, 5, 30)), finish)

    def crash(self, node: Node) -> None:
        if node.is_up:
            self.note(f"{node.node_id} crashes")
            node.is_up = False
            node.run += 1
            node.disk.crash()

    def restart(self, node: Node) -> None:
        if not node.is_up and not node.is_halted:
            self.note(f"{node.node_id} restarts")
            try:
                node.core = self._start(node.node_id, node.disk)
            except DamagedStore as error:
                self.invariants.report("cannot start", f"{node.node_id}: {error}")
                return
            node.is_up, node.is_syncing = True, False
            self.invariants.on_restart(node.node_id, node.core, node.disk.log)

    def leaders(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.is_up and node.core.role is Role.LEADER]

    # The network.

    def _deliver(self, source: str, target: str, action: Callable[[], None]) -> None:
        network, random = self.network, self.random
        copies = 2 if random.random() < network.repeat else 1
        for _ in range(copies):
            if (source, target) in network.blocked or random.random() < network.loss:
                continue
            is_late = random.random() < network.straggle
            delay_ms = random.randint(1, network.straggle_ms) if is_late else random.randint(1, 5)
            if network.keeps_order:
                arrival_ms = max(self.now_ms + delay_ms, self._arrivals.get((source, target), 0))
                self._arrivals[source, target] = arrival_ms
                delay_ms = arrival_ms - self.now_ms
            self.after(delay_ms, action)

    def _send(self, node: Node, call: Call) -> None:
        run, target = node.run, self.nodes[call.peer]
        request = replace(call.request, dialect=JAVA) if node.node_id in self._terse else call.request

        def receive() -> None:
            if target.is_up:
                self.request(target, node.node_id, request, answer)

        def answer(response: Answer) -> None:
            self._deliver(call.peer, node.node_id, lambda: come_back(response))

        def come_back(answer: Answer) -> None:
            response = answer.response
            assert isinstance(response, VoteResponse | HeartbeatResponse | PushResponse | TransferResponse)
            if call.peer in self._terse:
                response = as_java(response)
            if node.run == run:
                self._step(node, Answered(call.peer, call.call_id, response))

        if isinstance(request, PushRequest) and request.type is PushType.TRUNCATE:
            self._last_cuts[node.node_id, call.peer] = receive
        self._deliver(node.node_id, call.peer, receive)

    def cut_late(self, source: Node, target: Node) -> None:
        """The last TRUNCATE between these two arrives now, once more or at last, however long ago it was sent."""
        receive = self._last_cuts.pop((source.node_id, target.node_id), None)
        if receive is not None and not self.network.keeps_order:
            self.note(f"a TRUNCATE of {source.node_id} arrives late")
            receive()

    def request(self, target: Node, sender: str, request: object, on_answer: Callable[[Answer], None]) -> None:
        self._count += 1
        self._answers[self._count] = on_answer
        self._step(target, Received(sender, self._count, request))  # type: ignore[arg-type]

    # Clients.

    def propose(self, node: Node, *bodies: bytes) -> None:
        """A client proposes to this node; what is acknowledged is remembered."""
        operation = Operation(bodies, self.invariants.last_acknowledged)

        def on_answer(answer: Answer) -> None:
            response = answer.response
            if isinstance(response, AppendResponse) and response.code == ResponseCode.SUCCESS:
                self.invariants.on_acknowledged(operation, response)

        if node.is_up:
            self._count += 1
            self._answers[self._count] = on_answer
            self._step(node, Propose((Proposal(self._count, bodies),)))

    def read(self, node: Node, index: int) -> None:
        """A client reads from this node; what it gets must be what was committed."""

        def on_answer(answer: Answer) -> None:
            response = answer.response
            if isinstance(response, GetResponse) and response.entries:
                known = self.invariants.committed.get(index)
                if known is None or known[0] != response.entries[0]:
                    self.invariants.report("reads give what is committed", f"{response.entries[0]}, not {known}")

        if node.is_up:
            self.request(node, "", GetRequest(index), on_answer)

    def transfer(self, leader: Node, to: str) -> None:
        request = TransferRequest(leader.core.term, leader.node_id, leader.node_id, to)
        self.request(leader, "", request, lambda answer: self.note(f"transfer to {to}: {answer.response}"))

    def _note_output(self, node: Node, event: Event, output: object) -> None:
        if not isinstance(event, Tick):
            self.note(f"{node.node_id} <- {event}")
        self.note(f"{node.node_id} -> {output}")
