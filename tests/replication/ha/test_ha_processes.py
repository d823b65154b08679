"""kill -9 of a master and of its slave under load, and a promotion: what was acknowledged is on both, in its place."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.replication.ha_process import CONFIG

from flintlog import Store, open_store
from flintlog.testing.free_ports import free_ports

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

PATIENCE_S = 90.0
MORE = 150
"""So many acknowledgements are waited for between two kills."""


class Pair:
    """Two directories, a process for each, and what their masters acknowledged."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.acknowledged = root / "acknowledged"
        self.acknowledged.touch()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._ports = free_ports(2)

    def start(self, role: str, name: str) -> None:
        arguments = [role, self.root / name, *self._ports, self.acknowledged]
        command = [sys.executable, "-m", "tests.replication.ha_process", *map(str, arguments)]
        with (self.root / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self, name: str) -> None:
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def kill_all(self) -> None:
        for name in list(self._processes):
            self.kill(name)

    def wait_for_more(self) -> None:
        """Until some more were acknowledged: both run, and follow each other."""
        wanted = self._count() + MORE
        deadline = time.monotonic() + PATIENCE_S
        while self._count() < wanted:
            logs = "".join((self.root / f"{name}.log").read_text()[-2000:] for name in self._processes)
            assert time.monotonic() < deadline, logs
            time.sleep(0.05)

    def _count(self) -> int:
        return self.acknowledged.read_bytes().count(b"\n")

    def promised(self) -> Iterator[tuple[int, int, bytes]]:
        for line in self.acknowledged.read_bytes().split(b"\n")[:-1]:
            queue_id, offset, body = line.split(b" ", 2)
            yield int(queue_id), int(offset), body


def bodies_of(store: Store, queue_id: int) -> list[bytes]:
    bodies: list[bytes] = []
    while messages := store.get("orders", queue_id, len(bodies), 64).messages:
        bodies += [message.body for message in messages]
    return bodies


def check(pair: Pair) -> None:
    promised = list(pair.promised())
    assert len(promised) > MORE
    with open_store(pair.root / "a", CONFIG) as a, open_store(pair.root / "b", CONFIG) as b:
        common = min(a.replication.raw_log.end, b.replication.raw_log.end)
        assert a.replication.raw_log.digest(0, common) == b.replication.raw_log.digest(0, common)
        for store in (a, b):
            assert [finding.id for finding in store.recovery.findings if finding.severity == "error"] == []
            queues = {each.queue_id: bodies_of(store, each.queue_id) for each in store.queues()}
            lost = [each for each in promised if queues[each[0]][each[1] : each[1] + 1] != [each[2]]]
            assert lost == [], f"{store.path} lost {len(lost)} of {len(promised)}"


@pytest.mark.parametrize("seed", [1, 2])
def test_what_was_acknowledged_survives_kills_and_a_promotion(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    pair = Pair(tmp_path)
    try:
        master, slave = "a", "b"
        pair.start("master", master)
        pair.start("slave", slave)
        for _ in range(6):
            pair.wait_for_more()
            time.sleep(chance.uniform(0, 0.3))
            happens = chance.choice(["master", "slave", "both", "promotion"])
            if happens in ("slave", "both", "promotion"):
                pair.kill(slave)  # first: what the master then still takes for acknowledged is lost by a promotion
            if happens in ("master", "both", "promotion"):
                pair.kill(master)
            if happens == "promotion":
                master, slave = slave, master
            if happens != "slave":
                pair.start("master", master)
            if happens != "master":
                pair.start("slave", slave)
        pair.wait_for_more()
    finally:
        pair.kill_all()
    check(pair)
