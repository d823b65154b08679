"""Bad input gets an error with a name, and the store is as it was."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.store.small_store import SMALL, bytes_of, fill, other_process, read_all, settle, unchanged

from flintlog import (
    DamagedStore,
    FlintlogError,
    InvalidConfig,
    InvalidFilter,
    InvalidMessage,
    InvalidOffset,
    InvalidTopic,
    Message,
    PutStatus,
    Receipt,
    ServiceNotEnabled,
    Sql92,
    Store,
    StoreClosed,
    StoreConfig,
    StoreInUse,
    WrongFileSize,
    open_store,
)
from flintlog.disk.media.local import LocalMedium
from flintlog.format.topics import can_be_topic

BEYOND_INT64 = 1 << 63
BODY = b"forty-two"
HOLDING = """
store = open_store(sys.argv[1], SMALL.with_changes(flush_interval_consume_queue=100_000))  # it writes nothing by itself
store.put(Message("orders", b"mine"))
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A small store with three messages, for all tests of this file: none of them changes it."""
    with open_store(tmp_path_factory.mktemp("bad") / "store", SMALL) as opened:
        for number in range(3):
            opened.put(Message("orders", b"order %d" % number, keys=[f"o-{number}"])).check()
        settle(opened)
        yield opened


# Messages


@pytest.mark.parametrize(
    "topic",
    [
        *(
            "",
            ".",
            "..",
            "a/b",
            "../x",
            "a\\b",
            "a\nb",
            "a\x00b",
            "tab\t",
            "\x7f",
            "\x85",
            "x" * 256,
            "é" * 128,
            "\ud800",
        ),
        *(None, 7, ["unhashable"], b"orders"),
    ],
    ids=lambda topic: ascii(topic)[:20],
)
def test_a_topic_that_cannot_be_a_directory(store: Store, topic: str) -> None:
    with unchanged(store):
        with pytest.raises(InvalidTopic):
            store.put(Message(topic, BODY))
        with pytest.raises(InvalidTopic):
            store.put_batch([Message(topic, BODY)])


@pytest.mark.parametrize(
    "message",
    [
        Message("orders", b"x" * 4097),
        Message("orders", BODY, delay_level=None),  # type: ignore[arg-type]
        Message("orders", BODY, delay_level=""),  # type: ignore[arg-type]
        Message("orders", BODY, delay_level=[]),  # type: ignore[arg-type]
        Message("orders", "text"),  # type: ignore[arg-type]
        Message("orders", None),  # type: ignore[arg-type]
        Message("orders", 42),  # type: ignore[arg-type]
        Message("orders", BODY, properties={"a": "b\x01"}),
        Message("orders", BODY, properties={"a\x02": "b"}),
        Message("orders", BODY, properties={"": "b"}),
        Message("orders", BODY, properties={"a": 7}),  # type: ignore[dict-item]
        Message("orders", BODY, properties={7: "a"}),  # type: ignore[dict-item]
        Message("orders", BODY, properties=["a"]),  # type: ignore[arg-type]
        Message("orders", BODY, properties=7),  # type: ignore[arg-type]
        Message("orders", BODY, properties={"a": "\udc00"}),
        Message("orders", BODY, tags="a\x01b"),
        Message("orders", BODY, tags=7),  # type: ignore[arg-type]
        Message("orders", BODY, tags="paid", properties={"TAGS": "paid"}),
        Message("orders", BODY, keys=["k"], properties={"KEYS": "k"}),
        Message("orders", BODY, keys="one"),
        Message("orders", BODY, keys=["o-17", "two words"]),
        Message("orders", BODY, keys=[" "]),
        Message("orders", BODY, keys=[7]),  # type: ignore[list-item]
        Message("orders", BODY, queue_id=-1),
        Message("orders", BODY, queue_id=1 << 31),
        Message("orders", BODY, queue_id="0"),  # type: ignore[arg-type]
        Message("orders", BODY, queue_id=[0]),  # type: ignore[arg-type]
        Message("orders", BODY, flag=1 << 31),
        Message("orders", BODY, sys_flag=1 << 31),
        Message("orders", BODY, sys_flag=None),  # type: ignore[arg-type]
        Message("orders", BODY, born_timestamp=BEYOND_INT64),
        Message("orders", BODY, born_host="localhost"),
        Message("orders", BODY, store_host="1.2.3.4"),
        Message("orders", BODY, reconsume_times=1 << 40),
        Message("orders", BODY, prepared_transaction_offset=BEYOND_INT64),
        Message("orders", BODY, deliver_at_ms="soon"),  # type: ignore[arg-type]
        Message("orders", BODY, compress="gzip"),
        Message("orders", BODY, compress=7),  # type: ignore[arg-type]
        Message("orders", "text", compress="zlib"),  # type: ignore[arg-type]
        Message("orders", BODY, compress="zlib", sys_flag=1),
        Message("orders", BODY, properties={"INNER_NUM": "2"}),
        Message("orders", BODY, sys_flag=0x80),
        Message("orders", BODY, sys_flag=0x80, properties={"INNER_NUM": "2"}),
        *(Message("orders", BODY, sys_flag=type_ | 0x80) for type_ in (4, 8, 12)),
        *(Message("orders", BODY, sys_flag=type_, properties={"INNER_NUM": "2"}) for type_ in (4, 8, 12)),
    ],
    ids=str,
)
def test_a_message_that_can_never_be_stored(store: Store, message: Message) -> None:
    with unchanged(store):
        with pytest.raises(InvalidMessage):
            store.put(message)
        with pytest.raises(InvalidMessage):
            store.put_async(message)
        with pytest.raises(InvalidMessage):
            store.put_batch([Message("orders", BODY), message])


@pytest.mark.parametrize(
    "count", ["", "0", "-1", "2147483648", "9" * 5000, " 3", "+3", "3.0", "x", "٣٣٣٣٣٣٣", None, 3, b"3"]
)
def test_an_inner_batch_that_does_not_say_its_count(tmp_path: Path, count: object) -> None:
    config = SMALL.with_changes(topic_queue_types={"batches": "BatchCQ"})
    with open_store(tmp_path, config) as store:
        store.put(Message("batches", BODY, sys_flag=0x80, properties={"INNER_NUM": "3"})).check()
        with unchanged(store), pytest.raises(InvalidMessage):
            store.put(Message("batches", BODY, sys_flag=0x80, properties={"INNER_NUM": count}))  # type: ignore[dict-item]
        receipt = store.put(Message("batches", BODY, sys_flag=0x80, properties={"INNER_NUM": "2"})).check()
        assert receipt.queue_offset == 3


class Unequal(str):
    """A text that refuses to be compared, with the hash of another."""

    __slots__ = ()
    other = ""

    def __hash__(self) -> int:
        return hash(self.other)

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not comparable")


class LikeInnerNum(Unequal):
    __slots__ = ()
    other = "INNER_NUM"


class LikeOdd(Unequal):
    __slots__ = ()
    other = "odd"


class LikeWait(Unequal):
    __slots__ = ()
    other = "WAIT"


def test_a_property_name_that_cannot_be_compared(store: Store) -> None:
    message = Message("odd", b"x", properties={LikeInnerNum("name"): "v"})
    with unchanged(store):
        for put in (store.put, store.put_async, lambda bad: store.put_batch([Message("odd", b"y"), bad])):
            with pytest.raises(InvalidMessage, match="cannot be compared"):
                put(message)
    before = len(read_all(store, "odd"))
    store.put(Message("odd", b"after")).check()
    store.put_batch([Message("odd", b"after")] * 2).check()
    assert len(read_all(store, "odd")) == before + 3


def test_texts_of_another_type_are_stored_as_plain_ones(store: Store) -> None:
    for number in range(2):
        store.put(Message(LikeOdd("odd"), b"%d" % number, properties={LikeWait("WAIT"): "v"})).check()
        store.put_batch([Message(LikeOdd("odd"), b"x")] * 2).check()
        store.put(Message("odd", b"plain")).check()
    assert [message.properties for message in read_all(store, "odd")][-8] == {"WAIT": "v"}


def test_a_body_whose_memory_was_released(store: Store) -> None:
    body = memoryview(bytearray(BODY))
    body.release()
    with unchanged(store):
        with pytest.raises(InvalidMessage, match="released"):
            store.put(Message("orders", body))
        with pytest.raises(InvalidMessage, match="released"):
            store.put_batch([Message("orders", BODY), Message("orders", body)])


@pytest.mark.parametrize("given", ["text", None, 7, b"body", {"topic": "orders"}], ids=ascii)
def test_what_is_no_message(store: Store, given: Message) -> None:
    with unchanged(store):
        with pytest.raises(InvalidMessage):
            store.put(given)
        with pytest.raises(InvalidMessage):
            store.put_batch(given)  # type: ignore[arg-type]
        with pytest.raises(InvalidMessage):
            store.put_batch([given])


def test_properties_that_are_too_large_say_so(store: Store) -> None:
    with unchanged(store), pytest.raises(InvalidMessage) as caught:
        store.put(Message("orders", BODY, properties={"a": "x" * 32767}))
    assert caught.value.status == "PROPERTIES_SIZE_EXCEEDED"


def test_a_record_that_fits_no_segment(tmp_path: Path) -> None:
    config = SMALL.with_changes(mapped_file_size_commit_log=1024)
    with open_store(tmp_path, config) as store:
        store.put(Message("orders", BODY)).check()
        settle(store)
        with unchanged(store):
            with pytest.raises(InvalidMessage, match="segment"):
                store.put(Message("orders", b"x" * 1024))
            with pytest.raises(InvalidMessage, match="segment"):
                store.put_batch([Message("orders", b"x" * 400)] * 3)
        assert store.put(Message("orders", BODY)).queue_offset == 1


@pytest.mark.parametrize(
    "batch",
    [
        [],
        (),
        [Message("orders", BODY), Message("orders", BODY, queue_id=1)],
        [Message("orders", BODY), Message("others", BODY)],
        [Message("orders", BODY, delay_level=1)],
        [Message("orders", BODY, deliver_at_ms=1)],
        [Message("orders", BODY, sys_flag=0x4)],
        [Message("orders", BODY, prepared_transaction_offset=1)],
        Message("orders", BODY),
    ],
    ids=["no list", "no tuple", "two queues", "two topics", "delay", "deliver", "prepared", "offset", "one message"],
)
def test_a_batch_that_is_none(store: Store, batch: list[Message]) -> None:
    with unchanged(store), pytest.raises(InvalidMessage):
        store.put_batch(batch)


def test_a_delayed_message_without_the_service_names_the_service(store: Store) -> None:
    with unchanged(store):
        with pytest.raises(ServiceNotEnabled, match="schedule"):
            store.put(Message("orders", BODY, delay_level=3))
        with pytest.raises(ServiceNotEnabled, match="timer"):
            store.put(Message("orders", BODY, deliver_at_ms=1))


def test_a_batch_is_stored_whole_or_not_at_all(tmp_path: Path) -> None:
    fill(tmp_path)
    good = [Message("orders", b"x" * 100) for _ in range(50)]
    with open_store(tmp_path, SMALL) as store:
        with unchanged(store), pytest.raises(InvalidMessage):
            store.put_batch([*good, Message("orders", "text")])  # type: ignore[arg-type]
        assert [receipt.queue_offset for receipt in store.put_batch(good)] == list(range(3, 53))


def test_a_hook_that_answers_nonsense(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL) as store:
        store.put(Message("orders", BODY)).check()
        settle(store)
        store.add_put_hook(lambda message: "yes")  # type: ignore[arg-type, return-value]
        with unchanged(store), pytest.raises(InvalidMessage, match="hook"):
            store.put(Message("orders", BODY))


@pytest.mark.parametrize("name", ["%LMQ%a/b", "%LMQ%" + "x" * 300, "%LMQ%\n"], ids=lambda name: ascii(name)[:12])
def test_a_light_queue_that_cannot_be_a_directory(tmp_path: Path, name: str) -> None:
    config = SMALL.with_changes(enable_lmq=True, enable_multi_dispatch=True)
    with open_store(tmp_path, config) as store:
        store.put(Message("orders", BODY)).check()
        settle(store)
        with unchanged(store), pytest.raises(InvalidMessage, match="light queue"):
            store.put(Message("orders", BODY, properties={"INNER_MULTI_DISPATCH": name}))


# Questions


@pytest.mark.parametrize(
    "ask",
    [
        lambda store: store.get("orders", 0, BEYOND_INT64),
        lambda store: store.get("orders", 0, -BEYOND_INT64 - 1),
        lambda store: store.get("orders", 0, "0"),
        lambda store: store.get("orders", 0, None),
        lambda store: store.get("orders", -1, 0),
        lambda store: store.get("orders", 1 << 31, 0),
        lambda store: store.get("orders", "0", 0),
        lambda store: store.get("orders", 0, 0, max_count=0),
        lambda store: store.get("orders", 0, 0, max_count="all"),
        lambda store: store.get("orders", 0, 0, max_bytes=-1),
        lambda store: store.get("orders", 0, 0, max_bytes=None),
        lambda store: store.message_at(-1),
        lambda store: store.message_at(BEYOND_INT64),
        lambda store: store.message_at("0"),
        lambda store: store.message_at(0.5),
        lambda store: store.message_by_id(""),
        lambda store: store.message_by_id("XYZ"),
        lambda store: store.message_by_id(None),
        lambda store: store.message_by_id("7F00000100002A9FFFFFFFFFFFFFFFFF"),
        lambda store: store.message_by_id("0" * 33),
        lambda store: store.scan(start=-1),
        lambda store: store.scan(end=-1),
        lambda store: store.scan(start=BEYOND_INT64),
        lambda store: store.scan(end="10"),
        lambda store: store.offset_at("orders", -1, 0),
        lambda store: store.offset_at("orders", 0, BEYOND_INT64),
        lambda store: store.offset_at("orders", 0, "now"),
        lambda store: store.offset_at("orders", 0, 0, boundary="middle"),
        lambda store: store.offset_at("orders", 0, 0, boundary=None),
        lambda store: store.query("orders", "o-1", begin="0"),
        lambda store: store.query("orders", "o-1", end=BEYOND_INT64),
        lambda store: store.query("orders", "o-1", max_count=0),
        lambda store: store.min_offset("orders", -1),
        lambda store: store.max_offset("orders", None),
    ],
)
def test_a_number_that_cannot_be_one(store: Store, ask: Callable[[Any], object]) -> None:
    with unchanged(store), pytest.raises(InvalidOffset):
        ask(store)


@pytest.mark.parametrize(
    "ask",
    [
        lambda store: store.get(None, 0, 0),
        lambda store: store.get(["orders"], 0, 0),
        lambda store: store.query(7, "k"),
        lambda store: store.offset_at(b"orders", 0, 0),
        lambda store: store.max_offset({}, 0),
        lambda store: store.scan(topics="orders"),
        lambda store: store.scan(topics=[7]),
        lambda store: store.scan(topics=["a/b"]),
        lambda store: store.scan(topics=7),
        lambda store: store._host.arrival_wait(None),
        lambda store: store._host.arrival_wait("orders"),
        lambda store: store._host.arrival_wait([["orders"]]),
        lambda store: store._host.arrival_wait([b"orders"]),
    ],
)
def test_a_topic_in_a_question_that_cannot_be_one(store: Store, ask: Callable[[Any], object]) -> None:
    with unchanged(store), pytest.raises(InvalidTopic):
        ask(store)


@pytest.mark.parametrize(
    "ask",
    [
        lambda store: store.get("orders", 0, 0, filter="||"),
        lambda store: store.get("orders", 0, 0, filter=7),
        lambda store: store.get("orders", 0, 0, filter=Sql92("region =")),
        lambda store: store.get("orders", 0, 0, filter=Sql92("")),
        lambda store: store.get("orders", 0, 0, filter=Sql92(None)),  # type: ignore[arg-type]
        lambda store: store.query("orders", None),
        lambda store: store.query("orders", "\ud800"),
        lambda store: store.query("orders", "k", index_type=7),
    ],
)
def test_a_filter_that_is_none(store: Store, ask: Callable[[Any], object]) -> None:
    with unchanged(store), pytest.raises(InvalidFilter):
        ask(store)


def test_offsets_outside_of_a_queue_are_answers_not_errors(store: Store) -> None:
    assert store.get("orders", 0, -1).status.name == "OFFSET_TOO_SMALL"
    assert store.get("orders", 0, 3).status.name == "OFFSET_OVERFLOW_ONE"
    assert store.get("orders", 0, BEYOND_INT64 - 1).status.name == "OFFSET_OVERFLOW_BADLY"
    assert store.get("unknown", 0, 0).status.name == "NO_MESSAGE_IN_QUEUE"
    assert store.get("a/b", 0, 0).status.name == "NO_MESSAGE_IN_QUEUE"
    assert store.message_at(BEYOND_INT64 - 1) is None
    assert store.message_at(1) is None
    assert store.query("unknown", "k") == []
    assert (store.min_offset("unknown", 0), store.max_offset("unknown", 0)) == (0, 0)
    assert list(store.scan(start=BEYOND_INT64 - 1)) == []


@pytest.mark.parametrize("path", [None, 123, b"bytes", "", "a\0b", "\ud800"])
def test_a_path_that_is_none(path: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidConfig, match="a store's directory is a path"):
        open_store(path, SMALL)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_a_clock_or_a_hook_that_cannot_be_called(store: Store, tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="a clock returns milliseconds"):
        open_store(tmp_path / "other", SMALL, clock="noon")  # type: ignore[arg-type]
    with pytest.raises(InvalidConfig, match="a hook is a function"):
        store.add_put_hook(5)  # type: ignore[arg-type]
    assert store.put(Message("orders", b"x")).status is PutStatus.PUT_OK


@pytest.mark.parametrize("now", [None, "noon", 1.5, 1 << 63, -(1 << 70)])
def test_a_clock_that_tells_no_milliseconds(tmp_path: Path, now: int) -> None:
    with pytest.raises(InvalidConfig, match="whole milliseconds"):
        open_store(tmp_path / "store", SMALL, clock=lambda: now)
    assert not (tmp_path / "store").exists()


def test_a_bitmap_hook_a_service_and_a_group_that_are_none(store: Store) -> None:
    with unchanged(store):
        with pytest.raises(InvalidConfig, match="function"):
            store.set_bitmap_hook("hook")  # type: ignore[arg-type]
        names: list[Any] = [[], {}, 7, b"schedule"]
        for name in names:
            with pytest.raises(InvalidConfig, match="there is no service"):
                store.service(name)
            with pytest.raises(InvalidConfig, match="a group is text"):
                store.get("orders", 0, 0, group=name)


class Name(str):
    """A text of the caller's own type, as an enumeration of topics is made of."""

    __slots__ = ()


