"""The doctor's judgement of machines of every kind."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from flintlog.cli import main
from flintlog.cli.run import doctor, machine
from flintlog.cli.run.durability import describe_durability
from flintlog.cli.run.machine import Mount
from flintlog.store.options.store_config import StoreConfig

DISK = Mount("/data", "ext4", "/dev/vdb", False)
MEMORY = Mount("/tmp", "tmpfs", "tmpfs", False)
TABLE = r"""22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:26 / /mnt rw - tmpfs tmpfs rw
31 22 0:27 / /mnt/a\040b rw,nosuid shared:2 master:1 - nfs4 host:/x rw
32 30 0:28 / /mnt ro,relatime - xfs /dev/vdc rw
broken line
"""


@pytest.mark.parametrize(
    ("path", "type_", "read_only"),
    [
        ("/home", "ext4", False),
        ("/mnt/a b/c", "nfs4", False),
        ("/mnt/other", "xfs", True),
        ("/mntx", "ext4", False),
    ],
)
def test_finds_the_topmost_mount(path: str, type_: str, read_only: bool) -> None:
    mount = machine.find_mount(Path(path), TABLE)
    assert mount is not None
    assert (mount.type, mount.is_read_only) == (type_, read_only)


def test_finds_the_mount_of_a_real_directory(tmp_path: Path) -> None:
    mount = machine.find_mount(tmp_path)
    assert mount is not None
    assert os.path.ismount(mount.point)


@pytest.mark.parametrize(
    ("mount", "state", "word"),
    [
        (DISK, "fine", "this machine"),
        (MEMORY, "note", "lost with the power"),
        (Mount("/n", "nfs4", "h:/x", False), "note", "Another machine"),
        (Mount("/r", "ext4", "/dev/x", True), "problem", "read-only"),
        (None, "note", "does not say"),
    ],
)
def test_judges_the_file_system(mount: Mount | None, state: str, word: str) -> None:
    check = doctor.check_file_system(mount)
    assert check.state == state
    assert word in check.meaning


@pytest.mark.parametrize(
    ("mount", "taken_us", "state", "word"),
    [
        (DISK, 500.0, "fine", "2,000 messages/s"),
        (DISK, 2.0, "note", "Too fast"),
        (None, 500.0, "fine", "2,000 messages/s"),
        (MEMORY, 2.0, "note", "in memory"),
    ],
)
def test_judges_the_time_of_a_sync(mount: Mount | None, taken_us: float, state: str, word: str) -> None:
    check = doctor.check_sync(Path(), mount, lambda _: taken_us)
    assert check.state == state
    assert word in check.meaning


def test_a_sync_that_fails_is_a_problem() -> None:
    def fail(directory: Path) -> float:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    check = doctor.check_sync(Path(), DISK, fail)
    assert (check.state, "Input/output error" in check.meaning) == ("problem", True)


def test_measures_a_sync_and_leaves_nothing_behind(tmp_path: Path) -> None:
    assert machine.measure_sync_us(tmp_path) > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("limit", "config", "state"),
    [
        (None, StoreConfig(), "fine"),
        (1 << 30, StoreConfig(warm_mapped_file_enable=True), "fine"),
        ((1 << 30) - 1, StoreConfig(warm_mapped_file_enable=True), "note"),
        (65536, StoreConfig(transient_store_pool_enable=True), "note"),
        (65536, StoreConfig(), "fine"),
    ],
)
def test_judges_lockable_memory(limit: int | None, config: StoreConfig, state: str) -> None:
    assert doctor.check_lockable(limit, config).state == state


@pytest.mark.parametrize(("limit", "state"), [(None, "fine"), (4096, "fine"), (4095, "note")])
def test_judges_open_files(limit: int | None, state: str) -> None:
    assert doctor.check_open_files(limit).state == state


@pytest.mark.parametrize(("limit", "state"), [(65_530, "fine"), (65_529, "note"), (100, "problem"), (None, "note")])
def test_judges_mappings(limit: int | None, state: str) -> None:
    assert doctor.check_maps(limit, StoreConfig(max_mapped_files=100)).state == state


@pytest.mark.parametrize(
    ("found", "word"),
    [
        (None, "Only tests"),
        (("/usr/bin/java", "17.0.15"), "At /usr/bin/java."),
        (("/usr/bin/java", "1.8.0_402"), "17 or newer"),
        (("/usr/bin/java", None), "17 or newer"),
    ],
)
def test_java_is_never_a_problem(found: tuple[str, str | None] | None, word: str) -> None:
    check = doctor.check_java(found)
    assert (check.state, word in check.meaning) == ("fine", True)


def test_reads_the_version_of_java_without_starting_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").write_text("#!/bin/sh\nexit 1\n", "utf-8")
    (tmp_path / "bin" / "java").chmod(0o755)
    (tmp_path / "release").write_text('IMPLEMENTOR="x"\nJAVA_VERSION="21.0.2"\n', "utf-8")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert machine.find_java() == (str(tmp_path / "bin" / "java"), "21.0.2")


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (StoreConfig(), ["Synchronous flush", "loss of power"]),
        (StoreConfig(flush="async"), ["Asynchronous flush:", "last 10 s"]),
        (StoreConfig(flush="async", flush_commit_log_thorough_interval=100), ["last 0.5 s"]),
        (StoreConfig(flush="async", transient_store_pool_enable=True), ["crash of the process may", "last 0.2 s"]),
        (StoreConfig(broker_role="SYNC_MASTER", in_sync_replicas=2), ["until 1 replica has"]),
        *((StoreConfig(broker_role="SYNC_MASTER", in_sync_replicas=n), ["waits for no slave"]) for n in (1, 0, -1)),
        (StoreConfig(broker_role="SLAVE"), ["is a slave"]),
        (StoreConfig(enable_dledger_commit_log=True), ["majority"]),
    ],
)
def test_durability_in_plain_words(config: StoreConfig, words: list[str]) -> None:
    for word in words:
        assert word in describe_durability(config)


@pytest.mark.parametrize("config", [StoreConfig(), StoreConfig(in_sync_replicas=2)], ids=["alone", "not sync"])
def test_no_replica_is_promised_that_nobody_waits_for(config: StoreConfig) -> None:
    assert "replica" not in describe_durability(config)


@pytest.mark.parametrize(
    ("config", "mount", "state"),
    [(StoreConfig(), DISK, "fine"), (StoreConfig(), MEMORY, "note"), (StoreConfig(flush="async"), DISK, "note")],
)
def test_judges_durability_with_the_file_system(config: StoreConfig, mount: Mount, state: str) -> None:
    assert doctor.check_durability(config, mount).state == state


def test_options_of_a_brokers_file_that_do_nothing_are_printed_with_their_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broker.conf").write_text("topicQueueLockNum=8\nmaxMessageSize=77\nbrokerName=a\n", "utf-8")
    main.run(["doctor", str(tmp_path), "--config", str(tmp_path / "broker.conf"), "-o", "json"])
    rows = [row for row in json.loads(capsys.readouterr().out) if row["check"] == "ignored option"]
    assert [(row["found"], row["state"]) for row in rows] == [("brokerName", "note"), ("topicQueueLockNum", "note")]
    assert rows[1]["meaning"] == "It has no effect here because one lock orders all puts."


@pytest.mark.parametrize(("fails", "code"), [(False, 0), (True, 1)])
def test_only_a_problem_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], fails: bool, code: int
) -> None:
    def measure(directory: Path) -> float:
        if fails:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return 500.0

    monkeypatch.setattr(machine, "measure_sync_us", measure)
    monkeypatch.setattr(machine, "find_mount", lambda _: MEMORY)
    assert main.run(["doctor", str(tmp_path), "-o", "jsonl"]) == code
    assert ("problem" in capsys.readouterr().out) == fails


def rows_of(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, dict[str, str]]:
    assert main.run(["doctor", *map(str, arguments), "-o", "json"]) == 0
    return {row["check"]: row for row in json.loads(capsys.readouterr().out)}


@pytest.fixture
def store(golden: Callable[[str], Path], tmp_path: Path) -> Path:
    """A broker's store; the doctor writes a page beside it to measure, so it gets a copy."""
    shutil.copytree(golden("plain") / "store", tmp_path / "store")
    return tmp_path / "store"


