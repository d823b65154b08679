"""Hosts as text and as bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintlog.errors import FormatError
from flintlog.format.message_id import format_host, parse_host


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
def test_text_that_is_no_host_is_refused(text: str) -> None:
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