def test_names_of_another_type_are_kept_as_plain_ones(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL) as store:
        store.put(Message(Name("orders"), BODY)).check()
        assert type(store.topics.create(Name("made")).name) is str
        assert type(store.groups.create(Name("billing")).name) is str
        store.subscriptions.register(Name("billing"), Name("orders"), "a > 1")
        store.put_closed([Message(Name("orders"), BODY)], writer_id=Name("writer"))
        with store.consumer(Name("billing"), Name("orders"), timeout_s=0.01) as consumer:
            for message in consumer:
                consumer.acknowledge(message)
        store.topics.delete(Name("orders"))
    with open_store(tmp_path, SMALL) as store:
        assert (store.topics.get("made"), store.groups.get("billing")) != (None, None)
        assert store.put_closed([Message("orders", BODY)], writer_id="writer") is None
        assert list(store.recovery) == []


def test_a_scan_takes_an_iterator_of_topics_and_a_start_after_the_end(store: Store) -> None:
    store.put(Message("orders", b"x")).check()
    assert sum(batch.num_rows for batch in store.scan(topics=(name for name in ["orders"]))) > 0
    assert list(store.scan(start=store.max_physical_offset + 100)) == []


def test_a_listener_that_cannot_be_called(store: Store) -> None:
    with pytest.raises(InvalidConfig):
        store.on_arrival("me")  # type: ignore[arg-type]


