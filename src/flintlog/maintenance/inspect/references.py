"""Every place of a store that refers to one message: queue entries, index slots and chains, timer, group offsets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from flintlog.checks.derived_files import QueueFilesView
from flintlog.derive.entries import Place, places_of
from flintlog.format.index_file import index_keys, parse_index_entry, parse_index_header, parse_slot
from flintlog.format.java import index_hash
from flintlog.format.queue_entry import (
    ENTRY_SIZE,
    is_extension_address,
    parse_extension_address,
    parse_queue_entry,
)
from flintlog.format.sys_flag import TransactionType, transaction_type
from flintlog.format.timer import UNIT
from flintlog.kernel import Row, scan
from flintlog.maintenance.inspect.overview import groups
from flintlog.maintenance.inspect.queue_ends import batch_entries
from flintlog.maintenance.inspect.store_files import StoreFiles
from flintlog.store.model.stored_message import StoredMessage

Reference = Mapping[str, object]


def references(files: StoreFiles, message: StoredMessage) -> Iterator[Reference]:
    """All places that refer to a message."""
    yield from _queue_entries(files, message)
    yield from _index_entries(files, message)
    yield from _timer_units(files, message.physical_offset)
    for offset in groups(files):
        if (offset.topic, offset.queue_id) == (message.topic, message.queue_id):
            yield {
                "kind": "group-offset",
                "file": str(files.paths.consumer_offsets),
                "group": offset.group,
                "offset": offset.offset,
                "is_consumed": offset.offset > message.queue_offset,
            }


def find_by_key(files: StoreFiles, topic: str, key: str) -> list[int]:
    """Physical offsets that the index has under a key of a topic, newest first; other keys may share its hash."""
    found: list[int] = []
    for path in reversed(files.index):
        for _, _, physical_offset, _ in _chain(files, path, index_hash(f"{topic}#{key}")):
            if physical_offset not in found:
                found.append(physical_offset)
    return found


def _queue_entries(files: StoreFiles, message: StoredMessage) -> Iterator[Reference]:
    seen = scan(message.record, 0, message.size, message.physical_offset, delay_levels_ms=message.delay_levels_ms)
    if not seen.count:
        return
    row = seen.row(0)
    places = places_of(
        message.topic, message.queue_id, row, message.record, is_batch=files.batch_topics.__contains__, lmq=True
    )
    for place in places:
        queue = files.queues.get((place.topic, place.queue_id))
        found = None if queue is None else _entry(files, queue, place, row)
        where = {"topic": place.topic, "queue_id": place.queue_id, "queue_offset": place.queue_offset}
        yield {"kind": "queue-entry", **where, **({"is_missing": True} if found is None else found)}


def _entry(files: StoreFiles, queue: QueueFilesView, place: Place, row: Row) -> Reference | None:
    if queue.is_batch:
        return _batch_entry(files, queue, row.physical_offset)
    at = place.queue_offset * ENTRY_SIZE
    for file, offset, view in queue.pieces(files.read, at, at + ENTRY_SIZE):
        entry = parse_queue_entry(view)
        found: dict[str, object] = {"file": file.path, "offset": offset, "tags_code": entry.tags_code}
        if queue.extension and is_extension_address(entry.tags_code):
            unit = queue.unit(files.read, parse_extension_address(entry.tags_code))
            found["extension_offset"] = parse_extension_address(entry.tags_code)
            found["tags_code"] = None if unit is None else unit.tags_code
        found["is_right"] = (entry.physical_offset, entry.size) == (row.physical_offset, row.size)
        return found
    return None


def _batch_entry(files: StoreFiles, queue: QueueFilesView, physical_offset: int) -> Reference | None:
    for file, place, entry in batch_entries(files, queue):
        if entry.physical_offset == physical_offset:
            return {"file": file.path, "offset": place, "batch_size": entry.batch_size, "is_right": True}
    return None


def _index_entries(files: StoreFiles, message: StoredMessage) -> Iterator[Reference]:
    if transaction_type(message.sys_flag) is TransactionType.ROLLBACK:
        return
    for key in dict.fromkeys(index_keys(message.topic, message.properties)):
        key_hash = index_hash(key)
        for path in files.index:
            slot = files.layout.slot_of(key_hash)
            for depth, entry, physical_offset, offset in _chain(files, path, key_hash):
                if physical_offset == message.physical_offset:
                    yield {
                        "kind": "index-entry",
                        "key": key,
                        "file": path,
                        "offset": offset,
                        "hash": key_hash,
                        "slot": slot,
                        "entry": entry,
                        "place_in_chain": depth,
                    }


def _chain(files: StoreFiles, path: str, key_hash: int) -> Iterator[tuple[int, int, int, int]]:
    """Entries of a hash along its slot's chain: place in the chain, number, physical offset, byte offset."""
    layout = files.layout
    view = files.read(path, 0, layout.file_size)
    count = min(parse_index_header(view).next_entry, layout.index_count)
    number = parse_slot(view, layout, layout.slot_of(key_hash))
    depth = 0
    while 0 < number < count:
        entry = parse_index_entry(view, layout, number)
        if entry.key_hash == key_hash:
            yield depth, number, entry.physical_offset, layout.entry_position(number)
        if entry.previous_entry >= number:
            return  # a link must point to an earlier entry; this one is damaged
        number, depth = entry.previous_entry, depth + 1


def _timer_units(files: StoreFiles, physical_offset: int) -> Iterator[Reference]:
    for file in files.timer_log:
        view = files.view(file)
        for place in range(0, file.size - UNIT.size + 1, UNIT.size):
            size, _, magic, written_ms, delay_ms, at, _, _, _ = UNIT.unpack_from(view, place)
            if size != UNIT.size:
                break
            if at == physical_offset:
                unit = {"kind": "timer-unit", "file": file.path, "offset": place, "magic": magic}
                yield {**unit, "deliver_at_ms": written_ms + delay_ms}
