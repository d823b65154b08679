"""Whether the queues hold what a scanned range of the log says they should.

An entry's place follows from the record's queue offset, so the entries of a run of records are compared with one
stretch of the queue's bytes; only where these differ is anything looked at entry by entry. A batch queue is
dense and is searched by physical offset instead. Nothing is remembered but stretches, see `stretches.py`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, MutableMapping

from flintlog import kernel
from flintlog.derive.derived_files import DerivedFiles, QueueFilesView, QueueKey
from flintlog.derive.stretches import QueueTally, Stretch
from flintlog.errors import FormatError
from flintlog.format.batch_queue_entry import ENTRY_SIZE as BATCH_ENTRY_SIZE
from flintlog.format.batch_queue_entry import BatchQueueEntry, encode_batch_queue_entry
from flintlog.format.properties import INNER_BASE, INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET, INNER_NUM
from flintlog.format.queue_entry import ENTRY_SIZE, PREFILL_ENTRY
from flintlog.format.queue_extension import is_extension_address, parse_extension_address
from flintlog.format.record import parse_record
from flintlog.kernel import MULTI_DISPATCH, QueueRun, Row, Scan

_ENTRY = struct.Struct("!qiq")
_OFFSET = struct.Struct("!q")
_NO_MESSAGE = ((0, 0, 0), (PREFILL_ENTRY.physical_offset, PREFILL_ENTRY.size, PREFILL_ENTRY.tags_code))
_LIGHT_PREFIX = "%LMQ%"
_NOT_MULTI = ("%RETRY%", "%DLQ%", "rmq_sys_")

Tallies = MutableMapping[QueueKey, QueueTally]


def compare_queues(view: memoryview, base: int, scan: Scan, derived: DerivedFiles, tallies: Tallies) -> None:
    """Compare the queue entries of a scan's records with the queues' files."""
    entries, runs, special = kernel.queue_runs(scan)
    expected = memoryview(entries)
    for run in runs:
        key = scan.queues[run.queue]
        if key[0] in derived.batch_topics:
            continue
        tally = tallies.setdefault(key, QueueTally())
        entries_of_run = expected[run.position : run.position + run.length * ENTRY_SIZE]
        compare_run(derived, key, run, entries_of_run, tally)
    for index in special:
        row = scan.row(index)
        if row.marks & MULTI_DISPATCH and derived.light_queues:
            _compare_light(view, base, row, scan.queues[row.queue], derived, tallies)
    if any(topic in derived.batch_topics for topic, _ in scan.queues):
        _compare_batches(view, base, scan, derived, tallies)


def compare_run(derived: DerivedFiles, key: QueueKey, run: QueueRun, expected: memoryview, tally: QueueTally) -> None:
    """Compare the entries of consecutive records with their stretch of the queue."""
    stop = run.first_queue_offset + run.length
    tally.records.add(Stretch(run.first_queue_offset, stop, run.first_physical_offset, run.last_physical_offset))
    tally.entry_count += run.length
    queue = derived.queues.get(key)
    start = run.first_queue_offset * ENTRY_SIZE
    at = start
    for file, place, actual in () if queue is None else queue.pieces(derived.read, start, stop * ENTRY_SIZE):
        assert queue is not None
        begin = file.base + place
        _absent(tally, expected, at - start, begin - start, run)
        wanted = expected[begin - start : begin - start + len(actual)]
        if not queue.extension and bytes(actual) == bytes(wanted):
            tally.matched_to = max(tally.matched_to, _OFFSET.unpack_from(wanted, len(wanted) - ENTRY_SIZE)[0])
        else:
            _compare_entries(derived, queue, file.path, place, actual, wanted, begin // ENTRY_SIZE, tally)
        at = begin + len(actual)
    _absent(tally, expected, at - start, len(expected), run)


def _absent(tally: QueueTally, expected: memoryview, begin: int, end: int, run: QueueRun) -> None:
    """The queue has no file for these entries."""
    if begin < end:
        first = _OFFSET.unpack_from(expected, begin)[0]
        last = _OFFSET.unpack_from(expected, end - ENTRY_SIZE)[0]
        offset = run.first_queue_offset
        tally.absent.add(Stretch(offset + begin // ENTRY_SIZE, offset + end // ENTRY_SIZE, first, last))


def _compare_entries(
    derived: DerivedFiles,
    queue: QueueFilesView,
    path: str,
    place: int,
    actual: memoryview,
    wanted: memoryview,
    queue_offset: int,
    tally: QueueTally,
) -> None:
    for position in range(0, len(wanted), ENTRY_SIZE):
        here = queue_offset + position // ENTRY_SIZE
        right = _ENTRY.unpack_from(wanted, position)
        whole = len(actual) - position >= ENTRY_SIZE
        found = _ENTRY.unpack_from(actual, position) if whole else (0, 0, 0)
        if found == right or (queue.extension and _is_extended(derived, queue, found, right)):
            tally.matched_to = max(tally.matched_to, right[0])
        elif found in _NO_MESSAGE:
            tally.absent.add(Stretch(here, here + 1, right[0], right[0]))
        else:
            evidence = f"(offset, size, tags code) is {found} and should be {right}"
            tally.wrong.add(Stretch(here, here + 1, right[0], right[0], evidence, path, place + position))


def _is_extended(derived: DerivedFiles, queue: QueueFilesView, found: tuple[int, ...], right: tuple[int, ...]) -> bool:
    """Whether an entry names the right record and an extension unit with the right tags code."""
    if found[:2] != right[:2] or not is_extension_address(found[2]):
        return False
    unit = queue.unit(derived.read, parse_extension_address(found[2]))
    return unit is not None and unit.tags_code == right[2]


# ---------------------------------------------------------------------- light queues


def _compare_light(
    view: memoryview, base: int, row: Row, key: QueueKey, derived: DerivedFiles, tallies: Tallies
) -> None:
    """A record that was put into several light queues at once has an entry in each of them."""
    topic, queue_id = key
    if topic.startswith(_NOT_MULTI) or topic == "SCHEDULE_TOPIC_XXXX":
        return
    properties = _properties(view, base, row)
    names = properties.get(INNER_MULTI_DISPATCH, "").split(",")
    offsets = properties.get(INNER_MULTI_QUEUE_OFFSET, "").split(",")
    if len(names) != len(offsets):
        return
    entry = memoryview(_ENTRY.pack(row.physical_offset, row.size, row.tags_code))
    for name, text in zip(names, offsets, strict=True):
        if not text.isdecimal() or len(text) > 18 or "/" in name:
            continue
        other = name, 0 if name.startswith(_LIGHT_PREFIX) else queue_id
        run = QueueRun(0, int(text), 1, 0, row.physical_offset, row.physical_offset)
        compare_run(derived, other, run, entry, tallies.setdefault(other, QueueTally()))


# ---------------------------------------------------------------------- batch queues


def _compare_batches(view: memoryview, base: int, scan: Scan, derived: DerivedFiles, tallies: Tallies) -> None:
    for index in range(scan.count):
        row = scan.row(index)
        key = scan.queues[row.queue]
        if key[0] in derived.batch_topics and row.sys_flag & 0xC in (0, 8):
            entry = batch_entry_of(row, _properties(view, base, row))
            _compare_batch(derived, key, entry, tallies.setdefault(key, QueueTally()))


def batch_entry_of(row: Row, properties: Mapping[str, str]) -> BatchQueueEntry:
    """The entry that a record has in a batch queue; a plain message is a batch of one."""
    first, count = properties.get(INNER_BASE, ""), properties.get(INNER_NUM, "")
    if first.isdecimal() and len(first) <= 18 and count.isdecimal() and 0 < int(count[:6]) <= 0x7FFF:
        return BatchQueueEntry(
            row.physical_offset, row.size, row.tags_code, row.store_timestamp, int(first), int(count)
        )
    return BatchQueueEntry(row.physical_offset, row.size, row.tags_code, row.store_timestamp, row.queue_offset, 1)


def _compare_batch(derived: DerivedFiles, key: QueueKey, entry: BatchQueueEntry, tally: QueueTally) -> None:
    at = entry.physical_offset
    tally.records.add(Stretch(entry.base_offset, entry.end_offset, at, at))
    tally.entry_count += 1
    queue = derived.queues.get(key)
    place = None if queue is None else _find_batch(derived, queue, at)
    if queue is None or place is None:
        tally.absent.add(Stretch(entry.base_offset, entry.end_offset, at, at))
        return
    file, position = place
    found = bytes(derived.read(file, position, position + BATCH_ENTRY_SIZE))
    # The compacted offset is written by compaction, whenever that comes by.
    if found[:38] == encode_batch_queue_entry(entry)[:38]:
        tally.matched_to = max(tally.matched_to, at)
    else:
        evidence = f"the batch entry is {found.hex()} and should be {encode_batch_queue_entry(entry).hex()}"
        tally.wrong.add(Stretch(entry.base_offset, entry.end_offset, at, at, evidence, file, position))


def _find_batch(derived: DerivedFiles, queue: QueueFilesView, physical_offset: int) -> tuple[str, int] | None:
    """File and place of the entry for a record; entries lie in the log's order."""
    for file in queue.files:
        view = derived.read(file.path, 0, file.size)
        count = -(-kernel.written_end(view, 0, len(view)) // BATCH_ENTRY_SIZE)
        low, high = 0, min(count, len(view) // BATCH_ENTRY_SIZE)
        while low < high:
            middle = (low + high) // 2
            if _OFFSET.unpack_from(view, middle * BATCH_ENTRY_SIZE)[0] < physical_offset:
                low = middle + 1
            else:
                high = middle
        position = low * BATCH_ENTRY_SIZE
        if position + BATCH_ENTRY_SIZE <= len(view) and _OFFSET.unpack_from(view, position)[0] == physical_offset:
            return file.path, position
    return None


def _properties(view: memoryview, base: int, row: Row) -> dict[str, str]:
    start = row.physical_offset - base
    try:
        return parse_record(view, start, start + row.size).property_map()
    except FormatError:
        return {}
