"""The fixed-size formats and the names: vectors, edges, round trips, and bytes that are something else."""

from __future__ import annotations

import string
from collections.abc import Callable
from contextlib import suppress
from dataclasses import astuple
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintlog.errors import FormatError
from flintlog.format.batch_queue_entry import (
    BatchQueueEntry,
    encode_batch_queue_entry,
    parse_batch_queue_entries,
    parse_batch_queue_entry,
)
from flintlog.format.checkpoint import CHECKPOINT_SIZE, Checkpoint, encode_checkpoint, parse_checkpoint
from flintlog.format.client_batch import ClientMessage, encode_client_batch, encode_client_message, parse_client_batch
from flintlog.format.host import format_host, parse_host
from flintlog.format.message_id import (
    UniqueKey,
    encode_message_id,
    encode_unique_key,
    parse_message_id,
    parse_unique_key,
)
from flintlog.format.names import (
    encode_abort,
    index_file_name,
    parse_abort,
    parse_index_file_name,
    parse_segment_name,
    segment_name,
    segment_start,
)
from flintlog.format.queue_entry import (
    PREFILL_ENTRY,
    QueueEntry,
    encode_queue_entry,
    parse_queue_entries,
    parse_queue_entry,
)
from flintlog.format.queue_extension import (
    END_MARK,
    ExtensionUnit,
    encode_extension_address,
    encode_extension_unit,
    is_extension_address,
    parse_extension_address,
    parse_extension_unit,
    parse_extension_units,
)
from flintlog.format.sys_flag import (
    CompressionType,
    TransactionType,
    compression_type,
    host_bits,
    is_compressed,
    takes_queue_offset,
    transaction_type,
    with_compression,
    with_transaction_type,
)

_I16 = st.integers(-(2**15), 2**15 - 1)
_I32 = st.integers(-(2**31), 2**31 - 1)
_I64 = st.integers(-(2**63), 2**63 - 1)
_BATCH_ENTRIES = st.builds(BatchQueueEntry, _I64, _I32, _I64, _I64, _I64, _I16, _I32, _I32)
_UNITS = st.builds(ExtensionUnit, _I64, _I64, st.binary(max_size=40))
_CLIENT_MESSAGES = st.builds(ClientMessage, st.binary(max_size=40), st.binary(max_size=40), _I32, _I32, _I32)


# Queue entries


def test_the_queue_entry_vector() -> None:
    entry = QueueEntry(416, 124, -2)
    assert encode_queue_entry(entry).hex() == "00000000000001a00000007cfffffffffffffffe"
    assert parse_queue_entry(b"." + encode_queue_entry(entry), 1) == entry


def test_zeros_are_no_entry_and_a_prefill_is_one() -> None:
    assert not parse_queue_entry(bytes(20)).is_valid
    assert not QueueEntry(-1, 5, 0).is_valid
    assert QueueEntry(0, 1, 0).is_valid
    assert PREFILL_ENTRY.is_valid
    assert encode_queue_entry(PREFILL_ENTRY).hex() == "00000000000000007fffffff0000000000000000"
    assert PREFILL_ENTRY.is_prefill
    assert not QueueEntry(0, 1, 0).is_prefill


@given(st.builds(QueueEntry, _I64, _I32, _I64))
def test_any_queue_entry_comes_back(entry: QueueEntry) -> None:
    assert parse_queue_entry(encode_queue_entry(entry)) == entry
    assert list(parse_queue_entries(encode_queue_entry(entry) * 3)) == [entry] * 3


@pytest.mark.parametrize("entry", [QueueEntry(2**63, 0, 0), QueueEntry(0, 2**31, 0), QueueEntry(0, 0, -(2**63) - 1)])
def test_a_queue_entry_that_does_not_fit_is_refused(entry: QueueEntry) -> None:
    with pytest.raises(FormatError):
        encode_queue_entry(entry)


def test_the_batch_queue_entry_vector() -> None:
    entry = BatchQueueEntry(1, 2, 3, 4, 5, 6)
    assert encode_batch_queue_entry(entry).hex() == (
        "0000000000000001000000020000000000000003000000000000000400000000000000050006ffffffff00000000"
    )
    assert entry.end_offset == 11


@pytest.mark.parametrize("spoiled", [(-1, 2, 5, 6), (1, 0, 5, 6), (1, 2, -1, 6), (1, 2, 5, 0)])
def test_a_batch_entry_needs_an_offset_a_size_a_base_and_a_count(spoiled: tuple[int, int, int, int]) -> None:
    offset, size, base, count = spoiled
    assert BatchQueueEntry(1, 2, 3, 4, 5, 6).is_valid
    assert not BatchQueueEntry(offset, size, 3, 4, base, count).is_valid


