"""A ledger's node loses its power before every step of a history of appends, syncs, cuts and votes.

    entries   0 ………… 59          term 1, synced, 0 to 30 committed
              0 …… 40            cut
              0 …… 40 41' … 70'  term 2, synced in part

What the next opening may find: everything that was durable and not being cut, then old entries only as long as no new
one was written, then new ones; no body torn, no old entry behind a new one, and never an older vote.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.errors import DamagedStore
from flintlog.replication.ledger.core.interface import HardState, Truncation
from flintlog.replication.ledger.core.messages import Entry
from flintlog.replication.ledger.node.file_storage import FileStorage
from flintlog.store.ledger.ledger_files import LedgerFiles
from tests.faults.stopping import PowerLost, StoppingMedium

ROOT = Path("/disk/dledger-n0")
MAX_STEPS = 400
CUT = 40


def is_intact(body: bytes | memoryview, position: int) -> bool:
    return len(body) > 4 and zlib.crc32(body[4:]) == int.from_bytes(body[:4], "big")


def opened(medium: FaultyMedium) -> FileStorage:
    files = LedgerFiles(ROOT, medium, data_file_bytes=4096, index_file_bytes=32 * 32, is_intact=is_intact)
    files.load()
    return FileStorage(files, is_new=True)


def sealed(content: bytes) -> bytes:
    return zlib.crc32(content).to_bytes(4, "big") + content


@dataclass
class History:
    """What was asked of the node, and what it was promised by then."""

    old: list[Entry] = field(default_factory=list)
    new: list[Entry] = field(default_factory=list)
    durable: int = -1
    durable_new: int = 0
    is_cutting: bool = False
    is_cut: bool = False
    votes: list[HardState] = field(default_factory=lambda: [HardState()])
    durable_votes: int = 0

    def run(self, storage: FileStorage) -> None:
        chance = Random(7)
        self.vote(storage, HardState(1, "n0"))
        for _ in range(6):
            self.append(storage, self.old, 1, 10, chance)
            storage.sync()
            self.durable = len(self.old) - 1
        storage.save_committed(30)
        self.vote(storage, HardState(2, None))
        self.vote(storage, HardState(2, "n1"))
        self.is_cutting, self.durable = True, CUT
        storage.truncate(Truncation(CUT))
        self.is_cut = True
        for _ in range(3):
            self.append(storage, self.new, 2, 10, chance)
            storage.sync()
            self.durable_new = len(self.new)
        storage.save_committed(60)
        storage.close()

    def append(self, storage: FileStorage, log: list[Entry], term: int, count: int, chance: Random) -> None:
        for _ in range(count):
            body = sealed(chance.randbytes(chance.choice((1, 60, 300, 1500))))
            position = storage.log.place(storage.log.end_position, 48 + len(body))
            entry = Entry(storage.log.end + 1, term, position, body)
            log.append(entry)
            storage.write([entry])

    def vote(self, storage: FileStorage, state: HardState) -> None:
        self.votes.append(state)
        storage.save_hard_state(state)
        self.durable_votes = len(self.votes) - 1

    def check(self, storage: FileStorage) -> None:
        log = storage.log
        found = [log.entry(index) for index in range(log.end + 1)]
        assert storage.hard_state in self.votes[self.durable_votes :]
        assert storage.committed <= log.end
        kept = found[: CUT + 1]
        assert kept == self.old[: len(kept)]
        assert len(found) > self.durable
        behind = found[CUT + 1 :]
        if self.is_cut:
            assert behind == self.new[: len(behind)]
            assert len(behind) >= self.durable_new
        else:
            assert behind == self.old[CUT + 1 :][: len(behind)]


def goes_on(medium: FaultyMedium, storage: FileStorage) -> None:
    """The next entry follows, and is there after another stop."""
    log = storage.log
    body = sealed(b"goes on")
    storage.save_hard_state(HardState(9, "n0"))
    entry = Entry(log.end + 1, 9, log.place(log.end_position, 48 + len(body)), body)
    storage.write([entry])
    storage.sync()
    again = opened(medium.crash(1))
    assert again.log.end == entry.index
    assert again.log.entry(entry.index) == entry


def drifted(medium: StoppingMedium, step: int) -> FaultyMedium:
    medium.drift(step, 0.5)
    return medium.crash(step + 1)


Ending = Callable[[StoppingMedium, int], FaultyMedium]
ENDINGS: dict[str, Ending] = {
    "kill": lambda medium, step: medium.kill(),
    "crash": lambda medium, step: medium.crash(step),
    "drift": drifted,
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_power_goes_before_every_step(ending: str) -> None:
    for step in range(MAX_STEPS):
        dying = StoppingMedium.over(FaultyMedium(clock_ms=lambda: 0), step)
        history = History()
        with contextlib.suppress(PowerLost):
            history.run(opened(dying))
        is_over = not dying.is_off
        left = ENDINGS[ending](dying, step)
        storage = opened(left)
        history.check(storage)
        goes_on(left, storage)
        if is_over:
            assert step > 40
            return
    raise AssertionError("a history that does not end")


def test_the_power_goes_again_while_a_torn_log_is_opened() -> None:
    for first in range(0, MAX_STEPS, 3):
        dying = StoppingMedium.over(FaultyMedium(clock_ms=lambda: 0), first)
        history = History()
        with contextlib.suppress(PowerLost):
            history.run(opened(dying))
        if not dying.is_off:
            assert first > 40
            return
        left = dying.crash(first)
        for step in range(20):
            again = StoppingMedium.over(left, step)
            with contextlib.suppress(PowerLost):
                opened(again)
            storage = opened(again.crash(step))
            history.check(storage)
            if not again.is_off:
                break
    raise AssertionError("a history that does not end")


@pytest.mark.parametrize("seed", range(4))
def test_a_byte_that_rots_among_durable_entries_is_never_taken_for_a_torn_tail(seed: int) -> None:
    chance = Random(seed)
    refused = 0
    for step in range(8, MAX_STEPS, 2):
        dying = StoppingMedium.over(FaultyMedium(clock_ms=lambda: 0), step)
        history = History()
        with contextlib.suppress(PowerLost):
            history.run(opened(dying))
        left = dying.crash(step)
        if history.durable > 0:
            rotten = chance.choice(history.old[: history.durable])
            path = ROOT / "data" / f"{rotten.position // 4096 * 4096:020d}"
            data = bytearray(left.read(path, 4096))
            place = rotten.position % 4096 + chance.randrange(rotten.size)
            data[place] ^= 1 << chance.randrange(8)
            left.replace(path, bytes(data))
            try:
                assert opened(left).log.end >= history.durable
            except DamagedStore:
                refused += 1
                assert left.read(path, 4096) == data
        if not dying.is_off:
            assert refused > 5
            return
    raise AssertionError("a history that does not end")


def test_a_node_that_begins_anew_is_opened_after_any_step() -> None:
    for step in range(MAX_STEPS):
        medium = FaultyMedium(clock_ms=lambda: 0)
        storage = opened(medium)
        history = History()
        history.append(storage, history.old, 1, 40, Random(3))
        storage.save_committed(39)
        storage.close()
        dying = StoppingMedium.over(medium, step)
        first = Entry(500, 8, 20 * 4096, sealed(b"the leader's first"))
        try:
            storage = opened(dying)
            storage.truncate(Truncation(499, first.position))
            storage.write([first])
            storage.sync()
        except PowerLost:
            pass
        is_over = not dying.is_off
        found = opened(dying.crash(step)).log
        if found.begin == 500:
            assert found.entry(500) == first
        else:
            assert not is_over
            assert [found.entry(index) for index in range(found.end + 1)] == history.old[: found.end + 1]
        if is_over:
            assert step > 10
            return
    raise AssertionError("a beginning that does not end")