# Directories


def test_a_directory_that_another_process_holds(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with other_process(HOLDING, path):
        held = bytes_of(path)
        with pytest.raises(StoreInUse) as caught:
            open_store(path, SMALL)
        assert caught.value.path == str(path / "lock")
        with open_store(path, SMALL, read_only=True) as beside:
            assert [message.body for message in read_all(beside, "orders")] == [b"mine"]
        assert bytes_of(path) == held
    with open_store(path, SMALL) as store:
        assert store.max_offset("orders", 0) == 1


@pytest.mark.parametrize("folder", ["commitlog", "consumequeue", "index", "config", "flintlog"])
@pytest.mark.parametrize("read_only", [True, False])
def test_a_file_in_the_place_of_a_directory(tmp_path: Path, folder: str, read_only: bool) -> None:
    with open_store(tmp_path, SMALL) as store:
        store.put(Message("orders", b"x", keys=["k"])).check()
        store.topics.create("orders")
    shutil.rmtree(tmp_path / folder)
    (tmp_path / folder).write_text("mine")
    before = bytes_of(tmp_path)
    with pytest.raises(DamagedStore, match="has a directory in its place"):
        open_store(tmp_path, SMALL, read_only=read_only)
    assert bytes_of(tmp_path) == before


def test_a_progress_that_cannot_be_called(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig):
        open_store(tmp_path / "store", SMALL, progress=5)  # type: ignore[arg-type]
    assert not (tmp_path / "store").exists()


def test_an_error_about_text_that_cannot_be_printed_can() -> None:
    with pytest.raises(FlintlogError) as caught:
        Sql92("\ud800 = 1")
    str(caught.value).encode()


def test_a_directory_that_this_process_holds(store: Store) -> None:
    with unchanged(store), pytest.raises(StoreInUse):
        open_store(store.path, SMALL)


@pytest.mark.parametrize(
    "changed",
    [
        {"mapped_file_size_commit_log": 128 * 1024},
        {"mapped_file_size_consume_queue": 20 * 101},
        {"max_hash_slot_num": 101},
        {"max_index_num": 401},
    ],
    ids=lambda changed: next(iter(changed)),
)
@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "unclean"])
@pytest.mark.parametrize("has_lock", [True, False], ids=["with lock", "without lock"])
def test_file_sizes_other_than_those_configured(
    tmp_path: Path, changed: dict[str, int], is_clean: bool, has_lock: bool
) -> None:
    fill(tmp_path)
    if not is_clean:
        (tmp_path / "abort").write_text("7")
    if not has_lock:
        (tmp_path / "lock").unlink()
    before = bytes_of(tmp_path)
    for read_only in (False, True):
        with pytest.raises(WrongFileSize) as caught:
            open_store(tmp_path, SMALL.with_changes(**changed), read_only=read_only)
        assert caught.value.path is not None and Path(caught.value.path).exists()
        assert bytes_of(tmp_path) == before
    with open_store(tmp_path, SMALL) as store:
        assert len(read_all(store, "orders")) == 3


