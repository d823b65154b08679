"""Any file of a store as rows, one for each part, with byte offsets and field names; and from rows back to the file.

Rows cover the file without gaps: bytes that are no record, entry or slot make a row of `zeros`, or of `raw` bytes. So a
damaged file is shown as far as it can be read, and

    encode_rows(dump_file(kind, data)) == data          for every file, whole or broken
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, fields
from typing import TypeVar

from flintlog import kernel
from flintlog.derive.index_plan import index_layout
from flintlog.errors import FormatError, InvalidConfig
from flintlog.format.checkpoint import Checkpoint, encode_checkpoint, parse_checkpoint
from flintlog.format.index_file import ENTRY_SIZE as INDEX_ENTRY_SIZE
from flintlog.format.index_file import (
    HEADER_SIZE,
    IndexEntry,
    IndexHeader,
    IndexLayout,
    encode_index_entry,
    encode_index_header,
    encode_slot,
    parse_index_entry,
    parse_index_header,
    parse_slot,
)
from flintlog.format.ledger import (
    ENTRY_HEAD_SIZE,
    INDEX_RECORD_SIZE,
    EntryHead,
    IndexRecord,
    encode_entry_blank,
    encode_entry_head,
    encode_index_record,
    parse_entry_blank,
    parse_entry_head,
    parse_index_record,
)
from flintlog.format.message_id import format_host, parse_host
from flintlog.format.queue_entry import (
    BATCH_ENTRY_SIZE,
    ENTRY_SIZE,
    MIN_UNIT_SIZE,
    UNIT_END_MARK,
    BatchQueueEntry,
    ExtensionUnit,
    QueueEntry,
    encode_batch_queue_entry,
    encode_extension_unit,
    encode_queue_entry,
    parse_batch_queue_entry,
    parse_extension_unit,
    parse_queue_entry,
)
from flintlog.format.record import Record, encode_blank, encode_record, parse_blank, parse_record
from flintlog.format.timer import CHECKPOINT, SLOT, UNIT

Row = Mapping[str, object]
Numbers = TypeVar("Numbers")

_TIMER_NAMES = (
    *("unit_size", "previous_position", "magic", "write_time", "delay_ms", "physical_offset", "record_size"),
    *("topic_hash", "reserved"),
)
_SLOT_NAMES = ("time_slot", "first_position", "last_position", "count", "magic")
_CHECK_NAMES = (
    *("last_read_time", "last_timer_log_flush_position", "last_timer_queue_offset", "master_timer_queue_offset"),
    *("state_version", "timestamp", "counter"),
)


def dump_file(kind: str, data: memoryview) -> Iterator[Row]:
    """The rows of a file of this kind; see `file_kinds.kind_of` for the kinds."""
    if kind not in _DUMPERS:
        raise InvalidConfig(f"there is no file type {kind!r}", advice=f"one of {', '.join(_DUMPERS)}")
    at = 0
    for row in _DUMPERS[kind](data):
        yield row
        at = _number(row, "offset") + _number(row, "size")
    yield from _rest(data, at, len(data))


def encode_rows(rows: Iterable[Row]) -> bytes:
    """The bytes that rows stand for."""
    return b"".join(_ENCODERS[str(row["kind"])](row) for row in rows)


# ---------------------------------------------------------------------- parts of any file


def _rest(data: memoryview, start: int, stop: int) -> Iterator[Row]:
    """Bytes of no known meaning, and the zeros after them."""
    written = kernel.written_end(data, start, stop)
    if written > start:
        yield {"offset": start, "size": written - start, "kind": "raw", "bytes": bytes(data[start:written]).hex()}
    if stop > written:
        yield {"offset": written, "size": stop - written, "kind": "zeros"}


def _number(row: Row, name: str) -> int:
    value = row[name]
    if not isinstance(value, int):
        raise FormatError(f"{name} is no number: {value!r}")
    return value


# ---------------------------------------------------------------------- the log


def _dump_log(data: memoryview) -> Iterator[Row]:
    place = 0
    while place < len(data):
        remaining = parse_blank(data, place)
        if remaining is not None:
            yield {"offset": place, "size": 8, "kind": "blank", "remaining": remaining}
            return
        blank = _dump_ledger_blank(data, place)
        if blank is not None:
            yield blank
            return
        head = _dump_head(data, place)
        if head is not None:
            yield head
            place += _number(head, "size")
            continue
        try:
            record = parse_record(data, place)
        except FormatError:
            found = _next_record(data, place + 1)
            if found is None:
                return
            yield from _rest(data, place, found)
            place = found
            continue
        yield {"offset": place, "size": record.size, "kind": "record", **_record_fields(record)}
        place += record.size


def _next_record(data: memoryview, place: int) -> int | None:
    """The next place that parses as a record. Physical offsets are not compared: the file's own is not known."""
    end = kernel.written_end(data, place, len(data)) if place < len(data) else place
    while place < end:
        at = bytes(data[place : place + (1 << 20) + 8]).find(b"\xda\xa3\x20", 4)
        if at < 0:
            place += 1 << 20
            continue
        try:
            parse_record(data, place + at - 4)
        except FormatError:
            place += at - 3
        else:
            return place + at - 4
    return None


