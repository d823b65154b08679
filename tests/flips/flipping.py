"""Flip one bit of a store, and see what `verify` finds, what an opening does and what is served."""

from __future__ import annotations

import logging
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from flintlog import FlintlogError
from flintlog.maintenance.verify.verify import verify
from flintlog.disk.faulty.faulty_disk import FaultyMedium
from tests.faults.world import ROOT
from tests.flips.regions import Region, region_of
from tests.flips.scenes import Scene
from tests.flips.serving import Served, differences, look, put_after

RARE = 16


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
    """What one flipped bit did."""

    bit: Bit
    region: Region
    findings: tuple[str, ...] = ()
    refused: str | None = None
    problems: tuple[str, ...] = ()


@dataclass
class Tally:
    """The outcomes of many flips."""

    counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """By kind of file, part of it, and `found`, `refused` or `unseen`."""
    unseen: dict[tuple[str, str], list[Bit]] = field(default_factory=lambda: defaultdict(list))
    problems: list[Outcome] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        region = outcome.region
        result = "found" if outcome.findings else "refused" if outcome.refused else "unseen"
        self.counts[region.kind, region.part, result] += 1
        if result == "unseen":
            self.unseen[region.kind, region.part].append(outcome.bit)
        if outcome.problems:
            self.problems.append(outcome)


def all_bits(scene: Scene) -> Iterator[Bit]:
    """Every bit of every file that the scene is for; of unused parts, texts and notes one in `RARE`."""
    number = 0
    for path, content in scene.flipped_files.items():
        for at in range(len(content)):
            region = region_of(scene, path, at, content)
            is_rare = region.part in ("unused", "text") or region.kind.startswith("flintlog/")
            for bit in range(8):
                number += 1
                if not is_rare or number % RARE == 0:
                    yield Bit(path, at, bit)


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
            served, told = _open_and_look(scene, medium.kill(), region, read_only=read_only)
        except FlintlogError as error:
            refused = f"{type(error).__name__}: {error}"
            continue
        except Exception as error:  # noqa: BLE001
            problems.append(f"opening ({'read-only' if read_only else 'writable'}) raised {error!r}")
            continue
        problems += told
        if seen is not None and seen != served and not region.victim.hides_all:
            problems.append("a read-only opening serves something else than one for writing")
        seen = served
    return Outcome(bit, region, findings, refused, tuple(dict.fromkeys(problems)))


def _open_and_look(scene: Scene, medium: FaultyMedium, region: Region, *, read_only: bool) -> tuple[Served, list[str]]:
    with scene.open(medium, read_only=read_only) as store:
        store.wait_dispatched()
        served = look(store, scene.truth)
        problems = differences(scene.truth, served, region.victim)
        if not read_only and not scene.is_ledger:
            problems += put_after(store, scene.truth, sorted(scene.truth.ends))
    return served, problems
