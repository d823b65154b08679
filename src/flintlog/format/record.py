"""One record of the commit log: a message and all that is known about it.

     0       4       8       12      16      20          28          36      40          48
    +-------+-------+-------+-------+-------+-----------+-----------+-------+-----------+
    | size  | magic | body  | queue | flag  | queue     | physical  | sys   | born      |
    |       |       | CRC   | id    |       | offset    | offset    | flag  | timestamp |
    +-------+-------+-------+-------+-------+-----------+-----------+-------+-----------+
    | born host | store     | store host | reconsume | prepared transaction | body  |
    | 8 or 20   | timestamp | 8 or 20    | times     | offset               | size  |
    +-----------+-----------+------------+-----------+----------------------+-------+
     48          56          64           72          76                     84      88      (both hosts IPv4)
    +------+--------------+-------+-----------------+------------+
    | body | topic size   | topic | properties size | properties |
    |      | V1: 1, V2: 2 |       | 2               |            |
    +------+--------------+-------+-----------------+------------+

Big-endian and signed; `size` counts all of it. The rest of a file that a record did not fit in begins with
a blank: `size` (all that remained) and its own magic, 8 bytes. With `enabledAppendPropCRC` the
properties end in a CRC of everything before it, decimal, least significant digit first:

    +----------+------+------------+------+
    | __CRC32# | 0x01 | 10 digits  | 0x02 |
    +----------+------+------------+------+

Invariant: `encode_record(parse_record(b)) == b` for any bytes in the topic and the properties.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from flintlog.errors import FormatError
from flintlog.format import properties as names
from flintlog.format.java import Buffer, decode_text, pack, parse_int, string_hash
from flintlog.format.message_id import IPV4_SIZE, IPV6_SIZE, check_packed_host, encode_message_id
from flintlog.format.properties import MAX_PROPERTIES_SIZE, drop_property, parse_properties
from flintlog.format.sys_flag import BORN_HOST_V6, STORE_HOST_V6, host_bits

MAGIC_V1: Final = -626843481
MAGIC_V2: Final = -626843477
BLANK_MAGIC: Final = -875286124
END_RESERVE: Final = 8
"""A record must leave this much room after it in its file, for a blank."""
MIN_RECORD_SIZE: Final = 91
MAX_V1_TOPIC_SIZE: Final = 127
MAX_TOPIC_SIZE: Final = 32767
CRC_PROPERTY_SIZE: Final = 20
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"

MAGIC_BYTES: Final = re.compile(rb"\xda\xa3\x20[\xa7\xab]")
"""The bytes of either magic."""
SIZE_AND_MAGIC: Final = struct.Struct("!ii")
HEAD_TO_OFFSET: Final = struct.Struct("!5i2q")
"""Size, magic, CRC, queue id, flag, queue offset, physical offset."""
MAGIC_AT: Final = 4
BODY_CRC_AT: Final = 8
QUEUE_ID_AT: Final = 12
FLAG_AT: Final = 16
QUEUE_OFFSET_AT: Final = 20
PHYSICAL_OFFSET_AT: Final = 28
SYS_FLAG_AT: Final = 36
HOST_BITS_AT: Final = 39
"""The byte of the sys flag that says which hosts are IPv6, in bits 4 and 5."""
HOST_SHIFT: Final = (0, 12, 12, 24)
"""How far such hosts move the body, by these two bits."""
BORN_TIME_AT: Final = 40
BODY_SIZE_AT: Final = 84
STORE_TIME_END: Final = 76
"""Where the store timestamp ends at the latest."""
OWN_OFFSET: Final = struct.Struct(f"!{PHYSICAL_OFFSET_AT}xq")
_STORE_TIMES: Final = struct.Struct("!56xq"), struct.Struct("!68xq")

_HEAD = struct.Struct("!5i2qiq")
_MIDDLE = struct.Struct("!iqi")
_I32 = struct.Struct("!i")
_I64 = struct.Struct("!q")
_I16 = struct.Struct("!h")
_TOPIC_SIZES: Final = {MAGIC_V1: struct.Struct("!b"), MAGIC_V2: struct.Struct("!h")}
_CRC_PROPERTY_START: Final = b"__CRC32#\x01"
_SEPARATOR: Final = b"\x02"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Every field of a record. Topic and properties are raw bytes, hosts packed; text is decoded on request."""

    topic_bytes: bytes
    body: bytes
    queue_id: int = 0
    queue_offset: int = 0
    physical_offset: int = 0
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: bytes = bytes(IPV4_SIZE)
    store_timestamp: int = 0
    store_host: bytes = bytes(IPV4_SIZE)
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    body_crc: int = 0
    properties: bytes = b""
    magic: int = MAGIC_V1

    @property
    def size(self) -> int:
        """How many bytes the record takes."""
        hosts = len(self.born_host) + len(self.store_host)
        texts = len(self.body) + len(self.topic_bytes) + len(self.properties)
        return MIN_RECORD_SIZE - 2 * IPV4_SIZE + hosts + texts + (self.magic == MAGIC_V2)

    @property
    def topic(self) -> str:
        """The topic as Java reads it."""
        return decode_text(self.topic_bytes)

    @property
    def message_id(self) -> str:
        """The offset message id."""
        return encode_message_id(self.store_host, self.physical_offset)

    @property
    def has_good_body(self) -> bool:
        """Whether the body is the one the CRC was taken of; an empty one always is, as Java has it."""
        return not self.body or body_crc(self.body) == self.body_crc

    @property
    def lacks_its_end(self) -> bool:
        """Whether its last text ends in a zero, as if its end was not written; no length and no body's CRC shows that.

        No text of RocketMQ's ends so: a topic has no such character, and properties end in a separator. A put refuses a
        client's batch whose properties end otherwise.
        """
        return (self.properties or self.topic_bytes).endswith(b"\0")

    def property_map(self) -> dict[str, str]:
        """The properties, in the record's order."""
        return parse_properties(self.properties)