def _record_fields(record: Record) -> dict[str, object]:
    shown: dict[str, object] = {}
    for field in fields(Record):
        value = getattr(record, field.name)
        if field.name in ("born_host", "store_host"):
            shown[field.name] = format_host(value)
        elif field.name in ("topic_bytes", "properties"):
            shown |= _text(field.name.removesuffix("_bytes"), value)
        else:
            shown[field.name] = value.hex() if isinstance(value, bytes) else value
    return shown


def _text(name: str, value: bytes) -> dict[str, object]:
    """Bytes as text if they are UTF-8, otherwise in hexadecimal."""
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_hex": value.hex()}


def _bytes_of(row: Row, name: str) -> bytes:
    return bytes.fromhex(str(row[f"{name}_hex"])) if f"{name}_hex" in row else str(row[name]).encode()


def _encode_record(row: Row) -> bytes:
    texts = {"topic_bytes": _bytes_of(row, "topic"), "properties": _bytes_of(row, "properties")}
    hosts = {name: parse_host(str(row[name])) for name in ("born_host", "store_host")}
    done = {"body", *texts, *hosts}
    numbers = {field.name: _number(row, field.name) for field in fields(Record) if field.name not in done}
    return encode_record(Record(body=bytes.fromhex(str(row["body"])), **texts, **hosts, **numbers))  # type: ignore[arg-type]


# ---------------------------------------------------------------------- ledger


def _dump_head(data: memoryview, place: int) -> Row | None:
    """The head of an entry; None where none is."""
    try:
        head = parse_entry_head(data, place)
        if encode_entry_head(head) != data[place : place + ENTRY_HEAD_SIZE]:
            return None
    except FormatError:
        return None
    return {"offset": place, "size": ENTRY_HEAD_SIZE, "kind": "ledger-head", **asdict(head)}


def _dump_ledger_blank(data: memoryview, place: int) -> Row | None:
    """A ledger's blank; None where none is."""
    remaining = parse_entry_blank(data, place)
    if remaining is None or remaining < 8:
        return None
    return {"offset": place, "size": 8, "kind": "ledger-blank", "remaining": remaining}


def _dump_ledger_index(data: memoryview) -> Iterator[Row]:
    """The records of an index file, up to the first that is none."""
    for place in range(0, len(data) - INDEX_RECORD_SIZE + 1, INDEX_RECORD_SIZE):
        try:
            record = parse_index_record(data, place)
        except FormatError:
            return
        shown = {"position": record.position, "entry_size": record.size, "index": record.index, "term": record.term}
        yield {"offset": place, "size": INDEX_RECORD_SIZE, "kind": "ledger-index", **shown}


# ---------------------------------------------------------------------- queues


