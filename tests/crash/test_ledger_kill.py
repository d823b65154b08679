"""Three members of a ledger's group as processes, killed as they come: no acknowledged message is lost or moved."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from flintlog import Store, StoreConfig, open_store
from flintlog.maintenance.verify.verify import verify
from flintlog.store.model.stored_message import StoredMessage
from flintlog.testing.free_ports import ledger_addresses
from tests.crash.ledger_member import config_of

SCRIPT = Path(__file__).with_name("ledger_member.py")
PATIENCE_S = 90.0


class Members:
    """The processes, and what they said was acknowledged."""

    def __init__(self, root: Path) -> None:
        self.root = root
        addresses = ledger_addresses("n0", "n1", "n2")
        self.peers = ";".join(f"{member}-{address}" for member, address in addresses.items())
        self.acknowledged: list[tuple[str, int, int]] = []
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self.listeners: list[threading.Thread] = []
        self.life = 0
        for member in addresses:
            self.start(member)

    def start(self, member: str) -> None:
        self.life += 1
        command = [sys.executable, str(SCRIPT), str(self.root), member, self.peers, str(self.life)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.processes[member] = process
        listener = threading.Thread(target=self._listen, args=(process,), daemon=True)
        listener.start()
        self.listeners.append(listener)

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                if line.endswith("\n"):
                    body, physical, queue = line.split()
                    self.acknowledged.append((body, int(physical), int(queue)))

    def kill(self, member: str) -> None:
        self.processes[member].send_signal(signal.SIGKILL)
        self.processes[member].wait()

    def await_more(self, count: int) -> None:
        wanted = len(self.acknowledged) + count
        deadline = time.monotonic() + PATIENCE_S
        while len(self.acknowledged) < wanted:
            assert time.monotonic() < deadline, f"{len(self.acknowledged)} of {wanted}"
            time.sleep(0.02)

    @property
    def leader(self) -> str:
        return self.acknowledged[-1][0].split(".")[0]

    def stop(self) -> None:
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        for listener in self.listeners:
            listener.join(PATIENCE_S)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("kills", [3, pytest.param(25, marks=pytest.mark.slow)])
def test_members_are_killed_and_nothing_acknowledged_is_lost(tmp_path: Path, kills: int) -> None:
    chance = random.Random(kills)
    members = Members(tmp_path)
    try:
        members.await_more(50)
        for number in range(kills):
            victim = members.leader if number % 2 == 0 else chance.choice(list(members.processes))
            members.kill(victim)
            members.await_more(30)
            members.start(victim)
            members.await_more(chance.randrange(10, 60))
    finally:
        members.stop()
    known = list(members.acknowledged)
    assert len({body.split(".")[0] for body, _, _ in known}) > 1  # more than one has led
    for member in members.processes:
        with open_store(tmp_path / member, config_of(member, members.peers), read_only=True) as store:
            held = {message.physical_offset: (message.body, message.queue_offset) for message in served(store)}
            assert sorted(queue for _, queue in held.values()) == list(range(store.max_offset("orders", 0)))
            committed = store.max_physical_offset
        # A member that was stopped first may not know yet that the last entries were committed.
        for body, physical, queue in known:
            if physical < committed:
                assert held[physical] == (body.encode() * 8, queue)
        assert verify(tmp_path / member).findings == []
    last = max(physical for _, physical, _ in known)
    assert any(
        open_end > last
        for open_end in (
            _committed_end(tmp_path / member, config_of(member, members.peers)) for member in members.processes
        )
    )


def served(store: Store) -> Iterator[StoredMessage]:
    offset = 0
    while page := store.get("orders", 0, offset, 32).messages:
        yield from page
        offset = page[-1].queue_offset + 1


def _committed_end(root: Path, config: StoreConfig) -> int:
    with open_store(root, config, read_only=True) as store:
        return store.max_physical_offset
