"""`StoredMessage`, which readers get, and `Page`, the answer to one `get`.

A `StoredMessage` keeps the bytes of its record and decodes a part when that part is accessed. So a reader that forwards
bodies, or looks at one property, pays for nothing else.
"""

from __future__ import annotations

import struct
from enum import IntEnum

import msgspec

from flintlog.format.message_id import encode_message_id, format_host
from flintlog.format.properties import KEYS, TAGS, UNIQ_KEY, parse_properties
from flintlog.format.record import (
    BODY_CRC_AT,
    BORN_TIME_AT,
    FLAG_AT,
    MAGIC_AT,
    PHYSICAL_OFFSET_AT,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    SYS_FLAG_AT,
    Record,
    parse_record,
    properties_of,
    store_time_of,
    tags_code,
)
from flintlog.kernel import KeptRecord
from flintlog.store.model.compression import DEFAULT_LIMIT_BYTES, decompress
from flintlog.store.options.values import DEFAULT_DELAY_LEVELS_MS

_I32 = struct.Struct(">i").unpack_from
_I64 = struct.Struct(">q").unpack_from


class GetStatus(IntEnum):
    """RocketMQ's GetMessageStatus."""

    FOUND = 0
    NO_MATCHED_MESSAGE = 1
    MESSAGE_WAS_REMOVING = 2
    OFFSET_FOUND_NULL = 3
    OFFSET_OVERFLOW_BADLY = 4
    OFFSET_OVERFLOW_ONE = 5
    OFFSET_TOO_SMALL = 6
    NO_MATCHED_LOGIC_QUEUE = 7
    NO_MESSAGE_IN_QUEUE = 8

    def __str__(self) -> str:
        return self.name


class StoredMessage(KeptRecord):
    """One record of the log; every field of the format is an attribute.

    `record` has its bytes, `body` the body as stored: compressed if the producer compressed it.
    """

    __slots__ = ()

    def __init__(self, record: bytes, delay_levels_ms: tuple[int, ...] = DEFAULT_DELAY_LEVELS_MS) -> None:
        super().__init__(record, delay_levels_ms)

    def _parts(self) -> Record:
        if self._parsed is None:
            self._parsed = parse_record(self.record)
        return self._parsed

    @property
    def size(self) -> int:
        return len(self.record)

    @property
    def magic(self) -> int:
        """The record's magic code, signed as RocketMQ prints it."""
        return int(_I32(self.record, MAGIC_AT)[0])

    @property
    def body_crc(self) -> int:
        return int(_I32(self.record, BODY_CRC_AT)[0])

    @property
    def queue_id(self) -> int:
        return int(_I32(self.record, QUEUE_ID_AT)[0])

    @property
    def flag(self) -> int:
        return int(_I32(self.record, FLAG_AT)[0])

    @property
    def queue_offset(self) -> int:
        return int(_I64(self.record, QUEUE_OFFSET_AT)[0])

    @property
    def physical_offset(self) -> int:
        return int(_I64(self.record, PHYSICAL_OFFSET_AT)[0])

    @property
    def sys_flag(self) -> int:
        return int(_I32(self.record, SYS_FLAG_AT)[0])

    @property
    def born_timestamp(self) -> int:
        return int(_I64(self.record, BORN_TIME_AT)[0])

    @property
    def born_host(self) -> str:
        return format_host(self._parts().born_host)

    @property
    def store_timestamp(self) -> int:
        return store_time_of(self.record)

    @property
    def store_host(self) -> str:
        return format_host(self._parts().store_host)

    @property
    def reconsume_times(self) -> int:
        return self._parts().reconsume_times

    @property
    def prepared_transaction_offset(self) -> int:
        return self._parts().prepared_transaction_offset

    @property
    def topic(self) -> str:
        return self._parts().topic

    def plain_body(self, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> bytes:
        """The producer's body, decompressed if it is compressed; raises if that is longer than the limit."""
        return decompress(self.body, self.sys_flag, limit_bytes)

    @property
    def properties(self) -> dict[str, str]:
        """All properties, in the order of the record."""
        if self._properties is None:
            self._properties = parse_properties(properties_of(self.record))
        return self._properties

    @property
    def tags(self) -> str | None:
        return self.properties.get(TAGS)

    @property
    def keys(self) -> list[str]:
        return [key for key in self.properties.get(KEYS, "").split(" ") if key]

    @property
    def uniq_key(self) -> str | None:
        return self.properties.get(UNIQ_KEY)

    @property
    def tags_code(self) -> int:
        """The dispatcher's tags code: a hash of the tags, or a delivery time for a delayed message."""
        return tags_code(self._parts(), self.delay_levels_ms)

    @property
    def message_id(self) -> str:
        return encode_message_id(self._parts().store_host, self.physical_offset)

    def __repr__(self) -> str:
        place = f"{self.topic}/{self.queue_id}@{self.queue_offset}"
        return f"StoredMessage({place}, physical_offset={self.physical_offset}, size={self.size})"


class Page(msgspec.Struct, gc=False):
    """The answer to one `get`: RocketMQ's status, the next offset to get, and the messages."""

    status: GetStatus
    next_offset: int
    min_offset: int
    max_offset: int
    messages: list[StoredMessage] = []

    def __len__(self) -> int:
        return len(self.messages)


class QueueInfo(msgspec.Struct, frozen=True):
    """One queue of a store; `type` is SimpleCQ or BatchCQ."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    type: str


class Arrival(msgspec.Struct, gc=False, frozen=True):
    """A message that has just become visible in a queue."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    tags_code: int
    store_timestamp: int
