"""Entries of queues and of the index that lead to another message: it is never served in place of the right one."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from tests.faults.world import files_below
from tests.store.small_store import ASYNC

from flintlog import DamagedRecord, Message, Store, StoredMessage, open_store
from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.format.client_batch import ClientMessage, encode_client_batch
from flintlog.testing import FakeClock

ROOT = Path("/store")
EXTENDED = ASYNC.with_changes(enable_consume_queue_ext=True)
LIGHT = ASYNC.with_changes(enable_lmq=True, enable_multi_dispatch=True)
BATCH = ASYNC.with_changes(topic_queue_types={"batches": "BatchCQ"})


def filled(config: object = ASYNC) -> FaultyMedium:
    """Records of one size: three of each of three queues, and six of light queues if there are any."""
    medium = FaultyMedium()
    with open_store(ROOT, config, medium=medium, clock=FakeClock()) as store:  # type: ignore[arg-type]
        for number in range(9):
            light = {"INNER_MULTI_DISPATCH": "%LMQ%one,%LMQ%two"} if config is LIGHT else None
            topic, queue_id = ("orders", 0) if number % 3 == 0 else ("orders", 1) if number % 3 == 1 else ("events", 0)
            store.put(Message(topic, b"%d" % number, queue_id=queue_id, keys=[f"k{number}"], properties=light)).check()
    return medium


def opened(medium: FaultyMedium, config: object = ASYNC) -> Store:
    return open_store(ROOT, config, medium=medium, clock=FakeClock())  # type: ignore[arg-type]


def queue_file(topic: str, queue_id: int = 0) -> Path:
    return ROOT / "consumequeue" / topic / str(queue_id) / "00000000000000000000"


def copy_place(medium: FaultyMedium, source: Path, place: int, target: Path, to: int, size: int) -> None:
    data = bytearray(medium.read(target))
    data[to : to + size] = medium.read(source)[place : place + size]
    medium.write(target, bytes(data))


def served(store: Store, topic: str, queue_id: int = 0) -> dict[int, bytes]:
    """Bodies by offset, as far as they are served."""
    found = {}
    for offset in range(store.max_offset(topic, queue_id)):
        try:
            page = store.get(topic, queue_id, offset, 1)
        except DamagedRecord as damaged:
            assert damaged.next_queue_offset == offset + 1  # noqa: PT017
        else:
            found[offset] = page.messages[0].body
    return found


@pytest.mark.parametrize("config", [ASYNC, EXTENDED], ids=["plain", "extended"])
@pytest.mark.parametrize("source", [("orders", 1), ("events", 0)], ids=["other queue", "other topic"])
def test_an_entry_that_leads_to_another_queue_is_damaged(config: object, source: tuple[str, int]) -> None:
    medium = filled(config)
    copy_place(medium, queue_file(*source), 20, queue_file("orders"), 20, 12)
    with opened(medium, config) as store:
        assert served(store, "orders") == {0: b"0", 2: b"6"}
        with pytest.raises(DamagedRecord, match=f"points at a message of {source[0]}/{source[1]}"):
            store.get("orders", 0, 1)
        assert [message.body for message in store.get("orders", 0, 0).messages] == [b"0"]


def test_an_entry_that_leads_to_another_place_of_its_queue_is_damaged() -> None:
    medium = filled()
    copy_place(medium, queue_file("orders"), 0, queue_file("orders"), 20, 12)
    with opened(medium) as store:
        assert served(store, "orders") == {0: b"0", 2: b"6"}
        with pytest.raises(DamagedRecord, match="points at the message of offset 0"):
            store.get("orders", 0, 1)


def test_a_queue_that_rocketmq_shifted_is_served_as_it_is() -> None:
    """It appends where the queue ends: after a lost record entries lie before the offsets that their records name."""
    medium = filled()
    data = medium.read(queue_file("orders"))
    medium.write(queue_file("orders"), data[20:60] + bytes(len(data) - 40))
    medium.remove_tree(ROOT / "flintlog")
    with open_store(ROOT, ASYNC, medium=medium, clock=FakeClock(), read_only=True) as store:
        assert list(served(store, "orders").values())[:2] == [b"3", b"6"]


def test_light_queues_serve_the_messages_that_name_them() -> None:
    medium = filled(LIGHT)
    with opened(medium, LIGHT) as store:
        assert served(store, "%LMQ%one") == {offset: b"%d" % offset for offset in range(9)}
    copy_place(medium, queue_file("%LMQ%two"), 60, queue_file("%LMQ%one"), 40, 12)
    with opened(medium, LIGHT) as store:
        assert sorted(served(store, "%LMQ%one")) == [0, 1, 3, 4, 5, 6, 7, 8]
        assert sorted(served(store, "%LMQ%two")) == list(range(9))


def batches() -> tuple[FaultyMedium, Path]:
    medium = FaultyMedium()
    with open_store(ROOT, BATCH, medium=medium, clock=FakeClock()) as store:
        for number in range(4):
            parts = [ClientMessage(body=b"%d" % number), ClientMessage(body=b"x")]
            properties = {"INNER_NUM": "2"}
            store.put(Message("batches", encode_client_batch(parts), sys_flag=0xC0, properties=properties)).check()
    (relative,) = [path for path, _ in files_below(medium, ROOT / "batchconsumequeue")]
    return medium, ROOT / "batchconsumequeue" / relative


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("change", ["base 3", "base 0", "base 18", "base 1099511627776", "count 3", "count 32000"])
def test_a_wrong_batch_entry_costs_its_batch_alone(number: int, change: str) -> None:
    medium, path = batches()
    data = bytearray(medium.read(path))
    field, value = change.split()
    struct.pack_into("!q" if field == "base" else "!h", data, 46 * number + (28 if field == "base" else 36), int(value))
    medium.write(path, bytes(data))
    with opened(medium, BATCH) as store:
        for offset in {0, 1, 2, 3, 4, 5, 6, 7} - {2 * number, 2 * number + 1}:
            page = store.get("batches", 0, offset, 1)
            assert page.messages[0].queue_offset == offset // 2 * 2, offset
        assert {message.queue_offset for message in consumed(store)} >= {0, 2, 4, 6} - {2 * number}


def consumed(store: Store) -> list[StoredMessage]:
    """All that a consumer meets that goes on after damage."""
    found: list[StoredMessage] = []
    offset = store.min_offset("batches", 0)
    while offset < 8:
        try:
            page = store.get("batches", 0, offset)
        except DamagedRecord as damaged:
            following = damaged.next_queue_offset
        else:
            found += page.messages
            following = page.next_offset
        assert following is not None and following > offset
        offset = following
    return found


def test_a_query_gives_only_messages_that_have_the_key() -> None:
    medium = filled()
    (relative, content), *_ = files_below(medium, ROOT / "index")
    first = 40 + 4 * 100 + 20  # entry 1
    data = bytearray(content)
    data[first + 4 : first + 12] = data[first + 24 : first + 32]  # the first key, the second place
    medium.write(ROOT / "index" / relative, bytes(data))
    with opened(medium) as store:
        assert store.query("orders", "k0") == []
        assert [message.body for message in store.query("orders", "k1")] == [b"1"]


@pytest.mark.parametrize("at", [4, 28, 84, 88], ids=["magic", "physical offset", "body size", "body"])
def test_a_scan_passes_a_damaged_record_and_goes_on(at: int) -> None:
    medium = filled()
    with opened(medium) as store:
        third = store.get("events", 0, 0, 1).messages[0].physical_offset
    path = ROOT / "commitlog" / "00000000000000000000"
    medium.flip_bit(path, third + at, 0)
    with opened(medium) as store:
        found = [body for batch in store.scan() for body in batch.column("body").to_pylist()]
        assert found == [b"%d" % number for number in range(9) if number != 2]


@pytest.mark.parametrize("at", [0, 9, 19], ids=["size", "tags code", "bitmap size"])
def test_a_damaged_extension_unit_hands_out_no_other_tags(at: int) -> None:
    medium = FaultyMedium()
    with open_store(ROOT, EXTENDED, medium=medium, clock=FakeClock()) as store:
        for number in range(6):
            store.put(Message("orders", b"%d" % number, tags="ac"[number % 2])).check()
    (relative,) = [path for path, _ in files_below(medium, ROOT / "consumequeue_ext")]
    medium.flip_bit(ROOT / "consumequeue_ext" / relative, at, 1)
    with opened(medium, EXTENDED) as store:
        assert {message.tags for message in store.get("orders", 0, 0, filter="a").messages} == {"a"}
        assert {message.tags for message in store.get("orders", 0, 0, filter="c").messages} == {"c"}


def test_a_damaged_tags_code_hands_out_no_other_tags() -> None:
    medium = FaultyMedium()
    with open_store(ROOT, ASYNC, medium=medium, clock=FakeClock()) as store:
        for number in range(6):
            store.put(Message("orders", b"%d" % number, tags="ac"[number % 2])).check()
    medium.flip_bit(queue_file("orders"), 19, 1)  # the hash of "a" becomes that of "c"
    with opened(medium) as store:
        assert {message.tags for message in store.get("orders", 0, 0, filter="c").messages} == {"c"}


@pytest.mark.parametrize("change", ["base 7", "base 2", "base 1099511627782", "count 3", "count 32000"])
def test_a_wrong_last_batch_entry_moves_no_offset(change: str) -> None:
    """The next offset follows from the last entry: its record tells that it is wrong."""
    medium, path = batches()
    data = bytearray(medium.read(path))
    field, value = change.split()
    struct.pack_into("!q" if field == "base" else "!h", data, 46 * 3 + (28 if field == "base" else 36), int(value))
    medium.write(path, bytes(data))
    with opened(medium, BATCH) as store:
        assert [finding.id for finding in store.recovery] == ["damaged-queues"]
        assert store.max_offset("batches", 0) == 8
        assert [message.queue_offset for message in consumed(store)] == [0, 2, 4, 6]
