"""Flip one bit of a store, and see what `verify` finds, what an opening does and what is served.

What runs for each bit, on a copy in memory in which nothing else differs from the whole store:

1. `verify`, the full one;
2. an opening read-only, then questions for everything: the log scanned and read record by record, each queue read
   offset by offset, in pages and with a filter, each key queried, each group's offsets. The answers are compared with
   those of the whole store: only what the bit lies in may be missing, nothing may be wrong;
3. an opening for writing, the same questions, the same comparison, and the same answers as read-only;
4. a put into each queue, which must get the next offset (not in a ledger, which takes messages only while it leads),
   and a clean stop.

Nothing is left out for a bit because of where it lies.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from flintlog import FlintlogError
from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.maintenance.verify.verify import verify
from flintlog.services.timer.timer_service import TimerService
from tests.faults.world import ROOT
from tests.flips.regions import PADDING, Region, region_of
from tests.flips.scenes import TIMER_SLOTS, Scene, make_scene
from tests.flips.serving import Served, differences, look, put_after

RARE = 16
SHARES_PER_CORE = 4
"""The bits of a scene are shared out in more parts than there are cores, which are not equally fast."""


@dataclass(frozen=True)
class Bit:
    """One bit of one file; the path is below the store."""

    path: Path
    at: int
    bit: int

    def __str__(self) -> str:
        return f"{self.path}:{self.at}.{self.bit}"


@dataclass(frozen=True)
class Outcome:
    """The outcome of one flipped bit."""

    bit: Bit
    region: Region
    findings: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass
class Tally:
    """The outcomes of many flips."""

    counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """By kind of file, part of it, and `found` or `unseen`."""
    unseen: dict[tuple[str, str], list[Bit]] = field(default_factory=dict)
    problems: list[Outcome] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        region = outcome.region
        result = "found" if outcome.findings else "unseen"
        self.counts[region.kind, region.part, result] += 1
        if result == "unseen":
            self.unseen.setdefault((region.kind, region.part), []).append(outcome.bit)
        if outcome.problems:
            self.problems.append(outcome)

    def merge(self, other: Tally) -> None:
        self.counts += other.counts
        for part, bits in other.unseen.items():
            self.unseen.setdefault(part, []).extend(bits)
        self.problems += other.problems


def all_bits(scene: Scene) -> Iterator[Bit]:
    """Every bit of every file that the scene is for; of padding, unused parts, texts and notes one in `RARE`."""
    for path, content in scene.flipped_files.items():
        for at in range(len(content)):
            region = region_of(scene, path, at, content)
            is_rare = region.part in (PADDING, "unused", "text") or region.kind.startswith("flintlog/")
            # Which bit of a byte is chosen changes from byte to byte.
            yield from (Bit(path, at, bit) for bit in range(8) if not is_rare or (at * 8 + bit + at // 2) % RARE == 0)


def sample(scene: Scene, count: int, seed: int) -> list[Bit]:
    """Some bits, spread over the parts of all files: rare parts are not missed among large ones."""
    chance = random.Random(seed)
    by_part: dict[tuple[str, str], list[tuple[Path, int]]] = defaultdict(list)
    for path, content in scene.flipped_files.items():
        for at in range(len(content)):
            region = region_of(scene, path, at, content)
            by_part[region.kind, region.part].append((path, at))
    chosen = []
    parts = sorted(by_part)
    for number in range(count):
        path, at = chance.choice(by_part[parts[number % len(parts)]])
        chosen.append(Bit(path, at, chance.randrange(8)))
    return chosen


def flip_all(scene: Scene, bits: Iterable[Bit]) -> Tally:
    """Flip each bit for itself."""
    tally = Tally()
    files = scene.files
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        for bit in bits:
            tally.add(try_flip(scene, bit, region_of(scene, bit.path, bit.at, files[bit.path])))
    finally:
        logging.disable(level)
    return tally


def flip_every_bit(kind: str, *, is_clean: bool) -> Tally:
    """Flip all bits of a scene, on all cores."""
    cores = os.cpu_count() or 1
    shares = SHARES_PER_CORE * cores
    tally = Tally()
    # Not forked: this process has threads.
    with ProcessPoolExecutor(cores, mp_context=multiprocessing.get_context("spawn")) as pool:
        for done in [pool.submit(_flip_share, kind, is_clean, number, shares) for number in range(shares)]:
            tally.merge(done.result())
    return tally


def _flip_share(kind: str, is_clean: bool, number: int, shares: int) -> Tally:
    TimerService.wheel_slots = TIMER_SLOTS
    os.cpu_count = lambda: 1  # each share has one core: more threads only wait
    scene = make_scene(kind, is_clean=is_clean)
    return flip_all(scene, islice(all_bits(scene), number, None, shares))


def try_flip(scene: Scene, bit: Bit, region: Region) -> Outcome:
    """Flip a bit in a copy of the store and look at it in every way."""
    medium = scene.medium.kill()
    medium.flip_bit(ROOT / bit.path, bit.at, bit.bit)
    problems: list[str] = []
    findings: tuple[str, ...] = ()
    try:
        findings = tuple(finding.id for finding in verify(ROOT, scene.config, medium=medium, threads=1).findings)
    except Exception as error:  # noqa: BLE001  # whatever it is: it must not escape
        problems.append(f"verify raised {error!r}")
    seen: Served | None = None
    refused: str | None = None
    for read_only in (True, False):
        try:
            served, reported = _open_and_look(scene, medium.kill(), region, read_only=read_only)
        except FlintlogError as error:
            refused = f"{type(error).__name__}: {error}"
            continue
        except Exception as error:  # noqa: BLE001
            problems.append(f"opening ({'read-only' if read_only else 'writable'}) raised {error!r}")
            continue
        problems += reported
        if seen is not None and seen != served and not region.victim.hides_all:
            problems.append("a read-only opening serves something else than one for writing")
        seen = served
    if refused is not None and not findings:
        problems.append(f"verify finds nothing, and an opening is refused: {refused}")
    return Outcome(bit, region, findings, tuple(dict.fromkeys(problems)))


def _open_and_look(scene: Scene, medium: FaultyMedium, region: Region, *, read_only: bool) -> tuple[Served, list[str]]:
    with scene.open(medium, read_only=read_only) as store:
        store.wait_dispatched()
        served = look(store, scene.truth)
        problems = differences(scene.truth, served, region.victim)
        if not read_only and not scene.is_ledger:
            problems += put_after(store, scene.truth, sorted(scene.truth.ends))
    return served, problems
