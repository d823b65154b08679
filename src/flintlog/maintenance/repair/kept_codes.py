"""Carries tags codes over to queues that were built again, where they do not follow from the log.

Only the replaced queue has the delivery time of a message whose delay level is of unknown length, and the tags of a
message whose properties are damaged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from flintlog.derive.stretches import Stretch
from flintlog.disk.media.medium import Medium
from flintlog.format.names import is_segment_name
from flintlog.format.queue_entry import ENTRY_SIZE, QUEUE_ENTRY, QueueKey
from flintlog.format.record import SCHEDULE_TOPIC


def bring_times_back(old: Path, new: Path, levels: Iterable[int], medium: Medium) -> None:
    """Give the entries of these delay levels in `new` the codes that they have in `old`."""
    for level in levels:
        _bring_back(old, new, (SCHEDULE_TOPIC, level - 1), None, medium)


def bring_codes_back(old: Path, new: Path, messages: Mapping[QueueKey, Sequence[Stretch]], medium: Medium) -> None:
    """The same for single messages."""
    for key, stretches in messages.items():
        offsets = [offset for stretch in stretches for offset in range(stretch.first, stretch.stop)]
        _bring_back(old, new, key, offsets, medium)


def _bring_back(old: Path, new: Path, key: QueueKey, offsets: Iterable[int] | None, medium: Medium) -> None:
    folder = Path(key[0]) / str(key[1])
    for info in medium.listing(old / folder):
        there = medium.stat(new / folder / info.name)
        if is_segment_name(info.name) and info.size and there is not None and there.size == info.size:
            first, count = int(info.name) // ENTRY_SIZE, info.size // ENTRY_SIZE
            inside = (
                range(first, first + count) if offsets is None else [n for n in offsets if n - first in range(count)]
            )
            _copy_codes(medium, old / folder / info.name, new / folder / info.name, (n - first for n in inside))


def _copy_codes(medium: Medium, old: Path, new: Path, numbers: Iterable[int]) -> None:
    before, after = medium.open(old), medium.open(new, writable=True)
    try:
        for number in numbers:
            place = number * ENTRY_SIZE
            had, has = (QUEUE_ENTRY.unpack_from(raw.buffer, place) for raw in (before, after))
            if had[:2] == has[:2] and had != has:
                after.write_at(place, memoryview(QUEUE_ENTRY.pack(*had)))
        after.sync()
    finally:
        before.close()
        after.close()
