"""Offset message ids and unique keys."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flintlog.errors import FormatError
from flintlog.format.message_id import (
    UniqueKey,
    encode_message_id,
    encode_unique_key,
    parse_host,
    parse_message_id,
    parse_unique_key,
)


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
def test_text_that_is_no_id_is_refused(parse: Callable[[str], object], text: str) -> None:
    with pytest.raises(FormatError):
        parse(text)
