"""Encodes messages as records and appends them at the tail of the log.

Everything is checked before the first byte is written. A record's first 8 bytes (size and magic) are written last, so
neither a reader nor a recovery after a crash takes a half-written record for a whole one. The records of a batch are
completed in their order: a gap followed by whole records would look like damage.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from flintlog.errors import FormatError, InvalidMessage, InvalidTopic
from flintlog.format.client_batch import ClientMessage, parse_client_batch
from flintlog.format.message_fields import (
    INT32,
    INT64,
    MessageFields,
    check_encoded,
    check_in_batch,
    check_number,
    encode_host,
    has_properties,
    merged_properties,
)
from flintlog.format.properties import (
    CRC32,
    MAX_PROPERTIES_SIZE,
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
from flintlog.format.topics import encode_topic
from flintlog.kernel.reference.tails import Tail
from flintlog.kernel.types import END_OF_FILE, Buffer, Moves

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
        """Write the messages of one queue one after another, all or none.

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
                # Its record would look like one that a crash cut off (`Record.lacks_its_end`).
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
        store_time = check_number("store_timestamp", store_timestamp, INT64)
        born_time = message.born_timestamp
        record = Record(
            topic_bytes=topic,
            body=body,
            queue_id=check_number("queue_id", message.queue_id, (0, INT32[1])),
            queue_offset=check_number("queue_offset", queue_offset, INT64),
            physical_offset=physical_offset,
            flag=check_number("flag", message.flag, INT32),
            sys_flag=check_number("sys_flag", message.sys_flag, INT32),
            born_timestamp=store_time if born_time is None else check_number("born_timestamp", born_time, INT64),
            born_host=self._host(message.born_host, "born_host"),
            store_timestamp=store_time,
            store_host=self._host(message.store_host, "store_host"),
            reconsume_times=check_number("reconsume_times", message.reconsume_times, INT32),
            prepared_transaction_offset=check_number(
                "prepared_transaction_offset", message.prepared_transaction_offset, INT64
            ),
            body_crc=body_crc(body),
            properties=packed_properties,
            magic=magic_of_topic(topic),
        )
        # With host bits that do not match the hosts, the record could not be parsed.
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
            packed = encode_properties(merged_properties(message)) if has_properties(message) else b""
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
