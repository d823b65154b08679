from __future__ import annotations

from array import array
from types import ModuleType
from typing import Any

import pytest

from flintlog.errors import InvalidMessage, InvalidTopic
from flintlog.format.record import MAGIC_V1, MAGIC_V2, has_good_crc_property, parse_record
from flintlog.store.model.message import Message

Duck = Any  # of either kernel, or wrong on purpose

# The first vector of commitlog.md, written by RocketMQ 5.5.0.
VECTOR = bytes.fromhex(
    "0000008bdaa320a73610a686000000010000000700000000000000000000000000000000000000000000018bcfe5687b"
    "0a010203000010e1000001a1e17d001ac0a8000900002a9f0000000000000000000000000000000568656c6c6f"
    "06546f706963410025"
    "4b455953016b31206b3202554e49515f4b455901414331313030025441475301546167410 2".replace(" ", "")
)


@pytest.fixture
def encoder(kernel: ModuleType) -> Duck:
    return kernel.Encoder(Message, store_host="192.168.0.9:10911", max_message_size=1000)


@pytest.fixture
def tail(kernel: ModuleType) -> Duck:
    return kernel.Tail(bytearray(4096), 0)


def greeting(**changes: Duck) -> Message:
    fields: dict[str, Any] = {
        "tags": "TagA",
        "keys": ["k1", "k2"],
        "queue_id": 1,
        "flag": 7,
        "born_timestamp": 1700000000123,
        "born_host": "10.1.2.3:4321",
        "properties": {"UNIQ_KEY": "AC1100"},
    }
    return Message("TopicA", b"hello", **(fields | changes))


def test_a_record_is_javas_record(encoder: Duck, tail: Duck) -> None:
    for _ in range(3):
        tail.position = 0
        assert encoder.append(tail, greeting(), 0, 0x1A1E17D001A) == len(VECTOR)
        assert tail.buffer[: tail.position] == VECTOR


def test_tags_and_keys_may_be_given_as_properties(encoder: Duck, tail: Duck) -> None:
    properties = {"TAGS": "TagA", "KEYS": "k1 k2", "UNIQ_KEY": "AC1100"}
    encoder.append(tail, greeting(tags=None, keys=(), properties=properties), 0, 0x1A1E17D001A)
    assert tail.buffer[: tail.position] == VECTOR


def test_given_property_bytes_are_used_as_they_are(encoder: Duck, tail: Duck) -> None:
    encoder.append(tail, greeting(), 0, 0, b"any\x01thing")
    assert parse_record(tail.buffer).properties == b"any\x01thing"


def test_a_record_leaves_room_for_a_blank(kernel: ModuleType, encoder: Duck) -> None:
    size = len(VECTOR)
    tight = kernel.Tail(bytearray(b"\xee" * (size + 7)), 0)
    assert encoder.append(tight, greeting(), 0, 0) == 0
    assert encoder.append_batch(tight, [greeting()], 0, 0) is None
    assert (tight.position, bytes(tight.buffer)) == (0, b"\xee" * (size + 7))
    fitting = kernel.Tail(bytearray(size + 8), 0)
    assert encoder.append(fitting, greeting(), 0, 0) == size
    assert fitting.position == size


def test_records_lie_where_they_say(kernel: ModuleType, encoder: Duck) -> None:
    tail = kernel.Tail(bytearray(4096), 1 << 40, 100)
    encoder.append(tail, greeting(), 17, 0)
    record = parse_record(tail.buffer, 100)
    assert (record.physical_offset, record.queue_offset) == ((1 << 40) + 100, 17)


@pytest.mark.parametrize(
    ("topic", "magic"), [("t" * 127, MAGIC_V1), ("t" * 128, MAGIC_V2), ("é" * 64, MAGIC_V2), ("é" * 127, MAGIC_V2)]
)
def test_the_version_follows_the_bytes_of_the_topic(encoder: Duck, tail: Duck, topic: str, magic: int) -> None:
    encoder.append(tail, Message(topic, b""), 0, 0)
    record = parse_record(tail.buffer)
    assert (record.topic, record.magic) == (topic, magic)


@pytest.mark.parametrize(
    "topic", ["", "a/b", "a\\b", ".", "..", "a\n", "\x7f", "a\x85", "é" * 128, "\ud800", None, b"t"]
)
def test_a_topic_that_cannot_be_a_directory_is_refused(encoder: Duck, tail: Duck, topic: Duck) -> None:
    with pytest.raises(InvalidTopic):
        encoder.append(tail, Message(topic, b""), 0, 0)
    with pytest.raises(InvalidTopic):
        encoder.append_batch(tail, [Message(topic, b"")], 0, 0)
    assert bytes(tail.buffer) == bytes(4096)


