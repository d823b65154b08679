"""Frames: what was encoded is parsed, however it is cut; what is garbled is refused, and nothing else happens."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintlog.errors import FormatError
from flintlog.remoting.frame import (
    BINARY_FORM,
    JSON_FORM,
    LANGUAGES,
    MAX_FRAME_BYTES,
    Command,
    FrameReader,
    encode_frame,
    parse_frame,
)

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=20)
COMMANDS = st.builds(
    Command,
    code=st.integers(-(1 << 15), (1 << 15) - 1),
    opaque=st.integers(-(1 << 31), (1 << 31) - 1),
    flag=st.integers(0, 3),
    fields=st.dictionaries(NAMES, NAMES, max_size=4),
    body=st.binary(max_size=50),
    remark=st.none() | NAMES,
    language=st.sampled_from(LANGUAGES),
    version=st.integers(0, 600),
    form=st.sampled_from([JSON_FORM, BINARY_FORM]),
)


@given(st.lists(COMMANDS, max_size=4), st.integers(1, 40))
def test_commands_come_out_as_they_went_in_however_the_stream_is_cut(commands: list[Command], step: int) -> None:
    stream = b"".join(map(encode_frame, commands))
    reader = FrameReader()
    found = [command for at in range(0, len(stream), step) for command in reader.feed(stream[at : at + step])]
    assert found == commands
    assert reader.pending_bytes == 0


def test_a_real_request_of_java() -> None:
    header = (
        b'{"code":105,"extFields":{"topic":"T1"},"flag":0,"language":"JAVA","opaque":12,'
        b'"serializeTypeCurrentRPC":"JSON","version":513}'
    )
    command = parse_frame(struct.pack(">ii", 4 + len(header), len(header)) + header)
    assert command == Command(105, 12, 0, {"topic": "T1"}, language="JAVA", version=513)


def test_numbers_and_booleans_in_the_fields_become_text() -> None:
    header = b'{"code":10,"opaque":1,"flag":0,"version":63,"extFields":{"queueId":0,"batch":true,"gone":null}}'
    command = parse_frame(struct.pack(">ii", 4 + len(header), len(header)) + header)
    assert command.fields == {"queueId": "0", "batch": "true"}


def test_a_reply_has_the_form_and_the_opaque_of_its_request() -> None:
    request = Command(21, opaque=9, form=BINARY_FORM)
    reply = request.reply(0, b"{}", fields={"totalTopicNum": "1"})
    assert (reply.opaque, reply.form, reply.is_response, reply.is_one_way) == (9, BINARY_FORM, True, False)
    assert parse_frame(encode_frame(reply)) == reply


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">ii", 3, 0),
        struct.pack(">ii", -1, 0),
        struct.pack(">ii", MAX_FRAME_BYTES, 0),
        struct.pack(">ii", 0x7FFFFFFF, 0),
        struct.pack(">ii", 8, 5),
        struct.pack(">ii", 8, 2 << 24 | 4),
        struct.pack(">ii", 8, 4) + b"[{]]",
        struct.pack(">ii", 8, 4) + b"  12",
        struct.pack(">ii", 4 + 15 * 2**20, 15 * 2**20) + b"{",  # refused before it has come
        struct.pack(">ii", 8, 4) + b'"ab"',
        struct.pack(">ii", 4 + 21, 21) + b'{"code":"many","a":1}',
        struct.pack(">ii", 4 + 18, 18) + b'{"code":123456789012'[:18],
        struct.pack(">ii", 8, 1 << 24 | 4) + b"abcd",
        struct.pack(">ii", 25, 1 << 24 | 21) + struct.pack(">hBhiiii", 1, 0, 0, 0, 0, 99, 0),
        struct.pack(">ii", 25, 1 << 24 | 21) + struct.pack(">hBhiiii", 1, 0, 0, 0, 0, 0, 5),
    ],
)
def test_malformed_frames_are_refused(data: bytes) -> None:
    with pytest.raises(FormatError):
        FrameReader().feed(data)


@given(st.binary(max_size=200), st.binary(max_size=60))
def test_no_input_does_more_than_being_refused(noise: bytes, header: bytes) -> None:
    for data in (noise, struct.pack(">ii", 4 + len(header), 1 << 24 | len(header)) + header):
        reader = FrameReader()
        try:
            reader.feed(data)
        except FormatError:
            continue
        assert reader.pending_bytes <= len(data)


def test_a_frame_that_is_too_long_is_not_made() -> None:
    with pytest.raises(FormatError, match="at most"):
        encode_frame(Command(1, body=bytes(MAX_FRAME_BYTES)))
    with pytest.raises(FormatError, match="does not fit the binary form"):
        encode_frame(Command(50001, form=BINARY_FORM))
