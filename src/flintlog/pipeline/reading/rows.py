"""Decoded records as the rows that Spark sees.

`record`: every field of the record under its own name, as in `StoredMessage`. `kafka`: the names that queries over
Kafka use, so that they work here. With several stores the first column is the broker.

A time is RocketMQ's milliseconds since 1970 as a timestamp, or with `are_times_numbers` the number itself. A number
that is no time of the years 1 to 9999 (of a damaged record, or an odd producer) is null as a timestamp, because Python
could not show it.

    kafka           is
    key             the first key, or null            binary
    value           the body                          binary
    topic           topic
    partition       queue id                          int
    offset          queue offset                      long
    timestamp       store time                        timestamp
    timestampType   1 (the time of the log)           int
    headers         the properties                    array of (key, value)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from flintlog.errors import DamagedRecord, FlintlogError, InvalidConfig
from flintlog.format.sys_flag import is_compressed

BROKER: Final = "broker"
BODY: Final = "body"
_INTS: Final = ("queue_id", "size", "body_crc", "flag", "sys_flag", "reconsume_times", "magic")
_LONGS: Final = (
    *("queue_offset", "physical_offset", "tags_code", "born_timestamp", "store_timestamp"),
    "prepared_transaction_offset",
)
_RECORD: Final = (
    *("topic", "queue_id", "queue_offset", "physical_offset", "size", "message_id", "tags", "keys", "uniq_key"),
    *("tags_code", "body", "body_crc", "properties", "flag", "sys_flag", "born_timestamp", "born_host"),
    *("store_timestamp", "store_host", "reconsume_times", "prepared_transaction_offset", "magic"),
)
_KAFKA: Final = (
    *(("key", "binary"), ("value", "binary"), ("topic", "string"), ("partition", "int"), ("offset", "bigint")),
    *(("timestamp", "timestamp"), ("timestampType", "int"), ("headers", "array<struct<key:string,value:binary>>")),
)
_HEADER: Final = pa.struct([pa.field("key", pa.utf8(), False), pa.field("value", pa.binary(), False)])
_TIMES: Final = ("born_timestamp", "store_timestamp")
_TIMESTAMP: Final = "timestamp"
_MAY_BE_NULL: Final = frozenset(("tags", "uniq_key", BODY, "key", "value"))
_FIRST_MS: Final = -62_135_510_400_000
_LAST_MS: Final = 253_402_214_400_000
"""A day inside of the years 1 and 9999, so that the time exists in every time zone."""
_ARROW_TYPES: Final = {
    "int": pa.int32(),
    "bigint": pa.int64(),
    "string": pa.utf8(),
    "binary": pa.binary(),
    _TIMESTAMP: pa.timestamp("us", tz="UTC"),
    "array<string>": pa.list_(pa.field("element", pa.utf8(), False)),
    "map<string,string>": pa.map_(pa.utf8(), pa.field("value", pa.utf8(), False)),
    "array<struct<key:string,value:binary>>": pa.list_(pa.field("element", _HEADER, False)),
}
_LOG_APPEND_TIME: Final = 1
_KAFKA_FIELDS: Final = {
    "key": "keys",
    "value": BODY,
    "partition": "queue_id",
    "offset": "queue_offset",
    "timestamp": "store_timestamp",
    "headers": "properties",
}
"""The field of the record that a column of Kafka's is made from, where it has another name."""