@given(_BATCH_ENTRIES)
def test_any_batch_queue_entry_comes_back(entry: BatchQueueEntry) -> None:
    assert parse_batch_queue_entry(encode_batch_queue_entry(entry)) == entry
    assert list(parse_batch_queue_entries(encode_batch_queue_entry(entry) * 2)) == [entry] * 2


def test_a_batch_of_too_many_is_refused() -> None:
    with pytest.raises(FormatError):
        encode_batch_queue_entry(BatchQueueEntry(1, 2, 3, 4, 5, 32768))


# Queue extension


def test_the_extension_vector() -> None:
    data = encode_extension_unit(ExtensionUnit(2598919, 1700000000000, b"\x0f"))
    assert data.hex() == "0015000000000027a8070000018bcfe5680000010f"
    assert encode_extension_unit(ExtensionUnit(1, 2)).hex() == "0014000000000000000100000000000000020000"


def test_addresses_cannot_be_mistaken_for_hashes() -> None:
    assert encode_extension_address(40) == -(2**63) + 40
    assert parse_extension_address(-(2**63) + 40) == 40
    assert is_extension_address(-(2**31) - 1)
    assert not is_extension_address(-(2**31))
    assert encode_extension_address(9223372034707292159) == -(2**31) - 1
    for offset in (-1, 9223372034707292160):
        with pytest.raises(FormatError):
            encode_extension_address(offset)
    for address in (-(2**31), -(2**63) - 1):
        with pytest.raises(FormatError):
            parse_extension_address(address)


@given(st.lists(_UNITS, max_size=5), st.sampled_from([b"", b"\x00", bytes(4), END_MARK + b"\x07\x07"]))
def test_units_are_read_up_to_the_end_of_the_data(units: list[ExtensionUnit], rest: bytes) -> None:
    found = list(parse_extension_units(b"".join(map(encode_extension_unit, units)) + rest))
    assert [unit for _, unit in found] == units
    assert [position for position, _ in found] == [sum(unit.size for unit in units[:n]) for n in range(len(units))]


def test_a_unit_whose_sizes_disagree_is_refused() -> None:
    good = encode_extension_unit(ExtensionUnit(1, 2, b"bits"))
    for spoiled in (good[:-1], b"\x00\x17" + good[2:], b"\x00\x13" + good[2:], good[:18] + b"\xff\xff" + good[20:]):
        with pytest.raises(FormatError):
            parse_extension_unit(spoiled)
    for unit in (ExtensionUnit(1, 2, bytes(32748)), ExtensionUnit(2**63, 0), ExtensionUnit(0, -(2**63) - 1)):
        with pytest.raises(FormatError):
            encode_extension_unit(unit)
    assert len(encode_extension_unit(ExtensionUnit(1, 2, bytes(32747)))) == 32767


# Checkpoint


def test_a_checkpoint_has_six_numbers_and_zeros() -> None:
    data = encode_checkpoint(Checkpoint(1, 2, 3, 4, 5, 6))
    assert len(data) == CHECKPOINT_SIZE
    assert data[:48].hex() == "".join(f"{number:016x}" for number in range(1, 7))
    assert not any(data[48:])


def test_recovery_starts_three_seconds_before_the_earlier_time() -> None:
    assert Checkpoint(10_000, 8_000, 20_000).min_timestamp == 5_000
    assert Checkpoint(10_000, 8_000, 20_000).min_timestamp_index == 5_000
    assert Checkpoint(10_000, 8_000, 1_000).min_timestamp_index == 1_000
    assert Checkpoint(2_999, 8_000).min_timestamp == 0


@given(st.tuples(_I64, _I64, _I64, _I64, _I64, _I64))
def test_any_checkpoint_comes_back(fields: tuple[int, int, int, int, int, int]) -> None:
    assert astuple(parse_checkpoint(encode_checkpoint(Checkpoint(*fields)))) == fields


def test_a_checkpoint_that_does_not_fit_or_is_cut_is_refused() -> None:
    with pytest.raises(FormatError):
        encode_checkpoint(Checkpoint(2**63))
    with pytest.raises(FormatError):
        parse_checkpoint(bytes(47))


# Client batch


def test_the_client_batch_vector() -> None:
    first = ClientMessage(b"b1", b"WAIT\x01true\x02", flag=9)
    data = encode_client_message(first)
    assert data.hex() == "00000022000000000000000000000009000000026231000a57414954017472756502"
    assert parse_client_batch(data) == [first]
    assert first.property_map() == {"WAIT": "true"}
    assert parse_client_batch(b"") == []


