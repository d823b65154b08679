"""Places as users and Spark spell them, and as tasks get them."""

from __future__ import annotations

from contextlib import chdir
from pathlib import Path

import pytest

from flintlog.disk.places import absolute, is_uri, local_path
from flintlog.errors import InvalidConfig
from flintlog.pipeline.reading.logs import find_end, find_logs
from flintlog.pipeline.reading.partitions import load_window, plan
from flintlog.pipeline.sink.sink import StagingArea
from flintlog.pipeline.sink.sink_options import parse_sink_options


@pytest.mark.parametrize("before", ["", "file:", "file://"])
def test_a_store_is_found_however_its_path_is_spelt(store: Path, before: str) -> None:
    (log,) = find_logs((f"{before}{store}",))
    assert log.uri == f"{store}/commitlog"
    assert find_end(log) > 0
    (other,) = find_logs((f"{before}{store.parent}/st*e",))
    assert other.uri == log.uri


def test_tasks_find_a_store_that_was_named_from_the_drivers_directory(store: Path, tmp_path: Path) -> None:
    with chdir(store.parent):
        (log,) = find_logs((store.name,))
        splits = plan([(log, log.first, find_end(log))], split_bytes=1 << 20, least_count=1)
    with chdir(tmp_path):
        assert len(load_window(splits[0]).view) > 0


@pytest.mark.parametrize("before", ["", "file:", "file://"])
def test_a_sink_stages_where_the_driver_meant(tmp_path: Path, before: str) -> None:
    (tmp_path / "broker.conf").write_text("maxIndexNum = 200")
    with chdir(tmp_path):
        path = "store" if not before else f"{before}{tmp_path}/store"
        asked = parse_sink_options({"path": path, "config": "broker.conf"}, is_streaming=False)
    with chdir("/"):
        assert StagingArea(asked, "w").root == tmp_path / "store"
        config = asked.store_config()
    assert config is not None
    assert config.max_index_num == 200


def test_what_is_always_local_is_from_the_root_on(tmp_path: Path) -> None:
    with chdir(tmp_path):
        assert absolute("store") == absolute(f"file:{tmp_path}/store") == absolute(Path("store")) == f"{tmp_path}/store"


@pytest.mark.parametrize("text", ["file:/x", "file:///x", "file:////x", "file://localhost/x", "FILE:/x", "/x"])
def test_a_path_of_this_machine_however_it_is_spelt(text: str) -> None:
    assert local_path(text) == Path("/x")


@pytest.mark.parametrize("text", ["s3://b/x", "s3:/b/x", "abfss://a@b/x", "simplecache::s3://b/x", "file://host/x"])
def test_a_uri_of_another_file_system(text: str) -> None:
    assert is_uri(text)
    assert absolute(text) == text
    with pytest.raises(InvalidConfig, match="is a URI"):
        local_path(text)


@pytest.mark.parametrize("text", ["store", "a:b", "/s3://b/x", "./s3:/x", "%RETRY%group"])
def test_a_path_with_a_colon_is_a_path(text: str) -> None:
    assert not is_uri(text)
    assert local_path(text) == Path(text)
