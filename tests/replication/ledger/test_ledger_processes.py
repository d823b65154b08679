"""Three processes under load: killed, stopped in their tracks, cut off. One log explains all that clients saw."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from random import Random

import pytest
from tests.replication.ledger_cluster import IDS, Client, Cluster, Load, cluster
from tests.replication.ledger_history import violations

OWN = frozenset({b"leads"})


def _check(group: Cluster, load: Load, least: int) -> None:
    history = load.end()
    logs = group.stop()
    assert logs["n0"] == logs["n1"] == logs["n2"], group.output()
    assert violations(history, logs["n0"], OWN) == []
    assert len(history.acknowledged) >= least
    assert len(history.reads) > 0


def _leader(group: Cluster) -> str:
    async def ask() -> str:
        client = Client(group.real)
        while client.leader is None:
            await client.find_leader()
        await client.close()
        return client.leader

    return asyncio.run(asyncio.wait_for(ask(), 60))


def _trouble(group: Cluster, random: Random, seconds: float, load: Load) -> None:
    """Something happens to some node, and is over again, until the time is."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        load.wait_for_more(20)
        victim = random.choice([_leader(group), random.choice(IDS)])
        kind = random.choice(["kill", "pause", "cut"])
        if kind == "kill":
            group.kill(victim)
            time.sleep(random.uniform(0, 1.5))
            group.start(victim)
        elif kind == "pause":
            group.pause(victim)
            time.sleep(random.uniform(0.5, 2.5))
            group.resume(victim)
        else:
            group.cut_off(victim)
            time.sleep(random.uniform(0.5, 2.5))
            group.mend()


@pytest.mark.timeout(180)
def test_nothing_acknowledged_is_lost_in_some_trouble(tmp_path: Path) -> None:
    with cluster(tmp_path) as group:
        load = Load(group.real)
        try:
            load.wait_for_more(50)
            leader = _leader(group)
            group.kill(leader)
            load.wait_for_more(50)
            group.start(leader)
            leader = _leader(group)
            group.pause(leader)
            load.wait_for_more(50)
            group.resume(leader)
            load.wait_for_more(20)
            leader = _leader(group)
            group.cut_off(leader)
            load.wait_for_more(50)
            group.mend()
            load.wait_for_more(20)
            _check(group, load, least=240)
        finally:
            load.end()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_acknowledged_is_lost_in_minutes_of_trouble(tmp_path: Path, seed: int) -> None:
    with cluster(tmp_path) as group:
        load = Load(group.real)
        try:
            _trouble(group, Random(seed), 120.0, load)
            _check(group, load, least=1_000)
        finally:
            load.end()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("timings", "within_s"), [("fast", 2.0), ("java", 10.0)])
def test_a_killed_leader_is_replaced_in_time(tmp_path: Path, timings: str, within_s: float) -> None:
    took: list[float] = []
    with cluster(tmp_path, timings) as group:
        load = Load(group.real)
        try:
            load.wait_for_more(10)
            for _ in range(4):
                leader = _leader(group)
                group.kill(leader)
                took.append(load.wait_for_more(10))
                group.start(leader)
                load.wait_for_more(200)
                time.sleep(2.0)
            _check(group, load, least=400)
        finally:
            load.end()
    # A machine that is busy with other things makes one of them late, not most.
    assert sorted(took)[-2] < within_s, took
