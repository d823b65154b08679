"""The commands of `ledger_scripts`; each node has a clock of its own. `scripting.py` says what a script is.

    group n0 n1 n2 [java n2] [without RULE]   a group; Java nodes have no rules, and say nothing that Java does not
    log n0 1a 1b 2c                           a node's log, as terms and bodies; before `start`
    state n0 2 [n1]                           its term, and whom it voted for; otherwise the one behind its last entry's
    committed n0 1                            what it knew to be committed
    begin n0 2                                retention: its log begins with this entry
    start                                     all nodes
    stand n0                                  only n0's clock runs on, until it asks for votes
    elect n0                                  and everything is delivered, until n0 leads and its followers have its log
    propose n0 a b                            bodies, to be appended together
    tick n0 500                               n0's clock runs on by so many milliseconds
    run 500                                   all clocks run on in steps of ten, everything is delivered
    again n0 n1 TRUNCATE                      n1 gets the last such push of n0 once more
    cut n0 n1 | n2                            nothing passes between these groups
    lose 3lead                                messages in which this stands are lost from now on
    heal                                      everything passes
    hold n1, sync n1                          n1's syncs take their time; are done
    crash n1, restart n1                      it loses what was not synced; comes back
    transfer n0 n1                            an operator asks n0 to hand over to n1
    forge n1 HEARTBEAT n9 2                   n1 hears a heartbeat of a stranger, for a term
    show                                      the logs

Heartbeats that succeed are not shown, nor are COMMITs: only what comes of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from random import Random

from tests.replication.ledger_memory import MemoryLog
from tests.replication.ledger_simulation.cluster import as_java
from tests.replication.scripting import Letter, Player

from flintlog.errors import LedgerHalted
from flintlog.format.ledger import NO_INDEX
from flintlog.replication.ledger.core.core import LedgerCore
from flintlog.replication.ledger.core.interface import (
    Answered,
    Call,
    Event,
    HardState,
    LedgerConfig,
    Output,
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
    Entry,
    HeartbeatRequest,
    HeartbeatResponse,
    PeerRequest,
    PeerResponse,
    PushRequest,
    PushResponse,
    PushType,
    Request,
    Response,
    ResponseCode,
    TransferRequest,
    TransferResponse,
    VoteRequest,
    VoteResponse,
)

_JAVA_RULES = SafetyRules(commit_own_term_only=False, sync_before_acknowledging=False, lead_once_a_term=False)


@dataclass(slots=True)
class _Node:
    node_id: str
    log: MemoryLog = field(default_factory=MemoryLog)
    hard_state: HardState = field(default_factory=HardState)
    committed: int = NO_INDEX
    core: LedgerCore | None = None
    now_ms: int = 0
    run: int = 0
    synced: int = NO_INDEX
    generation: int = 0
    is_held: bool = False
    is_java: bool = False


class LedgerPlayer(Player):
    """A group of ledger nodes."""

    def __init__(self) -> None:
        super().__init__()
        self._nodes: dict[str, _Node] = {}
        self._answers: dict[int, Callable[[Response], None]] = {}
        self._blocked: set[tuple[str, str]] = set()
        self._lost: set[str] = set()
        self._last_push: dict[tuple[str, str, str], PushRequest] = {}
        self._rules = SafetyRules()
        self._count = 0

    # Setting up.

    def _do_group(self, *words: str) -> None:
        names = [word for word in words if word[0] == "n"]
        for name in names:
            self._nodes[name] = _Node(name)
        for key, value in pairwise(words):
            if key == "java":
                self._nodes[value].is_java = True
            elif key == "without":
                self._rules = replace(self._rules, **{value: False})

    def _do_log(self, name: str, *cells: str) -> None:
        output = Output()
        position = 0
        for index, cell in enumerate(cells):
            entry = Entry(index, int(cell[0]), position, cell[1:].encode())
            output.entries.append(entry)
            position += entry.size
        node = self._nodes[name]
        node.log.apply(output)
        node.synced = node.log.end
        node.hard_state = HardState(int(cells[-1][0]) + 1)

    def _do_state(self, name: str, term: str, voted_for: str | None = None) -> None:
        self._nodes[name].hard_state = HardState(int(term), voted_for)

    def _do_committed(self, name: str, index: str) -> None:
        self._nodes[name].committed = int(index)

    def _do_begin(self, name: str, index: str) -> None:
        self._nodes[name].log.delete_before(int(index))

    def _do_start(self) -> None:
        for node in self._nodes.values():
            self._start(node)

    def _start(self, node: _Node) -> None:
        peers = {name: f"{name}:40911" for name in self._nodes}
        config = LedgerConfig(node.node_id, peers, rules=self._rules, leader_record=lambda: b"lead")
        if node.is_java:
            config = replace(config, rules=_JAVA_RULES, max_batch_bytes=0, max_batch_pushes=config.max_pushes)
        seed = Random(f"{node.node_id} {node.run}")
        node.core = LedgerCore(config, node.log, node.hard_state, node.committed, now_ms=node.now_ms, random=seed)

    # Time.

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
                self._step(node, Tick())

    def _do_stand(self, name: str) -> None:
        node = self._nodes[name]
        for _ in range(2_000):
            self._pass_time([node], 10)
            if any(letter.source == name and " VOTE " in letter.text for letter in self.letters):
                return
        raise AssertionError(f"{name} does not stand")

    def _do_elect(self, name: str) -> None:
        node = self._nodes[name]
        for _ in range(2_000):
            self._pass_time([node], 10)
            for other in self._nodes.values():
                self._step(other, Tick())
            self.deliver()
            if node.core is not None and node.core.role is Role.LEADER:
                self._pass_time([node], 10)
                self.deliver()
                return
        raise AssertionError(f"{name} is not elected")

    # Messages.

    def is_lost(self, letter: Letter) -> bool:
        return (letter.source, letter.target) in self._blocked or any(word in letter.text for word in self._lost)

    def _do_again(self, source: str, target: str, kind: str) -> None:
        request = self._last_push[source, target, kind]
        self.lines.append(f"{source} → {target}  {_show(request)}")
        self._receive(self._nodes[target], source, request, lambda response: self._tell(target, source, response))
        self.deliver()

    def _tell(self, source: str, target: str, response: Response) -> None:
        self.lines.append(f"{target} ← {source}  {_show_answer(response)}")

    def _do_cut(self, *words: str) -> None:
        groups = [part.split() for part in " ".join(words).split("|")]
        for group in groups:
            self._blocked |= {(a, b) for a in group for b in self._nodes if b not in group}
            self._blocked |= {(b, a) for a, b in self._blocked}

    def _do_lose(self, word: str) -> None:
        self._lost.add(word)

    def _do_heal(self) -> None:
        self._blocked.clear()
        self._lost.clear()

    def _do_forge(self, target: str, kind: str, stranger: str, term: str) -> None:
        assert kind == "HEARTBEAT"
        request = HeartbeatRequest(int(term), stranger)
        self._receive(self._nodes[target], stranger, request, lambda response: self._tell(target, stranger, response))

    # What nodes do.

    def _do_propose(self, name: str, *bodies: str) -> None:
        def on_answer(response: Response) -> None:
            assert isinstance(response, AppendResponse)
            where = f" at {response.index}" if response.code == ResponseCode.SUCCESS else ""
            self.lines.append(f"client  {' '.join(bodies)}: {ResponseCode(response.code).name}{where}")

        self._count += 1
        self._answers[self._count] = on_answer
        proposal = Proposal(self._count, tuple(body.encode() for body in bodies))
        self._step(self._nodes[name], Propose((proposal,)))

    def _do_transfer(self, name: str, to: str) -> None:
        node = self._nodes[name]
        assert node.core is not None

        def on_answer(response: Response) -> None:
            assert isinstance(response, TransferResponse)
            self.lines.append(f"operator  {name} to {to}: {ResponseCode(response.code).name}")

        self._receive(node, "", TransferRequest(node.core.term, name, name, to), on_answer)

    def _do_hold(self, name: str) -> None:
        self._nodes[name].is_held = True

    def _do_sync(self, name: str) -> None:
        self._nodes[name].is_held = False
        self._sync(self._nodes[name])

    def _do_crash(self, name: str) -> None:
        node = self._nodes[name]
        node.core = None
        node.run += 1
        node.log = MemoryLog(entries=node.log.entries()[: node.synced + 1 - max(0, node.log.begin)])

    def _do_restart(self, name: str) -> None:
        node = self._nodes[name]
        node.is_held, node.generation = False, 0
        self._start(node)

    def _receive(self, node: _Node, sender: str, request: Request, on_answer: Callable[[Response], None]) -> None:
        self._count += 1
        self._answers[self._count] = on_answer
        self._step(node, Received(sender, self._count, request))

    def _step(self, node: _Node, event: Event) -> None:
        if node.core is None:
            return
        try:
            output = node.core.step(event, node.now_ms)
        except LedgerHalted as error:
            self.lines.append(f"{node.node_id}  HALTS: {error.what}")
            node.core = None
            return
        node.log.apply(output)
        node.hard_state = output.hard_state or node.hard_state
        node.committed = node.core.committed
        if output.truncation is not None:
            node.synced = min(node.synced, output.truncation.last_index)
        node.generation = output.generation
        self.lines += [f"{node.node_id}  {line}" for line in _tell_output(output)]
        for call in output.calls:
            self._send(node, call)
        for answer in output.answers:
            self._answers.pop(answer.answer_to)(answer.response)
        self._sync(node)

    def _sync(self, node: _Node) -> None:
        if not node.is_held and node.synced < node.log.end:
            node.synced = node.log.end
            self._step(node, Synced(node.log.end, node.generation))

    def _send(self, node: _Node, call: Call) -> None:
        run, peer, request = node.run, self._nodes[call.peer], call.request
        if node.is_java:
            request = replace(request, dialect=JAVA)
        if isinstance(request, PushRequest):
            self._last_push[node.node_id, call.peer, request.type.value] = request

        def answer(response: Response) -> None:
            assert isinstance(response, VoteResponse | HeartbeatResponse | PushResponse | TransferResponse)
            sent = as_java(response) if peer.is_java else response
            text = f"{node.node_id} ← {call.peer}  {_show_answer(sent, request)}"
            is_regular = isinstance(sent, HeartbeatResponse) or _is_commit(request)
            is_idle = is_regular and getattr(sent, "code", None) == ResponseCode.SUCCESS
            self.letters.append(Letter(call.peer, node.node_id, text, lambda: come_back(sent), is_idle))

        def come_back(response: PeerResponse) -> None:
            if node.run == run:
                self._step(node, Answered(call.peer, call.call_id, response))

        text = f"{node.node_id} → {call.peer}  {_show(request)}"
        is_idle = isinstance(request, HeartbeatRequest) or _is_commit(request)
        letter = Letter(
            node.node_id, call.peer, text, lambda: self._receive(peer, node.node_id, request, answer), is_idle
        )
        self.letters.append(letter)

    # Showing.

    def _do_show(self) -> None:
        first = min((max(0, node.log.begin) for node in self._nodes.values()), default=0)
        last = max(node.log.end for node in self._nodes.values())
        numbers = "".join(f"{index:<8}" for index in range(first, last + 1))
        self.lines.append(f"                  {numbers}".rstrip())
        for node in self._nodes.values():
            core = node.core
            what = f"{core.role.value.lower():<9} t{core.term}" if core is not None else "down"
            cells = "".join(f"{_cell(node.log, index):<8}" for index in range(first, last + 1))
            self.lines.append(f"{node.node_id} {what:<14} {cells}| committed {node.committed}")


def _is_commit(request: PeerRequest) -> bool:
    return isinstance(request, PushRequest) and request.type is PushType.COMMIT


def _cell(log: MemoryLog, index: int) -> str:
    if log.end == NO_INDEX or not log.begin <= index <= log.end:
        return "."
    entry = log.entry(index)
    return f"{entry.term}{entry.body.decode()}"


def _tell_output(output: Output) -> Iterator[str]:
    if output.hard_state is not None:
        vote = f", votes for {output.hard_state.voted_for}" if output.hard_state.voted_for else ""
        term, index = output.hard_state.promised
        had = f", had a log that ended with {index}:{term}" if index != NO_INDEX else ""
        yield f"is in term {output.hard_state.term}{vote}{had}"
    if output.truncation is not None and output.truncation.restart_position is not None:
        yield f"begins its log anew with {output.truncation.last_index + 1}"
    elif output.truncation is not None:
        yield f"cuts its log behind {output.truncation.last_index}"
    if output.entries:
        yield f"writes {_entries(output.entries)}"
    if output.role is not None and output.role.role is not Role.CANDIDATE:
        leads = "leads" if output.role.role is Role.LEADER else f"follows {output.role.leader_id}"
        yield f"{leads} in term {output.role.term}"
    if output.committed is not None:
        yield f"commits up to {output.committed}"


def _entries(entries: list[Entry] | tuple[Entry, ...]) -> str:
    return " ".join(f"{entry.index}:{entry.term}{entry.body.decode()}" for entry in entries)


def _show(request: PeerRequest) -> str:
    if isinstance(request, VoteRequest):
        return f"VOTE for term {request.term}; its log ends with {request.ledger_end_index}:{request.ledger_end_term}"
    if isinstance(request, HeartbeatRequest):
        return f"HEARTBEAT of term {request.term}"
    if isinstance(request, TransferRequest):
        return f"TAKE LEADERSHIP once you have {request.take_leadership_index}"
    if request.type is PushType.COMMIT:
        return f"COMMIT up to {request.commit_index}"
    return f"{request.type.value} {_entries(request.entries)}"


def _show_answer(response: Response, request: PeerRequest | None = None) -> str:
    if isinstance(response, VoteResponse):
        return f"{response.vote_result.value}, in term {response.term}"
    assert isinstance(response, HeartbeatResponse | PushResponse | TransferResponse)
    code = ResponseCode(response.code).name
    if isinstance(response, PushResponse):
        kind = "" if not isinstance(request, PushRequest) else f"{request.type.value} "
        has = (
            f", has {response.begin_index}..{response.end_index}" if response.end_index != NO_INDEX else ", has nothing"
        )
        hint = (
            f", {response.conflict_term} since {response.conflict_index}" if response.conflict_term != NO_TERM else ""
        )
        return f"{kind}{code}{has}{hint}"
    return f"{code}"
