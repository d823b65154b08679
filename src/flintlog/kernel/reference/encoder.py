"""From a message to its record at the tail of the log.

Everything is checked before the first byte is written, and a record's first 8 bytes (size and magic) are
written last: a reader, or a recovery after a crash, never takes a half-written record for a whole one. The
records of a batch become whole in their order: a gap with whole ones behind it would be taken for damage.
"""

from __future__ import annotations

import operator
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import SupportsIndex

from flintlog.errors import FormatError, InvalidMessage, InvalidTopic
from flintlog.format.client_batch import ClientMessage, parse_client_batch
from flintlog.format.host import parse_host
from flintlog.format.properties import (
    CRC32,
    KEY_SEPARATOR,
    KEYS,
    MAX_PROPERTIES_SIZE,
    TAGS,
    drop_property,
    encode_properties,
)
from flintlog.format.record import (
    CRC_PROPERTY_SIZE,
    END_RESERVE,
    MAX_V1_TOPIC_SIZE,
    Record,
    body_crc,
    encode_record,
    magic_of_topic,
    with_crc_property,
    with_host_bits,
)
from flintlog.format.sys_flag import TRANSACTION_MASK
from flintlog.kernel.reference.tails import Tail
from flintlog.kernel.types import END_OF_FILE, Buffer, MessageFields, Moves

MAX_TOPIC_BYTES = 255

_INT32 = (-(1 << 31), (1 << 31) - 1)
_INT64 = (-(1 << 63), (1 << 63) - 1)
_MAX_CACHED_HOSTS = 4096