@dataclass(frozen=True, slots=True)
class RowShape:
    """Which columns rows have."""

    kind: str = "record"
    include_body: bool = True
    with_broker: bool = False
    chosen: tuple[str, ...] | None = None
    are_times_numbers: bool = True

    def __post_init__(self) -> None:
        unknown = set(self.chosen or ()) - {name for name, _ in self._all()}
        if unknown:
            there = ", ".join(name for name, _ in self._all())
            raise InvalidConfig(
                f"option columns names {min(unknown)!r}, which is no column", advice=f"there are: {there}"
            )

    def columns(self) -> list[tuple[str, str]]:
        """Names and Spark's types, in the order of the schema."""
        return [each for each in self._all() if self.chosen is None or each[0] in self.chosen]

    def fields(self) -> frozenset[str]:
        """The fields of a record that these columns are made from."""
        return frozenset(map(self.field_of, (name for name, _ in self.columns()))) - {BROKER, "timestampType"}

    def field_of(self, column: str) -> str:
        """The field of a record that a column is made from."""
        return _KAFKA_FIELDS.get(column, column) if self.kind == "kafka" else column

    def of_schema(self, given: Iterable[tuple[str, str]]) -> RowShape:
        """The columns that a schema of the user's names, by name and Spark's type; others are refused."""
        types, names = dict(self.columns()), []
        for name, kind in given:
            if name not in types:
                there = ", ".join(types)
                raise InvalidConfig(f"the schema names {name!r}, which is no column", advice=f"there are: {there}")
            if kind != types[name]:
                raise InvalidConfig(f"the schema says that {name} is {kind}", advice=f"it is {types[name]}")
            names.append(name)
        return replace(self, chosen=tuple(names))

    def _all(self) -> list[tuple[str, str]]:
        own = list(_KAFKA) if self.kind == "kafka" else [(name, self._record_type(name)) for name in _RECORD]
        left_out = () if self.include_body else (BODY, "value")
        return [*([(BROKER, "string")] if self.with_broker else []), *(each for each in own if each[0] not in left_out)]

    def _record_type(self, name: str) -> str:
        return _TIMESTAMP if name in _TIMES and not self.are_times_numbers else _record_type(name)

    def declared(self) -> pa.Schema:
        """The columns as declared to Spark. It checks nullable columns for nulls, twice for each row."""
        fields = [
            pa.field(name, _ARROW_TYPES[kind], name in _MAY_BE_NULL or kind == _TIMESTAMP)
            for name, kind in self.columns()
        ]
        return pa.schema(fields)

    def batch(self, records: pa.RecordBatch, broker: str) -> pa.RecordBatch:
        """The rows of decoded records."""
        names = [name for name, _ in self.columns()]
        return pa.record_batch([self._array(name, records, broker) for name in names], names=names)

    def _array(self, name: str, records: pa.RecordBatch, broker: str) -> pa.Array:
        if name == BROKER:
            return pa.repeat(pa.scalar(broker, pa.utf8()), records.num_rows)
        if name == "timestampType":
            return pa.repeat(pa.scalar(_LOG_APPEND_TIME, pa.int32()), records.num_rows)
        column = records.column(self.field_of(name))
        make = _KAFKA_ARRAYS.get(name) if self.kind == "kafka" else None
        if make is None and name in _TIMES and not self.are_times_numbers:
            make = to_timestamps
        return column if make is None else make(column)


def _record_type(name: str) -> str:
    if name in _INTS:
        return "int"
    if name in _LONGS:
        return "bigint"
    return {"keys": "array<string>", "properties": "map<string,string>", BODY: "binary"}.get(name, "string")


def to_timestamps(milliseconds: pa.Array) -> pa.Array:
    """Milliseconds since 1970 as timestamps; null where they are no time.

    >>> [str(each) for each in to_timestamps(pa.array([0, 1 << 62])).to_pylist()]
    ['1970-01-01 00:00:00+00:00', 'None']
    """
    is_time = pc.and_(pc.greater_equal(milliseconds, _FIRST_MS), pc.less_equal(milliseconds, _LAST_MS))
    milliseconds = pc.if_else(is_time, milliseconds, pa.scalar(None, pa.int64()))
    return pc.multiply(milliseconds, 1000).cast(_ARROW_TYPES[_TIMESTAMP])


def _first_key(keys: pa.ListArray) -> pa.Array:
    has_any = pc.greater(pc.list_value_length(keys), 0)
    places = pc.if_else(has_any, keys.offsets[:-1], pa.scalar(None, pa.int32()))
    return keys.values.take(places).cast(pa.binary())


def _headers(properties: pa.MapArray) -> pa.ListArray:
    entries = pa.StructArray.from_arrays(
        [properties.keys, properties.items.cast(pa.binary())], fields=[_HEADER.field(0), _HEADER.field(1)]
    )
    return pa.ListArray.from_arrays(properties.offsets, entries)


_KAFKA_ARRAYS: Final = {"key": _first_key, "timestamp": to_timestamps, "headers": _headers}


def decompressed(records: pa.RecordBatch, *, lenient: bool) -> pa.RecordBatch:
    """The same records with decompressed bodies. A body that cannot be is an error, or null if `lenient`."""
    from flintlog.store.model.compression import decompress

    if BODY not in records.schema.names:
        return records
    flags = records.column("sys_flag").to_pylist()
    packed = [place for place, flag in enumerate(flags) if is_compressed(flag)]
    if not packed:
        return records
    column = records.column(BODY)
    bodies = column.to_pylist()
    for place in packed:
        try:
            bodies[place] = decompress(bodies[place], flags[place])
        except FlintlogError as error:
            if not lenient:
                offset = records.column("physical_offset")[place].as_py()
                raise DamagedRecord(
                    f"the body cannot be unpacked: {error}", offset=offset, advice="failOnDataLoss=false makes it null"
                ) from error
            bodies[place] = None
    place = records.schema.get_field_index(BODY)
    return records.set_column(place, BODY, pa.array(bodies, pa.binary()))
