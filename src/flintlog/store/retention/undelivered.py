"""Messages that wait in the store's own topics: delayed ones and undecided transactions.

    SCHEDULE_TOPIC_XXXX/<level - 1>    from the level's offset in `config/delayOffset.json` on
    RMQ_SYS_TRANS_HALF_TOPIC/0         from the saved offset on, the first that no op message names

They are found from the files, so it does not matter whether the services run. The files may be some seconds older than
what was delivered and decided, but never newer. An op message is stored after the half messages that it names, so it is
deleted after them and needs no hold of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from flintlog.disk.media.medium import Medium
from flintlog.errors import FormatError
from flintlog.format.properties import REAL_TOPIC, TAGS
from flintlog.format.record import HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC, TRANSACTION_GROUP, Record, parse_record
from flintlog.store.log.log import Log
from flintlog.store.paths import StorePaths
from flintlog.store.queues.logical_queue import LogicalQueue
from flintlog.store.queues.queue_table import QueueTable
from flintlog.store.retention.holds import Hold, first_entry, say_time
from flintlog.store.retention.unconsumed import GroupOffsets
from flintlog.store.settings.config_shapes import parse_delay_offsets
from flintlog.store.settings.json_file import JsonFile

_QUEUE_ID: Final = 0
_REMOVED: Final = "d"
_OFFSETS: Final = re.compile(r"[0-9]{1,18}")


def load_delay_offsets(paths: StorePaths, medium: Medium) -> dict[int, int]:
    """How far each delay level was delivered; `DamagedStore` when neither the file nor its backup can be read."""
    path = paths.delay_offsets
    content = JsonFile(path, medium).load(lambda loaded: parse_delay_offsets(loaded, path)) or {}
    return parse_delay_offsets(content, path)


def find_delayed(queues: Iterable[LogicalQueue], offsets: dict[int, int]) -> Iterator[Hold]:
    """The first message of each delay level that was not delivered."""
    for queue in queues:
        level = queue.queue_id + 1
        entry = first_entry(queue, offsets.get(level, 0)) if queue.topic == SCHEDULE_TOPIC else None
        if entry is not None:
            until = "" if entry.tags_code is None else f" until {say_time(entry.tags_code)}"
            why = f"delay level {level} waits{until}"
            yield Hold(entry.physical_offset, why, queue.topic, queue.queue_id, entry.queue_offset)


def find_undecided(queues: QueueTable, log: Log, saved: GroupOffsets) -> Iterator[Hold]:
    """The first half message that is neither committed nor rolled back."""
    half, op = queues.get(HALF_TOPIC, _QUEUE_ID), queues.get(OP_TOPIC, _QUEUE_ID)
    offsets = {topic: saved.get((topic, TRANSACTION_GROUP), {}).get(_QUEUE_ID, 0) for topic in (HALF_TOPIC, OP_TOPIC)}
    decided = _named_by_ops(op, log, offsets[OP_TOPIC])
    entry = first_entry(half, offsets[HALF_TOPIC])
    while entry is not None and entry.queue_offset in decided:
        entry = first_entry(half, entry.queue_offset + 1)
    if entry is not None:
        record = _record_at(log, entry.physical_offset)
        topic = "" if record is None else record.property_map().get(REAL_TOPIC, "")
        why = f"a transaction of {topic} is undecided" if topic else "a transaction is undecided"
        yield Hold(entry.physical_offset, why, HALF_TOPIC, _QUEUE_ID, entry.queue_offset)


def _named_by_ops(queue: LogicalQueue | None, log: Log, offset: int) -> set[int]:
    found: set[int] = set()
    while (entry := first_entry(queue, offset)) is not None:
        offset = entry.queue_offset + 1
        record = _record_at(log, entry.physical_offset)
        if record is not None and record.property_map().get(TAGS) == _REMOVED:
            found.update(map(int, _OFFSETS.findall(record.body.decode("utf-8", "replace"))))
    return found


def _record_at(log: Log, physical_offset: int) -> Record | None:
    data = log.record_at(physical_offset)
    try:
        return None if data is None else parse_record(data)
    except FormatError:
        return None
