"""Stores of a group as processes, killed, stopped and cut off while they are put into and read from.

Every put and every read of every process is written down. One queue explains them: what was acknowledged is there, at
the offset that was reported, once; every read of an offset, on any node, at any time, gave that; all stores end alike.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from tests.replication.ledger_cluster import IDS, Cluster, cluster
from tests.replication.ledger_store_process import TOPIC, config_of

from flintlog import open_store


def _lines(directory: Path, kind: str) -> list[str]:
    found: list[str] = []
    for member in IDS:
        file = directory / f"{member}.{kind}"
        text = file.read_text() if file.exists() else ""
        found += text[: text.rfind("\n") + 1].splitlines()  # the last line of a process that was killed may be torn
    return found


def _pairs(directory: Path, kind: str) -> list[tuple[int, str]]:
    return [(int(offset), body) for offset, body in (line.split(" ", 1) for line in _lines(directory, kind))]


def _queue(directory: Path, member: str, peers: str) -> list[str]:
    bodies: list[str] = []
    with open_store(directory / member, config_of(peers, member), read_only=True) as store:
        while messages := store.get(TOPIC, 0, len(bodies)).messages:
            bodies += [message.body.decode() for message in messages]
    return bodies


def _more(group: Cluster, count: int) -> None:
    """Wait for so many more acknowledged puts."""
    wanted = len(_lines(group.directory, "acked")) + count
    _until(lambda: len(_lines(group.directory, "acked")) >= wanted, group)


def _until(happened: Callable[[], bool], group: Cluster) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline, group.output()
        time.sleep(0.05)


def _check(group: Cluster, least: int) -> None:
    (group.directory / "quiet").touch()
    time.sleep(0.5)
    group.end_processes()
    peers = ";".join(f"{member}-{address}" for member, address in group.real.items())
    queues = [_queue(group.directory, member, peers) for member in IDS]
    assert queues[0] == queues[1] == queues[2]
    queue = queues[0]
    acked, read = _pairs(group.directory, "acked"), _pairs(group.directory, "read")
    assert [(offset, body) for offset, body in acked if queue[offset : offset + 1] != [body]] == []
    assert [(offset, body) for offset, body in read if queue[offset : offset + 1] != [body]] == []
    assert [body for body, count in Counter(queue).items() if count > 1] == []
    assert set(queue) <= set(_lines(group.directory, "sent"))
    assert len(acked) >= least
    assert len(read) >= len(queue)


def _disturb(group: Cluster, kind: str, victim: str, seconds: float) -> None:
    if kind == "kill":
        group.kill(victim)
        time.sleep(seconds)
        group.start(victim)
    elif kind == "pause":
        group.pause(victim)
        time.sleep(seconds)
        group.resume(victim)
    else:
        group.cut_off(victim)
        time.sleep(seconds)
        group.mend()


@pytest.mark.timeout(300)
def test_acknowledged_messages_are_served_once_in_order_in_some_trouble(tmp_path: Path) -> None:
    with cluster(tmp_path, module="ledger_store_process") as group:
        _more(group, 100)
        for kind in ("kill", "pause", "cut"):
            _disturb(group, kind, group.leader(), 1.5)
            _more(group, 50)
        _check(group, least=250)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [1, 2])
def test_acknowledged_messages_are_served_once_in_order_in_minutes_of_trouble(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    with cluster(tmp_path, module="ledger_store_process") as group:
        end = time.monotonic() + 120
        while time.monotonic() < end:
            _more(group, 50)
            victim = random.choice([group.leader(), random.choice(IDS)])
            _disturb(group, random.choice(["kill", "pause", "cut"]), victim, random.uniform(0.1, 2.5))
        _check(group, least=1_000)
