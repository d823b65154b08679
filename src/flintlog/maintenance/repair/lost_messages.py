"""Which messages a damage of the log cost, as far as that can still be known.

A record whose head is whole says it itself. Of others the queues know: an entry that points into the lost bytes names
topic, queue, offset and size. What neither knows is told as bytes; but a torn end in which no record begins never was a
message, and is only cut.
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
    BATCH_ENTRY_SIZE,
    ENTRY_SIZE,
    PREFILL_ENTRY,
    QUEUE_ENTRY,
    parse_batch_queue_entries,
)
from flintlog.format.record import HEAD_TO_OFFSET, MAGIC_V1, MAGIC_V2, parse_record
from flintlog.format.sys_flag import INNER_BATCH
from flintlog.maintenance.inspect.queue_ends import queue_end
from flintlog.maintenance.inspect.store_files import StoreFiles
from flintlog.maintenance.repair.repair_plan import LostMessage

MAX_DIGITS = 5
"""No batch has more messages than that many digits say."""
"""Size, magic, CRC, queue id, flag, queue offset, physical offset: how every record begins."""
_RANGES = frozenset({"damaged-range", "missing-log-file", "torn-tail", "short-log"})


def find_lost(files: StoreFiles, findings: Sequence[Finding]) -> list[LostMessage]:
    """The messages that these findings cost, in log order."""
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
    """The message whose head the torn end begins with, if it does: one that no queue knows."""
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
    """The same for a batch queue, of which an entry stands for all messages of a record."""
    for file in queue.files:
        view = files.read(file.path, 0, file.size)
        for entry in parse_batch_queue_entries(view[: file.size - file.size % BATCH_ENTRY_SIZE]):
            why = _why(ranges, entry.physical_offset) if entry.is_valid else None
            if why is not None:
                place = queue.topic, queue.queue_id, entry.base_offset
                yield LostMessage(entry.physical_offset, entry.size, why, *place, message_count=entry.batch_size)


def _why(ranges: Sequence[tuple[int, int, str]], physical_offset: int) -> str | None:
    return next((why for start, stop, why in ranges if start <= physical_offset < stop), None)


def is_log_missing(files: StoreFiles) -> bool:
    """Whether there is no log at all, though queues name messages."""
    return not files.log and any(
        queue_end(files, queue) > (queue.files[0].base // ENTRY_SIZE if queue.files and not queue.is_batch else 0)
        for queue in files.queues.values()
    )


def readable_backups(files: StoreFiles, findings: Sequence[Finding]) -> frozenset[str]:
    """The damaged config files whose `.bak` can be used."""
    from flintlog.format.config_json import parse_config_object
    from flintlog.store.settings.preflight import check_shape

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