def test_without_automatic_versions_a_long_topic_is_refused(kernel: ModuleType, tail: Duck) -> None:
    encoder = kernel.Encoder(Message, store_host="127.0.0.1:1", max_message_size=10, auto_version=False)
    assert encoder.append(tail, Message("t" * 127, b""), 0, 0)
    with pytest.raises(InvalidTopic):
        encoder.append(tail, Message("t" * 128, b""), 0, 0)


@pytest.mark.parametrize(
    "changes",
    [
        {"tags": 1},
        {"tags": "a\x01"},
        {"tags": "\udfff"},
        {"keys": "k1"},
        {"keys": [1]},
        {"keys": 5},
        {"keys": ["a\x02"]},
        {"keys": ["k1", "a b"]},
        {"queue_id": -1},
        {"queue_id": 1 << 31},
        {"queue_id": 1.0},
        {"flag": 1 << 31},
        {"sys_flag": -(1 << 31) - 1},
        {"born_timestamp": 1 << 63},
        {"reconsume_times": None},
        {"prepared_transaction_offset": "1"},
        {"born_host": "nowhere"},
        {"store_host": 3},
        {"properties": {"": "v"}},
        {"properties": {"n": None}},
        {"properties": {1: "v"}},
        {"properties": {"a\x01": "v"}},
        {"properties": {"a": "\x02"}},
        {"properties": {"TAGS": "twice"}},
        {"properties": {"KEYS": "twice"}},
        {"properties": [("a", "b")]},
        {"body": "text"},
        {"body": None},
        {"body": bytes(1001)},
    ],
)
def test_an_invalid_message_is_refused_and_nothing_is_written(
    encoder: Duck, tail: Duck, changes: dict[str, Any]
) -> None:
    message = greeting()
    for name, value in changes.items():
        setattr(message, name, value)
    with pytest.raises(InvalidMessage) as refused:
        encoder.append(tail, message, 0, 0)
    assert refused.value.status == "MESSAGE_ILLEGAL"
    with pytest.raises(InvalidMessage):
        encoder.append_batch(tail, [greeting(), message], 0, 0)
    assert (tail.position, bytes(tail.buffer)) == (0, bytes(4096))


@pytest.mark.parametrize("separator", ["\x01", "\x02"])
def test_a_separator_is_found_wherever_it_stands(encoder: Duck, tail: Duck, separator: str) -> None:
    end = encoder.append(tail, greeting(), 0, 0)  # its host is known from now on: the native kernel looks itself
    for size in range(1, 28):
        for place in range(size):
            text = "~" * place + separator + "\x03" * (size - place - 1)
            for wrong in (greeting(tags=text), greeting(keys=[text]), greeting(properties={"name": text})):
                with pytest.raises(InvalidMessage):
                    encoder.append(tail, wrong, 0, 0)
    assert tail.position == end


def test_a_byte_that_only_looks_like_a_separator_is_stored(encoder: Duck, tail: Duck) -> None:
    text = "\x00\x03\x80\x81\x82\x83\x00\u0101\u0102"
    start = encoder.append(tail, greeting(), 0, 0)
    assert encoder.append(tail, greeting(tags=text, keys=[], properties=None), 0, 0)
    assert parse_record(tail.buffer[start:]).properties == b"TAGS\x01" + text.encode() + b"\x02"


def test_something_else_than_a_message_is_refused(encoder: Duck, tail: Duck) -> None:
    with pytest.raises(InvalidMessage, match="not a message"):
        encoder.append(tail, object(), 0, 0)


@pytest.mark.parametrize(("append_crc", "most"), [(False, 32767), (True, 32747)])
def test_properties_have_a_limit(kernel: ModuleType, append_crc: bool, most: int) -> None:
    encoder = kernel.Encoder(Message, store_host="127.0.0.1:1", max_message_size=10, append_crc=append_crc)
    tail = kernel.Tail(bytearray(1 << 16), 0)
    assert encoder.append(tail, Message("t", b"", properties={"n": "v" * (most - 3)}), 0, 0)
    with pytest.raises(InvalidMessage) as refused:
        encoder.append(tail, Message("t", b"", properties={"n": "v" * (most - 2)}), 0, 0)
    assert refused.value.status == "PROPERTIES_SIZE_EXCEEDED"


def test_other_bodies_than_bytes(encoder: Duck, tail: Duck) -> None:
    data = bytes(range(200))
    bodies = [bytearray(data), memoryview(data), memoryview(data)[::2], array("H", [1, 2])]
    for body in bodies:
        start = tail.position
        assert encoder.append(tail, Message("t", body), 0, 0)  # type: ignore[arg-type]
        record = parse_record(tail.buffer, start)
        assert record.body == bytes(body)
        assert record.has_good_body


