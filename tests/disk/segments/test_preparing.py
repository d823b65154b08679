"""Pages made ready for a writer who waits for syncs: a sync then neither writes more than was changed nor waits for
the file system's journal."""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path

import pytest

from flintlog.disk.media import libc, local_file
from flintlog.disk.media.local import LocalMedium
from flintlog.disk.segments.segment import Segment
from flintlog.errors import SyncFailed

SIZE = 4 << 20
PAGE = 4096
_FS_IOC_FIEMAP = 0xC020660B
_UNWRITTEN = 0x800


def unwritten_bytes(path: Path) -> int:
    """How much of a file is allocated and was never written, as the file system tells it."""
    answer = bytearray(struct.pack("=QQLLLL", 0, SIZE, 0, 0, 512, 0) + bytes(512 * 56))
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, _FS_IOC_FIEMAP, answer)
    except OSError:
        pytest.skip("this file system does not tell its extents")
    finally:
        os.close(descriptor)
    count = struct.unpack_from("=L", answer, 20)[0]
    extents = [struct.unpack_from("=QQQQQL", answer, 32 + 56 * number) for number in range(count)]
    return sum(extent[2] for extent in extents if extent[5] & _UNWRITTEN)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "00000000000000000000"


@pytest.fixture
def segment(path: Path) -> Segment:
    medium = LocalMedium()
    segment = Segment(path, 0, SIZE, medium, raw=medium.create(path, SIZE), allocated=SIZE)
    assert segment.append(bytes(SIZE // 4))  # as much is prepared ahead as was written
    return segment


def test_space_ahead_of_a_writer_that_syncs_was_written_before(segment: Segment, path: Path) -> None:
    before = unwritten_bytes(path)
    if before < SIZE // 2 or not segment.raw(writable=True).prepare(0, PAGE):
        pytest.skip("this file system has no space that is allocated and unwritten")
    segment.warm_ahead(SIZE // 2, for_syncs=True)
    assert unwritten_bytes(path) <= before - SIZE // 4


def test_touching_alone_writes_nothing(segment: Segment, path: Path) -> None:
    before = unwritten_bytes(path)
    segment.warm_ahead(SIZE // 2)
    assert unwritten_bytes(path) == before


def test_preparing_changes_no_byte(segment: Segment, path: Path) -> None:
    raw = segment.raw(writable=True)
    raw.buffer[: PAGE + 100] = b"\x07" * (PAGE + 100)
    raw.prepare(PAGE, SIZE // 2)
    raw.buffer[PAGE + 100 : PAGE + 200] = b"\x08" * 100
    raw.prepare(PAGE + 150, SIZE)
    assert path.read_bytes() == (b"\x07" * (PAGE + 100) + b"\x08" * 100).ljust(SIZE, b"\0")


@pytest.mark.parametrize("cause", ["the system cannot", "the file is gone"])
def test_where_it_cannot_be_done_pages_are_only_touched(
    segment: Segment, path: Path, monkeypatch: pytest.MonkeyPatch, cause: str
) -> None:
    if cause == "the system cannot":
        monkeypatch.setattr(local_file, "write_out", lambda *_: False)
    else:
        path.unlink()
    assert segment.warm_ahead(SIZE // 2, for_syncs=True) == SIZE // 4
    assert segment.append(b"x" * 5000)


def test_a_failed_write_ahead_is_left_to_the_sync_to_tell(
    segment: Segment, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system tells a failed write once to each open file: the map's turn must not be used up ahead of the sync."""
    synced: list[tuple[int, int]] = []
    monkeypatch.setattr(libc.MemoryMap, "sync", lambda _, start, stop: synced.append((start, stop)))
    segment.warm_ahead(SIZE // 2, for_syncs=True)
    assert synced == []

    def failing(*_: object) -> None:
        raise OSError(5, "injected at the map")

    monkeypatch.setattr(libc.MemoryMap, "sync", failing)
    segment.append(b"x")
    with pytest.raises(SyncFailed):
        segment.flush()
