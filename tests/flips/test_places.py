"""Every bit of the place that a record names (topic, queue, offset), after a kill: no other message loses its own."""

from __future__ import annotations

import pytest

from tests.flips.counting import complaints
from tests.flips.flipping import Bit, all_bits, flip_all
from tests.flips.regions import region_of
from tests.flips.scenes import Scene, make_scene

LOW_BITS = 3
"""The lowest bits lead to places that others have."""


def last_bits(scene: Scene, part: str) -> list[Bit]:
    """The low bits of the last byte of a field, in every record."""
    files = scene.files
    found = {bit for bit in all_bits(scene) if _part(scene, bit, files[bit.path]) == part and bit.bit < LOW_BITS}
    return [bit for bit in found if Bit(bit.path, bit.at + 1, bit.bit) not in found]


def _part(scene: Scene, bit: Bit, content: bytes) -> str:
    region = region_of(scene, bit.path, bit.at, content)
    return region.part if region.kind == "commit log" else ""


@pytest.mark.parametrize("part", ["queue id", "queue offset", "sys flag", "topic"])
def test_a_record_that_names_another_place_takes_it_from_no_other(part: str) -> None:
    scene = make_scene("plain", is_clean=False)
    bits = last_bits(scene, part)
    assert len(bits) >= LOW_BITS
    assert not complaints("plain", flip_all(scene, bits), is_clean=False)


def test_a_batch_that_names_other_offsets_takes_them_from_no_other() -> None:
    scene = make_scene("plain", is_clean=False)
    content = {path: data for path, data in scene.files.items() if str(path).startswith("commitlog")}
    bits = [
        Bit(path, at, bit)
        for path, data in content.items()
        for name in (b"INNER_BASE\x01", b"INNER_NUM\x01")
        for start in _all(data, name)
        for at in range(start, start + len(name) + 1)
        for bit in range(LOW_BITS)
    ]
    assert bits
    assert not complaints("plain", flip_all(scene, bits), is_clean=False)


def _all(data: bytes, name: bytes) -> list[int]:
    found = [data.find(name)]
    while found[-1] >= 0:
        found.append(data.find(name, found[-1] + 1))
    return found[:-1]
