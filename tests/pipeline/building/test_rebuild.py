"""Rebuilding: the bytes are Java's, and the embedded dispatcher's, whatever the splits."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipeline.conftest import COUNT, fill, small_config
from tests.store.golden_cases import config_of as golden_config
from tests.store.golden_cases import lines

from flintlog import Message, StoreConfig, open_store
from flintlog.cli.main import run
from flintlog.errors import DamagedStore, InvalidConfig, StoreInUse, WrongFileSize
from flintlog.format.ledger import LedgerCheckpoint, encode_ledger_checkpoint, parse_ledger_checkpoint
from flintlog.pipeline.building import rebuild_place
from flintlog.pipeline.building.rebuild_place import _Placing
from flintlog.pipeline.building.rebuild_scan import BuildPlan, ScanTask, read_split
from flintlog.pipeline.reading.partitions import LogSplit
from flintlog.pipeline.rebuild import rebuild

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

QUEUES = ("consumequeue", "consumequeue_ext", "batchconsumequeue")


def config_of(case: Path) -> StoreConfig:
    reported = json.loads((case / "config.json").read_text())
    config = StoreConfig.from_rocketmq({name: str(value) for name, value in reported["set"].items()})
    return config.with_changes(topic_queue_types=reported["topicQueueTypes"])


def files(root: Path, *folders: str) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for folder in folders
        for path in sorted((root / folder).rglob("*"))
        if path.is_file()
    }


def index_bytes(root: Path) -> list[bytes]:
    return list(files(root, "index").values())


def assert_same(made: Path, expected: Path) -> None:
    found, wanted = files(made, *QUEUES), files(expected, *QUEUES)
    assert found.keys() == wanted.keys()
    assert [name for name, data in wanted.items() if found[name] != data] == []
    assert index_bytes(made) == index_bytes(expected)


@pytest.mark.parametrize("case", ["plain", "batch", "transaction", "multi", "cqext", "delay", "ha/master"])
def test_a_golden_store_is_rebuilt_to_javas_bytes(
    spark: SparkSession, golden: Callable[[str], Path], tmp_path: Path, case: str
) -> None:
    name, _, part = case.partition("/")
    folder = golden(name)
    store = folder / (part or "store")
    report = rebuild(spark, store, config=config_of(folder), into=tmp_path / "new", split_bytes=50_000)
    assert report.serial_queues == []
    assert report.split_count > 1
    assert_same(tmp_path / "new", store)


@pytest.mark.parametrize("case", ["multi", "cqext"])
@pytest.mark.parametrize("by_command", [False, True], ids=["function", "command"])
def test_without_a_config_every_kind_of_queue_is_built_again(
    spark: SparkSession, golden: Callable[[str], Path], tmp_path: Path, case: str, by_command: bool
) -> None:
    store = golden(case) / "store"
    copy = shutil.copytree(store, tmp_path / "store")
    if by_command:
        assert run(["pipeline", "rebuild", str(copy)]) == 0
    else:
        rebuild(spark, copy)
    assert_same(copy, store)


@pytest.mark.parametrize("case", ["broker", "mixed"])
def test_the_store_of_a_ledgers_member_is_rebuilt_to_javas_bytes(
    spark: SparkSession, golden: Callable[[str], Path], tmp_path: Path, case: str
) -> None:
    folder = golden("ledger") / case
    report = rebuild(spark, folder / "store", config=golden_config(folder), into=tmp_path / "new", split_bytes=50_000)
    assert report.serial_queues == []
    assert_same(tmp_path / "new", folder / "store")


@pytest.mark.parametrize("serially", [False, True])
def test_what_a_ledger_has_not_committed_is_in_no_queue(
    spark: SparkSession, golden: Callable[[str], Path], tmp_path: Path, serially: bool
) -> None:
    folder = golden("ledger") / "broker"
    reported, index = lines(folder / "manifest.jsonl"), folder / "store/dledger-n0/index"
    copy = shutil.copytree(folder / "store", tmp_path / "store", ignore=lambda at, names: {"index", *QUEUES} & {*names})
    (copy / "dledger-n0" / "index").symlink_to(index)
    ledger = copy / "dledger-n0" / "checkpoint"
    half = parse_ledger_checkpoint(ledger.read_bytes()).committed_index // 2
    ledger.write_bytes(encode_ledger_checkpoint(LedgerCheckpoint(half * 2, half)))
    if serially:
        _set_queue_offset(copy / "dledger-n0" / "data", reported[1]["physicalOffset"], 1000)
    report = rebuild(spark, copy, config=golden_config(folder), into=tmp_path / "new", split_bytes=50_000)
    last = reported[half]
    assert report.log_end == last["physicalOffset"] + last["size"]
    assert bool(report.serial_queues) == serially
    entries = [
        int.from_bytes(data[place : place + 8], "big")
        for data in files(tmp_path / "new", "consumequeue").values()
        for place in range(0, len(data), 20)
        if any(data[place + 8 : place + 12])
    ]
    assert len(entries) > half // 2
    assert max(offset for offset in entries if offset < 1 << 62) <= last["physicalOffset"]


def _set_queue_offset(folder: Path, physical_offset: int, queue_offset: int) -> None:
    path = min(folder.iterdir())
    data = bytearray(path.read_bytes())
    data[physical_offset + 20 : physical_offset + 28] = queue_offset.to_bytes(8, "big")
    path.write_bytes(data)


def test_a_replica_that_had_not_dispatched_all_gets_the_rest(
    spark: SparkSession, golden: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = golden("ha")
    rebuild(spark, folder / "slave", config=config_of(folder), into=tmp_path / "new", split_bytes=50_000)
    made, theirs = files(tmp_path / "new", *QUEUES), files(folder / "slave", *QUEUES)
    assert made.keys() == theirs.keys()
    for name, data in theirs.items():
        written = data.rstrip(b"\x00")
        assert made[name].startswith(written) and len(made[name].rstrip(b"\x00")) > len(written)


def without_derived(store: Path, copy: Path) -> Path:
    shutil.copytree(store, copy)
    for folder in (*QUEUES, "index", "flintlog"):
        shutil.rmtree(copy / folder, ignore_errors=True)
    return copy


def embedded(store: Path, copy: Path, config: StoreConfig) -> Path:
    """The same store, its queues and index built again by opening it."""
    with open_store(without_derived(store, copy), config):
        pass
    return copy


def test_damaged_golden_stores_are_rebuilt_as_opening_them_would(
    spark: SparkSession, golden: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = golden("torn")
    befores = sorted(path for path in folder.rglob("before/store") if path.is_dir())
    assert befores
    for number, before in enumerate(befores):
        config = config_of(folder)
        try:
            expected = embedded(before, tmp_path / f"{number}-embedded", config)
        except WrongFileSize:
            with pytest.raises(WrongFileSize):
                rebuild(spark, before, config=config, into=tmp_path / f"{number}-new")
            continue
        rebuild(spark, before, config=config, into=tmp_path / f"{number}-new", split_bytes=100_000)
        assert_same(tmp_path / f"{number}-new", expected)


def test_a_store_is_rebuilt_in_place_and_opens_cleanly(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    copy = without_derived(store, tmp_path / "copy")
    (copy / "consumequeue" / "orders" / "0").mkdir(parents=True)
    (copy / "consumequeue" / "orders" / "0" / ("0" * 20)).write_bytes(bytes(1000))
    shutil.copytree(store / "flintlog", copy / "flintlog")
    checkpoint = (copy / "checkpoint").read_bytes()
    report = rebuild(spark, copy, config=small_config(), split_bytes=20_000)
    assert_same(copy, store)
    assert (report.record_count, report.entry_count, report.queue_count) == (COUNT, COUNT, 4)
    assert report.key_count == sum(2 * bool(n % 4) + bool(n % 5) for n in range(COUNT))
    assert (copy / "checkpoint").read_bytes() == checkpoint
    assert sorted(path.name for path in (copy / "flintlog").iterdir()) == ["options.json", "stop.json"]
    assert not (copy / "abort").exists()
    with open_store(copy, small_config()) as opened:
        assert opened.recovery.clean and not opened.recovery
        assert opened.put(Message("orders", b"next", queue_id=1)).queue_offset == 100
        assert len(opened.query("orders", "all", max_count=64)) == 64


def test_a_store_that_was_not_cleanly_stopped_is_rebuilt_and_believed(
    spark: SparkSession, store: Path, tmp_path: Path
) -> None:
    copy = without_derived(store, tmp_path / "copy")
    (copy / "abort").write_text("1")
    rebuild(spark, copy, config=small_config())
    assert_same(copy, store)
    assert (copy / "abort").exists()
    with open_store(copy, small_config()) as opened:
        assert not opened.recovery.clean
        assert opened.recovery.dispatched_from > 0
    assert_same(copy, store)


def test_one_topic_is_rebuilt_and_the_others_are_left(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(store, tmp_path / "copy")
    shutil.rmtree(copy / "consumequeue" / "orders")
    payments = next((copy / "consumequeue" / "payments").rglob("0" * 20))
    inode, index = payments.stat().st_ino, sorted((copy / "index").iterdir())
    report = rebuild(spark, copy, config=small_config(), topics=["orders"])
    assert_same(copy, store)
    assert report.queue_count == 2
    assert payments.stat().st_ino == inode
    assert sorted((copy / "index").iterdir()) == index


@pytest.mark.parametrize("way", ["plain", "extension", "serial", "one topic", "a deleted topic"])
def test_messages_of_a_deleted_topic_stay_deleted(spark: SparkSession, tmp_path: Path, way: str) -> None:
    config = small_config(enable_consume_queue_ext=way == "extension")
    root = tmp_path / "store"
    with open_store(root, config) as opened:
        for number in range(60):
            for topic in ("deleted", "made-again", "kept"):
                opened.put(Message(topic, bytes(100), queue_id=number % 2))
        opened.topics.delete("deleted")
        opened.topics.delete("made-again")
        for _ in range(5):
            opened.put(Message("made-again", b"new", queue_id=0))
            opened.put(Message("kept", b"new", queue_id=0))
        before = opened.queues()
        (kept,) = opened.get("kept", 0, 3, 1).messages
    if way == "serial":
        _set_queue_offset(root / "commitlog", kept.physical_offset, 1000)
    topics = {"one topic": ["made-again"], "a deleted topic": ["deleted"]}.get(way, [])
    report = rebuild(spark, root, config=config, topics=topics, split_bytes=20_000)
    assert bool(report.serial_queues) == (way == "serial")
    assert not (root / "consumequeue" / "deleted").exists()
    with open_store(root, config, read_only=True) as opened:
        assert [queue for queue in opened.queues() if queue.topic == "made-again"] == [
            queue for queue in before if queue.topic == "made-again"
        ]
        assert {queue.topic for queue in opened.queues()} == {"kept", "made-again"}


def test_a_queue_whose_first_messages_expired_begins_with_fillers(
    spark: SparkSession, store: Path, tmp_path: Path
) -> None:
    copy = without_derived(store, tmp_path / "copy")
    min((copy / "commitlog").iterdir()).unlink()
    expected = embedded(copy, tmp_path / "embedded", small_config())
    report = rebuild(spark, copy, config=small_config(), split_bytes=30_000)
    assert report.log_start > 0
    assert_same(copy, expected)


def test_offsets_that_do_not_follow_each_other_are_rebuilt_by_javas_rule_and_reported(
    spark: SparkSession, store: Path, tmp_path: Path
) -> None:
    copy = without_derived(store, tmp_path / "copy")
    log = min((copy / "commitlog").iterdir())
    data = bytearray(log.read_bytes())
    second = int.from_bytes(data[:4], "big")
    data[second + 20 : second + 28] = (7).to_bytes(8, "big")  # its queue offset
    log.write_bytes(data)
    expected = embedded(copy, tmp_path / "embedded", small_config())
    report = rebuild(spark, copy, config=small_config())
    assert report.serial_queues == ["orders/1"]
    assert_same(copy, expected)


def test_an_attempt_that_still_writes_while_all_is_done_again_changes_nothing(
    spark: SparkSession, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = without_derived(store, tmp_path / "copy")
    _set_queue_offset(
        copy / "commitlog", int.from_bytes(min((copy / "commitlog").iterdir()).read_bytes()[:4], "big"), 7
    )
    expected = embedded(copy, tmp_path / "embedded", small_config())
    seen: list[ScanTask] = []
    assemble = _Placing._assemble

    def noted(plan: BuildPlan, number: int, planned: LogSplit, sync_log: bool) -> ScanTask:
        seen.append(ScanTask(plan, number, planned, sync_log))
        return seen[-1]

    def beside_late_attempts(placing: _Placing, *given: Any) -> Path:  # noqa: ANN401 - handed on
        result = assemble(placing, *given)
        for task in seen:
            read_split(task)
        return result

    monkeypatch.setattr(rebuild_place, "ScanTask", noted)
    monkeypatch.setattr(_Placing, "_assemble", beside_late_attempts)
    rebuild(spark, copy, config=small_config())
    assert seen
    assert_same(copy, expected)


def test_a_log_that_ends_with_zeros_of_a_message_is_rebuilt_to_its_end(spark: SparkSession, tmp_path: Path) -> None:
    store = fill(tmp_path / "store", 5)
    with open_store(store, small_config()) as opened:
        receipt = opened.put(Message("orders", bytes(300)))
    report = rebuild(spark, store, config=small_config(), into=tmp_path / "new")
    assert report.log_end == receipt.physical_offset + receipt.size
    assert_same(tmp_path / "new", store)


def test_what_cannot_be_rebuilt_is_refused_and_left_as_it_is(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(store, tmp_path / "copy")
    before = files(copy, ".")
    with pytest.raises(WrongFileSize):
        rebuild(spark, copy, config=small_config(mapped_file_size_consume_queue=400))
    with pytest.raises(DamagedStore, match="no store here"):
        rebuild(spark, tmp_path / "nowhere")
    with pytest.raises(InvalidConfig, match="empty directory"):
        rebuild(spark, copy, config=small_config(), into=copy)
    assert files(copy, ".") == before
    with open_store(copy, small_config()), pytest.raises(StoreInUse):
        rebuild(spark, copy, config=small_config())


def test_light_and_batch_queues_and_extensions_of_our_own_stores(spark: SparkSession, tmp_path: Path) -> None:
    config = small_config(enable_consume_queue_ext=True, mapped_file_size_consume_queue_ext=2048)
    fill(tmp_path / "ext", 200, enable_consume_queue_ext=True, mapped_file_size_consume_queue_ext=2048)
    rebuild(spark, tmp_path / "ext", config=config, into=tmp_path / "new", split_bytes=10_000)
    assert_same(tmp_path / "new", tmp_path / "ext")


@pytest.mark.parametrize("is_clean", [True, False])
def test_offsets_that_only_the_old_queues_know_are_not_given_again(
    spark: SparkSession, tmp_path: Path, is_clean: bool
) -> None:
    store = tmp_path / "store"
    config = small_config()
    with open_store(store, config) as running:
        for _ in range(50):
            running.put(Message("orders", bytes(3000)))
        given = running.max_offset("orders", 0)
    if not is_clean:
        (store / "abort").write_bytes(b"4711")
    _, *later = sorted((store / "commitlog").iterdir())
    assert later
    for path in later:  # the log has lost its end
        path.unlink()
    report = rebuild(spark, store, config=config)
    assert report.record_count < given
    for more in range(2):
        with open_store(store, config) as running:
            assert running.put(Message("orders", b"next")).queue_offset == given + more