def body_crc(body: Buffer) -> int:
    """CRC-32 without its sign bit, as stored."""
    return zlib.crc32(body) & 0x7FFF_FFFF


def parse_record(buffer: Buffer, position: int = 0, limit: int | None = None) -> Record:
    """The record at `position`, which must end at or before `limit` (by default the buffer's end).

    Checks magic and all lengths, but no CRC: see `Record.has_good_body` and `has_good_crc_property`.
    """
    reader = _Reader(buffer, position, len(buffer) if limit is None else limit)
    size, magic, crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born = reader.head()
    born_host = reader.take(IPV6_SIZE if sys_flag & BORN_HOST_V6 else IPV4_SIZE, "born host")
    store_timestamp: int = reader.unpack(_I64, "store timestamp")[0]
    store_host = reader.take(IPV6_SIZE if sys_flag & STORE_HOST_V6 else IPV4_SIZE, "store host")
    reconsume_times, prepared, body_size = reader.unpack(_MIDDLE, "body size")
    body = reader.take(body_size, "body")
    topic = reader.take(reader.unpack(_TOPIC_SIZES[magic], "topic size")[0], "topic")
    properties = reader.take(reader.unpack(_I16, "properties size")[0], "properties")
    reader.expect_end(size)
    return Record(
        topic_bytes=topic,
        body=body,
        queue_id=queue_id,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        flag=flag,
        sys_flag=sys_flag,
        born_timestamp=born,
        born_host=born_host,
        store_timestamp=store_timestamp,
        store_host=store_host,
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared,
        body_crc=crc,
        properties=properties,
        magic=magic,
    )


