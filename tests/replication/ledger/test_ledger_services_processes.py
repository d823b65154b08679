"""Three members as processes, killed one after the other while a group consumes and delayed messages are delivered.

What a save has returned for is the next leader's; nothing is left out; every delayed message is delivered once.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from tests.replication.ledger_cluster import IDS, Cluster, cluster
from tests.replication.ledger_services_process import GROUP, LATER, ORDERS, config_of

from flintlog import Store, open_store


def _lines(directory: Path, kind: str) -> list[str]:
    found: list[str] = []
    for member in IDS:
        file = directory / f"{member}.{kind}"
        text = file.read_text() if file.exists() else ""
        found += text[: text.rfind("\n") + 1].splitlines()  # the last line of a process that was killed may be torn
    return found


def _kept(group: Cluster) -> int:
    return max(map(int, _lines(group.directory, "kept")), default=0)


def _until(happened: Callable[[], bool], group: Cluster) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline, group.output()
        time.sleep(0.05)


def _runs(group: Cluster) -> dict[str, list[int]]:
    """The offsets that each run of a member has consumed, in order."""
    found: dict[str, list[int]] = {}
    for line in _lines(group.directory, "consumed"):
        name, offset = line.split()
        found.setdefault(name, []).append(int(offset))
    return found


def _kill_the_leader(group: Cluster) -> None:
    """Once more was kept; then nobody is given again what was kept, and nothing is left out."""
    wanted = _kept(group) + 30
    _until(lambda: _kept(group) >= wanted, group)
    victim, before = group.leader(), _runs(group)
    group.kill(victim)
    kept = _kept(group)  # of a process that is dead: all that it was sent
    reached = max(max(offsets) for offsets in _runs(group).values())
    _until(lambda: any(_begun(group, before, victim)), group)
    (first,) = set(_begun(group, before, victim)[:1])
    assert kept <= first <= reached + 1
    group.start(victim)


def _begun(group: Cluster, before: dict[str, list[int]], victim: str) -> list[int]:
    """Where those began to consume who did not before, or go on after the victim died."""
    return [
        offsets[len(before.get(name, ()))]
        for name, offsets in _runs(group).items()
        if not name.startswith(victim) and len(offsets) > len(before.get(name, ()))
    ]


def _bodies(store: Store, topic: str) -> list[str]:
    found: list[str] = []
    while messages := store.get(topic, 0, len(found)).messages:
        found += [message.body.decode() for message in messages]
    return found


def _check(group: Cluster) -> None:
    (group.directory / "quiet").touch()
    time.sleep(3.0)  # the last delayed messages are due after one
    group.end_processes()
    peers = ";".join(f"{member}-{address}" for member, address in group.real.items())
    acked = _lines(group.directory, "acked")
    offsets = set()
    for member in IDS:
        with open_store(group.directory / member, config_of(peers, member), read_only=True) as store:
            later = _bodies(store, LATER)
            assert [body for body, count in Counter(later).items() if count > 1] == []
            assert sorted(set(acked) - set(later)) == []
            offsets.add(store.consumer_offsets.get(GROUP, ORDERS, 0))
            assert set(range(store.max_offset(ORDERS, 0))) == {
                offset for consumed in _runs(group).values() for offset in consumed
            }
    assert len(offsets) == 1
    assert (offsets.pop() or 0) >= _kept(group)
    assert len(acked) > 50


@pytest.mark.timeout(300)
def test_the_next_leader_goes_on_for_consumers_and_delays_when_one_is_killed(tmp_path: Path) -> None:
    with cluster(tmp_path, module="ledger_services_process") as group:
        for _ in range(2):
            _kill_the_leader(group)
        _check(group)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [1, 2])
def test_the_next_leader_goes_on_in_minutes_of_trouble(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    with cluster(tmp_path, module="ledger_services_process") as group:
        end = time.monotonic() + 120
        while time.monotonic() < end:
            if random.random() < 0.5:
                _kill_the_leader(group)
                continue
            victim = random.choice([group.leader(), random.choice(IDS)])
            (group.pause if random.random() < 0.5 else group.cut_off)(victim)
            time.sleep(random.uniform(0.1, 2.5))
            group.resume(victim)
            group.mend()
        _check(group)
