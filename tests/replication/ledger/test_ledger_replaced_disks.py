"""Groups in which the disk of a member is lost now and then, under all the other faults of the simulation.

At most a minority has forgotten at a time: more is more than any group survives. What was sent to a member before its
disk was lost does not arrive after, as on a connection.
"""

from __future__ import annotations

from random import Random

import pytest
from tests.replication.ledger_simulation.cluster import Cluster, Node
from tests.replication.ledger_simulation.disk import ShellRules, SimulatedDisk
from tests.replication.ledger_simulation.invariants import Violation
from tests.replication.ledger_simulation.schedule import CHAOS_MS, _Chaos, calm

from flintlog.replication.ledger.core.interface import FORGOTTEN, NOTHING_PROMISED, HardState, LogEnd, SafetyRules

FILE_BYTES = 2_000
SEEDS = 200


class LostDisks:
    """Replaces disks; a new one promises what the test says."""

    def __init__(self, cluster: Cluster, promised: LogEnd) -> None:
        self.count = 0
        self._cluster = cluster
        self._promised = promised
        self._random = cluster.random
        self._pace_ms = cluster.random.choice((300, 800))

    def begin(self) -> None:
        cluster, random = self._cluster, self._random
        if cluster.now_ms < CHAOS_MS:
            self._lose_one()
            cluster.after(random.randint(1, 2 * self._pace_ms), self.begin)

    def _lose_one(self) -> None:
        cluster, random = self._cluster, self._random
        forgetful = [node for node in cluster.nodes.values() if node.disk.hard_state.promised == FORGOTTEN]
        node = random.choice(forgetful or list(cluster.nodes.values()))
        if len(forgetful) + (node not in forgetful) > (len(cluster.nodes) - 1) // 2 or not node.is_up:
            return
        self.count += 1
        cluster.crash(node)
        cluster.note(f"{node.node_id} lost its disk")
        node.disk = SimulatedDisk(FILE_BYTES, random, ShellRules())
        node.disk.hard_state = HardState(0, None, self._promised)
        cluster.after(random.choice((50, 200, 800)), lambda: self._restart(node))

    def _restart(self, node: Node) -> None:
        self._cluster.restart(node)


def simulate(seed: int, promised: LogEnd = FORGOTTEN) -> int:
    """Chaos, then calm; how many disks were lost. Raises Violation."""
    random = Random(seed)
    size = random.choice((3, 3, 5))
    cluster = Cluster(random, size, rules=SafetyRules(), shell_rules=ShellRules(), file_size=FILE_BYTES)
    cluster.network.loss = random.choice((0.0, 0.01, 0.1))
    cluster.network.repeat = random.choice((0.0, 0.1))
    lost = LostDisks(cluster, promised)
    _Chaos(cluster).begin()
    cluster.after(random.randint(200, 1_000), lost.begin)
    cluster.run_until(CHAOS_MS)
    calm(cluster)
    return lost.count


def test_nothing_is_lost_with_a_minority_of_disks() -> None:
    assert sum(simulate(seed) for seed in range(SEEDS)) > SEEDS


def test_members_that_vote_without_what_they_had_lose_it() -> None:
    with pytest.raises(Violation) as found:
        sum(simulate(seed, NOTHING_PROMISED) for seed in range(SEEDS))
    assert found.value.kind != "progress"
