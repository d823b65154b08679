"""Queues that cannot be right: all queues are then built again from the log.

The last entry fixes the next offset. If it is corrupt, new messages are dropped as duplicates, shifted, or reuse an
offset. A corrupt entry before it is found when it is read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from flintlog import kernel
from flintlog.errors import FormatError
from flintlog.format.client_batch import count_client_messages
from flintlog.format.record import parse_record
from flintlog.format.sys_flag import takes_queue_offset
from flintlog.store.queues.batch_consume_queue import BatchConsumeQueue
from flintlog.store.queues.consume_queue import ConsumeQueue
from flintlog.store.queues.entries import CqUnit
from flintlog.store.queues.entry_home import stranger
from flintlog.store.queues.logical_queue import LogicalQueue, QueueType
from flintlog.store.queues.queue_table import QueueTable

RecordAt = Callable[[int], bytes | None]

DAMAGED: Final = "damaged-queues"
MISSING: Final = "missing-queues"


class Doubt(NamedTuple):
    """Why queues are not believed: the kind of finding, and what shows it."""

    kind: str
    evidence: str


def find_broken(queues: QueueTable, covered: int) -> Doubt | None:
    """The queue that ends at an entry which should be whole: later entries are not found otherwise."""
    for queue in queues.all():
        if queue.broken_offset is not None and queue.broken_offset <= covered:
            where = f"{queue.topic}/{queue.queue_id}"
            return Doubt(DAMAGED, f"an entry around offset {queue.max_offset} of {where} is damaged")
    return None


def find_holes(queues: QueueTable, covered: int) -> Doubt | None:
    """The queue that has an entry of a record up to the checkpoint's after a place without one."""
    for queue in queues.all():
        after = queue.offset_after_end()
        if after is not None and after <= covered:
            where = f"{queue.topic}/{queue.queue_id}"
            return Doubt(DAMAGED, f"entries of {where} are missing, and that of the record at {after} follows")
    return None


def find_lost_entry(queues: QueueTable, covered: int, record_at: RecordAt) -> Doubt | None:
    """Whether the checkpoint's own record lacks its entry: then the queues are shorter than the checkpoint says."""
    record = record_at(covered)
    seen = None if record is None else kernel.scan(record, 0, len(record), covered)
    if seen is None or not seen.count or not takes_queue_offset(seen.row(0).sys_flag):
        return None
    queue, queue_offset = queues.get(*seen.queues[0]), seen.row(0).queue_offset
    if queue is None or queue.type is not QueueType.SIMPLE or queue_offset * queue.entry_size < (queue.found_end or 0):
        return None
    where = f"{queue.topic}/{queue.queue_id}"
    return Doubt(DAMAGED, f"the checkpoint's record at {covered} has no entry in {where}")


def find_out_of_step(queues: QueueTable) -> Doubt | None:
    """The queue into which a record was dispatched at another place than its own: entries before it were missing."""
    for queue in queues.all():
        if isinstance(queue, ConsumeQueue) and queue.out_of_step_count:
            return Doubt(DAMAGED, f"entries of {queue.topic}/{queue.queue_id} are missing before the checkpoint")
    return None


def find_reaching_beyond(queues: QueueTable, end: int) -> Doubt | None:
    """The queue whose last entry points beyond all records that there can be."""
    for queue in queues.all():
        if queue.max_physical_offset > end:
            where = f"{queue.topic}/{queue.queue_id}"
            return Doubt(DAMAGED, f"the last entry of {where} ends after the log's records")
    return None


def find_other_ends(queues: QueueTable, known: int | None, when: str) -> Doubt | None:
    """Whether queues end elsewhere than they did: the next messages would reuse offsets."""
    found = queues.wrote_bytes
    if known is None or known == found:
        return None
    return Doubt(DAMAGED, f"the queues had {known} bytes {when}, and have {found}")


def find_wrong_batch(queues: QueueTable, record_at: RecordAt) -> Doubt | None:
    """The batch queue whose last entry does not cover the offsets that its record names: the next follow from it."""
    for queue in queues.all():
        units = queue.last_units() if isinstance(queue, BatchConsumeQueue) else []
        record = record_at(units[-1].physical_offset) if units else None
        if record is None:
            continue
        unit, before = units[-1], units[0] if len(units) > 1 else None
        seen = kernel.scan(record, 0, len(record), unit.physical_offset, check_crc=True)
        wrong = stranger(queue, unit, seen.row(0), seen.queues[0], record) if seen.count == 1 else None
        if wrong is not None and not _is_borne_out(unit, before, record):
            return Doubt(DAMAGED, f"the last entry of {queue.topic}/{queue.queue_id} is damaged: {wrong}")
    return None


def _is_borne_out(unit: CqUnit, before: CqUnit | None, record: bytes) -> bool:
    """Whether an entry follows the one before it and counts the messages in its record's body, which has a CRC.

    Then the record's own header is damaged.
    """
    if before is not None and before.queue_offset + before.batch_count != unit.queue_offset:
        return False
    try:
        return before is not None and count_client_messages(parse_record(record).body) == unit.batch_count
    except FormatError:  # compressed, or no batch
        return False


def find_lost_files(queues: QueueTable, commit_log_min: int) -> Doubt | None:
    """The queue that lost files whose records the log still has."""
    for queue in queues.all():
        where = f"{queue.topic}/{queue.queue_id}"
        if any(not queue.is_known_gap(*gap) for gap in queue.segments.gaps()):
            return Doubt(MISSING, f"files of queue {where} are missing between others")
        if has_lost_first_files(queues, queue, commit_log_min):
            return Doubt(MISSING, f"the first files of queue {where} are missing")
    return None


def has_lost_first_files(queues: QueueTable, queue: LogicalQueue, commit_log_min: int) -> bool:
    """Whether a queue begins after the log's first records of it.

    That is known while the log has its first file: then nothing has expired. Two queues begin later by right. One was
    deleted and made again. The log has lost the first records of the other, which then begins at the noted offset or
    after it.
    """
    if commit_log_min or not queue.had_files_before:
        return False
    end = queue.segments.segments[0].end
    notes = queues.deleted.of(queue.topic, queue.queue_id)
    return not any(note.is_deletion or end > note.next_offset * queue.entry_size for note in notes)