def test_without_a_configuration_both_defaults_are_reported(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = rows_of(capsys, store)["durability"]
    assert (row["found"], row["state"]) == ("flintlog: flush=sync, RocketMQ: flush=async", "note")
    assert "depends on how the store is opened" in row["meaning"]
    ours, broker = row["meaning"].split("With RocketMQ's defaults: ")
    assert "With flintlog's defaults: Synchronous flush" in ours
    assert broker.startswith("Asynchronous flush")


def test_a_configuration_is_taken_at_its_word(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("flushDiskType=SYNC_FLUSH\n", "utf-8")
    row = rows_of(capsys, store, "--config", conf)["durability"]
    assert row["found"] == "flush=sync"
    assert row["meaning"].startswith("Synchronous flush")


def test_the_size_of_a_log_file_is_that_of_the_store(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "lockable_bytes", lambda: (1 << 20) - 1)
    assert "Less than one commit log file (1,048,576 bytes)" in rows_of(capsys, store)["lockable memory"]["meaning"]
    monkeypatch.setattr(machine, "lockable_bytes", lambda: 1 << 20)
    assert rows_of(capsys, store)["lockable memory"]["meaning"].startswith("A whole commit log file")


@pytest.mark.parametrize(("version", "found"), [("4.1.0", "pyspark 4.1.0"), (None, "not installed")])
def test_spark_has_a_row(version: str | None, found: str) -> None:
    check = doctor.check_spark(version)
    assert (check.check, check.found, check.state) == ("spark", found, "fine")


def test_spark_is_found_where_it_is_installed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import pyspark

    assert rows_of(capsys, tmp_path)["spark"]["found"] == f"pyspark {pyspark.__version__}"
