"""What groups have not consumed yet: the oldest message of each queue that a group has still to read.

A group has consumed a queue up to the offset that `config/consumerOffset.json` holds for it. A group with an offset for
some queue of a topic reads the whole topic: where it has none, it has consumed nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from flintlog.disk.medium import Medium
from flintlog.store.json_file import JsonFile
from flintlog.store.logical_queue import LogicalQueue

GroupOffsets: TypeAlias = Mapping[tuple[str, str], Mapping[int, int]]
"""(topic, group) → queue id → the queue offset that the group reads next."""

_SEPARATOR: Final = "@"


@dataclass(frozen=True, slots=True)
class Unconsumed:
    """The first message of a queue that a group has still to read."""

    group: str
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int


def load_group_offsets(path: Path, medium: Medium) -> dict[tuple[str, str], dict[int, int]]:
    """The groups' offsets as RocketMQ keeps them; empty when there is no such file."""
    table = (JsonFile(path, medium).load() or {}).get("offsetTable")
    found: dict[tuple[str, str], dict[int, int]] = {}
    for key, offsets in table.items() if isinstance(table, Mapping) else ():
        topic, separator, group = str(key).partition(_SEPARATOR)
        if separator and isinstance(offsets, Mapping):
            found[topic, group] = _read_offsets(offsets)
    return found


def _read_offsets(offsets: Mapping[str | int, object] | Mapping[str, object] | Mapping[int, object]) -> dict[int, int]:
    return {
        int(queue_id): offset
        for queue_id, offset in offsets.items()
        if isinstance(offset, int) and (isinstance(queue_id, int) or queue_id.isdecimal())
    }


def find_unconsumed(queues: Iterable[LogicalQueue], offsets: GroupOffsets) -> list[Unconsumed]:
    """What each group has still to read, by the place in the log; at most one entry a queue and group."""
    groups: dict[str, list[tuple[str, Mapping[int, int]]]] = {}
    for (topic, group), by_queue in offsets.items():
        groups.setdefault(topic, []).append((group, by_queue))
    found = [
        missing
        for queue in queues
        for group, by_queue in groups.get(queue.topic, ())
        if (missing := _first_missing(queue, group, by_queue.get(queue.queue_id, 0))) is not None
    ]
    return sorted(found, key=lambda each: (each.physical_offset, each.group, each.topic, each.queue_id))


def _first_missing(queue: LogicalQueue, group: str, offset: int) -> Unconsumed | None:
    queue_offset = max(offset, queue.min_offset)
    if queue_offset >= queue.max_offset:
        return None
    entry = queue.entry(queue_offset)
    if entry is None or entry.size <= 0:
        return None
    return Unconsumed(group, queue.topic, queue.queue_id, queue_offset, entry.physical_offset)