@pytest.mark.parametrize("folder", ["consumequeue", "consumequeue_rocksdb"])
@pytest.mark.parametrize("read_only", [False, True])
def test_queues_in_rocksdb_are_refused_by_name(tmp_path: Path, folder: str, read_only: bool) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "CURRENT").write_text("MANIFEST-000004\n")
    before = bytes_of(tmp_path)
    with pytest.raises(DamagedStore, match="RocksDB"):
        open_store(tmp_path, SMALL, read_only=read_only)
    assert bytes_of(tmp_path) == before


def test_a_file_in_place_of_the_directory(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("not a directory")
    for read_only in (False, True):
        with pytest.raises(DamagedStore, match="file"):
            open_store(tmp_path / "store", SMALL, read_only=read_only)
    assert (tmp_path / "store").read_text() == "not a directory"


def test_read_only_opening_of_nothing_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(DamagedStore, match="no such directory"):
        open_store(tmp_path / "nowhere", SMALL, read_only=True)
    assert list(tmp_path.iterdir()) == []


def test_a_foreign_file_in_the_log_is_named(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / "commitlog" / "notes.txt").write_text("mine")
    before = bytes_of(tmp_path)
    with pytest.raises(DamagedStore, match=r"notes\.txt"):
        open_store(tmp_path, SMALL)
    assert bytes_of(tmp_path) == before


@pytest.mark.parametrize("place", ["commitlog", "consumequeue/orders/0", "index"])
def test_a_failed_opening_gives_the_lock_back(tmp_path: Path, place: str) -> None:
    fill(tmp_path)
    spoilt = next(path for path in (tmp_path / place).iterdir())
    content = spoilt.read_bytes()
    spoilt.write_bytes(content + b"x")
    with pytest.raises(WrongFileSize):
        open_store(tmp_path, SMALL)
    spoilt.write_bytes(content)
    LocalMedium().lock(tmp_path / "lock").release()
    with open_store(tmp_path, SMALL) as store:
        assert len(read_all(store, "orders")) == 3


# Options


@pytest.mark.parametrize(
    "options",
    [
        {"flsh": "sync"},
        {"flush": "sometimes"},
        {"mapped_file_size_commit_log": 0},
        {"mapped_file_size_commit_log": "1048576"},
        {"max_message_size": -1},
        {"store_host": "localhost:10911"},
        {"services": {"mail"}},
        {"topic_queue_types": {"t": "FastCQ"}},
        {"put_lock": "none"},
    ],
    ids=str,
)
def test_options_that_do_not_exist_or_cannot_be(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig):
        StoreConfig(**options)


def test_options_of_rocketmq_that_do_not_exist() -> None:
    with pytest.raises(InvalidConfig, match="mappedFileSizeComitLog"):
        StoreConfig.from_rocketmq({"mappedFileSizeComitLog": "1048576"})


@pytest.mark.parametrize("medium", [7, "local", LocalMedium], ids=str)
def test_a_medium_that_is_none(tmp_path: Path, medium: LocalMedium) -> None:
    with pytest.raises(InvalidConfig, match="not a medium"):
        open_store(tmp_path, SMALL, medium=medium)


def test_a_medium_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="tape"):
        open_store(tmp_path / "store", SMALL.with_changes(medium="tape"))
    assert list(tmp_path.iterdir()) == []


