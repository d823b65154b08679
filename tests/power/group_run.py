"""One seed of a ledger's group of three, each member on a device of its own.

Members are killed, started, and their power cut, one after the other or all at once. What was acknowledged is durable
at a majority, so a leader that is elected among any two members has it, at its place. Every acknowledgement that was
heard counts, also one that came after a cut: a leader without a disk may not acknowledge by itself.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from random import Random

from flintlog import Store, open_store
from flintlog.maintenance.verify.verify import verify
from flintlog.store.model.stored_message import StoredMessage
from flintlog.testing.free_ports import ledger_addresses
from tests.crash.ledger_member import LATER, config_of, mixed
from tests.power.device import Device
from tests.power.model import Broken
from tests.power.process import Child

MEMBERS = ("n0", "n1", "n2")
PATIENCE_S = 60.0
MORE = 15
"""So many acknowledgements are waited for before the next trouble, if two members run."""


def run_group(seed: int, make_disk: Callable[[], Device], scratch: Path, keep: Path | None = None) -> str:
    """Some trouble, then all stop; what happened."""
    chance = Random(f"group {seed}")
    group = Group({member: make_disk() for member in MEMBERS}, scratch)
    try:
        for member in MEMBERS:
            group.start(member)
        group.hear_more(MORE)
        for _ in range(chance.randint(1, 3)):
            _trouble(group, chance)
        group.end_all(cuts=[member for member in MEMBERS if chance.random() < 0.7] or [chance.choice(MEMBERS)])
        if keep is not None:
            group.keep(keep)
        pairs = list(combinations(MEMBERS, 2))
        for pair in chance.sample(pairs, chance.choice((1, 3))):
            group.check_pair(pair)
    except Exception as failure:
        raise Broken(f"{failure}\nhappened: {', '.join(group.history)}") from failure
    finally:
        group.kill_all()
    return f"{group.cut_count} cuts, {len(group.acknowledged)} acknowledged, {', '.join(group.history)}"


def _trouble(group: Group, chance: Random) -> None:
    """Take away one or two members, let those that are left go on for a while, and bring all back."""
    victims = chance.sample(MEMBERS, chance.choice((1, 1, 2)))
    if group.leader is not None and chance.random() < 0.5 and group.leader not in victims:
        victims[0] = group.leader
    for member in victims:
        group.end(member, cut=chance.random() < 0.5)
        group.hear(chance.uniform(0, 0.3))
    if chance.random() < 0.5:
        group.hear(chance.uniform(0, 1.0))
    for member in victims:
        group.start(member)
        group.hear(chance.uniform(0, 0.5))
    if chance.random() < 0.7:
        group.hear_more(chance.randint(1, MORE))


class Group:
    """The members' processes and devices, and what was acknowledged: body, physical offset and queue offset."""

    def __init__(self, disks: dict[str, Device], scratch: Path) -> None:
        self.disks = disks
        addresses = ledger_addresses(*disks)
        self.peers = ";".join(f"{member}-{address}" for member, address in addresses.items())
        self.acknowledged: dict[bytes, tuple[int, int]] = {}
        self.delayed: set[bytes] = set()
        """What was acknowledged to be delivered later."""
        self.history: list[str] = []
        self.cut_count = 0
        self.leader: str | None = None
        self._given: dict[int, bytes] = {}
        self._processes: dict[str, Child] = {}
        self._scratch = scratch
        self._life = 0

    def start(self, member: str) -> None:
        self._life += 1
        self.history.append(f"start {member}")
        errors = self._scratch / f"{member}.errors"
        arguments = (self.disks[member].mount, member, self.peers, self._life, "mixed")
        self._processes[member] = Child("tests.crash.ledger_member", *arguments, errors=errors)

    def end(self, member: str, *, cut: bool) -> None:
        """Kill a member, or cut its power first."""
        self.history.append(f"{'cut' if cut else 'kill'} {member}")
        self._lose([member] if cut else [], [member])

    def end_all(self, cuts: list[str]) -> None:
        """All members at once; the power of some of them is cut."""
        self.history.append(f"all end, cut {' '.join(cuts)}")
        self._lose(cuts, list(self._processes))

    def _lose(self, cuts: list[str], members: list[str]) -> None:
        for member in cuts:
            self.disks[member].cut()
            self.cut_count += 1
        for member in members:
            if member in self._processes:
                self._take(member, self._processes.pop(member).kill())
        for member in cuts:
            self.disks[member].restore()

    def kill_all(self) -> None:
        for member in list(self._processes):
            self._processes.pop(member).kill()

    def keep(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        for member, disk in self.disks.items():
            shutil.copytree(disk.mount / member, folder / member)

    # ------------------------------------------------------------------ acknowledgements

    def hear(self, seconds: float) -> None:
        """Listen for a while."""
        end = time.monotonic() + seconds
        while True:
            for member, process in self._processes.items():
                self._take(member, process.lines())
            if time.monotonic() >= end:
                return
            time.sleep(0.01)

    def hear_more(self, count: int) -> None:
        """Listen until so many more were acknowledged."""
        wanted, deadline = len(self.acknowledged) + count, time.monotonic() + PATIENCE_S
        while len(self.acknowledged) < wanted:
            self.hear(0.02)
            ended = [member for member, process in self._processes.items() if process.is_at_end]
            if ended or time.monotonic() > deadline:
                errors = "".join((self._scratch / f"{member}.errors").read_text()[-1500:] for member in self.disks)
                raise Broken(f"the group stands still at {len(self.acknowledged)}; ended: {ended}; {errors}")

    def _take(self, member: str, lines: list[bytes]) -> None:
        for line in lines:
            body, physical, offset = line.split()
            if offset == LATER.encode():
                self.delayed.add(body)
                continue
            if self._given.setdefault(int(offset), body) != body:
                raise Broken(f"offset given twice: {int(offset)} to {self._given[int(offset)]!r} and to {body!r}")
            self.acknowledged[body] = (int(physical), int(offset))
            self.leader = member

    # ------------------------------------------------------------------ checks

    def check_pair(self, pair: tuple[str, ...]) -> None:
        """Two members elect a leader, and it has everything that was acknowledged before."""
        promised, delayed = dict(self.acknowledged), set(self.delayed)
        for member in pair:
            self.start(member)
        self.hear_more(1)
        self._wait_for_deliveries(delayed)
        leader = self.leader
        for member in pair:
            self._take(member, self._processes.pop(member).stop())
        assert leader is not None
        path = self.disks[leader].mount / leader
        with open_store(path, config_of(leader, self.peers), read_only=True) as store:
            held = {message.physical_offset: (message.body, message.queue_offset) for message in _served(store)}
        lost = [body for body, (physical, offset) in promised.items() if held.get(physical) != (body * 8, offset)]
        if lost:
            raise Broken(f"{leader}, elected by {pair}, lost {len(lost)} of {len(promised)}: {lost[:3]}")
        for member in pair:
            findings = verify(self.disks[member].mount / member).findings
            if findings:
                raise Broken(f"verify of {member}: {[str(each) for each in findings[:3]]}")

    def _wait_for_deliveries(self, delayed: set[bytes]) -> None:
        """Look into the leader's files, beside it, until everything that is due was delivered."""
        deadline, missing = time.monotonic() + PATIENCE_S, delayed
        while missing:
            self.hear(0.2)
            leader = self.leader
            if leader is not None:
                config = mixed(config_of(leader, self.peers))
                with open_store(self.disks[leader].mount / leader, config, read_only=True) as store:
                    missing = delayed - {message.body for message in _served(store, LATER)}
            if missing and time.monotonic() > deadline:
                raise Broken(f"{leader} did not deliver {len(missing)} of {len(delayed)}: {sorted(missing)[:3]}")


def _served(store: Store, topic: str = "orders") -> list[StoredMessage]:
    found: list[StoredMessage] = []
    while page := store.get(topic, 0, len(found), 64).messages:
        found += page
    return found