@given(st.lists(_CLIENT_MESSAGES, max_size=5))
def test_any_client_batch_comes_back(messages: list[ClientMessage]) -> None:
    data = encode_client_batch(messages)
    assert parse_client_batch(data) == messages
    assert parse_client_batch(memoryview(data)) == messages


@pytest.mark.parametrize(
    ("position", "value"),
    [
        (3, b"\x21"),
        (3, b"\x23"),
        (3, b"\x00"),
        (0, b"\x80"),
        (19, b"\x01"),
        (19, b"\xff"),
        (16, b"\xff"),
        (22, b"\xff"),
    ],
)
def test_a_client_message_whose_sizes_disagree_is_refused(position: int, value: bytes) -> None:
    good = encode_client_message(ClientMessage(b"b1", b"WAIT\x01true\x02"))
    with pytest.raises(FormatError):
        parse_client_batch(good[:position] + value + good[position + 1 :])


def test_a_client_message_that_does_not_fit_is_refused() -> None:
    for message in (ClientMessage(b"", bytes(32768)), ClientMessage(b"", flag=2**31)):
        with pytest.raises(FormatError):
            encode_client_message(message)


# Hosts and ids


@pytest.mark.parametrize(
    ("text", "packed"),
    [
        ("192.168.0.9:10911", "c0a8000900002a9f"),
        ("0.0.0.0:0", "0000000000000000"),
        ("[::1]:65535", "000000000000000000000000000000010000ffff"),
        ("[2001:db8::42]:4444", "20010db80000000000000000000000420000115c"),
    ],
)
def test_hosts_both_ways(text: str, packed: str) -> None:
    assert parse_host(text).hex() == packed
    assert format_host(bytes.fromhex(packed)) == text


@pytest.mark.parametrize(
    "text",
    [
        *("", ":1", "1.2.3.4", "1.2.3.4:", "1.2.3.4:65536", "1.2.3.4:-1", "1.2.3.256:1", "1.2.3:1", "01.2.3.4:1"),
        *("::1:80", "[::1]", "[1.2.3.4]:1", "[::1%lo]:1", "[::g]:1", "localhost:1", " 1.2.3.4:1", "1.2.3.4:1\n"),
        *("1.2.3.4:\u0661", "[" + ":" * 45 + "]:1", "1" * 100_000),
    ],
)
def test_what_is_no_host_is_refused(text: str) -> None:
    with pytest.raises(FormatError):
        parse_host(text)


@given(st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16), st.integers(0, 65535))
def test_any_host_comes_back(ip: bytes, port: int) -> None:
    packed = ip + port.to_bytes(4, "big")
    assert parse_host(format_host(packed)) == packed


def test_a_port_that_no_socket_has_is_still_shown() -> None:
    assert format_host(bytes.fromhex("01020304ffffffff")) == "1.2.3.4:-1"
    for size in (0, 4, 9, 16, 21):
        with pytest.raises(FormatError):
            format_host(bytes(size))


def test_the_message_id_vector() -> None:
    packed = parse_host("192.168.0.9:10911")
    assert encode_message_id(packed, 0x8B) == "C0A8000900002A9F000000000000008B"
    assert parse_message_id("c0a8000900002a9f000000000000008B") == (packed, 0x8B)
    v6 = parse_host("[fe80::1]:10911")
    assert parse_message_id(encode_message_id(v6, 416)) == (v6, 416)
    assert len(encode_message_id(v6, 416)) == 56
    for host, offset in ((b"", 0), (packed, 2**63)):
        with pytest.raises(FormatError):
            encode_message_id(host, offset)


def test_the_unique_key_of_a_real_client() -> None:
    text = "FD0000000000000000000000000000025DD85FFD2B274D1DBD710004"
    key = parse_unique_key(text)
    assert key == UniqueKey(bytes.fromhex("fd000000000000000000000000000002"), 0x5DD8, 0x5FFD2B27, 0x4D1DBD71, 4)
    assert encode_unique_key(key) == text
    short = UniqueKey(bytes(4), 65535, -1, -1, 65535)
    assert parse_unique_key(encode_unique_key(short)) == short
    for bad in (UniqueKey(bytes(5), 0, 0, 0, 0), UniqueKey(bytes(4), 65536, 0, 0, 0), UniqueKey(bytes(4), 0, 0, 0, -1)):
        with pytest.raises(FormatError):
            encode_unique_key(bad)


@pytest.mark.parametrize("parse", [parse_message_id, parse_unique_key])
@pytest.mark.parametrize("text", ["", "00", "0" * 31, "0" * 33, "g" * 32, " " * 32, "00 " * 10 + "00", "0" * 31 + "\n"])
def test_what_is_no_id_is_refused(parse: Callable[[str], object], text: str) -> None:
    with pytest.raises(FormatError):
        parse(text)


