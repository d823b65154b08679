"""Makes messages of rows: which columns a sink takes, and what they mean.

    column                      type                             Kafka's name
    topic                       string                           topic          or the option topic
    body                        binary, string                   value
    tags                        string
    keys                        array<string>, string            key            (string or binary: one key)
    queue_id                    int, long                        partition      0 when it is null or missing
    properties                  map<string,string>               headers        TAGS and KEYS give way to their columns
    flag, sys_flag,             int
    reconsume_times
    born_timestamp              timestamp, long (ms)                            now when it is null or missing
    born_host                   string

The other columns of the source are set by the store (offsets, sizes, store time). They are ignored, so that rows of the
source can be written. A column of any other name is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
import pyarrow as pa

from flintlog.errors import InvalidConfig, InvalidMessage
from flintlog.format.properties import KEYS, TAGS
from flintlog.format.sys_flag import BORN_HOST_V6, STORE_HOST_V6
from flintlog.kernel import Encoder, Tail
from flintlog.store.model.message import Message
from flintlog.store.options.option import did_you_mean

_NUMBER: Final = ("tinyint", "smallint", "int", "bigint")
_TEXT: Final = ("string",)
_BYTES: Final = ("binary", "string")
TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "topic": _TEXT,
    "body": _BYTES,
    "tags": _TEXT,
    "keys": ("array<string>", "string"),
    "queue_id": _NUMBER,
    "properties": ("map<string,string>",),
    "flag": _NUMBER,
    "sys_flag": _NUMBER,
    "reconsume_times": _NUMBER,
    "born_timestamp": (*_NUMBER, "timestamp"),
    "born_host": _TEXT,
    "value": _BYTES,
    "key": _BYTES,
    "partition": _NUMBER,
    "headers": ("array<struct<key:string,value:binary>>",),
}
KAFKA: Final = {"value": "body", "key": "keys", "partition": "queue_id", "headers": "properties"}
OF_THE_STORE: Final = frozenset(
    {
        *("queue_offset", "physical_offset", "size", "message_id", "uniq_key", "tags_code", "body_crc", "magic"),
        *("store_timestamp", "store_host", "prepared_transaction_offset", "broker", "offset", "timestamp"),
        "timestampType",
    }
)
_HOST_BITS: Final = BORN_HOST_V6 | STORE_HOST_V6
_ANY_HOST: Final = "127.0.0.1:0"
_MAX_HEAD_BYTES: Final = 128 * 1024
"""An upper bound for the parts of a record without its body."""


class StagedMessage(msgspec.Struct, array_like=True, gc=False):
    """A message on its way from a task to the log."""

    topic: str
    body: bytes
    tags: str | None
    keys: list[str]
    queue_id: int
    properties: dict[str, str] | None
    flag: int
    sys_flag: int
    reconsume_times: int
    born_timestamp: int | None
    born_host: str | None

    def message(self) -> Message:
        return Message(
            self.topic,
            self.body,
            tags=self.tags,
            keys=self.keys,
            queue_id=self.queue_id,
            properties=self.properties,
            flag=self.flag,
            sys_flag=self.sys_flag,
            reconsume_times=self.reconsume_times,
            born_timestamp=self.born_timestamp,
            born_host=self.born_host,
        )


def check_columns(columns: Mapping[str, str], *, has_topic: bool) -> None:
    """`InvalidConfig` unless these columns, by name and Spark's type, can be messages."""
    for name, kind in columns.items():
        if name in OF_THE_STORE:
            continue
        if name not in TYPES:
            advice = did_you_mean(name, TYPES) or f"there are: {', '.join(TYPES)}"
            raise InvalidConfig(f"a message has no column {name}", advice=advice)
        if kind not in TYPES[name]:
            raise InvalidConfig(f"column {name} is {kind}", advice=f"it can be {' or '.join(TYPES[name])}")
        if KAFKA.get(name) in columns:
            raise InvalidConfig(f"columns {name} and {KAFKA[name]} are the same part of a message", advice="drop one")
    if "topic" not in columns and not has_topic:
        raise InvalidConfig("the rows have no column topic", advice="add one, or set option topic")
    if "body" not in columns and "value" not in columns:
        raise InvalidConfig(
            "the rows have no column body", advice="binary or string; value, as Kafka calls it, will do"
        )


class RowMessages:
    """Makes messages of a task's rows. Each is encoded once, so that an invalid message fails here, not later."""

    def __init__(self, topic: str | None, max_message_bytes: int) -> None:
        self._topic = topic
        self._encoder = Encoder(Message, store_host=_ANY_HOST, max_message_size=max_message_bytes)
        self._scratch = Tail(memoryview(bytearray(max_message_bytes + _MAX_HEAD_BYTES)), 0, 0)

    def of(self, batch: pa.RecordBatch) -> Iterator[StagedMessage]:
        names = [KAFKA.get(name, name) for name in batch.schema.names]
        wanted = [
            (name, _plain(column).to_pylist())
            for name, column in zip(names, batch.columns, strict=True)
            if _is_ours(name)
        ]
        for number in range(batch.num_rows):
            yield self._staged({name: values[number] for name, values in wanted})

    def _staged(self, row: dict[str, object]) -> StagedMessage:
        tags, keys = row.get("tags"), _keys(row.get("keys"))
        staged = msgspec.convert(
            (
                row.get("topic") or self._topic or "",
                _body(row.get("body")),
                tags,
                keys,
                row.get("queue_id") or 0,
                _properties(row.get("properties"), {TAGS: tags, KEYS: keys}),
                row.get("flag") or 0,
                _sys_flag(row.get("sys_flag")),
                row.get("reconsume_times") or 0,
                row.get("born_timestamp"),
                row.get("born_host"),
            ),
            StagedMessage,
        )
        self._scratch.position = 0
        self._encoder.append(self._scratch, staged.message(), 0, 0)
        return staged


def _plain(column: pa.Array) -> pa.Array:
    """The column, with timestamps as milliseconds since 1970."""
    return (
        column.cast(pa.timestamp("ms"), safe=False).cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
    )


def _is_ours(name: str) -> bool:
    return name in TYPES and name not in KAFKA


def _body(given: object) -> bytes:
    if isinstance(given, str):
        return given.encode()
    if not isinstance(given, bytes):
        raise InvalidMessage("a row has no body", advice="filter out what is null, or make it empty")
    return given


def _keys(given: object) -> list[str]:
    if given is None:
        return []
    if isinstance(given, list):
        return [str(key) for key in given if key is not None]
    try:
        return [given.decode() if isinstance(given, bytes) else str(given)]
    except UnicodeDecodeError:
        raise InvalidMessage(f"a key is text, not {given!r:.80}") from None


def _sys_flag(given: object) -> int:
    """The flags without the host bits: the encoder sets those for the hosts of its own record."""
    return given & ~_HOST_BITS if isinstance(given, int) else 0


def _properties(given: object, columns: Mapping[str, object]) -> dict[str, str] | None:
    """The properties without those that columns give; a map yields pairs, Kafka's headers are structs."""
    if not isinstance(given, list):
        return None
    found: dict[str, str] = {}
    for each in given:
        name, value = each if isinstance(each, tuple) else (each["key"], each["value"])
        if value is not None and not columns.get(name):
            found[name] = value if isinstance(value, str) else value.decode(errors="replace")
    return found or None
