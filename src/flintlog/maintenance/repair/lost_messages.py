"""Which messages were lost to damage of the log, as far as that can still be found out.

A record with an intact head names its own message. For others a queue entry that points into the damaged bytes names
topic, queue, offset and size. Where there is neither, the loss is reported in bytes. A torn tail in which no record
begins was never a message: it is only cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from flintlog.checks.derived_files import QueueFilesView
from flintlog.checks.finding import Finding
from flintlog.errors import DamagedStore, FormatError
from flintlog.format.names import FAR
from flintlog.format.properties import INNER_NUM, parse_properties
from flintlog.format.queue_entry import (
    ENTRY_SIZE,
    PREFILL_ENTRY,
    QUEUE_ENTRY,
)
from flintlog.format.record import HEAD_TO_OFFSET, MAGIC_V1, MAGIC_V2, parse_record
from flintlog.format.sys_flag import INNER_BATCH
from flintlog.maintenance.inspect.queue_ends import batch_entries, queue_end
from flintlog.maintenance.inspect.store_files import StoreFiles
from flintlog.maintenance.repair.repair_plan import LostMessage

MAX_DIGITS = 5
"""The number of messages in a batch has at most so many digits."""
_RANGES = frozenset({"damaged-range", "missing-log-file", "torn-tail", "short-log"})


def find_lost(files: StoreFiles, findings: Sequence[Finding]) -> list[LostMessage]:
    """The messages that are lost by these findings, in log order."""
    lost = [_damaged(files, finding) for finding in findings if finding.id == "damaged-record"]
    ranges = _ranges(findings)
    by_entry = {message.physical_offset: message for message in entries_in(files, ranges)}
    lost += by_entry.values()
    for start, stop, why in ranges:
        if not any(start <= offset < stop for offset in by_entry):
            finding = next(f for f in findings if f.physical_offset == start and f.id in _RANGES)
            lost += [LostMessage(start, finding.size, why)] if why != "torn-tail" else _torn(files, finding)
    return sorted(lost, key=lambda message: message.physical_offset)


def _ranges(findings: Sequence[Finding]) -> list[tuple[int, int, str]]:
    found: list[tuple[int, int, str]] = []
    for finding in findings:
        if finding.id in _RANGES and finding.physical_offset is not None:
            is_end = finding.id in ("torn-tail", "short-log")
            start = finding.physical_offset
            found.append((start, FAR if is_end else start + finding.size, finding.id))
    return found


def _torn(files: StoreFiles, finding: Finding) -> list[LostMessage]:
    """The message at whose head the torn tail begins, if it begins with one; no queue has an entry for it."""
    if (
        finding.file is None
        or finding.offset is None
        or finding.physical_offset is None
        or finding.size < HEAD_TO_OFFSET.size
    ):
        return []
    head = files.read(finding.file, finding.offset, finding.offset + HEAD_TO_OFFSET.size)
    if len(head) < HEAD_TO_OFFSET.size:
        return []
    size, magic, _, queue_id, _, queue_offset, physical_offset = HEAD_TO_OFFSET.unpack(head)
    if magic not in (MAGIC_V1, MAGIC_V2) or physical_offset != finding.physical_offset:
        return []
    return [LostMessage(physical_offset, size, finding.id, None, queue_id, queue_offset)]


def _damaged(files: StoreFiles, finding: Finding) -> LostMessage:
    assert finding.file is not None
    assert finding.offset is not None
    assert finding.physical_offset is not None
    view = files.read(finding.file, finding.offset, finding.offset + finding.size)
    try:
        record = parse_record(view)
    except FormatError:
        return LostMessage(finding.physical_offset, finding.size, finding.id)
    count = parse_properties(record.properties).get(INNER_NUM, "") if record.sys_flag & INNER_BATCH else ""
    return LostMessage(
        finding.physical_offset,
        finding.size,
        finding.id,
        record.topic,
        record.queue_id,
        record.queue_offset,
        record.message_id,
        int(count) if count.isdecimal() and len(count) <= MAX_DIGITS else 1,
    )


def entries_in(files: StoreFiles, ranges: Sequence[tuple[int, int, str]]) -> Iterator[LostMessage]:
    """Queue entries that point into ranges (start, stop, why) of the log."""
    if not ranges:
        return
    first = min(start for start, _, _ in ranges)
    for queue in files.queues.values():
        if queue.is_batch:
            yield from _batches_in(files, queue, ranges)
            continue
        begin, end = (queue.files[0].base if queue.files else 0), queue_end(files, queue) * ENTRY_SIZE
        for file, place, view in queue.pieces(files.read, begin, end):
            number = (file.base + place) // ENTRY_SIZE
            for physical_offset, size, _ in QUEUE_ENTRY.iter_unpack(view):
                if physical_offset >= first and size > 0 and size != PREFILL_ENTRY.size:
                    why = _why(ranges, physical_offset)
                    if why is not None:
                        yield LostMessage(physical_offset, size, why, queue.topic, queue.queue_id, number)
                number += 1


def _batches_in(
    files: StoreFiles, queue: QueueFilesView, ranges: Sequence[tuple[int, int, str]]
) -> Iterator[LostMessage]:
    """The same for a batch queue, where one entry stands for all messages of a record."""
    for _, _, entry in batch_entries(files, queue):
        why = _why(ranges, entry.physical_offset)
        if why is not None:
            place = queue.topic, queue.queue_id, entry.base_offset
            yield LostMessage(entry.physical_offset, entry.size, why, *place, message_count=entry.batch_size)


def _why(ranges: Sequence[tuple[int, int, str]], physical_offset: int) -> str | None:
    return next((why for start, stop, why in ranges if start <= physical_offset < stop), None)


def is_log_missing(files: StoreFiles) -> bool:
    """Whether there is no log at all, although queues have entries."""
    return not files.log and any(
        queue_end(files, queue) > (queue.files[0].base // ENTRY_SIZE if queue.files and not queue.is_batch else 0)
        for queue in files.queues.values()
    )


def readable_backups(files: StoreFiles, findings: Sequence[Finding]) -> frozenset[str]:
    """The damaged config files whose `.bak` can be used."""
    from flintlog.format.config_json import parse_config_object
    from flintlog.store.settings.config_shapes import check_shape

    found: set[str] = set()
    for finding in findings:
        if finding.id == "damaged-config" and finding.file is not None:
            data = files.small(Path(finding.file + ".bak"))
            try:
                check_shape(Path(finding.file), files.medium, parse_config_object(data or b""))
                found.add(finding.file)
            except (FormatError, DamagedStore):
                continue
    return frozenset(found)
