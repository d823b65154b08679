"""Client batches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintlog.errors import FormatError
from flintlog.format.client_batch import ClientMessage, encode_client_batch, encode_client_message, parse_client_batch

_I32 = st.integers(-(2**31), 2**31 - 1)
_CLIENT_MESSAGES = st.builds(ClientMessage, st.binary(max_size=40), st.binary(max_size=40), _I32, _I32, _I32)


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
