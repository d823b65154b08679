"""Files of a ledger as rows: the heads and blanks in its data files, its index records, its state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict

from flintlog.errors import FormatError
from flintlog.format.ledger_entry import (
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

Row = Mapping[str, object]


def dump_head(data: memoryview, place: int) -> Row | None:
    """The head of an entry; None where none is."""
    try:
        head = parse_entry_head(data, place)
        if encode_entry_head(head) != data[place : place + ENTRY_HEAD_SIZE]:
            return None
    except FormatError:
        return None
    return {"offset": place, "size": ENTRY_HEAD_SIZE, "kind": "ledger-head", **asdict(head)}


def dump_blank(data: memoryview, place: int) -> Row | None:
    """A ledger's blank; None where none is."""
    remaining = parse_entry_blank(data, place)
    if remaining is None or remaining < 8:
        return None
    return {"offset": place, "size": 8, "kind": "ledger-blank", "remaining": remaining}


def dump_index(data: memoryview) -> Iterator[Row]:
    """The records of an index file, up to the first that is none."""
    for place in range(0, len(data) - INDEX_RECORD_SIZE + 1, INDEX_RECORD_SIZE):
        try:
            record = parse_index_record(data, place)
        except FormatError:
            return
        told = {"position": record.position, "entry_size": record.size, "index": record.index, "term": record.term}
        yield {"offset": place, "size": INDEX_RECORD_SIZE, "kind": "ledger-index", **told}


def encode_head_row(row: Row) -> bytes:
    """The bytes of a row of `dump_head`."""
    return encode_entry_head(EntryHead(**{name: _number(row, name) for name in EntryHead.__dataclass_fields__}))


def encode_blank_row(row: Row) -> bytes:
    """The bytes of a row of `dump_blank`."""
    return encode_entry_blank(_number(row, "remaining"))


def encode_index_row(row: Row) -> bytes:
    """The bytes of a row of `dump_index`."""
    place, size, index, term = (_number(row, name) for name in ("position", "entry_size", "index", "term"))
    return encode_index_record(IndexRecord(place, size, index, term))


def _number(row: Row, name: str) -> int:
    value = row[name]
    if not isinstance(value, int):
        raise FormatError(f"{name} is no number: {value!r}")
    return value