def _dump_queue(data: memoryview) -> Iterator[Row]:
    for place in range(0, _used(data, ENTRY_SIZE), ENTRY_SIZE):
        entry = parse_queue_entry(data, place)
        shown = {"physical_offset": entry.physical_offset, "record_size": entry.size, "tags_code": entry.tags_code}
        yield {"offset": place, "size": ENTRY_SIZE, "kind": "entry", **shown}


def _dump_batch_queue(data: memoryview) -> Iterator[Row]:
    for place in range(0, _used(data, BATCH_ENTRY_SIZE), BATCH_ENTRY_SIZE):
        shown = asdict(parse_batch_queue_entry(data, place))
        shown["record_size"] = shown.pop("size")
        yield {"offset": place, "size": BATCH_ENTRY_SIZE, "kind": "batch-entry", **shown}


def _used(data: memoryview, unit: int) -> int:
    """Whole entries up to the last byte that is not zero."""
    end = -(-kernel.written_end(data, 0, len(data)) // unit) * unit
    return min(end, len(data) - len(data) % unit)


def _dump_extension(data: memoryview) -> Iterator[Row]:
    place = 0
    while place + MIN_UNIT_SIZE <= len(data):
        if bytes(data[place : place + len(UNIT_END_MARK)]) == UNIT_END_MARK:
            yield {"offset": place, "size": len(UNIT_END_MARK), "kind": "end-mark"}
            return
        try:
            unit = parse_extension_unit(data, place)
        except FormatError:
            return
        shown = {"tags_code": unit.tags_code, "store_timestamp": unit.store_timestamp, "bitmap": unit.bitmap.hex()}
        yield {"offset": place, "size": unit.size, "kind": "unit", **shown}
        place += unit.size


def _encode_unit(row: Row) -> bytes:
    bitmap = bytes.fromhex(str(row["bitmap"]))
    return encode_extension_unit(ExtensionUnit(_number(row, "tags_code"), _number(row, "store_timestamp"), bitmap))


# ---------------------------------------------------------------------- index


def _dump_index(data: memoryview) -> Iterator[Row]:
    layout = index_layout(data)
    if layout is None:
        return
    yield {"offset": 0, "size": HEADER_SIZE, "kind": "header", **asdict(parse_index_header(data))}
    yield from _dump_slots(data, layout)
    first = layout.entry_position(0)
    end = kernel.written_end(data, first, len(data))
    for number in range(-(-(end - first) // INDEX_ENTRY_SIZE)):
        shown = asdict(parse_index_entry(data, layout, number))
        place = layout.entry_position(number)
        yield {"offset": place, "size": INDEX_ENTRY_SIZE, "kind": "index-entry", "number": number, **shown}


def _dump_slots(data: memoryview, layout: IndexLayout) -> Iterator[Row]:
    """Slots in use; empty ones in between are zeros."""
    at = HEADER_SIZE
    for slot in range(layout.slot_count):
        entry = parse_slot(data, layout, slot)
        if entry:
            place = layout.slot_position(slot)
            if place > at:
                yield {"offset": at, "size": place - at, "kind": "zeros"}
            yield {"offset": place, "size": 4, "kind": "slot", "number": slot, "entry": entry}
            at = place + 4
    if layout.entry_position(0) > at:
        yield {"offset": at, "size": layout.entry_position(0) - at, "kind": "zeros"}


# ---------------------------------------------------------------------- small files


def _dump_checkpoint(data: memoryview) -> Iterator[Row]:
    if len(data) >= 48:
        yield {"offset": 0, "size": 48, "kind": "checkpoint", **asdict(parse_checkpoint(data))}


def _dump_text(data: memoryview) -> Iterator[Row]:
    if len(data):
        yield {"offset": 0, "size": len(data), "kind": "text", **_text("text", bytes(data))}


# ---------------------------------------------------------------------- timer


def _dump_timer_log(data: memoryview) -> Iterator[Row]:
    for place in range(0, len(data) - UNIT.size + 1, UNIT.size):
        shown = dict(zip(_TIMER_NAMES, UNIT.unpack_from(data, place), strict=True))
        if shown["unit_size"] != UNIT.size:
            return
        yield {"offset": place, "size": UNIT.size, "kind": "timer-unit", **shown}


def _dump_timer_wheel(data: memoryview) -> Iterator[Row]:
    """Slots in use; empty ones in between are zeros."""
    at, size = 0, SLOT.size
    end = kernel.written_end(data, 0, len(data))
    for place in range(0, min(-(-end // size) * size, len(data) - size + 1), size):
        found = SLOT.unpack_from(data, place)
        if any(found):
            if place > at:
                yield {"offset": at, "size": place - at, "kind": "zeros"}
            shown = dict(zip(_SLOT_NAMES, found, strict=True))
            yield {"offset": place, "size": size, "kind": "wheel-slot", "number": place // size, **shown}
            at = place + size


def _dump_timer_check(data: memoryview) -> Iterator[Row]:
    if len(data) >= CHECKPOINT.size:
        shown = dict(zip(_CHECK_NAMES, CHECKPOINT.unpack_from(data), strict=True))
        yield {"offset": 0, "size": CHECKPOINT.size, "kind": "timer-check", **shown}


def _packer(layout: struct.Struct, names: tuple[str, ...]) -> Callable[[Row], bytes]:
    return lambda row: layout.pack(*(_number(row, name) for name in names))


def _encoder(kind: type[Numbers], encode: Callable[[Numbers], bytes], size: str = "size") -> Callable[[Row], bytes]:
    """Encodes rows of a dataclass of numbers; `size` is the name of its size in a row."""
    names = [size if field.name == "size" else field.name for field in fields(kind)]  # type: ignore[arg-type]
    return lambda row: encode(kind(*(_number(row, name) for name in names)))


_DUMPERS: Mapping[str, Callable[[memoryview], Iterator[Row]]] = {
    "log": _dump_log,
    "queue": _dump_queue,
    "batch-queue": _dump_batch_queue,
    "extension": _dump_extension,
    "index": _dump_index,
    "ledger-index": _dump_ledger_index,
    "ledger-state": _dump_text,
    "checkpoint": _dump_checkpoint,
    "config": _dump_text,
    "abort": _dump_text,
    "lock": _dump_text,
    "timer-log": _dump_timer_log,
    "timer-wheel": _dump_timer_wheel,
    "timer-check": _dump_timer_check,
}
FILE_KINDS = tuple(_DUMPERS)
_ENCODERS: Mapping[str, Callable[[Row], bytes]] = {
    "raw": lambda row: bytes.fromhex(str(row["bytes"])),
    "zeros": lambda row: bytes(_number(row, "size")),
    "record": _encode_record,
    "blank": lambda row: encode_blank(_number(row, "remaining")),
    "ledger-head": _encoder(EntryHead, encode_entry_head),
    "ledger-blank": lambda row: encode_entry_blank(_number(row, "remaining")),
    "ledger-index": _encoder(IndexRecord, encode_index_record, "entry_size"),
    "entry": _encoder(QueueEntry, encode_queue_entry, "record_size"),
    "batch-entry": _encoder(BatchQueueEntry, encode_batch_queue_entry, "record_size"),
    "unit": _encode_unit,
    "end-mark": lambda _row: UNIT_END_MARK,
    "header": _encoder(IndexHeader, encode_index_header),
    "slot": lambda row: encode_slot(_number(row, "entry")),
    "index-entry": _encoder(IndexEntry, encode_index_entry),
    "checkpoint": _encoder(Checkpoint, lambda values: encode_checkpoint(values)[:48]),
    "text": lambda row: _bytes_of(row, "text"),
    "timer-unit": _packer(UNIT, _TIMER_NAMES),
    "wheel-slot": _packer(SLOT, _SLOT_NAMES),
    "timer-check": _packer(CHECKPOINT, _CHECK_NAMES),
}
