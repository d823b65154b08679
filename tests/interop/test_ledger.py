"""Groups of real DLedger nodes and ours: either leads, each restarts on its own and the other's files, bytes agree."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest
from tests.replication.ledger_nodes import GROUP, ThreadedNode, data_files, entries_of, wait_until

from flintlog.replication.ledger.core.interface import LedgerConfig
from flintlog.testing.free_ports import ledger_addresses
from interop.java_ledger import QUICK_LEDGER, JavaLedger

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("java"), pytest.mark.timeout(400)]
IDS = ("n0", "n1", "n2")
SUCCESS = 200


@dataclass
class Mixed:
    """A group on one directory: some nodes Java's, the others ours."""

    directory: Path
    java: JavaLedger
    addresses: dict[str, str]
    ours: dict[str, ThreadedNode] = field(default_factory=dict)
    theirs: set[str] = field(default_factory=set)
    acknowledged: list[bytes] = field(default_factory=list)

    def start_ours(self, node_id: str) -> None:
        config = LedgerConfig(
            node_id,
            self.addresses,
            heartbeat_interval_ms=500,
            acknowledge_timeout_ms=20_000,
            leader_record=lambda: b"leads",
        )
        self.ours[node_id] = ThreadedNode(self.directory, config)

    def start_theirs(self, node_id: str, options: Mapping[str, object] | None = None) -> None:
        self.java.start(node_id, self.directory, options)
        self.theirs.add(node_id)

    def stop(self, node_id: str) -> None:
        if node_id in self.ours:
            self.ours.pop(node_id).stop()
        else:
            self.theirs.discard(node_id)
            self.java.stop(node_id)

    def leader(self) -> str:
        """The one that every running node follows."""
        found: list[str | None] = [None]

        def agreed() -> bool:
            known = {node.node.leader_id for node in self.ours.values()}
            known |= {self.java.info(node_id).leader_id for node_id in self.theirs}
            found[0] = known.pop() if len(known) == 1 else None
            return found[0] is not None and found[0] in (*self.ours, *self.theirs)

        wait_until(agreed, "no leader that all nodes agree on")
        return str(found[0])

    def hand_over(self, successor: str) -> None:
        """Let a certain node lead."""
        for _ in range(20):
            leader = self.leader()
            if leader == successor:
                return
            self.ours[leader].transfer(successor) if leader in self.ours else self.java.transfer(leader, successor)
            # A member of ours without a log that finds a Java leader waits for a commit (decision 0015).
            self.append([b"so that all have joined"])
            time.sleep(0.1)
        raise AssertionError(f"{successor} does not become the leader")

    def append(self, bodies: Sequence[bytes]) -> None:
        """Through the leader; what was acknowledged is remembered."""
        leader = self.leader()
        if leader in self.ours:
            codes = [int(answer.code) for answer in self.ours[leader].append(bodies)]
        else:
            codes = [receipt.code for receipt in self.java.append(leader, bodies)]
        self.acknowledged += [body for body, code in zip(bodies, codes, strict=True) if code == SUCCESS]
        assert set(codes) == {SUCCESS}

    def settle(self) -> None:
        """Everybody has everything, and knows that it is committed."""

        def ends() -> set[tuple[int, int]]:
            found = {(node.storage.log.end, node.node.committed) for node in self.ours.values()}
            infos = [self.java.info(node_id) for node_id in self.theirs]
            return found | {(info.end_index, info.committed_index) for info in infos}

        wait_until(lambda: len(ends()) == 1 and len(set(*ends())) == 1, "the nodes do not agree")

    def check(self) -> None:
        """Nothing acknowledged is missing anywhere, and all nodes hold it in one order."""
        self.settle()
        logs = [[entry.body for entry in entries_of(node.storage)] for node in self.ours.values()]
        logs += [[entry.body for entry in self.java.entries(node_id)] for node_id in sorted(self.theirs)]
        assert all(log == logs[0] for log in logs)
        kept = [body for body in logs[0] if body != b"leads"]
        assert [body for body in kept if body in set(self.acknowledged)] == self.acknowledged

    def stop_all(self) -> None:
        for node_id in [*self.ours, *self.theirs]:
            self.stop(node_id)


@contextmanager
def mixed(directory: Path) -> Iterator[Mixed]:
    addresses = ledger_addresses(*IDS)
    with JavaLedger(GROUP, addresses, QUICK_LEDGER) as java:
        group = Mixed(directory, java, addresses)
        try:
            yield group
        finally:
            for node in group.ours.values():
                node.stop()


def _bodies(count: int, name: str) -> list[bytes]:
    return [f"{name} {number} ".encode() + b"x" * (number * 31 % 500) for number in range(count)]


def _same_files(directory: Path) -> None:
    files = [data_files(directory, node_id) for node_id in IDS]
    assert files[0] == files[1] == files[2]
    assert len(files[0]) > 3


