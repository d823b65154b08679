"""One seed of a master and its slave, each on a device of its own.

An acknowledgement means that both have the message on their disks. Either node is killed or loses its power, or both
do; the slave may become the master. After that both stores have everything that was acknowledged, at its place.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from flintlog import Store, open_store
from flintlog.maintenance.verify.verify import verify
from flintlog.testing.free_ports import free_ports
from tests.power.checks import check_against_rebuild
from tests.power.device import Device
from tests.power.model import Broken
from tests.power.process import Child
from tests.replication.ha_process import CONFIG, LATER, MIXED

PATIENCE_S = 60.0
MORE = 20
"""So many acknowledgements are waited for between two troubles: both run, and follow each other."""


def run_pair(seed: int, make_disk: Callable[[], Device], scratch: Path, keep: Path | None = None) -> str:
    """Some trouble, then both end; what happened."""
    chance = Random(f"pair {seed}")
    pair = Pair({name: make_disk() for name in ("a", "b")}, scratch)
    try:
        pair.start("a", "master")
        pair.start("b", "slave")
        for _ in range(chance.randint(0, 2)):
            pair.hear_more(chance.randint(1, MORE))
            _trouble(pair, chance)
        pair.hear_more(chance.randint(1, MORE))
        time.sleep(chance.uniform(0, 0.3))
        pair.end(["a", "b"], cuts=chance.choice((["a"], ["b"], ["a", "b"])))
        if keep is not None:
            pair.keep(keep)
        pair.check()
    except Exception as failure:
        raise Broken(f"{failure}\nhappened: {', '.join(pair.history)}") from failure
    finally:
        pair.kill_all()
    return f"{pair.cut_count} cuts, {len(pair.promised())} acknowledged, {', '.join(pair.history)}"


def _trouble(pair: Pair, chance: Random) -> None:
    time.sleep(chance.uniform(0, 0.3))
    happens = chance.choice(("master", "slave", "both", "promotion"))
    master, slave = pair.master, pair.slave
    # The slave ends first: what the master still takes for acknowledged would be lost by a promotion.
    names = {"master": [master], "slave": [slave]}.get(happens, [slave, master])
    pair.end(names, cuts=[name for name in names if chance.random() < 0.6])
    time.sleep(chance.choice((0.0, chance.uniform(0, 0.3))))
    if happens == "promotion":
        master, slave = slave, master
    for name, role in ((master, "master"), (slave, "slave")):
        if name in names:
            pair.start(name, role)


class Pair:
    """Two processes, their devices, and a file on neither of them with what was acknowledged."""

    def __init__(self, disks: dict[str, Device], scratch: Path) -> None:
        self.disks = disks
        self.master, self.slave = "a", "b"
        self.history: list[str] = []
        self.cut_count = 0
        self._acknowledged = scratch / "acknowledged"
        self._acknowledged.touch()
        self._scratch = scratch
        self._processes: dict[str, Child] = {}
        self._ports = free_ports(2)

    def start(self, name: str, role: str) -> None:
        self.history.append(f"start {role} {name}")
        if role == "master":
            self.master = name
        else:
            self.slave = name
        arguments = (role, self.disks[name].mount / "store", *self._ports, self._acknowledged, "mixed")
        errors = self._scratch / f"{name}.errors"
        self._processes[name] = Child("tests.replication.ha_process", *arguments, errors=errors)

    def end(self, names: list[str], cuts: list[str]) -> None:
        """Kill these nodes, after the power of some of them was cut."""
        self.history += [f"{'cut' if name in cuts else 'kill'} {name}" for name in names]
        for name in cuts:
            self.disks[name].cut()
            self.cut_count += 1
        for name in names:
            if name in self._processes:
                self._processes.pop(name).kill()
        for name in cuts:
            self.disks[name].restore()

    def kill_all(self) -> None:
        for name in list(self._processes):
            self._processes.pop(name).kill()

    def keep(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        for name, disk in self.disks.items():
            shutil.copytree(disk.mount / "store", folder / name)

    def promised(self) -> list[tuple[int, int, bytes]]:
        """Queue, offset and body of every message that was acknowledged."""
        lines = [line.split(b" ", 2) for line in self._acknowledged.read_bytes().split(b"\n")[:-1]]
        return [(int(queue_id), int(offset), body) for queue_id, offset, body in lines]

    def hear_more(self, count: int) -> None:
        """Wait until so many more were acknowledged."""
        wanted, deadline = len(self.promised()) + count, time.monotonic() + PATIENCE_S
        while len(self.promised()) < wanted:
            if time.monotonic() > deadline:
                errors = "".join((self._scratch / f"{name}.errors").read_text()[-1500:] for name in self.disks)
                raise Broken(f"the pair stands still at {len(self.promised())}: {errors}")
            time.sleep(0.02)

    def check(self) -> None:
        """Both stores have everything, and agree as far as both go."""
        delayed = {body for queue_id, _, body in self.promised() if queue_id < 0}
        promised = [each for each in self.promised() if each[0] >= 0]
        places = {(queue_id, offset) for queue_id, offset, _ in promised}
        if len(places) != len(promised):
            raise Broken(f"an offset was given twice: {len(promised)} messages, {len(places)} places")
        digests = []
        copies = {name: self._scratch / f"copy-{name}" for name in self.disks}
        for name, copy in copies.items():
            shutil.copytree(self.disks[name].mount / "store", copy)
            _check_node(copy, promised)
        with open_store(copies["a"], CONFIG) as a, open_store(copies["b"], CONFIG) as b:
            common = min(a.replication.raw_log.end, b.replication.raw_log.end)
            digests = [store.replication.raw_log.digest(0, common) for store in (a, b)]
        if digests[0] != digests[1]:
            raise Broken(f"the logs differ below {common}")
        for copy in copies.values():
            check_against_rebuild(copy, self._scratch / "rebuilt", CONFIG)
            _check_delayed(copy, delayed)
            shutil.rmtree(copy)


def _check_node(copy: Path, promised: list[tuple[int, int, bytes]]) -> None:
    with open_store(copy, CONFIG) as store:
        queues = {info.queue_id: _bodies(store, info.queue_id) for info in store.queues() if info.topic == "orders"}
        lost = [each for each in promised if queues.get(each[0], [])[each[1] : each[1] + 1] != [each[2]]]
        if lost:
            raise Broken(f"{copy.name} lost {len(lost)} of {len(promised)}: {lost[0][:2]}")
        end = max((_physical(store, each) for each in promised), default=-1)
        bad = [str(found) for found in store.recovery if not _is_explained(found.id, found.physical_offset, end)]
        if bad:
            raise Broken(f"{copy.name} reported a cut that damaged nothing: {bad} (durable to {end})")
        explained = {(found.id, found.physical_offset) for found in store.recovery}
    findings = [found for found in verify(copy, CONFIG).findings if (found.id, found.physical_offset) not in explained]
    if findings:
        raise Broken(f"verify of {copy.name}: {[str(found) for found in findings[:3]]}")


def _check_delayed(copy: Path, delayed: set[bytes]) -> None:
    """Every message that was acknowledged for later is delivered, by whichever node becomes the master."""
    deadline = time.monotonic() + PATIENCE_S
    with open_store(copy, MIXED) as store:
        while not delayed <= (found := set(_bodies(store, 0, LATER))):
            if time.monotonic() > deadline:
                raise Broken(f"{copy.name} did not deliver {len(delayed - found)} of {len(delayed)} delayed messages")
            time.sleep(0.1)


def _is_explained(kind: str, physical: int | None, end: int) -> bool:
    return kind in ("torn-tail", "damaged-range", "damaged-record") and physical is not None and physical > end


def _physical(store: Store, promise: tuple[int, int, bytes]) -> int:
    entry = store._host.entry("orders", promise[0], promise[1])
    return -1 if entry is None else entry.physical_offset


def _bodies(store: Store, queue_id: int, topic: str = "orders") -> list[bytes]:
    bodies: list[bytes] = []
    while messages := store.get(topic, queue_id, len(bodies), 64).messages:
        bodies += [message.body for message in messages]
    return bodies
