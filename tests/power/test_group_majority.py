"""What a group has acknowledged is on a majority of disks, not of page caches."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import pytest

from flintlog.testing.free_ports import free_ports
from tests.power import group_lives
from tests.power.conftest import MakeDevice
from tests.power.device import Device
from tests.power.lives import end_life, start_life

NAMES = ("n0", "n1", "n2")
PATIENCE_S = 40

Found = TypeVar("Found")


class Member:
    """One member on a device of its own, in one process after another."""

    def __init__(self, name: str, peers: str, disk: Device, folder: Path) -> None:
        self.name = name
        self.disk = disk
        self.hung = folder / f"hung-{name}"
        self.heard: list[dict[str, Any]] = []
        self._peers = peers
        self._life: subprocess.Popen[str] | None = None
        self._next: tuple[subprocess.Popen[str], list[dict[str, Any]]] | None = None

    def start(self) -> None:
        """Begin the next life. Its process is ready: a group does not wait for imports."""
        life, self.heard = self._next or self.prepare()
        self._life, self._next = life, None
        wait_until(lambda: self.heard)
        self.tell("start")

    def prepare(self) -> tuple[subprocess.Popen[str], list[dict[str, Any]]]:
        """Begin the process of the next life, which touches nothing before `start`."""
        folder, heard = self.disk.mount / "store", list[dict[str, Any]]()
        life = start_life(group_lives, "member", self.name, self._peers, folder, self.hung, takes_input=True)
        threading.Thread(target=self._listen, args=(life, heard), daemon=True).start()
        self._next = life, heard
        return self._next

    @staticmethod
    def _listen(life: subprocess.Popen[str], heard: list[dict[str, Any]]) -> None:
        assert life.stdout is not None
        heard.extend(json.loads(line) for line in life.stdout)

    def tell(self, command: str) -> None:
        assert self._life is not None and self._life.stdin is not None
        self._life.stdin.write(command + "\n")
        self._life.stdin.flush()

    def wait_for(self, key: str, value: object = None) -> dict[str, Any]:
        """What it says of `key`, once it does."""
        return wait_until(
            lambda: next((said for said in self.heard if key in said and value in (None, said[key])), None)
        )

    def kill(self) -> None:
        if self._life is not None:
            end_life(self._life)
            self._life = None

    def end(self) -> None:
        self.kill()
        if self._next is not None:
            end_life(self._next[0])

    def holds(self, number: int) -> bool:
        """Whether a message is in its data files, durable or not."""
        files = self.disk.mount.glob("store/dledger-*/data/*")
        return any(b"%d " % number + group_lives.BODY in file.read_bytes() for file in files)


def wait_until(find: Callable[[], Found | None]) -> Found:
    end = time.monotonic() + PATIENCE_S
    while not (found := find()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return found


@pytest.fixture
def group(make_device: MakeDevice, tmp_path: Path) -> Iterator[list[Member]]:
    ports = free_ports(3)
    peers = ";".join(f"{name}-127.0.0.1:{port}" for name, port in zip(NAMES, ports, strict=True))
    with ExitStack() as running:
        members = [Member(name, peers, make_device(size_mib=64), tmp_path) for name in NAMES]
        for member in members:
            running.callback(member.end)
            member.prepare()
        for member in members:
            member.start()
        yield members


def leader_of(members: list[Member]) -> Member:
    return wait_until(lambda: next((each for each in members if {"leads": True} in each.heard), None))


def test_follower_counts_only_what_it_has_synced_after_it_was_killed(group: list[Member]) -> None:
    """A follower is killed with entries that it has not synced, comes back, and is then counted for them.

    leader     1 2 3 4     its machine is lost at the end
    follower   1 2 3 4     2 to 4 are in its page cache; killed, started again, then its power is cut
    other      1           down since message 1
    """
    leader = leader_of(group)
    follower, other = (each for each in group if each is not leader)
    leader.tell("put 1")
    assert leader.wait_for("put", 1)["status"] == "PUT_OK"
    wait_until(lambda: other.holds(1) and follower.holds(1))
    other.kill()
    follower.prepare()
    follower.hung.touch()
    for number in (2, 3, 4):
        leader.tell(f"put {number}")
    wait_until(lambda: all(follower.holds(number) for number in (2, 3, 4)))
    follower.kill()
    follower.hung.unlink()

    follower.start()
    acknowledged = [number for number in (2, 3, 4) if leader.wait_for("put", number)["status"] == "PUT_OK"]
    assert acknowledged, leader.heard
    follower.disk.cut()
    follower.kill()
    leader.kill()
    follower.disk.restore()
    follower.start()
    other.start()
    new_leader = leader_of([follower, other])

    new_leader.tell("read")
    assert new_leader.wait_for("read")["read"][: 1 + len(acknowledged)] == [1, *acknowledged]