class _Reader:
    """Takes the parts of one record in order; never looks past the record's own size."""

    __slots__ = ("buffer", "limit", "position", "start")

    def __init__(self, buffer: Buffer, position: int, limit: int) -> None:
        if not 0 <= position <= limit <= len(buffer):
            raise FormatError(f"no record between {position} and {limit} in {len(buffer)} bytes")
        self.buffer, self.start, self.position, self.limit = buffer, position, position, limit

    def head(self) -> tuple[int, ...]:
        room = self.limit - self.start
        if room < SIZE_AND_MAGIC.size:
            raise FormatError(f"no room for a record in {room} bytes", offset=self.start)
        size, magic = SIZE_AND_MAGIC.unpack_from(self.buffer, self.start)
        if magic not in _TOPIC_SIZES:
            what = "a blank" if magic == BLANK_MAGIC else f"magic {magic & 0xFFFFFFFF:#010x}"
            raise FormatError(f"no record: {what}", offset=self.start)
        if not MIN_RECORD_SIZE <= size <= room:
            raise FormatError(f"a record of {size} bytes, in room for {room}", offset=self.start)
        self.limit = self.start + size
        return self.unpack(_HEAD, "head")

    def unpack(self, layout: struct.Struct, what: str) -> tuple[int, ...]:
        return layout.unpack(self.take(layout.size, what))

    def take(self, size: int, what: str) -> bytes:
        if not 0 <= size <= self.limit - self.position:
            raise FormatError(f"{what} of {size} bytes does not fit in its record", offset=self.start)
        end = self.position + size
        taken = bytes(self.buffer[self.position : end])
        self.position = end
        return taken

    def expect_end(self, size: int) -> None:
        if self.position != self.limit:
            found = self.position - self.start
            raise FormatError(f"a record of {size} bytes whose parts take {found}", offset=self.start)


def encode_record(record: Record) -> bytes:
    """The record's bytes; its fields are written as they are, the body CRC too."""
    _check_parts(record)
    born_v6, store_v6 = bool(record.sys_flag & BORN_HOST_V6), bool(record.sys_flag & STORE_HOST_V6)
    if (born_v6, store_v6) != (len(record.born_host) == IPV6_SIZE, len(record.store_host) == IPV6_SIZE):
        what = f"sys flag {record.sys_flag:#x} does not say which hosts are IPv6"
        raise FormatError(what, advice="use with_host_bits")
    first = (record.size, record.magic, record.body_crc, record.queue_id, record.flag)
    offsets = (record.queue_offset, record.physical_offset)
    head = pack(_HEAD, *first, *offsets, record.sys_flag, record.born_timestamp)
    stored = pack(_I64, record.store_timestamp)
    middle = pack(_MIDDLE, record.reconsume_times, record.prepared_transaction_offset, len(record.body))
    topic_size = _TOPIC_SIZES[record.magic].pack(len(record.topic_bytes))
    properties_size = _I16.pack(len(record.properties))
    parts = (head, record.born_host, stored, record.store_host, middle, record.body)
    return b"".join((*parts, topic_size, record.topic_bytes, properties_size, record.properties))


def _check_parts(record: Record) -> None:
    check_packed_host(record.born_host)
    check_packed_host(record.store_host)
    if record.magic not in _TOPIC_SIZES:
        raise FormatError(f"not the magic of a record: {record.magic & 0xFFFFFFFF:#010x}")
    max_topic_size = MAX_V1_TOPIC_SIZE if record.magic == MAGIC_V1 else MAX_TOPIC_SIZE
    if len(record.topic_bytes) > max_topic_size:
        raise FormatError(f"a topic of {len(record.topic_bytes)} bytes; this version holds {max_topic_size}")
    if len(record.properties) > MAX_PROPERTIES_SIZE:
        raise FormatError(f"properties of {len(record.properties)} bytes; a record holds {MAX_PROPERTIES_SIZE}")


def with_host_bits(record: Record) -> Record:
    """The record with the IPv6 bits of its sys flag as its hosts need them."""
    bits = host_bits(record.born_host, record.store_host)
    return replace(record, sys_flag=record.sys_flag & ~(BORN_HOST_V6 | STORE_HOST_V6) | bits)


def magic_of_topic(topic_bytes: bytes) -> int:
    """The version that can hold a topic. (Java counts characters, so it can write a record that it cannot read.)"""
    return MAGIC_V2 if len(topic_bytes) > MAX_V1_TOPIC_SIZE else MAGIC_V1


def encode_blank(remaining: int) -> bytes:
    """The 8 bytes that say: nothing more in this file, `remaining` bytes counted from here."""
    if not END_RESERVE <= remaining <= 0x7FFF_FFFF:
        raise FormatError(f"a blank cannot stand for {remaining} bytes")
    return SIZE_AND_MAGIC.pack(remaining, BLANK_MAGIC)


