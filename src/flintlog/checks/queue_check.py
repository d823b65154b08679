"""Compares the queues with the records of a scanned range of the log.

An entry's place follows from the record's queue offset, so the entries of a run of records are compared with one
stretch of the queue's bytes, and entry by entry only where these differ. Entries of a batch queue follow each other
without gaps; they are searched by physical offset instead. Only stretches are kept in memory (`stretches.py`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import MutableMapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from flintlog import kernel
from flintlog.checks.derived_files import DerivedFiles, QueueFilesView
from flintlog.derive.entries import places_of
from flintlog.derive.stretches import QueueTally, Stretch
from flintlog.format.queue_entry import (
    BATCH_ENTRY_SIZE,
    ENTRY_SIZE,
    PREFILL_ENTRY,
    QUEUE_ENTRY,
    BatchQueueEntry,
    QueueKey,
    encode_batch_queue_entry,
    is_extension_address,
    parse_batch_queue_entry,
    parse_extension_address,
    physical_offset_at,
)
from flintlog.format.record import SCHEDULE_TOPIC, store_time_of
from flintlog.kernel import QueueRun, Row, Scan

_NO_MESSAGE = ((0, 0, 0), (PREFILL_ENTRY.physical_offset, PREFILL_ENTRY.size, PREFILL_ENTRY.tags_code))

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
        compare_run(derived, key, run, entries_of_run, tally, LogBytes(view, base))
    if any(topic in derived.batch_topics for topic, _ in scan.queues):
        marked = frozenset(special)
        special = [index for index in range(scan.count) if index in marked or _is_batch(scan, index, derived)]
    for index in special:
        row = scan.row(index)
        _compare_special(view, base, row, scan.queues[row.queue], derived, tallies)


def _is_batch(scan: Scan, index: int, derived: DerivedFiles) -> bool:
    return scan.queues[scan.row(index).queue][0] in derived.batch_topics


class LogBytes(NamedTuple):
    """The file of the log that the records of a scan lie in."""

    view: memoryview
    base: int

    def store_timestamp(self, physical_offset: int) -> int:
        return store_time_of(self.view, physical_offset - self.base)


def compare_run(
    derived: DerivedFiles, key: QueueKey, run: QueueRun, expected: memoryview, tally: QueueTally, log: LogBytes
) -> None:
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
            tally.matched_to = max(tally.matched_to, physical_offset_at(wanted, len(wanted) - ENTRY_SIZE))
        else:
            _compare_entries(derived, queue, file.path, place, actual, wanted, begin // ENTRY_SIZE, tally, log)
        at = begin + len(actual)
    _absent(tally, expected, at - start, len(expected), run)


def _absent(tally: QueueTally, expected: memoryview, begin: int, end: int, run: QueueRun) -> None:
    """The queue has no file for these entries."""
    if begin < end:
        first = physical_offset_at(expected, begin)
        last = physical_offset_at(expected, end - ENTRY_SIZE)
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
    log: LogBytes,
) -> None:
    for position in range(0, len(wanted), ENTRY_SIZE):
        here = queue_offset + position // ENTRY_SIZE
        right = QUEUE_ENTRY.unpack_from(wanted, position)
        whole = len(actual) - position >= ENTRY_SIZE
        found = QUEUE_ENTRY.unpack_from(actual, position) if whole else (0, 0, 0)
        if (
            found == right
            or (queue.extension and _is_extended(derived, queue, found, right, log))
            or (found[:2] == right[:2] and _is_of_doubtful_level(derived, queue))
        ):
            tally.matched_to = max(tally.matched_to, right[0])
        elif found[:2] == right[:2] and _is_retagged(found[2], right[2]):
            evidence = f"its entry has the tags code {found[2]}, and its tags give {right[2]}"
            tally.matched_to = max(tally.matched_to, right[0])
            tally.retagged.add(Stretch(here, here + 1, right[0], right[0], evidence, path, place + position))
        elif found in _NO_MESSAGE:
            tally.absent.add(Stretch(here, here + 1, right[0], right[0]))
        else:
            evidence = f"(offset, size, tags code) is {found} and should be {right}"
            tally.wrong.add(Stretch(here, here + 1, right[0], right[0], evidence, path, place + position))


def _is_retagged(found: int, right: int) -> bool:
    """Whether the properties of a record changed since its entry was written, and not the entry.

    A tags code is a hash of 32 bits. One wrong bit of an entry makes one that differs in a single bit; a wrong
    character of the tags differs in several. A record without tags may stand in for a lost one: its entry is older.
    """
    is_hash = -(1 << 31) <= found < 1 << 31 and found != 0
    return is_hash and right != 0 and ((found ^ right) & 0xFFFF_FFFF_FFFF_FFFF).bit_count() > 1


def _is_of_doubtful_level(derived: DerivedFiles, queue: QueueFilesView) -> bool:
    """Whether only the queue itself says when its messages are delivered."""
    return queue.topic == SCHEDULE_TOPIC and queue.queue_id + 1 in derived.doubtful_levels


def _is_extended(
    derived: DerivedFiles, queue: QueueFilesView, found: tuple[int, ...], right: tuple[int, ...], log: LogBytes
) -> bool:
    """Whether an entry names the right record and an extension unit with its tags code and store time.

    The unit's bitmap is not compared: the filters that it was made of are not stored.
    """
    if found[:2] != right[:2] or not is_extension_address(found[2]):
        return False
    unit = queue.unit(derived.read, parse_extension_address(found[2]))
    return unit is not None and (unit.tags_code, unit.store_timestamp) == (right[2], log.store_timestamp(right[0]))


# ---------------------------------------------------------------------- light and batch queues


def _compare_special(
    view: memoryview, base: int, row: Row, key: QueueKey, derived: DerivedFiles, tallies: Tallies
) -> None:
    """Compare a record that has more than one entry, or belongs to a batch queue."""
    start = row.physical_offset - base
    places = places_of(
        *key,
        row,
        bytes(view[start : start + row.size]),
        is_batch=derived.batch_topics.__contains__,
        lmq=derived.light_queues,
    )
    for place in places:
        queue = place.topic, place.queue_id
        tally = tallies.setdefault(queue, QueueTally())
        if place.topic in derived.batch_topics:
            entry = BatchQueueEntry(
                row.physical_offset,
                row.size,
                row.tags_code,
                row.store_timestamp,
                place.queue_offset,
                place.batch_count,
            )
            _compare_batch(derived, queue, entry, place.given_count, tally)
        elif queue != key:
            run = QueueRun(0, place.queue_offset, 1, 0, row.physical_offset, row.physical_offset)
            expected = memoryview(QUEUE_ENTRY.pack(row.physical_offset, row.size, row.tags_code))
            compare_run(derived, queue, run, expected, tally, LogBytes(view, base))


def _compare_batch(
    derived: DerivedFiles, key: QueueKey, entry: BatchQueueEntry, given_count: int, tally: QueueTally
) -> None:
    at, stop = entry.physical_offset, entry.end_offset
    # RocketMQ's ledger goes on after all offsets that it gave, and after a restart after those that the entry covers.
    tally.records.add(Stretch(entry.base_offset, stop, at, at, also_next=entry.base_offset + given_count))
    tally.entry_count += 1
    queue = derived.queues.get(key)
    place = None if queue is None else _find_batch(derived, queue, at)
    if queue is None or place is None:
        tally.absent.add(Stretch(entry.base_offset, entry.end_offset, at, at))
        return
    file, position = place
    found = bytes(derived.read(file, position, position + BATCH_ENTRY_SIZE))
    # Compaction may have written the compacted offset.
    if replace(parse_batch_queue_entry(found), compacted_offset=entry.compacted_offset) == entry:
        tally.matched_to = max(tally.matched_to, at)
    else:
        evidence = f"the batch entry is {found.hex()} and should be {encode_batch_queue_entry(entry).hex()}"
        tally.wrong.add(Stretch(entry.base_offset, entry.end_offset, at, at, evidence, file, position))


def _find_batch(derived: DerivedFiles, queue: QueueFilesView, physical_offset: int) -> tuple[str, int] | None:
    """File and place of the entry for a record; entries lie in the log's order."""
    for file in queue.files:
        view = derived.read(file.path, 0, file.size)
        count = -(-kernel.written_end(view, 0, len(view)) // BATCH_ENTRY_SIZE)
        places = range(0, min(count * BATCH_ENTRY_SIZE, len(view) - BATCH_ENTRY_SIZE + 1), BATCH_ENTRY_SIZE)
        number = bisect_left(places, physical_offset, key=partial(physical_offset_at, view))
        if number < len(places) and physical_offset_at(view, places[number]) == physical_offset:
            return file.path, places[number]
    return None
