"""One flipped bit, anywhere in a store: `verify` finds it, or it is harmless for a reason that is written down.

What runs for each bit is said in `flipping.py`: nothing is lost but what the bit lies in, nothing wrong is served, no
offset is given twice, and no error is a bare one. The quick set tries some bits of each part of each file. The slow set
tries all of them, on all cores, and compares how many were found with `counts.json`, of which the table in
`docs/mending.md` is made.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.flips.counting import DOCS, Counts, complaints, counts_of, docs_with_table, load_counts
from tests.flips.flipping import all_bits, flip_all, flip_every_bit, sample
from tests.flips.harmless import reason_for
from tests.flips.regions import region_of
from tests.flips.scenes import KINDS, make_scene, scene_name

QUICK_FLIPS = 60
SEED = 18

each_scene = pytest.mark.parametrize(
    ("kind", "is_clean"),
    [pytest.param(kind, is_clean, id=scene_name(kind, is_clean)) for kind in KINDS for is_clean in (True, False)],
)


@each_scene
def test_some_bits_of_each_part(kind: str, is_clean: bool) -> None:
    scene = make_scene(kind, is_clean=is_clean)
    assert not complaints(kind, flip_all(scene, sample(scene, QUICK_FLIPS, SEED)), is_clean=is_clean)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@each_scene
def test_every_bit(kind: str, is_clean: bool) -> None:
    tally = flip_every_bit(kind, is_clean=is_clean)
    assert not complaints(kind, tally, is_clean=is_clean)
    assert counts_of(tally) == load_counts()[scene_name(kind, is_clean)]


@each_scene
def test_the_counts_are_those_of_every_bit(kind: str, is_clean: bool) -> None:
    scene = make_scene(kind, is_clean=is_clean)
    files = scene.files
    regions = (region_of(scene, bit.path, bit.at, files[bit.path]) for bit in all_bits(scene))
    bits = Counter((region.kind, region.part) for region in regions)
    counts = load_counts()[scene_name(kind, is_clean)]
    assert {(file, part): sum(counts[file][part].values()) for file in counts for part in counts[file]} == bits
    assert [part for part in _unseen(counts) if reason_for(kind, *part, is_clean=is_clean) is None] == []


def _unseen(counts: Counts) -> list[tuple[str, str]]:
    return [(file, part) for file in counts for part in counts[file] if "unseen" in counts[file][part]]


def test_the_docs_have_the_table_of_these_counts() -> None:
    text = DOCS.read_text(encoding="utf-8")
    assert docs_with_table(text, load_counts()) == text, "run: python -m tests.flips.counting --table"
