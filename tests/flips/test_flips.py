"""One flipped bit, anywhere in a store: `verify` finds it, or it is harmless for a reason that is written down.

For each bit the store is verified, opened read-only and for writing, and asked for everything: nothing is lost but what
the bit lies in, nothing wrong is served, no offset is given twice, and no error is a bare one. The quick set tries some
bits of each part of each file, the slow set all of them (about twenty minutes on one core).
"""

from __future__ import annotations

import pytest

from tests.flips.flipping import Tally, all_bits, flip_all, sample
from tests.flips.harmless import is_torn, reason_for
from tests.flips.scenes import KINDS, Scene, make_scene

QUICK_FLIPS = 60
SEED = 18


def check(scene: Scene, tally: Tally) -> None:
    """Every outcome is one that was expected."""
    unexplained = {
        f"{kind}: {part}": [str(bit) for bit in bits[:5]]
        for (kind, part), bits in tally.unseen.items()
        if reason_for(scene, kind, part) is None
    }
    assert not unexplained, f"{scene.name}: not found, and no reason says why that is harmless: {unexplained}"
    problems = [
        f"{outcome.bit}: {problem}"
        for outcome in tally.problems
        for problem in outcome.problems
        if not is_torn(scene, outcome, problem)
    ]
    assert not problems, f"{scene.name}: {len(problems)} problems: {problems[:10]}"


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize("kind", KINDS)
def test_some_bits_of_each_part(kind: str, is_clean: bool) -> None:
    scene = make_scene(kind, is_clean=is_clean)
    check(scene, flip_all(scene, sample(scene, QUICK_FLIPS, SEED)))


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_bit(kind: str, is_clean: bool) -> None:
    scene = make_scene(kind, is_clean=is_clean)
    check(scene, flip_all(scene, all_bits(scene)))
