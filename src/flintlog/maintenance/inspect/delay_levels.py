"""Infers the lengths of delay levels from the queue entries of delayed messages: delivery time minus store time.

RocketMQ keeps the lengths only in the broker's configuration. An entry may be damaged, and the configuration may have
changed, so a length is taken only if it is the only one that occurs more than once in its level. Otherwise the level is
doubtful.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from flintlog import kernel
from flintlog.checks.derived_files import DataFile, QueueFilesView, Read, file_at
from flintlog.disk.media.medium import Medium
from flintlog.disk.media.remote import source_of
from flintlog.errors import DiskError
from flintlog.format.names import is_segment_name, parse_queue_id
from flintlog.format.queue_entry import ENTRY_SIZE, QUEUE_ENTRY, is_extension_address
from flintlog.format.record import SCHEDULE_TOPIC
from flintlog.store.options.values import DEFAULT_DELAY_LEVELS_MS, parse_delay_levels
from flintlog.store.paths import StorePaths
from flintlog.store.settings.written_with import DELAY_LEVELS, load_options

SAMPLES: Final = 512
MAX_LEVELS: Final = 1000
"""A queue of delayed messages with a higher number was made by a damaged record: it is no level."""
_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000))


@dataclass(frozen=True, slots=True)
class SeenLevels:
    """The lengths of levels in milliseconds, by level; and the levels with several lengths."""

    lengths_ms: dict[int, int]
    doubtful: frozenset[int]


@dataclass(frozen=True, slots=True)
class DelayLevels:
    """The lengths of a store's levels, from level 1 on; those that are not `known` are guessed."""

    lengths_ms: tuple[int, ...] = DEFAULT_DELAY_LEVELS_MS
    known: frozenset[int] = frozenset()


def load_levels(paths: StorePaths, log: Sequence[DataFile], medium: Medium, samples: int) -> DelayLevels:
    """The levels of a store without a configuration: the last writer's note, corrected by the last queue entries."""
    noted = load_options(paths, medium).get(DELAY_LEVELS)
    lengths = parse_delay_levels(DELAY_LEVELS, noted) if isinstance(noted, str) else DEFAULT_DELAY_LEVELS_MS
    try:
        queues = _waiting_queues(paths.consume_queue / SCHEDULE_TOPIC, medium) if samples else ()
        source = source_of(medium)
        seen = see_levels(queues, lambda path, *piece: source.view(Path(path), *piece), log, samples)
    except DiskError:  # a file was deleted since it was listed
        seen = SeenLevels({}, frozenset())
    known = {*seen.lengths_ms, *(range(1, len(lengths) + 1) if isinstance(noted, str) else ())}
    return DelayLevels(with_seen(lengths, seen), frozenset(known - seen.doubtful))


def _waiting_queues(folder: Path, medium: Medium) -> Iterator[QueueFilesView]:
    for queue in medium.listing(folder):
        queue_id = parse_queue_id(queue.name) if queue.is_directory else None
        found = [] if queue_id is None else medium.listing(folder / queue.name)
        files = [(folder / queue.name / info.name, info.size) for info in found if is_segment_name(info.name)]
        if queue_id is not None and files:
            views = (DataFile(str(path), int(path.name), size) for path, size in sorted(files))
            yield QueueFilesView(SCHEDULE_TOPIC, queue_id, tuple(views))


def see_levels(
    queues: Iterable[QueueFilesView], read: Read, log: Sequence[DataFile], samples: int = SAMPLES
) -> SeenLevels:
    """The levels by the last entries of their queues, at most `samples` of each; `log` holds the records."""
    lengths: dict[int, int] = {}
    doubtful: set[int] = set()
    for queue in queues:
        topic, queue_id = queue.key
        if topic != SCHEDULE_TOPIC or queue_id >= MAX_LEVELS:
            continue
        seen = Counter(_lengths(queue, read, log, samples))
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
    """Lengths in the form of the option `message_delay_level`.

    >>> format_levels((1000, 300_000, 7_200_000))
    '1s 5m 2h'
    """
    return " ".join(_format(length) for length in lengths_ms)


def _format(length_ms: int) -> str:
    unit, size = next((each for each in _UNITS if length_ms and length_ms % each[1] == 0), _UNITS[-1])
    return f"{length_ms // size}{unit}"


def _lengths(queue: QueueFilesView, read: Read, log: Sequence[DataFile], samples: int) -> Iterator[int]:
    """How long each of the last entries of a level waits."""
    left = samples
    for file in reversed(queue.files):
        view = read(file.path, 0, file.size)
        end = kernel.count_entries(view, 0, file.size - file.size % ENTRY_SIZE)
        for place in range(end - ENTRY_SIZE, -1, -ENTRY_SIZE):
            if not left:
                return
            left -= 1
            physical_offset, size, delivered_at = QUEUE_ENTRY.unpack_from(view, place)
            stored_at = None if is_extension_address(delivered_at) else _stored_at(read, log, physical_offset, size)
            length = 0 if stored_at is None else delivered_at - stored_at
            if length > 0 and length % 1000 == 0:
                yield length


def _stored_at(read: Read, log: Sequence[DataFile], physical_offset: int, size: int) -> int | None:
    file = file_at(log, physical_offset)
    if file is None or not 0 < size <= file.end - physical_offset:
        return None
    start = physical_offset - file.base
    record = bytes(read(file.path, start, start + size))
    seen = kernel.scan(record, 0, size, physical_offset, check_crc=True, max_count=1)
    is_waiting = seen.count == 1 and seen.queues[seen.row(0).queue][0] == SCHEDULE_TOPIC
    return seen.row(0).store_timestamp if is_waiting else None
