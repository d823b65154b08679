"""Where the queues had records before an opening cut them: for records that name another place.

After an unclean stop the queue entries after the checkpoint are cut and written again, each at the place that its
record names. No checksum covers that place, so one wrong bit would put the record into another queue, or at the offset
of another message, which then would have none. After a kill the cut entries are still in the files, and show it:

    record at 4096 names orders/1, offset 7       an entry of orders/0, offset 7, points at 4096, none of orders/1 does

Such a record gets its entry where it had it. Reading it there is an error that names it. If the record is right and an
entry has the wrong bit, the record's own entry is there too, and the record goes where it says. The entry of a batch
names the offsets itself, so it counts only if the entries beside it, or the messages in the record, bear it out. A
power cut may take the entries; then the record is believed (`derive/offset_order.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from flintlog.derive.entries import Place
from flintlog.errors import FormatError
from flintlog.format.client_batch import count_client_messages
from flintlog.format.queue_entry import BATCH_ENTRY, PREFILL_ENTRY, QUEUE_ENTRY, QueueKey
from flintlog.format.record import parse_record
from flintlog.format.sys_flag import takes_queue_offset
from flintlog.kernel import MULTI_DISPATCH, Row, Scan
from flintlog.store.queues.logical_queue import LogicalQueue, QueueType

MAX_ENTRIES: Final = 1 << 18
"""With more than these after the checkpoint, none is kept: they take about 50 MiB."""


class OldEntries:
    """The entries that an opening cuts, by the physical offsets of their records."""

    def __init__(self) -> None:
        self._places: dict[int, list[Place]] = {}
        self._unconfirmed: set[Place] = set()
        """Those of batches that no later entry follows."""
        self._count = 0

    def keep(self, queue: LogicalQueue, start: int) -> None:
        """Remember the entries of a queue from this byte of its files on."""
        if self._count > MAX_ENTRIES:
            return
        if queue.type is QueueType.BATCH:
            entries = _borne_out(queue, start)
            self._unconfirmed.update(place for _, place in entries[-1:])
        else:
            entries = _entries(queue, start)
        for physical_offset, place in entries:
            self._count += 1
            self._places.setdefault(physical_offset, []).append(place)
        if self._count > MAX_ENTRIES:
            self._places.clear()

    def misplaced(self, scan: Scan) -> Iterator[Row]:
        """The records of a scan that may name another place than they had."""
        for number in range(scan.count if self._places else 0):
            row = scan.row(number)
            had = self._places.get(row.physical_offset)
            if had is not None and not _is_plainly_at(row, scan.queues[row.queue], had):
                yield row

    def places(self, physical_offset: int, named: list[Place], record: bytes) -> list[Place]:
        """Where a record belongs that names these places, or none: where its entry was, if it was at none of them."""
        had = self._places.get(physical_offset)
        if had is None:
            return named
        new = [place for place in named if not _is_among(place, had)]
        gone = [place for place in had if not _is_among(place, named)]
        if len(gone) != 1 or len(new) > 1 or (named and not new):
            return named
        if gone[0] in self._unconfirmed and _count_messages(record) != gone[0].batch_count:
            return named
        return [gone[0] if place in new else place for place in named] if named else gone


def _is_plainly_at(row: Row, named: QueueKey, had: list[Place]) -> bool:
    """Whether a record with one entry has it where it says."""
    is_plain = takes_queue_offset(row.sys_flag) and not row.marks & MULTI_DISPATCH
    return is_plain and _is_among(Place(*named, row.queue_offset), had)


def _is_among(place: Place, places: list[Place]) -> bool:
    return any(place[:4] == each[:4] for each in places)


def _borne_out(queue: LogicalQueue, start: int) -> list[tuple[int, Place]]:
    """The entries of batches that begin where the one before ends, and end where the next begins, if there is one."""
    entries = _entries(queue, max(0, start - queue.entry_size))
    before = 0
    if start and entries:
        _, last = entries.pop(0)
        before = last.queue_offset + last.batch_count
    starts = [place.queue_offset for _, place in entries]
    stops = [place.queue_offset + place.batch_count for _, place in entries]
    return [
        entry
        for entry, start, stop, end_before, start_after in zip(
            entries, starts, stops, [before, *stops], [*starts[1:], *stops[-1:]], strict=False
        )
        if start == end_before and stop == start_after
    ]


def _count_messages(record: bytes) -> int | None:
    """How many messages a batch holds; None where that cannot be read, as in a compressed one."""
    try:
        return count_client_messages(parse_record(record).body)
    except FormatError:
        return None


def _entries(queue: LogicalQueue, start: int) -> list[tuple[int, Place]]:
    """The physical offset and the place of each entry from this byte of a queue's files on, if these are not too many.

    Of too many, two more than are kept are read: one shows that they are too many, one may precede those of a batch
    queue.
    """
    return list(islice(_read(queue, start), MAX_ENTRIES + 2))


def _read(queue: LogicalQueue, start: int) -> Iterator[tuple[int, Place]]:
    for segment in queue.segments.segments:
        selected = segment.select(max(0, start - segment.base)) if segment.end > start else None
        if selected is None:
            continue
        with selected:
            view, first = selected.view, max(start, segment.base)
            whole = view[: len(view) - len(view) % queue.entry_size]
            if queue.type is QueueType.BATCH:
                for physical_offset, _, _, _, base, count, _, _ in BATCH_ENTRY.iter_unpack(whole):
                    yield physical_offset, Place(queue.topic, queue.queue_id, base, count, count)
            else:
                for number, (physical_offset, size, _) in enumerate(QUEUE_ENTRY.iter_unpack(whole)):
                    if 0 < size < PREFILL_ENTRY.size:  # fillers and holes name the record at 0, and are of no record
                        yield physical_offset, Place(queue.topic, queue.queue_id, first // queue.entry_size + number)
