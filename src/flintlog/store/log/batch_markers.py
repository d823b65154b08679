"""The records that open and close batches: what they say, and how they are found in a log.

    topic    rmq_sys_flintlog_batches           RocketMQ lets no client send to a topic of such a name
    type     rolled back                        so it is in no queue and in no index, Java's included
    opening  {"writerId":"etl","opensBatch":7,"isRemembered":true}
    closing  {"writerId":"etl","batchId":7,"recordsCrc":2774…,"start":81920,"isRemembered":true}

    log    … │ opening │ message │ message │ … │ closing │
             ^ start

The records of a batch lie between its markers, with nothing else between them. Earlier versions wrote no opening
marker; `start` is then the first message.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

from flintlog import kernel
from flintlog.errors import FormatError
from flintlog.format.record import parse_record
from flintlog.format.sys_flag import TransactionType
from flintlog.kernel import Scan
from flintlog.store.model.message import Message
from flintlog.store.runtime.note_file import Offset, decode_json

MARKER_TOPIC: Final = "rmq_sys_flintlog_batches"

_SCAN_ROWS: Final = 65_536


class OpeningMarker(msgspec.Struct, frozen=True, rename="camel"):
    """A batch begins here. A replica that has it without the closing marker has a part of the batch."""

    writer_id: str
    opens_batch: Offset
    is_remembered: bool = True

    def message(self) -> Message:
        """The message to append."""
        return _message(self)


class ClosingMarker(msgspec.Struct, frozen=True, rename="camel"):
    """A batch is whole. Markers of earlier versions name the writer and the batch only."""

    writer_id: str
    batch_id: Offset
    records_crc: int | None = None
    """Over all records of the batch, so that a marker never vouches for a record that did not reach the disk. Earlier
    versions synced the records before the marker."""
    start: Offset | None = None
    is_remembered: bool = True
    """Whether the batch's writer has an id, and may write the batch again."""

    def message(self) -> Message:
        """The message to append."""
        return _message(self)


Marker: TypeAlias = OpeningMarker | ClosingMarker


@dataclass(frozen=True, slots=True)
class FoundMarker:
    """A marker in a log, and the physical offsets of its record."""

    offset: int
    end: int
    marker: Marker


def markers_of(view: memoryview, base: int, seen: Scan) -> Iterator[FoundMarker]:
    """The markers among the records of a scan."""
    ordinals = {number for number, (topic, _) in enumerate(seen.queues) if topic == MARKER_TOPIC}
    for number in range(seen.count) if ordinals else ():
        row = seen.row(number)
        if row.queue in ordinals:
            place = row.physical_offset - base
            with suppress(FormatError):
                body = bytes(parse_record(view[place : place + row.size]).body)
                yield FoundMarker(row.physical_offset, row.physical_offset + row.size, _parse_marker(body))


def find_markers(view: memoryview, base: int, start: int) -> Iterator[FoundMarker]:
    """The markers in a file of the log from a physical offset on; damage is passed over."""
    place = max(0, start - base)
    while 0 <= place < len(view):
        seen = kernel.scan(view, place, len(view), base, check_crc=True, max_count=_SCAN_ROWS)
        yield from markers_of(view, base, seen)
        place = seen.end if seen.count else kernel.find_record(view, place + 1, len(view), base)


def _message(marker: Marker) -> Message:
    return Message(MARKER_TOPIC, msgspec.json.encode(marker), sys_flag=int(TransactionType.ROLLBACK))


def _parse_marker(body: bytes) -> Marker:
    try:
        return decode_json(body, OpeningMarker)
    except FormatError:
        return decode_json(body, ClosingMarker)
