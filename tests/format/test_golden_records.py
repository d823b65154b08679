"""Every message of every golden store: decoded as the Java store decoded it, and written back byte for byte."""

from __future__ import annotations

import ipaddress
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest

from flintlog.errors import FormatError
from flintlog.format.client_batch import encode_client_batch, parse_client_batch
from flintlog.format.message_id import encode_message_id, format_host, parse_host, parse_message_id
from flintlog.format.properties import encode_properties, parse_properties
from flintlog.format.record import Record, encode_record, parse_blank, parse_record, tags_code
from flintlog.format.sys_flag import INNER_BATCH

if TYPE_CHECKING:
    from tests.format.conftest import OpenGolden

_MINUTES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120)
_DELAY_LEVELS_MS = (1000, 5000, 10000, 30000, *(60000 * minutes for minutes in _MINUTES))


def _record_of(message: dict[str, Any], log: dict[int, bytes]) -> Record:
    offset = message["physicalOffset"]
    size = max(map(len, log.values()))
    return parse_record(log[offset - offset % size], offset % size)


def _as_manifest(record: Record) -> dict[str, Any]:
    """A record in the words of a manifest line, hosts aside."""
    properties = record.property_map()
    return {
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "physicalOffset": record.physical_offset,
        "size": record.size,
        "msgId": record.message_id,
        "bodyCRC32": record.body_crc,
        "tags": properties.get("TAGS"),
        "tagsCode": tags_code(record, _DELAY_LEVELS_MS),
        "keys": properties.get("KEYS"),
        "uniqKey": properties.get("UNIQ_KEY"),
        "sysFlag": record.sys_flag,
        "flag": record.flag,
        "bornTimestamp": record.born_timestamp,
        "storeTimestamp": record.store_timestamp,
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_transaction_offset,
        "properties": properties,
        "bodyLength": len(record.body),
        "bodySha256": sha256(record.body).hexdigest(),
        "magicCode": record.magic,
        "magicCodeHex": f"{record.magic & 0xFFFFFFFF:08x}",
        "recordSha256": sha256(encode_record(record)).hexdigest(),
    }


def _split_java_host(text: str) -> tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, str]:
    address, port = text.rsplit(":", 1)
    return ipaddress.ip_address(address.strip("[]")), port


def test_every_field_is_what_the_java_store_saw(golden_store: OpenGolden, store_name: str) -> None:
    store = golden_store(store_name)
    log = store.log()
    for message in store.messages():
        record = _record_of(message, log)
        assert _as_manifest(record).items() <= message.items()
        assert record.has_good_body
        for packed, shown in ((record.born_host, message["bornHost"]), (record.store_host, message["storeHost"])):
            assert parse_host(format_host(packed)) == packed
            assert _split_java_host(format_host(packed)) == _split_java_host(shown)
        assert parse_message_id(message["msgId"]) == (record.store_host, record.physical_offset)
        assert encode_message_id(record.store_host, record.physical_offset) == message["msgId"]


def test_records_and_blanks_follow_each_other_without_gaps(golden_store: OpenGolden) -> None:
    store = golden_store("plain")
    offsets, blanks = [], 0
    for base, segment in sorted(store.log().items()):
        position = 0
        while position < len(segment) and any(segment[position : position + 8]):
            remaining = parse_blank(segment, position)
            if remaining is None:
                offsets.append(base + position)
                position += parse_record(segment, position).size
            else:
                assert position + remaining == len(segment)
                position, blanks = len(segment), blanks + 1
    assert offsets == [message["physicalOffset"] for message in store.messages()]
    assert blanks == 4


@pytest.mark.parametrize(("name", "capacity"), [("plain", 16), ("batch", 16), ("multi", 16), ("delay", 128)])
def test_property_order_is_that_of_a_java_map(golden_store: OpenGolden, name: str, capacity: int) -> None:
    store = golden_store(name)
    log = store.log()
    for message in store.messages():
        properties = _record_of(message, log).properties
        assert encode_properties(parse_properties(properties), capacity) == properties


def test_inner_batches_are_client_batches(golden_store: OpenGolden) -> None:
    store = golden_store("multi")
    log = store.log()
    batches = [_record_of(message, log) for message in store.messages() if message["sysFlag"] & INNER_BATCH]
    assert len(batches) > 10
    for record in batches:
        messages = parse_client_batch(record.body)
        assert len(messages) == int(record.property_map()["INNER_NUM"])
        assert encode_client_batch(messages) == record.body


def test_a_flipped_bit_is_seen_and_costs_one_record(golden_store: OpenGolden) -> None:
    store = golden_store("torn-flip-before")
    log = store.log()
    bad = []
    for message in store.messages():
        record = _record_of(message, log)
        if sha256(encode_record(record)).hexdigest() != message["recordSha256"]:
            assert not record.has_good_body
            bad.append(record.physical_offset)
    assert bad == [store.damage()["record"]]


def test_a_cut_record_is_no_record(golden_store: OpenGolden) -> None:
    store = golden_store("torn-truncated-before")
    log = store.log()
    *whole, cut = store.messages()
    assert cut["physicalOffset"] < store.damage()["zeroFrom"] < cut["physicalOffset"] + cut["size"]
    assert all(_as_manifest(_record_of(message, log)).items() <= message.items() for message in whole)
    with pytest.raises(FormatError):
        _record_of(cut, log)


def test_a_copied_record_names_another_place(golden_store: OpenGolden) -> None:
    store = golden_store("torn-stale-before")
    log = store.log()
    end, copied = store.damage()["end"], store.damage()["copied"]
    copy = _record_of({"physicalOffset": end}, log)
    assert copy.physical_offset == copied != end
    assert copy == _record_of({"physicalOffset": copied}, log)
