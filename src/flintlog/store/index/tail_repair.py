"""Repair of the last index file after power was lost: its published entries are durable, its slots may be newer.

Published entries never change, but a slot is rewritten with every key that falls into it. A slot may have reached the
disk while the entry that it names did not. So slots are compared with the published entries. If they do not agree, all
slots are built again from the entries: a slot names the newest entry of its hash.
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
    """Restore the last file to its state with `count` published entries. Returns whether it had to be changed."""
    if not index.files:
        return False
    file = index.files[-1]
    _, fault_count, _ = kernel.check_chains(file.buffer, file.layout.slot_count, max(count, 1))
    is_damaged = bool(fault_count) or _has_stray_bytes(file, count)
    if is_damaged:
        _rebuild(file, count, store_time_of)
    file.flush()
    return is_damaged


def _has_stray_bytes(file: IndexFile, count: int) -> bool:
    start = file.layout.entry_position(max(count, 1))
    return kernel.written_end(file.buffer, start, file.layout.file_size) > start


def _rebuild(file: IndexFile, count: int, store_time_of: Callable[[int], int]) -> None:
    buffer, layout = file.buffer, file.layout
    first_entry = layout.entry_position(0)
    buffer[HEADER_SIZE:first_entry] = bytes(first_entry - HEADER_SIZE)
    file.clear_after(count)
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
