"""Moves groups to other offsets, in `config/consumerOffset.json` of a store that is not running.

    plan    the new offset of each queue                  only reads
    apply   holds the store's lock, keeps a copy          consumerOffset.json.before-20260131T180000
            beside the file, writes RocketMQ's own text

A store with light queues has `lmqConsumerOffset.json` instead. Without a configuration that says so, the file that
was written last is taken.

The copy stays until it is removed by hand. The file's `.bak` would not do: a running broker replaces it within seconds.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from flintlog.errors import InvalidConfig, InvalidOffset
from flintlog.format.queue_entry import QueueKey
from flintlog.maintenance.inspect.queue_ends import queue_end
from flintlog.maintenance.inspect.store_files import StoreFiles
from flintlog.maintenance.repair.held_store import hold
from flintlog.maintenance.repair.kept import free_path
from flintlog.store.runtime.clock import system_now_ms
from flintlog.store.settings.consumer_offsets import ConsumerOffsets
from flintlog.store.settings.groups import check_group_name
from flintlog.store.settings.json_file import JsonFile

Place = Literal["earliest", "latest"] | int


@dataclass(frozen=True, slots=True)
class OffsetMove:
    """One group's offset in one queue, before (None: it had none) and after the move."""

    group: str
    topic: str
    queue_id: int
    before: int | None
    after: int


def load_offsets(files: StoreFiles) -> ConsumerOffsets:
    """The store's offsets from its file or the `.bak`; `DamagedStore` when neither can be read."""
    offsets = ConsumerOffsets(
        JsonFile(files.paths.consumer_offsets, files.medium),
        system_now_ms,
        0,
        flush=lambda: None,
        is_light=files.paths.is_light,
        other=JsonFile(files.paths.other_consumer_offsets, files.medium),
    )
    offsets.load()
    return offsets


def plan_set(
    files: StoreFiles, group: str, topic: str, queue_id: int | None, place: Place, *, is_new: bool = False
) -> Iterator[OffsetMove]:
    """Move a group to an offset, or to the begin or end, of one queue or of all queues of a topic.

    A group without offsets is refused, because its name may be misspelt, unless `is_new`.
    """
    check_group_name(group)
    offsets = load_offsets(files)
    if not is_new and not offsets.topics_of(group):
        raise InvalidOffset(
            f"the group {group} has no offsets yet",
            advice="`flintlog offsets show` lists those that have; --create makes new ones",
        )
    for key in _queues(files, topic, queue_id):
        begin, end = _bounds(files, key)
        after = {"earliest": begin, "latest": end}[place] if isinstance(place, str) else place
        if not 0 <= after <= end:
            raise InvalidOffset(
                f"{topic}/{key[1]} ends at {end}", offset=after, advice=f"take one from {begin} to {end}"
            )
        yield OffsetMove(group, *key, offsets.get(group, *key), after)


def plan_reset(files: StoreFiles, group: str, topics: Iterable[str], time_ms: int) -> Iterator[OffsetMove]:
    """Move a group to the first message stored at or after a time, in all queues of some topics.

    Without topics, in all that the group has consumed.
    """
    from flintlog.store.open_store import open_store

    offsets = load_offsets(files)
    with open_store(files.root, files.config, read_only=True) as store:
        for topic in list(topics) or offsets.topics_of(group):
            for key in _queues(files, topic, None):
                yield OffsetMove(group, *key, offsets.get(group, *key), store.offset_at(*key, time_ms))


def plan_clone(files: StoreFiles, source: str, target: str, topics: Iterable[str]) -> Iterator[OffsetMove]:
    """Move a group to the offsets of another one, in some of that one's topics or in all."""
    check_group_name(target)
    offsets = load_offsets(files)
    known = offsets.topics_of(source)
    if not known:
        raise InvalidOffset(
            f"the group {source} has no offsets", advice="`flintlog offsets show` lists those that have"
        )
    for topic in list(topics) or known:
        for queue_id, offset in sorted(offsets.offsets(source, topic).items()):
            yield OffsetMove(target, topic, queue_id, offsets.get(target, topic, queue_id), offset)


@contextmanager
def changing(files: StoreFiles) -> Iterator[None]:
    """Hold the store's lock while offsets are planned and applied, so that nothing changes between the two."""
    if files.paths.ledger is not None:
        raise InvalidConfig(
            "the offsets of a ledger's member are its group's, and would be undone",
            path=files.root,
            advice="move them at the group's leader: store.consumer_offsets.reset",
        )
    with hold(files.paths, files.medium):
        yield


def apply_moves(files: StoreFiles, moves: Iterable[OffsetMove]) -> Path | None:
    """Write the moves; returns the copy of the old file, None when there was none. The caller holds the lock."""
    offsets = load_offsets(files)
    for move in moves:
        offsets.reset(move.group, move.topic, move.queue_id, move.after)
    kept = _keep(files)
    offsets.save()
    return kept


def _keep(files: StoreFiles) -> Path | None:
    path = files.paths.consumer_offsets
    data = files.small(path)
    if data is None:
        return None
    copy = free_path(path.with_name(f"{path.name}.before-{time.strftime('%Y%m%dT%H%M%S')}"), files.medium)
    files.medium.replace(copy, data)
    return copy


def _queues(files: StoreFiles, topic: str, queue_id: int | None) -> list[QueueKey]:
    found = sorted(key for key in files.queues if key[0] == topic and queue_id in (None, key[1]))
    if not found:
        what = topic if queue_id is None else f"{topic}/{queue_id}"
        raise InvalidOffset(f"there is no queue {what}", path=files.root, advice="`flintlog ls queues` lists them")
    return found


def _bounds(files: StoreFiles, key: QueueKey) -> tuple[int, int]:
    from flintlog.maintenance.inspect.overview import queue_overview

    queue = files.queues[key]
    end = queue_end(files, queue)
    return min(queue_overview(files, queue).min_offset, end), end
