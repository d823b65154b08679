"""What the log says its queues and its index should hold, and whether an index file agrees.

A scan's records become the bytes of their queue entries, in runs of consecutive queue offsets: a run lies in one
stretch of its queue, so comparing it with the queue is one comparison of bytes. Index entries follow the log's
order, so they are compared in step with the scan's rows. The chains of an index file follow from its entries alone.
"""

from __future__ import annotations

import struct
from typing import Final

from flintlog.format.index_file import ENTRY_SIZE as INDEX_ENTRY_SIZE
from flintlog.format.index_file import HEADER_SIZE, SLOT_SIZE, time_difference_s
from flintlog.format.sys_flag import takes_queue_offset
from flintlog.kernel.reference.scanning import Scan
from flintlog.kernel.types import INNER_BATCH, MULTI_DISPATCH, Buffer, ChainFault, QueueRun

_QUEUE_ENTRY: Final = struct.Struct("!qiq")
_INDEX_ENTRY: Final = struct.Struct("!iqii")
_SLOT: Final = struct.Struct("!i")


def queue_runs(scan: Scan) -> tuple[Buffer, list[QueueRun], list[int]]:
    """The queue entries of a scan's records, the runs they form, and the rows that ask for more than one entry.

    Entries are grouped by queue and in log order within it. Records without a place in a queue are left out.
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
                entries += b"".join(_QUEUE_ENTRY.pack(*fields) for _, *fields in found[begin : place + 1])
                begin = place + 1
    return bytes(entries), runs, special


def match_index(
    buffer: Buffer, slot_count: int, entry: int, stop: int, begin_timestamp: int, scan: Scan, row: int, hash_index: int
) -> tuple[int, int, int]:
    """Go along an index file's entries [entry, stop) and a scan's keys together, as far as they agree.

    Returns the entry, row and key of that row at which they part, or at which one of them ends. Rows without (more)
    keys are passed. Times are compared with `begin_timestamp`.
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
                found = _INDEX_ENTRY.unpack_from(view, first + INDEX_ENTRY_SIZE * entry)
                if found[:3] != (hashes[expected.first_hash + hash_index], expected.physical_offset, seconds):
                    return entry, row, hash_index
                entry += 1
                hash_index += 1
            row += 1
            hash_index = 0
    return entry, row, hash_index


def check_chains(buffer: Buffer, slot_count: int, count: int, limit: int = 64) -> tuple[int, int, list[ChainFault]]:
    """Follow from the entries [1, count) of an index file what their chains must be.

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
            key_hash, _, _, previous = _INDEX_ENTRY.unpack_from(view, first + INDEX_ENTRY_SIZE * entry)
            slot = (key_hash & 0xFFFFFFFF) % slot_count
            expected = newest.get(slot, 0)
            if key_hash < 0 or previous != expected:
                fault_count += 1
                faults.append(ChainFault(False, entry, expected, previous))
            newest[slot] = entry
        for slot in range(slot_count):
            found = _SLOT.unpack_from(view, HEADER_SIZE + SLOT_SIZE * slot)[0]
            expected = newest.get(slot, 0)
            if found != expected:
                fault_count += 1
                faults.append(ChainFault(True, slot, expected, found))
    return len(newest), fault_count, faults[:limit]
