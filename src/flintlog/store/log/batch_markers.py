"""The records that close batches: what they say, and how they are found in a log.

    topic   rmq_sys_flintlog_batches            RocketMQ lets no client send to a topic of such a name
    type    rolled back                         so it is in no queue and in no index, Java's included
    body    {"writerId":"etl","batchId":7,"recordsCrc":2774…,"start":81920,"isRemembered":true}

The records of a batch lie between `start` and its marker, with nothing else between them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

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


class ClosingMarker(msgspec.Struct, frozen=True, rename="camel"):
    """What a marker says; those of earlier versions name the writer and the batch only."""

    writer_id: str
    batch_id: Offset
    records_crc: int | None = None
    """Over all records of the batch, so that a marker never vouches for a record that did not reach the disk. Earlier
    versions synced the records before the marker."""
    start: Offset | None = None
    is_remembered: bool = True
    """Whether the batch's writer named itself, and may come with the batch again."""

    def message(self) -> Message:
        """The message to append."""
        return Message(MARKER_TOPIC, msgspec.json.encode(self), sys_flag=int(TransactionType.ROLLBACK))


def markers_of(view: memoryview, base: int, seen: Scan) -> Iterator[tuple[int, ClosingMarker]]:
    """The markers among the records of a scan, and the physical offset of each."""
    ordinals = {number for number, (topic, _) in enumerate(seen.queues) if topic == MARKER_TOPIC}
    for number in range(seen.count) if ordinals else ():
        row = seen.row(number)
        if row.queue in ordinals:
            place = row.physical_offset - base
            with suppress(FormatError):
                body = bytes(parse_record(view[place : place + row.size]).body)
                yield row.physical_offset, decode_json(body, ClosingMarker)


def find_markers(view: memoryview, base: int, start: int) -> Iterator[tuple[int, ClosingMarker]]:
    """The markers in a file of the log from a physical offset on, and where each begins; damage is passed over."""
    place = max(0, start - base)
    while 0 <= place < len(view):
        seen = kernel.scan(view, place, len(view), base, check_crc=True, max_count=_SCAN_ROWS)
        yield from markers_of(view, base, seen)
        place = seen.end if seen.count else kernel.find_record(view, place + 1, len(view), base)
