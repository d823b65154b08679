"""The last index file after power was lost: its published entries are durable, its slots may be ahead of them.

Entries never change once they are published, but a slot is written again with every key that falls into it. A slot that
reached the disk while the entry it names did not leads nowhere. So slots are compared with the entries that count, and
where they do not agree they are made anew from them: the newest entry of each slot is the last that names it.
"""

from __future__ import annotations

from collections.abc import Callable

from flintlog import kernel
from flintlog.format.index_file import (
    HEADER_SIZE,
    SLOT_SIZE,
    IndexHeader,
    encode_index_header,
    encode_slot,
    parse_index_entry,
    parse_index_header,
)
from flintlog.store.index.index_file import IndexFile
from flintlog.store.index.index_service import IndexService


def mend_tail(index: IndexService, count: int, store_time_of: Callable[[int], int]) -> bool:
    """Make the last file what it was when it had `count` published; whether anything had to be done."""
    if not index.files:
        return False
    file = index.files[-1]
    _, fault_count, _ = kernel.check_chains(file.buffer, file.layout.slot_count, max(count, 1))
    is_right = not fault_count and not _has_stray_bytes(file, count)
    if not is_right:
        _remake(file, count, store_time_of)
    file.flush()
    return not is_right


def _has_stray_bytes(file: IndexFile, count: int) -> bool:
    start = file.layout.entry_position(max(count, 1))
    return kernel.written_end(file.buffer, start, file.layout.file_size) > start


def _remake(file: IndexFile, count: int, store_time_of: Callable[[int], int]) -> None:
    buffer, layout = file.buffer, file.layout
    first_entry = layout.entry_position(0)
    buffer[HEADER_SIZE:first_entry] = bytes(first_entry - HEADER_SIZE)
    behind = layout.entry_position(max(count, 1))
    buffer[behind : layout.file_size] = bytes(layout.file_size - behind)
    used = 0
    for number in range(1, count):
        entry = parse_index_entry(buffer, layout, number)
        used += entry.previous_entry == 0
        slot = layout.slot_position(layout.slot_of(entry.key_hash))
        buffer[slot : slot + SLOT_SIZE] = encode_slot(number)
    if count > 1:
        header = parse_index_header(buffer)
        last = parse_index_entry(buffer, layout, count - 1).physical_offset
        times = header.begin_timestamp, store_time_of(last)
        made = IndexHeader(*times, header.begin_physical_offset, last, used, count)
        buffer[:HEADER_SIZE] = encode_index_header(made)