# Sys flags


def test_transaction_types_are_two_bits() -> None:
    assert [transaction_type(flag) for flag in (0xF3, 0x4, 0x8, 0xFC)] == list(TransactionType)
    assert [takes_queue_offset(kind) for kind in TransactionType] == [True, False, True, False]
    assert with_transaction_type(0xFFF, TransactionType.COMMIT) == 0xFFB
    assert transaction_type(-1) is TransactionType.ROLLBACK


def test_compression_types() -> None:
    assert compression_type(0x001) is CompressionType.ZLIB
    assert [compression_type(number << 8) for number in (1, 2, 3)] == list(CompressionType)
    assert with_compression(0x710, CompressionType.ZSTD) == 0x211
    assert is_compressed(0x301)
    assert not is_compressed(0x300)
    for number in (4, 5, 6, 7):
        with pytest.raises(FormatError):
            compression_type(number << 8)


def test_host_bits_follow_from_the_hosts() -> None:
    assert [host_bits(bytes(born), bytes(store)) for born in (8, 20) for store in (8, 20)] == [0, 0x20, 0x10, 0x30]


# Names


@given(st.integers(0, 2**63 - 1))
def test_any_segment_name_comes_back(offset: int) -> None:
    assert len(segment_name(offset)) == 20
    assert parse_segment_name(segment_name(offset)) == offset


@pytest.mark.parametrize(
    "name", ["", "0", "0" * 19, "0" * 21, "9" * 20, "-" + "0" * 19, "x" * 20, "\u0660" * 20, "0" * 19 + "\n"]
)
def test_what_is_no_segment_name_is_refused(name: str) -> None:
    with pytest.raises(FormatError):
        parse_segment_name(name)


def test_segments_start_at_multiples_of_their_size() -> None:
    assert [segment_start(offset, 100) for offset in (0, 99, 100, 250)] == [0, 0, 100, 200]
    for offset in (-1, 2**63):
        with pytest.raises(FormatError):
            segment_name(offset)


def test_index_files_are_named_by_time() -> None:
    moment = datetime(2026, 11, 15, 23, 17, 28, 745_000, tzinfo=UTC)
    created_ms = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    assert index_file_name(created_ms, UTC) == "20261115231728745"
    assert index_file_name(created_ms, timezone(timedelta(hours=8))) == "20261116071728745"
    assert index_file_name(1, UTC) == "19700101000000001"
    assert parse_index_file_name("20261115231728745") == moment.replace(tzinfo=None)
    assert parse_index_file_name(index_file_name(created_ms)) == moment.astimezone().replace(tzinfo=None)
    with pytest.raises(FormatError):
        index_file_name(2**62)


@pytest.mark.parametrize("name", ["", "2026", "20261315231728745", "20260230000000000", "00000101000000000", "x" * 17])
def test_what_is_no_index_file_name_is_refused(name: str) -> None:
    with pytest.raises(FormatError):
        parse_index_file_name(name)


def test_an_abort_file_may_be_empty() -> None:
    assert parse_abort(encode_abort(4711)) == 4711
    assert [parse_abort(data) for data in (b"", b"x", b"1" * 11, b"-1", b"1\n")] == [None] * 5
    with pytest.raises(FormatError):
        encode_abort(-1)


# Random input


@pytest.mark.parametrize(
    "parse",
    [
        parse_queue_entry,
        lambda data: list(parse_queue_entries(data)),
        parse_batch_queue_entry,
        lambda data: list(parse_batch_queue_entries(data)),
        parse_extension_unit,
        lambda data: list(parse_extension_units(data)),
        parse_checkpoint,
        parse_client_batch,
        format_host,
        parse_abort,
        lambda data: parse_queue_entry(data, len(data) - 3),
        lambda data: parse_batch_queue_entry(data, -1),
        lambda data: parse_extension_unit(data, -len(data)),
    ],
)
@given(data=st.binary(max_size=120))
def test_random_bytes_are_read_or_refused(parse: Callable[[bytes], object], data: bytes) -> None:
    with suppress(FormatError):
        parse(data)


@pytest.mark.parametrize(
    "parse", [parse_host, parse_message_id, parse_unique_key, parse_segment_name, parse_index_file_name]
)
@given(text=st.text(max_size=60) | st.text(string.hexdigits + ":[].", max_size=60))
def test_random_text_is_read_or_refused(parse: Callable[[str], object], text: str) -> None:
    with suppress(FormatError):
        parse(text)