class Encoder:
    """Writes messages of one type as records of one store."""

    def __init__(
        self,
        message_type: type[MessageFields],
        *,
        store_host: str,
        max_message_size: int,
        append_crc: bool = False,
        auto_version: bool = True,
    ) -> None:
        self.message_type = message_type
        self.store_host = store_host
        self.max_message_size = max_message_size
        self.append_crc = append_crc
        self.auto_version = auto_version
        self._hosts: dict[str, bytes] = {}
        self._host(store_host, "store_host")

    def append(
        self,
        tail: Tail,
        message: MessageFields,
        queue_offset: int,
        store_timestamp: int,
        properties: bytes | None = None,
        moves: Moves | None = None,
    ) -> int:
        """Write one record and return its size; 0 (END_OF_FILE) when the file has no room for it."""
        tail._writable()
        record = self.encode(message, queue_offset, tail.end, store_timestamp, properties)
        if len(record) + END_RESERVE > tail.capacity - tail.position:
            return END_OF_FILE
        tail._append(record, store_timestamp, moves)
        return len(record)

    def append_batch(
        self,
        tail: Tail,
        messages: Sequence[MessageFields],
        queue_offset: int,
        store_timestamp: int,
        moves: Moves | None = None,
    ) -> array[int] | None:
        """Write the messages of one queue one behind the other, all or none.

        Returns where each record starts, and the end; None when the file has no room for all of them.
        """
        tail._writable()
        if not messages:
            raise InvalidMessage("a batch has at least one message")
        offsets = array("q", [tail.end])
        records = []
        for index, message in enumerate(messages):
            check_in_batch(message, messages[0])
            records.append(self.encode(message, queue_offset + index, offsets[-1], store_timestamp, in_batch=True))
            offsets.append(offsets[-1] + len(records[-1]))
        batch = b"".join(records)
        if len(batch) + END_RESERVE > tail.capacity - tail.position:
            return None
        tail._append(batch, store_timestamp, moves)
        return offsets

    def append_encoded(
        self,
        tail: Tail,
        batch: MessageFields,
        queue_offset: int,
        store_timestamp: int,
        moves: Moves | None = None,
    ) -> array[int] | None:
        """Write the messages that a client encoded as the body of `batch`, as `append_batch` would."""
        tail._writable()
        records, offsets = self.encode_encoded(batch, queue_offset, tail.end, store_timestamp)
        if len(records) + END_RESERVE > tail.capacity - tail.position:
            return None
        tail._append(records, store_timestamp, moves)
        return offsets

    def encode_encoded(
        self, batch: MessageFields, queue_offset: int, physical_offset: int, store_timestamp: int
    ) -> tuple[bytes, array[int]]:
        """The records of an encoded batch, and where each starts, and the end."""
        check_encoded(batch)
        offsets = array("q", [physical_offset])
        records = []
        try:
            inner = parse_client_batch(self._body(batch.body))
        except FormatError as error:
            raise InvalidMessage(f"the body is no encoded batch: {error.what}") from error
        if not inner:
            raise InvalidMessage("a batch has at least one message")
        for index, each in enumerate(inner):
            if each.properties.endswith(b"\0"):
                # After a crash nobody could tell its record from one that was cut off (`Record.lacks_its_end`).
                raise InvalidMessage("the properties end in a zero byte", advice="end them with a separator (0x02)")
            message = _Inner(batch, each)
            record = self.encode(message, queue_offset + index, offsets[-1], store_timestamp, each.properties, True)
            offsets.append(offsets[-1] + len(record))
            records.append(record)
        return b"".join(records), offsets

    def encode(
        self,
        message: MessageFields,
        queue_offset: int,
        physical_offset: int,
        store_timestamp: int,
        properties: bytes | None = None,
        in_batch: bool = False,
    ) -> bytes:
        """The record of a message at this place of the log."""
        try:
            return self._encode(message, queue_offset, physical_offset, store_timestamp, properties, in_batch)
        except AttributeError as error:
            raise InvalidMessage(f"not a message: {type(message).__name__}") from error

    def _encode(
        self,
        message: MessageFields,
        queue_offset: int,
        physical_offset: int,
        store_timestamp: int,
        properties: bytes | None,
        in_batch: bool,
    ) -> bytes:
        topic = self._topic(message.topic)
        packed_properties = self._properties(message, properties, in_batch)
        body = self._body(message.body)
        store_time = _number("store_timestamp", store_timestamp, _INT64)
        born_time = message.born_timestamp
        record = Record(
            topic_bytes=topic,
            body=body,
            queue_id=_number("queue_id", message.queue_id, (0, _INT32[1])),
            queue_offset=_number("queue_offset", queue_offset, _INT64),
            physical_offset=physical_offset,
            flag=_number("flag", message.flag, _INT32),
            sys_flag=_number("sys_flag", message.sys_flag, _INT32),
            born_timestamp=store_time if born_time is None else _number("born_timestamp", born_time, _INT64),
            born_host=self._host(message.born_host, "born_host"),
            store_timestamp=store_time,
            store_host=self._host(message.store_host, "store_host"),
            reconsume_times=_number("reconsume_times", message.reconsume_times, _INT32),
            prepared_transaction_offset=_number(
                "prepared_transaction_offset", message.prepared_transaction_offset, _INT64
            ),
            body_crc=body_crc(body),
            properties=packed_properties,
            magic=magic_of_topic(topic),
        )
        # Bits that do not fit the hosts would make a record that nobody can read.
        record = with_host_bits(record)
        return encode_record(with_crc_property(record, from_batch=in_batch) if self.append_crc else record)

    def _topic(self, topic: str) -> bytes:
        encoded = encode_topic(topic)
        if len(encoded) > MAX_V1_TOPIC_SIZE and not self.auto_version:
            raise InvalidTopic(
                f"the topic has {len(encoded)} bytes, and a V1 record holds at most {MAX_V1_TOPIC_SIZE}",
                advice="switch autoMessageVersionOnTopicLen on",
            )
        return encoded

    def _body(self, body: Buffer) -> bytes:
        try:
            size = memoryview(body).nbytes
        except TypeError:
            raise InvalidMessage(f"a body is bytes, not {type(body).__name__}") from None
        except ValueError:
            raise InvalidMessage("the body is a memoryview that was released") from None
        if size > self.max_message_size:
            raise InvalidMessage(f"the body has {size} bytes, and at most {self.max_message_size} are allowed")
        return bytes(body)

    def _properties(self, message: MessageFields, given: bytes | None, in_batch: bool) -> bytes:
        if given is None:
            packed = encode_properties(merged_properties(message)) if _has_properties(message) else b""
        else:
            packed = bytes(given)
        size = len(packed)
        if self.append_crc:
            kept = packed if in_batch else drop_property(packed, CRC32)
            needs_separator = not in_batch and kept != b"" and not kept.endswith(b"\x02")
            size = len(kept) + needs_separator + CRC_PROPERTY_SIZE
        if size > MAX_PROPERTIES_SIZE:
            raise InvalidMessage(
                f"the properties have {size} bytes, and at most {MAX_PROPERTIES_SIZE} are allowed",
                status="PROPERTIES_SIZE_EXCEEDED",
            )
        return packed

    def _host(self, host: str | None, what: str) -> bytes:
        text = self.store_host if host is None else host
        try:
            packed = self._hosts.get(text)
        except TypeError:  # not even hashable
            packed = None
        if packed is None:
            packed = encode_host(text, what)
            if len(self._hosts) >= _MAX_CACHED_HOSTS:
                self._hosts.clear()
            self._hosts[text] = packed
        return packed


