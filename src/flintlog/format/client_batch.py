"""Several messages in one body, as a client sends a batch.

One message after the other, each:

    +------+-------+-----+------+-----------+------+-----------------+------------+
    | size | magic | CRC | flag | body size | body | properties size | properties |
    +------+-------+-----+------+-----------+------+-----------------+------------+
      i32    i32     i32   i32    i32                i16                                big-endian

`size` counts itself. Magic and CRC are 0 and ignored by every reader. The store writes a record for each message;
only the "inner batch" of a batch consume queue keeps this form, as the body of a single record.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from flintlog.errors import FormatError
from flintlog.format.java import Buffer, pack
from flintlog.format.properties import MAX_PROPERTIES_SIZE, parse_properties

FIXED_SIZE: Final = 22

_HEAD = struct.Struct("!5i")
_I16 = struct.Struct("!h")


@dataclass(frozen=True, slots=True)
class ClientMessage:
    """One message of a client's batch; the properties are raw."""

    body: bytes
    properties: bytes = b""
    flag: int = 0
    magic: int = 0
    crc: int = 0

    def property_map(self) -> dict[str, str]:
        """The properties, in the message's order."""
        return parse_properties(self.properties)


def encode_client_batch(messages: Iterable[ClientMessage]) -> bytes:
    """The body of a batch."""
    return b"".join(map(encode_client_message, messages))


def encode_client_message(message: ClientMessage) -> bytes:
    """One message of a batch."""
    if len(message.properties) > MAX_PROPERTIES_SIZE:
        raise FormatError(f"properties of {len(message.properties)} bytes; a message holds {MAX_PROPERTIES_SIZE}")
    size = FIXED_SIZE + len(message.body) + len(message.properties)
    head = pack(_HEAD, size, message.magic, message.crc, message.flag, len(message.body))
    return b"".join((head, message.body, _I16.pack(len(message.properties)), message.properties))


def parse_client_batch(data: Buffer) -> list[ClientMessage]:
    """All messages of a batch's body."""
    messages: list[ClientMessage] = []
    position = 0
    while position < len(data):
        message, position = _parse_message(data, position)
        messages.append(message)
    return messages


def count_client_messages(data: Buffer) -> int:
    """How many messages a batch's body holds."""
    return len(parse_client_batch(data))


def _parse_message(data: Buffer, start: int) -> tuple[ClientMessage, int]:
    """The message at `start`, and where the next one begins."""
    room = len(data) - start
    if room < FIXED_SIZE:
        raise FormatError(f"no message of a batch in {room} bytes", offset=start)
    size, magic, crc, flag, body_size = _HEAD.unpack_from(data, start)
    if not (FIXED_SIZE <= size <= room and 0 <= body_size <= size - FIXED_SIZE):
        raise FormatError(f"a message of {size} bytes with a body of {body_size}, in room for {room}", offset=start)
    body_start = start + _HEAD.size
    body_end = body_start + body_size
    properties_start = body_end + _I16.size
    end = start + size
    if _I16.unpack_from(data, body_end)[0] != end - properties_start:
        raise FormatError(f"a message of {size} bytes whose parts do not add up", offset=start)
    body, properties = bytes(data[body_start:body_end]), bytes(data[properties_start:end])
    return ClientMessage(body, properties, flag, magic, crc), end
