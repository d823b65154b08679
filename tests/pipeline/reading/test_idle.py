"""A stream whose log does not grow reads nothing, and one whose log grows reads little more than what is new."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow.fs as pa_fs
import pytest
from tests.pipeline.conftest import fill, small_config
from tests.pipeline.s3_server import S3Server

from flintlog import Message, kernel, open_store
from flintlog.pipeline.reading import ends
from flintlog.pipeline.reading.logs import find_end, find_logs
from flintlog.pipeline.reading.options import parse_source_options
from flintlog.pipeline.reading.rows import RowShape
from flintlog.pipeline.reading.stream import LogStreamReader

LOG_BYTES = 16 * 1024 * 1024
MIB = 1024 * 1024


@pytest.fixture(autouse=True)
def always_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ends, "SEARCH_INTERVAL_S", 0.0)


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A store with one log file of 16 MiB, mostly zeros that were written, as those of a broker are."""
    path = fill(tmp_path / "store", mapped_file_size_commit_log=LOG_BYTES)
    write_zeros(path)
    return path


def write_zeros(path: Path) -> None:
    (log,) = (path / "commitlog").iterdir()
    data = log.read_bytes()
    log.unlink()
    log.write_bytes(data)


def add(path: Path) -> None:
    with open_store(path, small_config(mapped_file_size_commit_log=LOG_BYTES)) as store:
        assert store.put(Message("orders", b"new"))


def stream(path: Path | str) -> LogStreamReader:
    return LogStreamReader(parse_source_options({"path": str(path), "startingOffsets": "earliest"}), RowShape())


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes each search went through: pages of a map that are touched cannot be counted otherwise."""
    found: list[int] = []

    def counted(search: Callable[..., int]) -> Callable[..., int]:
        def run(view: memoryview, start: int, stop: int, *more: int) -> int:
            found.append(stop - start)
            return search(view, start, stop, *more)

        return run

    for name in ("find_record", "written_end"):
        monkeypatch.setattr(kernel, name, counted(getattr(kernel, name)))
    return found


def test_an_idle_trigger_reads_nothing_of_a_remote_log(s3: S3Server, large: Path) -> None:
    uri = s3.upload(large, "store")
    reader = stream(uri)
    offset = reader.latestOffset(reader.initialOffset())
    with s3.traffic() as traffic:
        for _ in range(3):
            assert reader.latestOffset(offset) == offset
    assert traffic.bytes_read == 0
    assert len(traffic.requests) < 60


def test_the_first_trigger_of_a_remote_log_reads_its_tail(s3: S3Server, large: Path) -> None:
    uri = s3.upload(large, "store")
    with s3.traffic() as traffic:
        reader = stream(uri)
        offset = reader.latestOffset(reader.initialOffset())
    here = stream(large)
    assert offset == here.latestOffset(here.initialOffset())
    assert traffic.bytes_read < 2 * MIB


def test_a_log_that_was_replaced_by_a_longer_one_is_read_on(s3: S3Server, large: Path) -> None:
    uri = s3.upload(large, "store")
    reader = stream(uri)
    offset = reader.latestOffset(reader.initialOffset())
    add(large)
    replace(s3, large, uri)
    with s3.traffic() as traffic:
        (position,) = reader.latestOffset(offset).values()
    assert position["offset"] > next(iter(offset.values()))["offset"]
    assert traffic.bytes_read < 2 * MIB


def replace(s3: S3Server, path: Path, uri: str) -> None:
    """Upload a log again; all of its files have the size that they had."""
    place = uri.removeprefix("s3://")
    pa_fs.copy_files(
        str(path / "commitlog"),
        f"{place}/commitlog",
        source_filesystem=pa_fs.LocalFileSystem(),
        destination_filesystem=s3.files,
    )


def test_an_idle_trigger_does_not_search_the_rest_of_a_local_file(large: Path, searched: list[int]) -> None:
    reader = stream(large)
    offset = reader.latestOffset(reader.initialOffset())
    assert reader.latestOffset(offset) == offset
    searched.clear()
    for _ in range(3):
        assert reader.latestOffset(offset) == offset
    assert sum(searched) == 0


def test_a_local_log_that_grows_after_idle_triggers_is_read_on(large: Path) -> None:
    reader = stream(large)
    offset = reader.latestOffset(reader.initialOffset())
    assert reader.latestOffset(offset) == offset
    add(large)
    assert reader.latestOffset(offset) != offset


def test_a_full_last_file_is_not_walked_again(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = Path(shutil.copytree(store, tmp_path / "store"))
    max((copy / "commitlog").iterdir()).unlink()
    (log,) = find_logs((str(copy),))
    end = find_end(log)
    assert end == log.files[-1].end

    def refuse(*given: object, **named: object) -> None:
        raise AssertionError("the file is walked")

    monkeypatch.setattr(kernel, "scan", refuse)
    assert find_end(log, end, search=False) == end