def test_ours_among_two_of_java_follows_leads_and_restarts(tmp_path: Path) -> None:
    with mixed(tmp_path) as group:
        group.start_theirs("n0")
        group.start_theirs("n1")
        group.start_ours("n2")
        group.hand_over("n0")
        group.append(_bodies(600, "java leads"))
        group.stop("n2")
        group.append(_bodies(300, "java leads alone"))
        group.start_ours("n2")
        group.hand_over("n2")
        group.append(_bodies(600, "ours leads"))
        group.stop("n1")
        group.append(_bodies(300, "ours leads with one"))
        group.start_theirs("n1", {"enableBatchPush": True})
        group.hand_over("n1")
        group.append(_bodies(200, "java in batches"))
        group.check()
        group.stop_all()
    _same_files(tmp_path)


def test_java_among_two_of_ours_and_each_on_the_others_files(tmp_path: Path) -> None:
    with mixed(tmp_path) as group:
        group.start_ours("n0")
        group.start_ours("n1")
        group.start_theirs("n2")
        group.hand_over("n0")
        group.append(_bodies(500, "ours leads"))
        group.hand_over("n2")
        group.append(_bodies(500, "java leads"))
        group.check()
        group.stop_all()
        # Java takes what ours has written, ours what Java has written, and the group goes on.
        group.start_theirs("n0")
        group.start_ours("n1")
        group.start_ours("n2")
        group.hand_over("n0")
        group.append(_bodies(300, "java on our files"))
        group.hand_over("n2")
        group.append(_bodies(300, "ours on java's files"))
        group.check()
        group.stop_all()
    _same_files(tmp_path)


@pytest.mark.slow
def test_a_leader_of_either_kind_that_stops_is_replaced_by_the_other(tmp_path: Path) -> None:
    with mixed(tmp_path) as group:
        group.start_theirs("n0")
        group.start_ours("n1")
        group.start_ours("n2")
        group.hand_over("n0")
        group.append(_bodies(200, "java leads"))
        group.settle()  # one of ours that has nothing yet would not vote (decision 0015)
        group.stop("n0")
        group.append(_bodies(200, "one of ours leads"))
        group.start_theirs("n0")
        group.hand_over("n1")
        group.stop("n1")
        group.append(_bodies(200, "the rest"))
        group.start_ours("n1")
        group.append(_bodies(10, "all"))
        group.check()
        group.stop_all()
    files = [data_files(tmp_path, node_id) for node_id in IDS]
    assert files[0] == files[1] == files[2]


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_while_java_is_killed_and_ours_restarts(tmp_path: Path) -> None:
    addresses = ledger_addresses(*IDS)
    random = Random(7)
    acknowledged: list[bytes] = []
    javas: dict[str, JavaLedger] = {}
    config = LedgerConfig("n2", addresses, heartbeat_interval_ms=500, leader_record=lambda: b"leads")
    ours = ThreadedNode(tmp_path, config)

    def start_java(node_id: str) -> None:
        javas[node_id] = JavaLedger(GROUP, addresses, QUICK_LEDGER)
        javas[node_id].start(node_id, tmp_path)

    def append(bodies: list[bytes]) -> None:
        leader = ours.node.leader_id
        if leader == "n2":
            codes = [int(answer.code) for answer in ours.append(bodies, 16)]
        elif leader in javas:
            codes = [receipt.code for receipt in javas[leader].append(leader, bodies, window=16)]
        else:
            time.sleep(0.1)
            return
        acknowledged.extend(body for body, code in zip(bodies, codes, strict=True) if code == SUCCESS)

    try:
        start_java("n0")
        start_java("n1")
        for round_ in range(12):
            until = time.monotonic() + 3.0
            count = 0
            while time.monotonic() < until:
                append([b"%d %d %d " % (round_, count, number) + b"x" * number for number in range(100)])
                count += 1
            victim = random.choice(IDS)
            if victim == "n2":
                ours.stop()
                ours = ThreadedNode(tmp_path, config)
            else:
                javas.pop(victim).kill()
                start_java(victim)
        wait_until(lambda: ours.node.leader_id is not None)
        while b"the end" not in acknowledged:
            append([b"the end"])
        end = ours.storage.log.end
        wait_until(lambda: all(javas[each].info(each).committed_index >= end for each in javas), "Java is behind")
        logs = [[entry.body for entry in entries_of(ours.storage)]]
        logs += [[entry.body for entry in java.entries(node_id)] for node_id, java in javas.items()]
        shortest = min(map(len, logs))
        assert logs[0][:shortest] == logs[1][:shortest] == logs[2][:shortest]
        assert len(acknowledged) > 2_000
        assert set(acknowledged) <= set(logs[0][:shortest])
    finally:
        ours.stop()
        for java in javas.values():
            java.kill()
