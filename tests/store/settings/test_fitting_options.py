"""A directory opens by its path: what the configuration leaves out of sizes, levels and types is read off it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.store.small_store import bytes_of

from flintlog import Message, StoreConfig, open_store
from flintlog.errors import DamagedStore, WrongFileSize

SIZES = {
    "mapped_file_size_commit_log": 64 * 1024,
    "mapped_file_size_consume_queue": 20 * 50,
    "max_hash_slot_num": 17,
    "max_index_num": 61,
}


def fill(root: Path, config: StoreConfig) -> None:
    with open_store(root, config) as store:
        for number in range(120):
            store.put(Message("orders", bytes(800), keys=[f"k{number}"]))


@pytest.fixture(params=["noted", "without a note"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A store of ours, and one that lacks our note, as RocketMQ's do."""
    fill(tmp_path / "store", StoreConfig(**SIZES))  # type: ignore[arg-type]
    if request.param == "without a note":
        (tmp_path / "store" / "flintlog" / "options.json").unlink()
    return tmp_path / "store"


def lengths(root: Path) -> dict[str, set[int]]:
    return {
        folder: {path.stat().st_size for path in (root / folder).rglob("*") if path.is_file()}
        for folder in ("commitlog", "consumequeue", "index")
    }


@pytest.mark.parametrize("config", [None, StoreConfig(flush="async")])
def test_the_store_goes_on_with_its_own_sizes(store: Path, config: StoreConfig | None) -> None:
    before = lengths(store)
    with open_store(store, config) as opened:
        assert {name: getattr(opened.config, name) for name in SIZES} == SIZES
        for number in range(120, 240):
            opened.put(Message("orders", bytes(800), keys=[f"k{number}"]))
        assert opened.query("orders", "k7") and opened.query("orders", "k239")
    assert lengths(store) == before


@pytest.mark.parametrize("name", SIZES)
def test_a_size_that_the_files_contradict_is_named_with_theirs(store: Path, name: str, tmp_path: Path) -> None:
    shutil.copytree(store, tmp_path / "before")
    other = SIZES[name] * 3 + (20 if name == "mapped_file_size_consume_queue" else 0)
    with pytest.raises(WrongFileSize, match=f"{name} is {other}, and the files were written with {SIZES[name]}"):
        open_store(store, StoreConfig(**{**SIZES, name: other}))  # type: ignore[arg-type]
    for path in (tmp_path / "before").rglob("*"):
        if path.is_file():
            assert (store / path.relative_to(tmp_path / "before")).read_bytes() == path.read_bytes()


def test_delay_levels_and_extended_queues_stay(tmp_path: Path) -> None:
    config = StoreConfig(message_delay_level="5s 7s", enable_consume_queue_ext=True, **SIZES)  # type: ignore[arg-type]
    fill(tmp_path, config)
    with open_store(tmp_path, StoreConfig(flush="async")) as opened:
        assert (opened.config.message_delay_level, opened.config.enable_consume_queue_ext) == ("5s 7s", True)
    with open_store(tmp_path, StoreConfig(message_delay_level="9s")) as opened:
        assert opened.config.message_delay_level == "9s"


def test_the_sizes_of_deleted_files_are_kept(tmp_path: Path) -> None:
    fill(tmp_path, StoreConfig(**SIZES))  # type: ignore[arg-type]
    shutil.rmtree(tmp_path / "index")
    with open_store(tmp_path) as opened:
        assert (opened.config.max_hash_slot_num, opened.config.max_index_num) == (17, 61)


BATCHES = StoreConfig(topic_queue_types={"batches": "BatchCQ"}, mapped_file_size_batch_consume_queue=46 * 50, **SIZES)  # type: ignore[arg-type]


def fill_batches(root: Path) -> None:
    with open_store(root, BATCHES) as store:
        for number in range(3):
            store.put(Message("batches", b"%d" % number))


def test_a_topic_that_no_file_names_has_the_queues_that_are_there(tmp_path: Path) -> None:
    fill_batches(tmp_path)
    shutil.rmtree(tmp_path / "config", ignore_errors=True)
    with open_store(tmp_path) as store:
        store.put(Message("batches", b"3"))
        assert [(info.topic, info.type, info.max_offset) for info in store.queues()] == [("batches", "BatchCQ", 4)]
    with open_store(tmp_path, read_only=True) as reader:
        assert [message.body for message in reader.get("batches", 0, 0).messages] == [b"0", b"1", b"2", b"3"]


def test_an_empty_folder_of_batch_queues_decides_nothing(tmp_path: Path) -> None:
    (tmp_path / "batchconsumequeue" / "orders").mkdir(parents=True)
    with open_store(tmp_path, StoreConfig(**SIZES)) as store:  # type: ignore[arg-type]
        store.put(Message("orders", b"0"))
        assert [info.type for info in store.queues()] == ["SimpleCQ"]


@pytest.mark.parametrize("where", ["configuration", "topics.json"])
def test_a_queue_type_that_the_files_contradict_is_named_with_theirs(tmp_path: Path, where: str) -> None:
    fill_batches(tmp_path)
    config = StoreConfig(topic_queue_types={"batches": "SimpleCQ"})
    if where == "topics.json":  # a topic that it lists without a type has simple queues
        config = StoreConfig()
        (tmp_path / "config").mkdir(exist_ok=True)
        topics = '{"topicConfigTable": {"batches": {"topicName": "batches"}}}'
        (tmp_path / "config" / "topics.json").write_text(topics, "utf-8")
    before = bytes_of(tmp_path)
    with pytest.raises(DamagedStore, match="has queues of type BatchCQ, but is configured as SimpleCQ"):
        open_store(tmp_path, config)
    assert bytes_of(tmp_path) == before
