"""Finds harm that a repair did: an intact message at another offset, a missing record, or more findings than before.

New queues are compared with those that they replaced, entry by entry. If two entries differ, and the old one points at
an intact record that names this queue and offset, then the new entry is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from flintlog import kernel
from flintlog.derive.entries import places_of
from flintlog.disk.media.medium import FileInfo, Medium
from flintlog.format.names import CONSUME_QUEUE, is_segment_name, parse_queue_id
from flintlog.format.queue_entry import ENTRY_SIZE, QUEUE_ENTRY
from flintlog.maintenance.inspect.store_files import StoreFiles
from flintlog.maintenance.verify.verify import Verification

COMPARED_BYTES = 4 * 1024 * 1024


def find_harm(before: Verification, after: Verification, replaced_queues: Path | None, files: StoreFiles) -> str | None:
    """A sentence about what a repair made worse, or None; `files` are those after the repair."""
    whole_before = before.record_count - before.damaged_count
    whole_after = after.record_count - after.damaged_count
    if whole_after < whole_before:
        return f"{whole_before - whole_after} intact records were no longer in the log"
    if len(after.findings) > len(before.findings):
        return f"there were {len(after.findings)} findings after it, and {len(before.findings)} before"
    for place in () if replaced_queues is None else _moved(replaced_queues, files):
        return f"the intact message at {place} was no longer there"
    return None


def _moved(replaced: Path, files: StoreFiles) -> Iterator[str]:
    medium = files.medium
    for topic in _folders(medium, replaced):
        for queue in _folders(medium, replaced / topic.name):
            for info in medium.listing(replaced / topic.name / queue.name):
                if info.size and is_segment_name(info.name) and parse_queue_id(queue.name) is not None:
                    new = files.root / CONSUME_QUEUE / topic.name / queue.name / info.name
                    old = replaced / topic.name / queue.name / info.name
                    for offset in _differing(files, old, new, int(info.name)):
                        yield f"queue offset {offset} of {topic.name}/{queue.name}"


def _folders(medium: Medium, directory: Path) -> list[FileInfo]:
    return [info for info in medium.listing(directory) if info.is_directory]


def _differing(files: StoreFiles, old: Path, new: Path, base: int) -> Iterator[int]:
    """Queue offsets whose old entry names an intact record of that place, and whose new entry does not."""
    topic, queue_id = old.parent.parent.name, int(old.parent.name)
    size = files.source.size(old)
    there = files.medium.stat(new)
    for start in range(0, size - size % ENTRY_SIZE, COMPARED_BYTES // ENTRY_SIZE * ENTRY_SIZE):
        stop = min(size - size % ENTRY_SIZE, start + COMPARED_BYTES // ENTRY_SIZE * ENTRY_SIZE)
        before = files.read(str(old), start, stop)
        after = b"" if there is None else bytes(files.read(str(new), start, min(stop, there.size)))
        if bytes(before) == after:
            continue
        for place in range(0, stop - start, ENTRY_SIZE):
            entry = QUEUE_ENTRY.unpack_from(before, place)
            now = QUEUE_ENTRY.unpack_from(after, place) if len(after) - place >= ENTRY_SIZE else (0, 0, 0)
            offset = (base + start + place) // ENTRY_SIZE
            if entry[:2] != now[:2] and _names_place(files, entry[0], entry[1], (topic, queue_id, offset)):
                yield offset


def _names_place(files: StoreFiles, physical_offset: int, size: int, wanted: tuple[str, int, int]) -> bool:
    """Whether an intact record of this size is there and names that queue and offset."""
    file = files.log_file_of(physical_offset)
    if file is None or size <= 0 or physical_offset + size > file.end:
        return False
    start = physical_offset - file.base
    record = bytes(files.read(file.path, start, start + size))
    seen = kernel.scan(record, 0, size, physical_offset, check_crc=True, max_count=1)
    if seen.count != 1 or seen.row(0).size != size:
        return False
    row = seen.row(0)
    places = places_of(*seen.queues[row.queue], row, record, is_batch=files.batch_topics.__contains__, lmq=True)
    return wanted in [(place.topic, place.queue_id, place.queue_offset) for place in places]