def parse_blank(buffer: Buffer, position: int = 0) -> int | None:
    """How many bytes the blank at `position` says remain, or None if no blank is there."""
    if not 0 <= position <= len(buffer) - SIZE_AND_MAGIC.size:
        return None
    remaining, magic = SIZE_AND_MAGIC.unpack_from(buffer, position)
    return remaining if magic == BLANK_MAGIC else None


def stated_size(buffer: Buffer, position: int) -> int | None:
    """The size with which a record or a blank begins; None where fewer than 4 bytes are left."""
    return int(_I32.unpack_from(buffer, position)[0]) if 0 <= position <= len(buffer) - _I32.size else None


def properties_of(record: bytes) -> bytes:
    """The properties of a whole record, without parsing the parts before them: many readers need nothing else."""
    place = BODY_SIZE_AT + HOST_SHIFT[record[HOST_BITS_AT] >> 4 & 3]
    place += 4 + int(_I32.unpack_from(record, place)[0])
    if record[MAGIC_AT + 3] == MAGIC_V1 & 0xFF:
        place += 1 + record[place]
    else:
        place += 2 + int(_I16.unpack_from(record, place)[0])
    return record[place + 2 : place + 2 + int(_I16.unpack_from(record, place)[0])]


def store_time_of(view: Buffer, position: int = 0) -> int:
    """The store timestamp of a record, of which the buffer has `STORE_TIME_END` bytes."""
    layout = _STORE_TIMES[view[position + HOST_BITS_AT] & BORN_HOST_V6 != 0]
    found: int = layout.unpack_from(view, position)[0]
    return found


def encode_crc_property(crc: int) -> bytes:
    """The 20 bytes of the CRC property.

    >>> encode_crc_property(1667986546)
    b'__CRC32#\\x016456897661\\x02'
    """
    if not 0 <= crc <= 0x7FFF_FFFF:
        raise FormatError(f"not a stored CRC: {crc}")
    return _CRC_PROPERTY_START + f"{crc:010d}"[::-1].encode() + _SEPARATOR


def with_crc_property(record: Record, *, from_batch: bool = False) -> Record:
    """The record, closed by a CRC property over all of it; the fields must be final.

    A single message loses a CRC property of its own first and gets a missing last separator; the
    properties of a message from a client's batch are only appended to.
    """
    properties = record.properties
    if not from_batch:
        properties = drop_property(properties, names.CRC32)
        if properties and not properties.endswith(_SEPARATOR):
            properties += _SEPARATOR
    unsealed = replace(record, properties=properties + encode_crc_property(0))
    crc = body_crc(encode_record(unsealed)[:-CRC_PROPERTY_SIZE])
    return replace(record, properties=properties + encode_crc_property(crc))


def has_crc_property(encoded: Buffer) -> bool:
    """Whether these bytes of one record end in a CRC property, right or wrong, or in a part of one.

    A torn write leaves a part of it, rot one wrong byte in its name.
    """
    if len(encoded) < CRC_PROPERTY_SIZE:
        return False
    end = bytes(encoded[len(encoded) - CRC_PROPERTY_SIZE :])
    # Unwritten bytes are zero. No whole record ends in so many zeros: a topic stands before its properties.
    if _CRC_PROPERTY_START.startswith(end.rstrip(b"\0")):
        return True
    return sum(a != b for a, b in zip(end, _CRC_PROPERTY_START, strict=False)) <= 1


def has_good_crc_property(encoded: Buffer) -> bool:
    """Whether these bytes of one record end in the CRC of all that is before it."""
    cut = len(encoded) - CRC_PROPERTY_SIZE
    if cut < 0:
        return False
    return bytes(encoded[cut:]) == encode_crc_property(body_crc(encoded[:cut]))


def tags_code(record: Record, delay_levels_ms: Sequence[int] = ()) -> int:
    """The tags code of the record's queue entry: the hash of its tags, or the delivery time of a delayed message.

    `delay_levels_ms[0]` is level 1. Java refuses a record whose level is not a number; so does this.
    """
    found = parse_properties(record.properties)
    level_text = found.get(names.DELAY_TIME_LEVEL)
    if level_text is not None and record.topic == SCHEDULE_TOPIC:
        level = min(parse_int(level_text), len(delay_levels_ms))
        if level > 0:
            return record.store_timestamp + delay_levels_ms[level - 1]
    return string_hash(found.get(names.TAGS, ""))