def test_a_config_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig):
        open_store(tmp_path / "store", {"flush": "sync"})  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


# Destroying


def test_destroy_removes_the_store_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("keep")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_text("keep too")
    store = open_store(tmp_path, SMALL)
    store.put(Message("orders", BODY, keys=["k"])).check()
    store.destroy()
    assert bytes_of(tmp_path) == {"mine.txt": b"keep", "photos/cat.jpg": b"keep too"}
    assert {path.name for path in tmp_path.iterdir()} == {"mine.txt", "photos"}
    with open_store(tmp_path, SMALL) as again:
        assert again.queues() == []


def test_destroy_spares_foreign_files_beside_the_log(tmp_path: Path) -> None:
    shared = tmp_path / "shared disk"
    config = SMALL.with_changes(store_path_commit_log=str(shared))
    store = open_store(tmp_path / "store", config)
    store.put(Message("orders", BODY)).check()
    (shared / "music").mkdir()
    (shared / "music" / "song.mp3").write_text("keep")
    foreign = "shared disk/" + "\u0663" * 20  # digits, but none that a store writes
    (tmp_path / foreign).write_text("keep as well")
    (shared / "list.txt").write_text("keep too")
    store.destroy()
    kept = {"shared disk/music/song.mp3": b"keep", "shared disk/list.txt": b"keep too", foreign: b"keep as well"}
    assert bytes_of(tmp_path) == kept


