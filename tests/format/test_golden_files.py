"""Every queue, extension, index, checkpoint and config file of the golden stores, read and written back."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from flintlog.format.checkpoint import encode_checkpoint, parse_checkpoint
from flintlog.format.config_json import encode_config_json, parse_config_object
from flintlog.format.index_file import (
    IndexLayout,
    encode_index_file,
    index_keys,
    parse_index_entry,
    parse_index_file,
    parse_slot,
    time_difference_s,
)
from flintlog.format.java import concurrent_map_order, index_hash
from flintlog.format.names import (
    parse_abort,
    parse_index_file_name,
    parse_segment_name,
    segment_name,
)
from flintlog.format.queue_entry import (
    BatchQueueEntry,
    QueueEntry,
    encode_batch_queue_entry,
    encode_extension_unit,
    encode_queue_entry,
    is_extension_address,
    parse_batch_queue_entries,
    parse_extension_address,
    parse_extension_unit,
    parse_extension_units,
    parse_queue_entries,
)
from flintlog.format.sys_flag import TransactionType, transaction_type

if TYPE_CHECKING:
    from tests.format.conftest import GoldenStore, OpenGolden

SMALL_INDEX = IndexLayout(slot_count=500, index_count=2000)

Dumped = dict[tuple[str, int], list[dict[str, Any]]]


def _dumped_entries(store: GoldenStore) -> Dumped:
    """The entries of every queue, as the Java store iterated them."""
    dumped: Dumped = defaultdict(list)
    for line in store.queue_lines():
        if line["kind"] == "entry":
            dumped[line["topic"], line["queueId"]].append(line)
    return dumped


def _queue_entries(store: GoldenStore) -> dict[tuple[str, int], list[QueueEntry]]:
    found: dict[tuple[str, int], list[QueueEntry]] = defaultdict(list)
    for path in store.files("consumequeue"):
        queue = path.parent.parent.name, int(path.parent.name)
        found[queue] += [entry for entry in parse_queue_entries(path.read_bytes()) if entry.is_valid]
    return found


def test_queue_files_come_back(golden_store: OpenGolden, store_name: str) -> None:
    for path in golden_store(store_name).files("consumequeue"):
        data = path.read_bytes()
        assert b"".join(map(encode_queue_entry, parse_queue_entries(data))) == data
        assert segment_name(parse_segment_name(path.name)) == path.name


@pytest.mark.parametrize("name", ["plain", "batch", "transaction", "delay", "crash-after"])
def test_queue_entries_are_what_java_iterated(golden_store: OpenGolden, name: str) -> None:
    store = golden_store(name)
    found = _queue_entries(store)
    dumped = _dumped_entries(store)
    assert dumped.keys() == found.keys()
    for queue, lines in dumped.items():
        expected = [QueueEntry(line["physicalOffset"], line["size"], line["tagsCode"]) for line in lines]
        assert found[queue] == expected


def test_extension_files_come_back(golden_store: OpenGolden) -> None:
    units = 0
    for path in golden_store("cqext").files("consumequeue_ext"):
        data = path.read_bytes()
        found = [unit for _, unit in parse_extension_units(data)]
        assert b"".join(map(encode_extension_unit, found)).ljust(len(data), b"\x00") == data
        units += len(found)
    assert units == 1200


def test_extension_units_are_what_java_resolved(golden_store: OpenGolden) -> None:
    store = golden_store("cqext")
    found = _queue_entries(store)
    for (topic, queue_id), lines in _dumped_entries(store).items():
        files = sorted((store.root / "consumequeue_ext" / topic / str(queue_id)).iterdir())
        data = b"".join(path.read_bytes() for path in files)
        for entry, line in zip(found[topic, queue_id], lines, strict=True):
            assert is_extension_address(entry.tags_code)
            unit = parse_extension_unit(data, parse_extension_address(entry.tags_code))
            dumped = line["extTagsCode"], line["extStoreTime"], line["extBitMap"] or "", line["extSize"]
            assert (unit.tags_code, unit.store_timestamp, unit.bitmap.hex(), unit.size) == dumped


def test_batch_queues_are_what_java_iterated(golden_store: OpenGolden) -> None:
    store = golden_store("multi")
    found: dict[tuple[str, int], list[BatchQueueEntry]] = defaultdict(list)
    for path in store.files("batchconsumequeue"):
        data = path.read_bytes()
        entries = list(parse_batch_queue_entries(data))
        assert b"".join(map(encode_batch_queue_entry, entries)) == data
        valid = [entry for entry in entries if entry.is_valid]
        found[path.parent.parent.name, int(path.parent.name)] += valid
        assert all(entry.end_offset == after.base_offset for entry, after in pairwise(valid))
    dumped = _dumped_entries(store)
    assert found
    for queue, entries in found.items():
        expected = [(line["queueOffset"], line["physicalOffset"], line["size"]) for line in dumped[queue]]
        assert [(entry.base_offset, entry.physical_offset, entry.size) for entry in entries] == expected
        assert [entry.batch_size for entry in entries] == [line["batchNum"] for line in dumped[queue]]


def test_index_files_come_back(golden_store: OpenGolden, store_name: str) -> None:
    for path in golden_store(store_name).files("index"):
        data = path.read_bytes()
        layout = SMALL_INDEX if len(data) == SMALL_INDEX.file_size else IndexLayout()
        assert encode_index_file(parse_index_file(data, layout)) == data
        assert parse_index_file_name(path.name).year >= 2025


@pytest.mark.parametrize("name", ["plain", "batch", "transaction", "cqext", "delay", "ha-master"])
def test_index_entries_follow_from_the_messages(golden_store: OpenGolden, name: str) -> None:
    store = golden_store(name)
    expected = [
        (index_hash(key), message["physicalOffset"])
        for message in store.messages()
        if transaction_type(message["sysFlag"]) != TransactionType.ROLLBACK
        for key in index_keys(message["topic"], message["properties"])
    ]
    found: list[tuple[int, int]] = []
    for path in store.files("index"):
        image = parse_index_file(path.read_bytes(), SMALL_INDEX)
        found += [(entry.key_hash, entry.physical_offset) for entry in image.entries[1:]]
    assert found == expected


def test_index_chains_and_times_follow_from_the_entries(golden_store: OpenGolden) -> None:
    store = golden_store("plain")
    stored = {message["physicalOffset"]: message["storeTimestamp"] for message in store.messages()}
    for path in store.files("index"):
        data = path.read_bytes()
        image = parse_index_file(data, SMALL_INDEX)
        slots = [0] * SMALL_INDEX.slot_count
        for number, entry in enumerate(image.entries[1:], start=1):
            slot = SMALL_INDEX.slot_of(entry.key_hash)
            assert entry.previous_entry == slots[slot]
            slots[slot] = number
            if number > 1:
                begin = image.header.begin_timestamp
                assert entry.time_difference_s == time_difference_s(stored[entry.physical_offset], begin)
            assert parse_index_entry(data, SMALL_INDEX, number) == entry
        assert image.slots == tuple(slots) == tuple(parse_slot(data, SMALL_INDEX, slot) for slot in range(500))
        assert image.header.used_slot_count == sum(slot > 0 for slot in slots)
        assert image.header.next_entry == len(image.entries)
        assert image.header.end_physical_offset == image.entries[-1].physical_offset


def test_checkpoints_come_back(golden_store: OpenGolden, store_name: str) -> None:
    path = golden_store(store_name).root / "checkpoint"
    if store_name == "torn-nocheckpoint-before":
        assert not path.exists()
        return
    data = path.read_bytes()
    assert encode_checkpoint(parse_checkpoint(data)) == data


@pytest.mark.parametrize("name", ["plain", "batch", "transaction", "multi", "cqext", "crash-after"])
def test_the_two_logics_fields_of_a_checkpoint_tell_of_one_message(golden_store: OpenGolden, name: str) -> None:
    store = golden_store(name)
    times = {message["physicalOffset"]: message["storeTimestamp"] for message in store.messages()}
    checkpoint = parse_checkpoint((store.root / "checkpoint").read_bytes())
    assert times[checkpoint.logics_physical_offset] == checkpoint.logics_msg_timestamp
    assert checkpoint.physic_msg_timestamp in times.values()


def test_config_files_come_back(golden_store: OpenGolden) -> None:
    texts = [path for path in golden_store("delay").files("config") if path.name != "timercheck"]
    assert len(texts) == 16
    for path in texts:
        data = path.read_bytes()
        assert encode_config_json(parse_config_object(data), pretty=data.startswith(b"{\n")) == data


@pytest.mark.parametrize(
    ("file", "table", "capacity"),
    [("topics.json", "topicConfigTable", 1024), ("subscriptionGroup.json", "subscriptionGroupTable", 1024)],
)
def test_tables_stand_in_the_order_of_a_concurrent_map(
    golden_store: OpenGolden, file: str, table: str, capacity: int
) -> None:
    config: Any = parse_config_object((golden_store("delay").root / "config" / file).read_bytes())
    names = list(config[table])
    assert concurrent_map_order(sorted(names), capacity) == names


def test_an_abort_file_holds_a_process_id(golden_store: OpenGolden) -> None:
    root = golden_store("crash-before").root
    process_id = parse_abort((root / "abort").read_bytes())
    assert process_id is not None
    assert process_id > 0
    assert parse_abort((root / "abort.bak").read_bytes()) is None
