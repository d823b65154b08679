"""A medium over another: what is changed stays in memory, and what another process does does not get in the way."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flintlog.disk.media.local import LocalMedium
from flintlog.disk.media.medium import Medium
from flintlog.disk.media.overlay import OverlayMedium
from flintlog.errors import DiskError

SIZE = 64 * 4096


def test_nothing_reaches_the_disk_below(medium: Medium, folder: Path) -> None:
    medium.create(folder / "file", SIZE).buffer[:4] = b"here"
    medium.write(folder / "gone", b"1")
    overlay = OverlayMedium(medium)
    overlay.open(folder / "file", writable=True).buffer[:4] = b"mine"
    overlay.create(folder / "new", SIZE)
    overlay.remove(folder / "gone")
    assert [info.name for info in overlay.listing(folder)] == ["file", "new"]
    assert bytes(overlay.open(folder / "file").buffer[:4]) == b"mine"
    assert bytes(medium.open(folder / "file").buffer[:4]) == b"here"
    assert [info.name for info in medium.listing(folder)] == ["file", "gone"]


def test_a_file_that_another_process_made_meanwhile_is_covered(medium: Medium, folder: Path) -> None:
    overlay = OverlayMedium(medium)
    medium.create(folder / "next", SIZE).buffer[:5] = b"their"
    mine = overlay.create(folder / "next", SIZE)
    assert not any(mine.buffer)
    with pytest.raises(DiskError, match="exists"):
        overlay.create(folder / "next", SIZE)


def test_clearing_makes_no_page_private_that_holds_zeros(folder_of_zeros: Path) -> None:
    overlay = OverlayMedium(LocalMedium())
    file = overlay.open(folder_of_zeros, writable=True)
    file.buffer[4096:4100] = b"junk"
    file.clear(0, SIZE)
    assert not any(file.buffer)
    assert 0 < _private_bytes(folder_of_zeros) <= SIZE // 4


def test_a_file_that_is_deleted_while_a_directory_is_listed_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "b").write_bytes(b"2")
    real = os.scandir

    class Scan:
        """What `os.scandir` gives, one entry of which was deleted after it was named."""

        def __init__(self, path: Path) -> None:
            self.entries = [SimpleNamespace(name="0", stat=(tmp_path / "0").stat), *real(path)]

        def __enter__(self) -> list[Any]:
            return self.entries

        def __exit__(self, *_: object) -> None:
            """Nothing to close."""

    monkeypatch.setattr(os, "scandir", Scan)
    assert [info.name for info in LocalMedium().listing(tmp_path)] == ["a", "b"]


@pytest.fixture
def folder_of_zeros(tmp_path: Path) -> Path:
    (tmp_path / "zeros").write_bytes(bytes(SIZE))
    return tmp_path / "zeros"


def _private_bytes(path: Path) -> int:
    """How much memory this process alone has behind its maps of a file."""
    total, is_ours = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ", 1)[0]:
            is_ours = line.endswith(str(path))
        elif is_ours and line.startswith("Anonymous:"):
            total += int(line.split()[1]) * 1024
    return total