class _Inner:
    """One message of an encoded batch: its own body and flag, all else from the batch."""

    tags: None = None
    keys: tuple[str, ...] = ()
    properties: None = None

    def __init__(self, batch: MessageFields, inner: ClientMessage) -> None:
        self.topic = batch.topic
        self.body = inner.body
        self.queue_id = batch.queue_id
        self.flag = inner.flag
        self.sys_flag = batch.sys_flag
        self.born_timestamp = batch.born_timestamp
        self.born_host = batch.born_host
        self.store_host = batch.store_host
        self.reconsume_times = batch.reconsume_times
        self.prepared_transaction_offset = 0


def encode_host(text: str, what: str) -> bytes:
    """A host as a record holds it."""
    if not isinstance(text, str):
        raise InvalidMessage(f"{what} is text, not {type(text).__name__}")
    try:
        return parse_host(text)
    except FormatError as error:
        raise InvalidMessage(f"{what}: {error.what}", advice=error.advice) from error


def encode_topic(topic: str) -> bytes:
    """A topic in UTF-8, if it can be one and can name a directory."""
    if not isinstance(topic, str):
        raise InvalidTopic(f"a topic is text, not {type(topic).__name__}")
    try:
        encoded = topic.encode()
    except UnicodeEncodeError:
        raise InvalidTopic(f"the topic holds a lone surrogate: {topic[:80]!a}") from None
    if not 1 <= len(encoded) <= MAX_TOPIC_BYTES:
        raise InvalidTopic(f"a topic has 1 to {MAX_TOPIC_BYTES} bytes, not {len(encoded)}")
    if topic in (".", "..") or any(char in "/\\" or char < " " or "\x7f" <= char <= "\x9f" for char in topic):
        raise InvalidTopic(f"a topic names a directory, which this cannot: {topic!a}")
    return encoded


def check_in_batch(message: MessageFields, first: MessageFields) -> None:
    """Raise unless a message may be in one batch with the first."""
    try:
        if message.topic != first.topic or message.queue_id != first.queue_id:
            raise InvalidMessage("the messages of a batch have one topic and one queue")
        if _number("sys_flag", message.sys_flag, _INT32) & TRANSACTION_MASK:
            raise InvalidMessage("a message of a transaction cannot be in a batch")
        if message.prepared_transaction_offset != 0:
            raise InvalidMessage("a message of a batch has no prepared transaction offset")
    except AttributeError as error:
        raise InvalidMessage(f"not a message: {type(message).__name__}") from error


def check_encoded(batch: MessageFields) -> None:
    """Raise unless this can be the outside of an encoded batch."""
    check_in_batch(batch, batch)
    if _has_properties(batch):
        raise InvalidMessage("tags, keys and properties belong to the messages inside of an encoded batch")


def _has_properties(message: MessageFields) -> bool:
    return message.tags is not None or bool(message.keys) or bool(message.properties)


def merged_properties(message: MessageFields) -> dict[str, str]:
    """TAGS, KEYS and the other properties, in the order in which Java's client would put them."""
    merged: dict[str, str] = {}
    if message.tags is not None:
        merged[TAGS] = _text("tags", message.tags)
    if message.keys:
        if isinstance(message.keys, str):
            raise InvalidMessage("keys is a sequence of texts, not one text", advice='write keys=["one"]')
        try:
            merged[KEYS] = KEY_SEPARATOR.join(_text("a key", key) for key in message.keys)
        except TypeError:
            raise InvalidMessage(f"keys is a sequence of texts, not {type(message.keys).__name__}") from None
    for name, value in _pairs(message.properties):
        if name in merged:
            raise InvalidMessage(f"{name} is given twice: as an argument and in properties")
        merged[name] = value
    return merged


def _pairs(properties: Mapping[str, str] | None) -> Iterator[tuple[str, str]]:
    if properties is None:
        return
    if not isinstance(properties, Mapping):
        raise InvalidMessage(f"properties is a mapping, not {type(properties).__name__}")
    for name, value in properties.items():
        plain_name = _text("a property's name", name)
        if plain_name == "":
            raise InvalidMessage("a property has an empty name")
        yield plain_name, _text(f"the property {plain_name!a}", value)


def _text(what: str, text: str) -> str:
    if not isinstance(text, str):
        raise InvalidMessage(f"{what} is text, not {type(text).__name__}")
    text = str.__str__(text)  # a text of the user's own type may compare as it likes
    if "\x01" in text or "\x02" in text:
        raise InvalidMessage(f"{what} holds 0x01 or 0x02, which separate properties: {text[:80]!a}")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InvalidMessage(f"{what} holds a lone surrogate: {text[:80]!a}") from None
    return text


def _number(name: str, value: SupportsIndex, bounds: tuple[int, int]) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidMessage(f"{name} is a number, not {type(value).__name__}") from None
    if not bounds[0] <= number <= bounds[1]:
        raise InvalidMessage(f"{name} is {number}, outside of {bounds[0]} to {bounds[1]}")
    return number
