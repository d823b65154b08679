"""The search for the first message of a consume queue file that the log still has.

Both searches bisect the entries of one file: fillers come first, then records in the log's order.
"""

from __future__ import annotations

from flintlog.format.queue_entry import ENTRY_SIZE, PHYSICAL_OFFSET, PREFILL


def prefill_end(view: memoryview) -> int:
    """The position after the fillers with which a queue begins whose first message was not its offset 0."""
    low, high = 0, len(view) // ENTRY_SIZE
    while low < high:
        middle = (low + high) // 2
        place = middle * ENTRY_SIZE
        if view[place : place + ENTRY_SIZE] == PREFILL:
            low = middle + 1
        else:
            high = middle
    return low * ENTRY_SIZE


def first_at_or_after(view: memoryview, commit_log_min: int) -> int | None:
    """The position of the first entry whose record lies at or after an offset; None without one."""
    low = 0
    high = len(view) - ENTRY_SIZE
    while high - low > ENTRY_SIZE:
        middle = (low + high) // (2 * ENTRY_SIZE) * ENTRY_SIZE
        if PHYSICAL_OFFSET.unpack_from(view, middle)[0] < commit_log_min:
            low = middle
        else:
            high = middle
    for position in range(low, high + ENTRY_SIZE, ENTRY_SIZE):
        if PHYSICAL_OFFSET.unpack_from(view, position)[0] >= commit_log_min:
            return position
    return None