def test_destroy_spares_foreign_files_among_queues_and_index(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "batchconsumequeue").symlink_to(elsewhere)
    store = open_store(tmp_path / "store", SMALL)
    store.put(Message("orders", b"x", keys=["k"])).check()
    store.wait_dispatched()
    for name in ("consumequeue/notes.txt", "index/notes.txt"):
        (tmp_path / "store" / name).write_text("mine")
    store.destroy()
    left = {str(path.relative_to(tmp_path / "store")) for path in (tmp_path / "store").rglob("*")}
    assert left == {"consumequeue", "consumequeue/notes.txt", "index", "index/notes.txt"}
    assert elsewhere.is_dir()


def test_destroy_of_an_empty_store(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store", SMALL)
    store.destroy()
    assert bytes_of(tmp_path) == {}


def test_destroy_of_what_is_no_store_any_more(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store", SMALL)
    store.put(Message("orders", BODY)).check()
    store.shutdown()
    (tmp_path / "store").rename(tmp_path / "moved")
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    (tmp_path / "store" / "commitlog" / "00000000000000000000").write_text("someone else's")
    before = bytes_of(tmp_path)
    with pytest.raises(DamagedStore, match="not a store"):
        store.destroy()
    assert bytes_of(tmp_path) == before


def test_destroy_of_a_store_that_another_opened_meanwhile(tmp_path: Path) -> None:
    store = open_store(tmp_path, SMALL)
    store.shutdown()
    with open_store(tmp_path, SMALL) as other:
        with pytest.raises(StoreInUse):
            store.destroy()
        assert other.put(Message("orders", BODY))


def test_destroy_of_a_store_opened_read_only(tmp_path: Path) -> None:
    fill(tmp_path)
    before = bytes_of(tmp_path)
    with open_store(tmp_path, SMALL, read_only=True) as store, pytest.raises(StoreClosed, match="read-only"):
        store.destroy()
    assert bytes_of(tmp_path) == before


# Closed stores


def test_a_put_after_shutdown_is_refused_by_status(tmp_path: Path) -> None:
    store = open_store(tmp_path, SMALL)
    store.shutdown()
    before = bytes_of(tmp_path)
    receipt = store.put(Message("orders", BODY), check=False)
    assert receipt.status is PutStatus.SERVICE_NOT_AVAILABLE and not receipt
    assert receipt == Receipt(PutStatus.SERVICE_NOT_AVAILABLE) and receipt.message_id == ""
    assert store.put_async(Message("orders", BODY), check=False).result(0).status is PutStatus.SERVICE_NOT_AVAILABLE
    receipts = store.put_batch([Message("orders", BODY)] * 2, check=False)
    assert [receipt.status for receipt in receipts] == [PutStatus.SERVICE_NOT_AVAILABLE] * 2
    assert bytes_of(tmp_path) == before


@pytest.mark.parametrize(
    "ask",
    [
        lambda store: store.get("orders", 0, 0),
        lambda store: store.query("orders", "k"),
        lambda store: store.message_at(0),
        lambda store: store.message_by_id("7F00000100002A9F0000000000000000"),
        lambda store: store.offset_at("orders", 0, 0),
        lambda store: store.min_offset("orders", 0),
        lambda store: store.max_offset("orders", 0),
        lambda store: store.queues(),
        lambda store: store.scan(),
        lambda store: store.wait_dispatched(),
    ],
)
@pytest.mark.parametrize("read_only", [False, True])
def test_a_question_after_shutdown(tmp_path: Path, ask: Callable[[Store], object], read_only: bool) -> None:
    fill(tmp_path)
    store = open_store(tmp_path, SMALL, read_only=read_only)
    store.shutdown()
    with pytest.raises(StoreClosed):
        ask(store)


def test_a_scan_that_continues_after_shutdown(tmp_path: Path) -> None:
    fill(tmp_path, count=2000)
    store = open_store(tmp_path, SMALL)
    batches = store.scan()
    first = next(batches)
    store.shutdown()
    with pytest.raises(StoreClosed):
        list(batches)
    assert first.num_rows > 0 and first.column("body")[0].as_py() == b"order 0"


def test_a_put_into_a_store_opened_read_only(tmp_path: Path) -> None:
    fill(tmp_path)
    before = bytes_of(tmp_path)
    with open_store(tmp_path, SMALL, read_only=True) as store:
        with pytest.raises(StoreClosed, match="read-only"):
            store.put(Message("orders", BODY))
        with pytest.raises(StoreClosed, match="read-only"):
            store.put_async(Message("orders", BODY))
        with pytest.raises(StoreClosed, match="read-only"):
            store.put_batch([Message("orders", BODY)])
    assert bytes_of(tmp_path) == before


def test_every_error_has_one_root() -> None:
    for kind in (InvalidMessage, InvalidOffset, InvalidFilter, InvalidConfig, DamagedStore, StoreInUse, StoreClosed):
        assert issubclass(kind, FlintlogError)


def test_what_can_be_a_topic() -> None:
    assert all(map(can_be_topic, ("a", "%RETRY%group", "é" * 127, "x" * 255, "a.b", "...")))