def test_hosts_set_their_bits_and_only_theirs(encoder: Duck, tail: Duck) -> None:
    for _ in range(2):
        tail.position = 0
        encoder.append(tail, greeting(born_host="[::1]:5", sys_flag=0x21), 0, 0)
        record = parse_record(tail.buffer)
        assert (record.sys_flag, len(record.born_host), len(record.store_host)) == (0x11, 20, 8)


def test_a_subclass_may_compute_its_fields(encoder: Duck, tail: Duck) -> None:
    class Shouting(Message):
        @property
        def loud(self) -> str:
            return self.topic.upper()

    assert encoder.append(tail, Shouting("t", b"x", tags="a"), 0, 0)
    assert parse_record(tail.buffer).topic == "t"


def test_a_record_closed_by_its_crc(kernel: ModuleType, tail: Duck) -> None:
    encoder = kernel.Encoder(Message, store_host="192.168.0.9:10911", max_message_size=1000, append_crc=True)
    size = encoder.append(tail, greeting(), 0, 0x1A1E17D648D)
    assert size == 159
    assert has_good_crc_property(tail.buffer[:size])
    assert tail.buffer[size - 20 : size] == bytes.fromhex("5f5f435243333223 01 36343536383937363631 02")


def test_a_crc_property_of_the_senders_own_is_dropped(kernel: ModuleType, tail: Duck) -> None:
    encoder = kernel.Encoder(Message, store_host="192.168.0.9:10911", max_message_size=1000, append_crc=True)
    size = encoder.append(tail, Message("t", b"", properties={"__CRC32#": "1", "a": "b"}), 0, 0)
    assert parse_record(tail.buffer).properties.count(b"__CRC32#") == 1
    assert has_good_crc_property(tail.buffer[:size])


def test_a_batch_is_its_records_one_after_another(kernel: ModuleType, encoder: Duck) -> None:
    messages = [Message("t", b"a" * size, tags="x", queue_id=2) for size in range(5)]
    messages[2].body = bytearray(b"other")
    together, alone = kernel.Tail(bytearray(4096), 512, 64), kernel.Tail(bytearray(4096), 512, 64)
    offsets = encoder.append_batch(together, messages, 40, 9)
    starts = []
    for index, message in enumerate(messages):
        starts.append(alone.end)
        encoder.append(alone, message, 40 + index, 9)
    assert list(offsets) == [*starts, alone.end]
    assert (together.position, together.buffer) == (alone.position, alone.buffer)


@pytest.mark.parametrize(
    "changes", [{"topic": "u"}, {"queue_id": 1}, {"sys_flag": 4}, {"prepared_transaction_offset": 1}, {"tags": 5}]
)
@pytest.mark.parametrize("place", [0, 1])
def test_a_batch_with_one_wrong_message_is_refused_as_a_whole(
    encoder: Duck, tail: Duck, changes: dict[str, Any], place: int
) -> None:
    messages = [Message("t", b"a"), Message("t", b"b")]
    for name, value in changes.items():
        setattr(messages[place], name, value)
    with pytest.raises(InvalidMessage):
        encoder.append_batch(tail, messages, 0, 0)
    assert (tail.position, bytes(tail.buffer)) == (0, bytes(4096))


def test_an_empty_batch_is_refused(encoder: Duck, tail: Duck) -> None:
    with pytest.raises(InvalidMessage):
        encoder.append_batch(tail, [], 0, 0)


def test_many_properties_are_in_the_order_of_a_grown_map(encoder: Duck, tail: Duck) -> None:
    for count in (8, 9, 12, 13, 24, 25, 60, 70):
        names = {f"name{index}": "v" for index in range(count)}
        tail.position = 0
        encoder.append(tail, Message("t", b"", properties=names), 0, 0)
        written = [
            pair.partition(b"\x01")[0].decode() for pair in parse_record(tail.buffer).properties.split(b"\x02")[:-1]
        ]
        assert sorted(written) == sorted(names)
        capacity = 16
        while count > capacity * 3 // 4:
            capacity *= 2
        spread = [(h := kernel_hash(name) & 0xFFFFFFFF) ^ h >> 16 for name in written]
        buckets = [value & (capacity - 1) for value in spread]
        assert buckets == sorted(buckets)


def kernel_hash(text: str) -> int:
    value = 0
    for char in text:
        value = (31 * value + ord(char)) & 0xFFFFFFFF
    return value
