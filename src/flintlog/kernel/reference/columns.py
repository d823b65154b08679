"""Records of the log as columns in Arrow's layout, one for each field of a stored message."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Sequence
from typing import Final

from flintlog.format.message_id import format_host
from flintlog.format.properties import TAGS, UNIQ_KEY
from flintlog.format.record import Record
from flintlog.kernel.reference.scanning import check_range
from flintlog.kernel.reference.walk import keys_of, place_after, record_at, tags_code
from flintlog.kernel.types import Buffer, Column, Crc, ScanStop

MAX_DECODED_BYTES: Final = 1 << 29

_INT32_FIELDS: Final = ("queue_id", "size", "body_crc", "flag", "sys_flag", "reconsume_times", "magic")
_INT64_FIELDS: Final = (
    "queue_offset",
    "physical_offset",
    "tags_code",
    "born_timestamp",
    "store_timestamp",
    "prepared_transaction_offset",
)


class Decoded:
    """Columns of `count` messages, and where and why the decoding ended (a `ScanStop`, as in a scan)."""

    __slots__ = ("columns", "count", "end", "reason")

    def __init__(self, columns: dict[str, Column], count: int, end: int, reason: ScanStop) -> None:
        self.columns = columns
        self.count = count
        self.end = end
        self.reason = reason


class _Texts:
    """A growing column of texts or bytes, with nulls."""

    __slots__ = ("_data", "_kind", "_offsets", "_present")

    def __init__(self, kind: str = "utf8") -> None:
        self._kind = kind
        self._present: list[bool] = []
        self._offsets = array("i", [0])
        self._data = bytearray()

    def add(self, value: str | bytes | memoryview | None) -> None:
        self._present.append(value is not None)
        if value is not None:
            self._data += value.encode() if isinstance(value, str) else value
        self._offsets.append(len(self._data))

    def __len__(self) -> int:
        return len(self._present)

    def column(self) -> Column:
        null_count = self._present.count(False)
        validity = _bitmap(self._present) if null_count else None
        return Column(
            self._kind, len(self._present), null_count, validity, self._offsets.tobytes(), bytes(self._data)
        )  # fmt: skip


class _Columns:
    """All columns of one decoding."""

    def __init__(self, include_body: bool, wanted: Collection[str] | None) -> None:
        self._wanted = wanted
        self._int32 = {name: array("i") for name in _INT32_FIELDS}
        self._int64 = {name: array("q") for name in _INT64_FIELDS}
        self._texts = {
            name: _Texts() for name in ("topic", "message_id", "tags", "uniq_key", "born_host", "store_host")
        }  # fmt: skip
        self._body = _Texts("binary") if include_body else None
        self._key_offsets, self._keys = array("i", [0]), _Texts()
        self._property_offsets, self._names, self._values = array("i", [0]), _Texts(), _Texts()
        self.count = 0

    def add(self, record: Record, delay_levels_ms: Sequence[int]) -> None:
        properties = record.property_map()
        for name, int32s in self._int32.items():
            int32s.append(getattr(record, name))
        for name, int64s in self._int64.items():
            int64s.append(tags_code(record, delay_levels_ms) if name == "tags_code" else getattr(record, name))
        texts = self._texts
        texts["topic"].add(record.topic)
        texts["message_id"].add(record.message_id)
        texts["tags"].add(properties.get(TAGS))
        texts["uniq_key"].add(properties.get(UNIQ_KEY))
        texts["born_host"].add(format_host(record.born_host))
        texts["store_host"].add(format_host(record.store_host))
        if self._body is not None:
            self._body.add(record.body)
        self._add_nested(properties)
        self.count += 1

    def _add_nested(self, properties: dict[str, str]) -> None:
        for key in keys_of(properties):
            self._keys.add(key)
        self._key_offsets.append(len(self._keys))
        for name, value in properties.items():
            self._names.add(name)
            self._values.add(value)
        self._property_offsets.append(len(self._names))

    def columns(self) -> dict[str, Column]:
        columns = {
            name: Column("int32", self.count, 0, None, None, data.tobytes()) for name, data in self._int32.items()
        }
        for name, data in self._int64.items():
            columns[name] = Column("int64", self.count, 0, None, None, data.tobytes())
        for name, texts in self._texts.items():
            columns[name] = texts.column()
        if self._body is not None:
            columns["body"] = self._body.column()
        columns["keys"] = Column("list", self.count, 0, None, self._key_offsets.tobytes(), None)
        columns["keys.item"] = self._keys.column()
        columns["properties"] = Column("map", self.count, 0, None, self._property_offsets.tobytes(), None)
        columns["properties.key"] = self._names.column()
        columns["properties.value"] = self._values.column()
        return {name: columns[name] for name in columns if self._is_wanted(name.partition(".")[0])}

    def _is_wanted(self, name: str) -> bool:
        return self._wanted is None or name in self._wanted

    @property
    def with_body(self) -> bool:
        return self._body is not None and self._is_wanted("body")


def decode(
    buffer: Buffer,
    start: int,
    stop: int,
    base: int,
    *,
    include_body: bool = True,
    topics: frozenset[bytes] | None = None,
    max_rows: int = 65536,
    max_bytes: int = 64 << 20,
    delay_levels_ms: Sequence[int] = (),
    check_crc: int = Crc.NONE,
    columns: Collection[str] | None = None,
) -> Decoded:
    """The records of buffer[start:stop] (of these topics, if given) as columns, or as those that are named.

    Ends early with LIMIT at `max_rows` messages, or before the message that would exceed `max_bytes` (the first
    message is always included); the caller continues at `end`. `check_crc` is a `types.Crc`: decoding also ends
    before a record that does not match its sums.
    """
    found = _Columns(include_body, columns)
    left = min(max_bytes, MAX_DECODED_BYTES)
    with memoryview(buffer).cast("B") as view:
        check_range(view, start, stop)
        position = start
        while not isinstance(record := record_at(view, position, stop, base, check_crc), ScanStop):
            if topics is None or record.topic_bytes in topics:
                left -= _decoded_size(found, record)
                if found.count and (left < 0 or found.count >= max_rows):
                    return Decoded(found.columns(), found.count, position, ScanStop.LIMIT)
                found.add(record, delay_levels_ms)
            position = place_after(record, base)
    return Decoded(found.columns(), found.count, position, record)


def decode_at(
    buffer: Buffer,
    places: array[int],
    base: int,
    *,
    include_body: bool = True,
    max_rows: int = 65536,
    max_bytes: int = 64 << 20,
    delay_levels_ms: Sequence[int] = (),
    columns: Collection[str] | None = None,
) -> Decoded:
    """The records at these places of the buffer (an array of int64) as columns.

    `end` is how many of them were decoded. Ends early as `decode` does, or before a place where no record begins.
    """
    found = _Columns(include_body, columns)
    left = min(max_bytes, MAX_DECODED_BYTES)
    with memoryview(buffer).cast("B") as view:
        for done, place in enumerate(places):
            is_inside = 0 <= place <= len(view)
            record = record_at(view, place, len(view), base) if is_inside else ScanStop.NO_RECORD
            if isinstance(record, ScanStop):
                return Decoded(found.columns(), found.count, done, record)
            left -= _decoded_size(found, record)
            if found.count and (left < 0 or found.count >= max_rows):
                return Decoded(found.columns(), found.count, done, ScanStop.LIMIT)
            found.add(record, delay_levels_ms)
    return Decoded(found.columns(), found.count, len(places), ScanStop.LIMIT)


def _decoded_size(found: _Columns, record: Record) -> int:
    return record.size if found.with_body else record.size - len(record.body)


def _bitmap(present: list[bool]) -> bytes:
    bits = bytearray((len(present) + 7) // 8)
    for index, is_present in enumerate(present):
        bits[index // 8] |= is_present << index % 8
    return bytes(bits)
