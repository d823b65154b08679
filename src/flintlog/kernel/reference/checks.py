"""Derives the expected queue and index entries from the log, and compares index files with them.

A scan's records become the bytes of their queue entries, in runs of consecutive queue offsets. A run is contiguous in
its queue, so it is compared with the queue as one piece of bytes. Index entries are in log order, so they are compared
in step with the scan's rows. The chains of an index file follow from its entries alone.
"""

from __future__ import annotations

from flintlog.format.index_file import ENTRY_SIZE as INDEX_ENTRY_SIZE
from flintlog.format.index_file import HEADER_SIZE, INDEX_ENTRY, INDEX_SLOT, SLOT_SIZE, time_difference_s
from flintlog.format.queue_entry import QUEUE_ENTRY
from flintlog.format.sys_flag import takes_queue_offset
from flintlog.kernel.reference.scanning import Scan
from flintlog.kernel.types import INNER_BATCH, MULTI_DISPATCH, Buffer, ChainFault, QueueRun


def queue_runs(scan: Scan) -> tuple[Buffer, list[QueueRun], list[int]]:
    """The queue entries of a scan's records, the runs that they form, and the rows that may need other entries.

    Entries are grouped by queue and in log order within it. Records without a queue entry are left out. The rows are
    those of inner batches and of multi-dispatched messages.
    """
    by_queue: list[list[tuple[int, int, int, int]]] = [[] for _ in scan.queues]
    special: list[int] = []
    for index in range(scan.count):
        row = scan.row(index)
        if takes_queue_offset(row.sys_flag):
            by_queue[row.queue].append((row.queue_offset, row.physical_offset, row.size, row.tags_code))
            if row.marks & (MULTI_DISPATCH | INNER_BATCH):
                special.append(index)
    entries = bytearray()
    runs: list[QueueRun] = []
    for queue, found in enumerate(by_queue):
        begin = 0
        for place, (offset, *_) in enumerate(found):
            if place + 1 == len(found) or found[place + 1][0] != offset + 1:
                first, last = found[begin], found[place]
                runs.append(QueueRun(queue, first[0], place + 1 - begin, len(entries), first[1], last[1]))
                entries += b"".join(QUEUE_ENTRY.pack(*fields) for _, *fields in found[begin : place + 1])
                begin = place + 1
    return bytes(entries), runs, special


def match_index(
    buffer: Buffer, slot_count: int, entry: int, stop: int, begin_timestamp: int, scan: Scan, row: int, hash_index: int
) -> tuple[int, int, int]:
    """Compare an index file's entries [entry, stop) with a scan's keys, from a row and one of its keys on.

    Returns the entry, the row and its key at which they first differ, or at which one of them ends. Rows without keys
    are skipped. Times count from `begin_timestamp`.
    """
    first = HEADER_SIZE + SLOT_SIZE * slot_count
    hashes = scan.hashes
    with memoryview(buffer).cast("B") as view:
        if slot_count < 0 or not 0 <= entry <= stop or first + INDEX_ENTRY_SIZE * stop > view.nbytes:
            raise ValueError(f"the entries {entry} to {stop} are not in an index file of {view.nbytes} bytes")
        while row < scan.count:
            expected = scan.row(row)
            seconds = time_difference_s(expected.store_timestamp, begin_timestamp)
            while hash_index < expected.hash_count:
                if entry >= stop:
                    return entry, row, hash_index
                found = INDEX_ENTRY.unpack_from(view, first + INDEX_ENTRY_SIZE * entry)
                if found[:3] != (hashes[expected.first_hash + hash_index], expected.physical_offset, seconds):
                    return entry, row, hash_index
                entry += 1
                hash_index += 1
            row += 1
            hash_index = 0
    return entry, row, hash_index


def check_chains(buffer: Buffer, slot_count: int, count: int, limit: int = 64) -> tuple[int, int, list[ChainFault]]:
    """Compare an index file's slots and links with the chains that follow from its entries [1, count).

    Returns how many slots are in use, how many faults there are, and the first `limit` of them.
    """
    first = HEADER_SIZE + SLOT_SIZE * slot_count
    newest: dict[int, int] = {}
    faults: list[ChainFault] = []
    fault_count = 0
    with memoryview(buffer).cast("B") as view:
        if slot_count < 1 or count < 0 or first + INDEX_ENTRY_SIZE * count > view.nbytes:
            raise ValueError(f"{slot_count} slots and {count} entries are not in an index file of {view.nbytes} bytes")
        for entry in range(1, count):
            key_hash, _, _, previous = INDEX_ENTRY.unpack_from(view, first + INDEX_ENTRY_SIZE * entry)
            slot = (key_hash & 0xFFFFFFFF) % slot_count
            expected = newest.get(slot, 0)
            if key_hash < 0 or previous != expected:
                fault_count += 1
                faults.append(ChainFault(False, entry, expected, previous))
            newest[slot] = entry
        for slot in range(slot_count):
            found = INDEX_SLOT.unpack_from(view, HEADER_SIZE + SLOT_SIZE * slot)[0]
            expected = newest.get(slot, 0)
            if found != expected:
                fault_count += 1
                faults.append(ChainFault(True, slot, expected, found))
    return len(newest), fault_count, faults[:limit]
