"""Records: the published vectors, the edges of every field, and bytes that are no record."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintlog.errors import FormatError
from flintlog.format.message_id import parse_host
from flintlog.format.properties import encode_properties
from flintlog.format.record import (
    MAGIC_V1,
    MAGIC_V2,
    Record,
    body_crc,
    encode_blank,
    encode_crc_property,
    encode_record,
    has_crc_property,
    has_good_crc_property,
    magic_of_topic,
    parse_blank,
    parse_record,
    tags_code,
    with_crc_property,
    with_host_bits,
)

_CRC_RECORDS = Path(__file__).parent / "vectors" / "crc_records.hex"

IPV4_RECORD = bytes.fromhex(
    "0000008b daa320a7 3610a686 00000001 00000007 0000000000000000 0000000000000000 00000000 0000018bcfe5687b"
    "0a010203000010e1 000001a1e17d001a c0a8000900002a9f 00000000 0000000000000000 00000005 68656c6c6f"
    "06 546f70696341 0025 4b455953016b31206b3202 554e49515f4b455901414331313030 02 544147530154616741 02"
)
IPV6_RECORD = bytes.fromhex(
    "0000007cdaa320a7431726fb0000000100000007000000000000000100000000000001a0000000300000018bcfe5687b"
    "20010db8000000000000000000000005000010e1000001a1e17d00bdfe80000000000000000000000000000100002a9f"
    "0000000000000000000000000000000373697806546f706963410000"
)
FIRST = Record(
    topic_bytes=b"TopicA",
    body=b"hello",
    queue_id=1,
    flag=7,
    born_timestamp=1700000000123,
    born_host=parse_host("10.1.2.3:4321"),
    store_timestamp=0x1A1E17D001A,
    store_host=parse_host("192.168.0.9:10911"),
    body_crc=body_crc(b"hello"),
    properties=encode_properties({"KEYS": "k1 k2", "UNIQ_KEY": "AC1100", "TAGS": "TagA"}),
)

_I32 = st.integers(-(2**31), 2**31 - 1)
_I64 = st.integers(-(2**63), 2**63 - 1)
_HOSTS = st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20)
RECORDS = st.builds(
    Record,
    topic_bytes=st.binary(max_size=200),
    body=st.binary(max_size=300),
    queue_id=_I32,
    queue_offset=_I64,
    physical_offset=_I64,
    flag=_I32,
    sys_flag=_I32,
    born_timestamp=_I64,
    born_host=_HOSTS,
    store_timestamp=_I64,
    store_host=_HOSTS,
    reconsume_times=_I32,
    prepared_transaction_offset=_I64,
    body_crc=_I32,
    properties=st.binary(max_size=100),
).map(lambda record: with_host_bits(replace(record, magic=magic_of_topic(record.topic_bytes))))


def test_the_ipv4_vector() -> None:
    assert encode_record(FIRST) == IPV4_RECORD
    assert parse_record(IPV4_RECORD) == FIRST
    assert FIRST.size == 139
    assert FIRST.property_map() == {"KEYS": "k1 k2", "UNIQ_KEY": "AC1100", "TAGS": "TagA"}


def test_the_ipv6_vector() -> None:
    record = with_host_bits(
        replace(
            FIRST,
            body=b"six",
            body_crc=body_crc(b"six"),
            queue_offset=1,
            physical_offset=416,
            born_host=parse_host("[2001:db8::5]:4321"),
            store_host=parse_host("[fe80::1]:10911"),
            store_timestamp=0x1A1E17D00BD,
            properties=b"",
        )
    )
    assert record.sys_flag == 0x30
    assert encode_record(record) == IPV6_RECORD
    assert parse_record(IPV6_RECORD) == record


def test_the_crc_property_vector() -> None:
    sealed = with_crc_property(replace(FIRST, store_timestamp=0x1A1E17D648D))
    encoded = encode_record(sealed)
    assert encoded.startswith(bytes.fromhex("0000009f"))
    assert encoded.endswith(bytes.fromhex("5f5f435243333223 01 36343536383937363631 02"))
    assert has_good_crc_property(encoded)


def test_records_with_crc_property_that_java_wrote() -> None:
    for line in _CRC_RECORDS.read_text().split():
        encoded = bytes.fromhex(line)
        record = parse_record(encoded)
        assert has_good_crc_property(encoded)
        assert with_crc_property(replace(record, properties=record.properties[:-20])) == record
        assert with_crc_property(record) == record
        spoiled = bytes([*encoded[:50], encoded[50] ^ 1, *encoded[51:]])
        assert not has_good_crc_property(spoiled)


def test_a_crc_property_gets_the_separator_that_a_single_message_lacks() -> None:
    record = replace(FIRST, properties=b"a\x01b")
    assert with_crc_property(record).properties.startswith(b"a\x01b\x02__CRC32#\x01")
    assert with_crc_property(record, from_batch=True).properties.startswith(b"a\x01b__CRC32#\x01")
    assert with_crc_property(replace(FIRST, properties=b"")).properties.startswith(b"__CRC32#\x01")


def test_crc_digits_stand_least_significant_first() -> None:
    assert encode_crc_property(42) == b"__CRC32#\x012400000000\x02"
    with pytest.raises(FormatError):
        encode_crc_property(0x8000_0000)


def test_a_record_without_room_for_a_crc_property_has_none() -> None:
    assert not has_good_crc_property(b"__CRC32#")
    assert not has_crc_property(b"__CRC32#")


@pytest.mark.parametrize("left", range(-4, 20))
def test_a_torn_crc_property_is_one(left: int) -> None:
    """A power loss takes sectors: what was not written is zeros, from the middle of the property or before it on."""
    encoded = encode_record(with_crc_property(FIRST))
    torn = encoded[: len(encoded) - 20 + left].ljust(len(encoded), b"\0")
    assert has_crc_property(torn) and not has_good_crc_property(torn)


def test_a_record_that_was_written_without_a_crc_property_has_none() -> None:
    for properties in (b"", b"a\x01b", b"a\x01b\x02", b"a\x01\0\0\0"):
        assert not has_crc_property(encode_record(replace(FIRST, body=bytes(100), properties=properties)))


@pytest.mark.parametrize(("topic_size", "magic"), [(127, MAGIC_V1), (128, MAGIC_V2), (32767, MAGIC_V2)])
def test_topic_lengths_choose_the_version(topic_size: int, magic: int) -> None:
    topic = b"t" * topic_size
    assert magic_of_topic(topic) == magic
    record = replace(FIRST, topic_bytes=topic, magic=magic)
    assert parse_record(encode_record(record)) == record


@pytest.mark.parametrize(
    "changed",
    [
        replace(FIRST, topic_bytes=b"t" * 128),
        replace(FIRST, topic_bytes=b"t" * 32768, magic=MAGIC_V2),
        replace(FIRST, properties=b"p" * 32768),
        replace(FIRST, magic=0),
        replace(FIRST, born_host=b"1234"),
        replace(FIRST, store_host=bytes(20)),
        replace(FIRST, sys_flag=0x10),
        replace(FIRST, queue_id=2**31),
        replace(FIRST, sys_flag=-(2**40)),
        replace(FIRST, store_timestamp=2**63),
        replace(FIRST, prepared_transaction_offset=-(2**63) - 1),
    ],
)
def test_values_that_no_field_can_hold_are_refused(changed: Record) -> None:
    with pytest.raises(FormatError):
        encode_record(changed)


@pytest.mark.parametrize(
    ("position", "value", "what"),
    [
        (0, b"\x00\x00\x00\x8c", "room for 139"),
        (0, b"\x00\x00\x00\x8a", "properties of 37"),
        (0, b"\xff\xff\xff\xff", "room for 139"),
        (0, b"\x00\x00\x00\x5a", "room for 139"),
        (4, b"\x00", "magic"),
        (4, bytes.fromhex("cbd43194"), "a blank"),
        (84, b"\xff\xff\xff\xff", "body of -1"),
        (84, b"\x7f\xff\xff\xff", "body of 2147483647"),
        (93, b"\x80", "topic of -128"),
        (93, b"\x7f", "topic of 127"),
        (100, b"\xff\xff", "properties of -1"),
        (100, b"\x00\x24", "parts take 138"),
        (36, b"\x00\x00\x00\x10", "record"),
    ],
)
def test_a_wrong_length_or_magic_is_named(position: int, value: bytes, what: str) -> None:
    spoiled = IPV4_RECORD[:position] + value + IPV4_RECORD[position + len(value) :]
    with pytest.raises(FormatError, match=what):
        parse_record(spoiled)


def test_properties_may_fill_their_field() -> None:
    record = replace(FIRST, properties=b"p" * 32767)
    assert parse_record(encode_record(record)) == record


def test_nothing_is_read_past_the_limit() -> None:
    padded = b"xx" + IPV4_RECORD + b"yy"
    assert parse_record(padded, 2) == FIRST
    assert parse_record(memoryview(padded), 2, 141) == FIRST
    for position, limit in ((2, 140), (2, 9), (2, 2), (-1, 141), (2, 200), (9, 3)):
        with pytest.raises(FormatError):
            parse_record(padded, position, limit)


def test_a_parsed_record_does_not_hold_on_to_its_buffer() -> None:
    buffer = bytearray(IPV4_RECORD)
    record = parse_record(memoryview(buffer))
    buffer[:] = bytes(len(buffer))
    assert record == FIRST


def test_malformed_text_is_shown_as_java_shows_it_and_kept_as_it_is() -> None:
    record = replace(FIRST, topic_bytes=b"a\xff\xed\xa0\x80", properties=b"TAGS\x01\xc3\x02")
    parsed = parse_record(encode_record(record))
    assert parsed == record
    assert parsed.topic == "a\ufffd\ufffd"
    assert parsed.property_map() == {"TAGS": "\ufffd"}
    assert tags_code(parsed) == 0xFFFD


def test_a_body_is_good_if_its_crc_says_so() -> None:
    assert FIRST.has_good_body
    assert not replace(FIRST, body=b"hellp").has_good_body
    assert replace(FIRST, body=b"", body_crc=17).has_good_body


def test_a_blank_says_how_much_remains() -> None:
    assert encode_blank(252).hex() == "000000fccbd43194"
    assert parse_blank(b"..." + encode_blank(252), 3) == 252
    assert parse_blank(IPV4_RECORD) is None
    assert parse_blank(encode_blank(8)[:7]) is None
    assert parse_blank(b"", -1) is None
    for remaining in (7, 2**31, -1):
        with pytest.raises(FormatError):
            encode_blank(remaining)


_DELAYED = replace(FIRST, topic_bytes=b"SCHEDULE_TOPIC_XXXX", store_timestamp=1000)


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"DELAY": "2", "TAGS": "TagA"}, 1000 + 5000),
        ({"DELAY": "99", "TAGS": "TagA"}, 1000 + 5000),
        ({"DELAY": "+1"}, 1000 + 1000),
        ({"DELAY": "0", "TAGS": "TagA"}, 2598919),
        ({"DELAY": "-3", "TAGS": "TagA"}, 2598919),
        ({"TAGS": "TagD||x"}, 115197102),
        ({}, 0),
    ],
)
def test_tags_code_of_a_delayed_message(properties: dict[str, str], expected: int) -> None:
    record = replace(_DELAYED, properties=encode_properties(properties))
    assert tags_code(record, (1000, 5000)) == expected


def test_tags_code_elsewhere_is_the_hash_of_the_tags() -> None:
    record = replace(FIRST, properties=encode_properties({"DELAY": "2", "TAGS": "TagA"}))
    assert tags_code(record, (1000, 5000)) == 2598919
    assert tags_code(replace(record, topic_bytes=_DELAYED.topic_bytes)) == 2598919


@pytest.mark.parametrize("level", ["x", "1_0", " 1", "2147483648", "\U0001d7cf", "9" * 5000])
def test_a_delay_level_that_is_no_number_is_refused(level: str) -> None:
    with pytest.raises(FormatError):
        tags_code(replace(_DELAYED, properties=encode_properties({"DELAY": level})), (1000,))


@given(RECORDS)
def test_any_record_comes_back(record: Record) -> None:
    encoded = encode_record(record)
    assert len(encoded) == record.size
    assert parse_record(encoded) == record


@given(RECORDS)
def test_a_crc_property_of_any_record_holds(record: Record) -> None:
    assert has_good_crc_property(encode_record(with_crc_property(record)))


@given(RECORDS, st.data())
def test_a_spoiled_record_is_refused_or_comes_back_as_it_is(record: Record, data: st.DataObject) -> None:
    spoiled = bytearray(encode_record(record))
    for _ in range(data.draw(st.integers(1, 3))):
        spoiled[data.draw(st.integers(0, len(spoiled) - 1))] = data.draw(st.integers(0, 255))
    try:
        parsed = parse_record(spoiled)
        tags_code(parsed, (1000,))
    except FormatError:
        return
    assert encode_record(parsed) == spoiled[: parsed.size]


@given(st.binary(max_size=300), st.integers(-5, 305))
def test_random_bytes_are_refused(data: bytes, position: int) -> None:
    with pytest.raises(FormatError):
        parse_record(data, position)
    parse_blank(data, position)
