"""How long delay levels are, by the queue entries of messages that waited: delivery time less store time.

RocketMQ keeps its levels in the broker's configuration only. One entry may be damaged, and a broker's levels may have
been changed: a length counts if all entries of a level have it but single ones. If they do not agree, nobody knows it.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from flintlog import kernel
from flintlog.checks.derived_files import QueueFilesView
from flintlog.format.queue_entry import ENTRY_SIZE
from flintlog.format.queue_extension import is_extension_address
from flintlog.format.record import SCHEDULE_TOPIC

if TYPE_CHECKING:
    from flintlog.maintenance.inspect.store_files import StoreFiles

SAMPLES: Final = 512
_ENTRY: Final = struct.Struct("!qiq")
MAX_LEVELS: Final = 1000
"""A queue of delayed messages with a higher number was made by a damaged record: it is no level."""
_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000))


@dataclass(frozen=True, slots=True)
class SeenLevels:
    """The lengths of levels in milliseconds, by level; and those levels that had several."""

    lengths_ms: dict[int, int]
    doubtful: frozenset[int]


def see_levels(files: StoreFiles) -> SeenLevels:
    """What the entries in a directory say."""
    lengths: dict[int, int] = {}
    doubtful: set[int] = set()
    for (topic, queue_id), queue in files.queues.items():
        if topic != SCHEDULE_TOPIC or queue_id >= MAX_LEVELS:
            continue
        seen = Counter(_lengths(files, queue))
        often = [length for length, count in seen.items() if count > 1] or list(seen)
        if len(often) == 1:
            lengths[queue_id + 1] = often[0]
        elif often:
            doubtful.add(queue_id + 1)
    return SeenLevels(lengths, frozenset(doubtful))


def with_seen(known_ms: tuple[int, ...], seen: SeenLevels) -> tuple[int, ...]:
    """Known lengths, corrected by those that were seen."""
    count = max((len(known_ms), *seen.lengths_ms))
    filled = [*known_ms, *(known_ms[-1:] or (1000,)) * (count - len(known_ms))]
    return tuple(seen.lengths_ms.get(level, length) for level, length in enumerate(filled, 1))


def format_levels(lengths_ms: tuple[int, ...]) -> str:
    """Lengths as the option `message_delay_level` has them.

    >>> format_levels((1000, 300_000, 7_200_000))
    '1s 5m 2h'
    """
    return " ".join(_format(length) for length in lengths_ms)


def _format(length_ms: int) -> str:
    unit, size = next((each for each in _UNITS if length_ms and length_ms % each[1] == 0), _UNITS[-1])
    return f"{length_ms // size}{unit}"


def _lengths(files: StoreFiles, queue: QueueFilesView) -> Iterator[int]:
    """Of the last entries of a level, how long each waits."""
    left = SAMPLES
    for file in reversed(queue.files):
        view = files.read(file.path, 0, file.size)
        end = kernel.count_entries(view, 0, file.size - file.size % ENTRY_SIZE)
        for place in range(end - ENTRY_SIZE, -1, -ENTRY_SIZE):
            if not left:
                return
            left -= 1
            physical_offset, size, delivered_at = _ENTRY.unpack_from(view, place)
            stored_at = None if is_extension_address(delivered_at) else _stored_at(files, physical_offset, size)
            length = 0 if stored_at is None else delivered_at - stored_at
            if length > 0 and length % 1000 == 0:
                yield length


def _stored_at(files: StoreFiles, physical_offset: int, size: int) -> int | None:
    file = next((file for file in files.log if file.base <= physical_offset < file.end), None)
    if file is None or not 0 < size <= file.end - physical_offset:
        return None
    start = physical_offset - file.base
    record = bytes(files.read(file.path, start, start + size))
    seen = kernel.scan(record, 0, size, physical_offset, check_crc=True, max_count=1)
    is_waiting = seen.count == 1 and seen.queues[seen.row(0).queue][0] == SCHEDULE_TOPIC
    return seen.row(0).store_timestamp if is_waiting else None
