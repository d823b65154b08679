"""A medium over another one: everything can be changed, and nothing below is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.scale.process_cost import MIB, status_bytes

from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.disk.media.local import LocalMedium
from flintlog.disk.media.medium import Medium
from flintlog.disk.media.overlay import OverlayMedium
from flintlog.errors import DiskError

ROOT = Path("/disk")


@pytest.fixture
def below() -> FaultyMedium:
    made = FaultyMedium()
    made.make_directories(ROOT / "queue")
    made.create(ROOT / "log", 4096).buffer[:5] = b"first"
    made.write(ROOT / "note", b"below")
    return made


@pytest.fixture
def medium(below: FaultyMedium) -> OverlayMedium:
    return OverlayMedium(below)


def names(medium: Medium, directory: Path = ROOT) -> list[str]:
    return [info.name for info in medium.listing(directory)]


def test_what_is_written_is_seen_above_only(medium: OverlayMedium, below: FaultyMedium) -> None:
    medium.open(ROOT / "log", writable=True).buffer[:5] = b"other"
    medium.write(ROOT / "note", b"above")
    medium.replace(ROOT / "new", b"above too")
    assert bytes(medium.open(ROOT / "log").buffer[:5]) == b"other"
    assert medium.read(ROOT / "note") == b"above"
    assert names(medium) == ["log", "new", "note", "queue"]
    assert bytes(below.open(ROOT / "log").buffer[:5]) == b"first"
    assert below.read(ROOT / "note") == b"below"
    assert names(below) == ["log", "note", "queue"]


def test_a_removed_file_is_missing_in_the_overlay_only(medium: OverlayMedium, below: FaultyMedium) -> None:
    medium.remove(ROOT / "note")
    assert medium.stat(ROOT / "note") is None and below.exists(ROOT / "note")
    with pytest.raises(DiskError):
        medium.read(ROOT / "note")
    medium.remove_tree(ROOT)
    assert names(medium) == [] and not medium.exists(ROOT / "log")
    with pytest.raises(DiskError):
        medium.open(ROOT / "log")
    assert names(below) == ["log", "note", "queue"]


def test_what_was_removed_can_be_made_again(medium: OverlayMedium) -> None:
    medium.remove(ROOT / "log")
    assert bytes(medium.create(ROOT / "log", 16).buffer) == bytes(16)
    medium.rename(ROOT / "note", ROOT / "queue" / "note")
    assert names(medium) == ["log", "queue"] and names(medium, ROOT / "queue") == ["note"]
    with pytest.raises(DiskError, match="exists"):
        medium.create(ROOT / "log", 16)
    with pytest.raises(DiskError, match="longer"):
        medium.read(ROOT / "log", limit=15)


@pytest.mark.parametrize("written_before", [False, True])
def test_clearing_sets_the_range_to_zero(medium: OverlayMedium, written_before: bool) -> None:
    file = medium.open(ROOT / "log", writable=True)
    if written_before:
        file.buffer[4000:4003] = b"end"
    file.clear(2, 4096)
    assert bytes(file.buffer) == b"fi" + bytes(4094)


def test_clearing_a_large_file_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * 10_000)
    os.truncate(path, 512 * MIB)
    file = OverlayMedium(LocalMedium()).open(path, writable=True)
    before = status_bytes("RssAnon")
    file.clear(5_000, 512 * MIB)
    assert status_bytes("RssAnon") - before < 4 * MIB
    assert bytes(file.buffer[4_990:12_000]) == b"x" * 10 + bytes(7_000)
    assert path.read_bytes()[:10_001] == b"x" * 10_000 + b"\0"


def test_pages_that_were_not_written_show_what_another_process_writes(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(bytes(3 * 4096))
    file = OverlayMedium(LocalMedium()).open(path, writable=True)
    file.buffer[0] = 1
    with open(path, "r+b") as other:
        other.seek(8192)
        other.write(b"news")
    assert bytes(file.buffer[8192:8196]) == b"news"
