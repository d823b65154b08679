"""File systems by their URIs: an S3 server that the variables of AWS's clients name, and errors in one sentence."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import PurePath

import pytest
from tests.pipeline.s3_server import REGION, S3Server, running_s3

from flintlog.cli.exit_codes import ExitCode, exit_code_of
from flintlog.disk.media.arrow_source import PIECE_BYTES, WINDOW_BYTES, ArrowSource
from flintlog.disk.media.file_systems import open_file_system
from flintlog.errors import DiskError, FlintlogError, MissingExtra

MIB = 1024 * 1024


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with running_s3() as server:
        yield server


@pytest.fixture(scope="module")
def bucket(s3: S3Server) -> str:
    name = s3.make_bucket()
    put(s3, f"{name}/store/file", b"abcdef")
    return name


def put(s3: S3Server, key: str, data: bytes) -> None:
    with s3.files.open_output_stream(key) as out:
        out.write(data)


def names(uri: str) -> list[str]:
    source, path = ArrowSource.from_uri(uri)
    return [info.name for info in source.listing(path)]


# ---------------------------------------------------------------------- which server


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n", "S3A"])
def test_a_bucket_is_read_by_every_scheme_that_spark_users_write(bucket: str, scheme: str) -> None:
    assert names(f"{scheme}://{bucket}/store") == ["file"]


def test_the_variable_of_s3_alone_comes_before_that_of_all_services(
    s3: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3.endpoint)
    assert names(f"s3://{bucket}/store") == ["file"]


@pytest.mark.parametrize(
    ("variable", "region"), [("AWS_DEFAULT_REGION", REGION), ("AWS_REGION", "eu-west-1"), (None, "us-east-1")]
)
def test_the_region_is_that_of_the_variables(
    bucket: str, variable: str | None, region: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    if variable is not None:
        monkeypatch.setenv(variable, region)
    assert open_file_system(f"s3://{bucket}/store")[0].region == region


def test_a_client_is_made_once_and_again_after_the_variables_changed(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = open_file_system(f"s3://{bucket}/store")[0]
    assert open_file_system(f"s3://{bucket}/store")[0] is first
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "another")
    assert open_file_system(f"s3://{bucket}/store")[0] is not first


# ---------------------------------------------------------------------- errors


def complaint(uri: str, path: str = "") -> str:
    """The sentence about a store that cannot be read. It has the URI, and commands end with 3."""
    source, root = ArrowSource.from_uri(uri)
    with pytest.raises(FlintlogError) as refused:
        source.view(root / path, 0, 1) if path else source.listing(root)
    text = str(refused.value)
    assert "\n" not in text
    assert f"[{uri}" in text
    assert exit_code_of(refused.value) == ExitCode.CANNOT_READ
    return text


def test_a_bucket_that_does_not_exist_is_named(s3: S3Server) -> None:
    assert "there is no such bucket [s3://nowhere/store]" in complaint("s3://nowhere/store")


def test_a_key_that_does_not_exist_is_named(bucket: str) -> None:
    assert complaint(f"s3://{bucket}/store", "other") == f"there is no such file [s3://{bucket}/store/other]"
    assert names(f"s3://{bucket}/other") == []


def test_a_closed_bucket_denies_access(s3: S3Server) -> None:
    closed = s3.make_bucket()
    s3.closed.add(closed)
    for path in ("", "file"):
        assert "the server denies access" in complaint(f"s3://{closed}/store", path)


def test_without_keys_the_advice_names_the_variables(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert "AWS_ACCESS_KEY_ID" in complaint(f"s3://{bucket}/store")


def test_a_server_that_does_not_answer_is_reported(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    assert "the server cannot be reached" in complaint(f"s3://{bucket}/store")


def test_a_scheme_whose_package_is_missing_names_it() -> None:
    with pytest.raises(MissingExtra, match=r"needs a package: .*sshfs|needs a package: .*paramiko") as refused:
        open_file_system("sftp://host/store")
    assert "flintlog[storage]" in str(refused.value)


def test_without_fsspec_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(MissingExtra, match=r"flintlog\[storage\]"):
        open_file_system("memory://bucket/without-fsspec")


def test_a_uri_that_pyarrow_knows_and_refuses_is_reported_with_its_reason() -> None:
    with pytest.raises(DiskError, match="account name"):
        open_file_system("abfs://container/store")


# ---------------------------------------------------------------------- ranges


def test_a_large_view_is_read_in_pieces_and_never_more_than_asked(s3: S3Server, bucket: str) -> None:
    data = bytes(range(256)) * (24 * MIB // 256)
    put(s3, f"{bucket}/large", data)
    source, _ = ArrowSource.from_uri(f"s3://{bucket}")
    start, stop = 1000, 20 * MIB + 7
    with s3.traffic() as traffic:
        assert source.view(PurePath(bucket, "large"), start, stop) == data[start:stop]
    assert traffic.bytes_read == stop - start
    assert max(each.sent for each in traffic.reads) == PIECE_BYTES


def test_a_reader_that_goes_on_gets_larger_windows(s3: S3Server, bucket: str) -> None:
    data = bytes(range(251)) * (8 * MIB // 251)
    put(s3, f"{bucket}/sequential", data)
    source, _ = ArrowSource.from_uri(f"s3://{bucket}")
    with s3.traffic() as traffic:
        for start in range(0, len(data) - 1000, 1000):
            assert source.view(PurePath(bucket, "sequential"), start, start + 1000) == data[start : start + 1000]
    assert len(traffic.reads) < 12
    assert max(each.sent for each in traffic.reads) <= WINDOW_BYTES
    assert traffic.bytes_read < 1.2 * len(data)


@pytest.mark.parametrize("written", [0, 1, 20_000, 5 * MIB + 13, 16 * MIB])
def test_the_end_of_the_data_is_found_with_samples(s3: S3Server, bucket: str, written: int) -> None:
    put(s3, f"{bucket}/log", (b"x" * written).ljust(16 * MIB, b"\0"))
    source, _ = ArrowSource.from_uri(f"s3://{bucket}")
    with s3.traffic() as traffic:
        assert source.data_end(PurePath(bucket, "log"), 0) == written
    assert traffic.bytes_read < MIB


def test_a_hole_does_not_hide_the_data_after_it(s3: S3Server, bucket: str) -> None:
    data = b"x" * (4 * MIB) + bytes(6 * MIB) + b"x" * (3 * MIB)
    put(s3, f"{bucket}/hole", data.ljust(16 * MIB, b"\0"))
    source, _ = ArrowSource.from_uri(f"s3://{bucket}")
    assert source.data_end(PurePath(bucket, "hole"), 0) == 13 * MIB


def test_an_object_that_was_replaced_by_one_of_the_same_size_has_another_version(s3: S3Server, bucket: str) -> None:
    source, _ = ArrowSource.from_uri(f"s3://{bucket}")
    path = PurePath(bucket, "changing")
    put(s3, str(path), b"one")
    first = source.version(path)
    assert source.version(path) == first
    put(s3, str(path), b"two")
    assert source.version(path) != first


@pytest.mark.parametrize("scheme", ["memory", "local"])
def test_a_file_of_another_file_system_has_another_version_after_a_change(
    scheme: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    uri = "memory://bucket" if scheme == "memory" else f"local://{tmp_path_factory.mktemp('files')}"
    filesystem, path = open_file_system(uri)
    source = ArrowSource(filesystem)
    versions = set()
    for size in (1, 1, 2):
        with filesystem.open_output_stream(f"{path}/file") as out:
            out.write(b"x" * size)
        versions.add(source.version(PurePath(path, "file")))
    assert len(versions) >= 2
    assert source.version(PurePath(path, "file")) in versions
