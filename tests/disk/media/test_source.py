"""Ranges of files that are only read."""

from __future__ import annotations

from pathlib import Path, PurePath

import pytest
from pyarrow import fs

from flintlog.disk.media.arrow_source import ArrowSource
from flintlog.disk.media.local import LocalMedium
from flintlog.disk.media.source import ByteSource, MappedSource
from flintlog.errors import DiskError


@pytest.fixture(params=["mapped", "arrow"])
def source(request: pytest.FixtureRequest) -> ByteSource:
    return MappedSource(LocalMedium(), max_files=2) if request.param == "mapped" else ArrowSource(fs.LocalFileSystem())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "00000000000000000000"
    path.write_bytes(bytes(range(256)) * 40)
    return path


def test_a_range_is_answered_in_full(source: ByteSource, file: Path) -> None:
    assert source.size(file) == 10240
    assert bytes(source.view(file, 250, 260)) == bytes([250, 251, 252, 253, 254, 255, 0, 1, 2, 3])
    assert bytes(source.view(file, 0, 2)) == b"\0\1"
    assert source.view(file, 5, 5).nbytes == 0
    assert source.view(file, 0, 10).readonly


@pytest.mark.parametrize(("start", "stop"), [(-1, 5), (10, 9), (0, 10241), (20000, 20001)])
def test_a_range_that_is_not_there_is_an_error(source: ByteSource, file: Path, start: int, stop: int) -> None:
    with pytest.raises(DiskError):
        source.view(file, start, stop)


def test_a_missing_file_is_an_error_and_a_missing_directory_empty(source: ByteSource, tmp_path: Path) -> None:
    with pytest.raises(DiskError):
        source.size(tmp_path / "missing")
    with pytest.raises(DiskError):
        source.view(tmp_path / "missing", 0, 1)
    assert source.listing(tmp_path / "missing") == []


def test_a_listing_is_sorted(source: ByteSource, file: Path) -> None:
    (file.parent / "zz").mkdir()
    (file.parent / "aa").write_bytes(b"123")
    entries = source.listing(file.parent)
    assert [(entry.name, entry.is_directory) for entry in entries] == [
        (file.name, False),
        ("aa", False),
        ("zz", True),
    ]
    assert [entry.size for entry in entries[:2]] == [10240, 3]
    assert entries[0].mtime_ms == file.stat().st_mtime_ns // 1_000_000


def test_views_outlive_the_files_that_stay_open(source: ByteSource, tmp_path: Path) -> None:
    views = []
    for number in range(5):
        (tmp_path / str(number)).write_bytes(bytes([number]) * 100)
        views.append(source.view(tmp_path / str(number), 10, 20))
    assert [bytes(view) for view in views] == [bytes([number]) * 10 for number in range(5)]


def test_a_source_is_found_by_its_uri(file: Path) -> None:
    source, path = ArrowSource.from_uri(file.as_uri())
    assert path == PurePath(file)
    assert bytes(source.view(path, 1, 3)) == b"\1\2"


def test_a_file_system_of_fsspec_is_found_by_its_uri() -> None:
    fsspec = pytest.importorskip("fsspec")
    fsspec.filesystem("memory").pipe("/bucket/store/commitlog/00000000000000000000", b"abcdef")
    source, path = ArrowSource.from_uri("memory://bucket/store")
    (entry,) = source.listing(path / "commitlog")
    assert (entry.name, entry.size, entry.is_directory) == ("00000000000000000000", 6, False)
    assert bytes(source.view(path / "commitlog" / entry.name, 1, 4)) == b"bcd"
    assert source.listing(path / "consumequeue") == []


@pytest.mark.parametrize("uri", ["nosuch://bucket/store", "no-such-2://", "abfss+x://y"])
def test_an_unknown_file_system_is_reported_in_one_sentence(uri: str) -> None:
    with pytest.raises(DiskError, match="file system") as refused:
        ArrowSource.from_uri(uri)
    assert "\n" not in str(refused.value)
