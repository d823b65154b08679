"""Reads a store in every way, and compares that with the truth after one bit was flipped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from flintlog import DamagedRecord, Message, Store
from flintlog.format.properties import KEYS, TAGS, UNIQ_KEY, parse_properties
from flintlog.format.record import parse_record

Queue = tuple[str, int]
Place = tuple[str, int, int]
BATCH_TOPIC = "batches"
DAMAGED = b""
"""Stands for a message of which the store says that it is damaged."""


@dataclass(slots=True)
class Served:
    """Answers of one store; records as bytes."""

    ends: dict[Queue, tuple[int, int]] = field(default_factory=dict)
    messages: dict[Place, bytes] = field(default_factory=dict)
    pages: dict[Queue, list[bytes]] = field(default_factory=dict)
    keys: dict[tuple[str, str], list[bytes]] = field(default_factory=dict)
    log: dict[int, bytes] = field(default_factory=dict)
    scanned: dict[int, bytes] = field(default_factory=dict)
    """Physical offset to body."""
    filtered: dict[Queue, list[bytes]] = field(default_factory=dict)
    groups: dict[tuple[str, str], dict[int, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Victim:
    """The message that the flipped bit lies in: only it may be lost or served changed."""

    record: int = -1
    """Its physical offset."""
    places: frozenset[Place] = frozenset()
    """Those of its queue entry."""
    is_index: bool = False
    hides_all: bool = False
    """Whether nothing may be served until the group says what is committed."""
    is_offsets: bool = False


NO_VICTIM = Victim()
SPARE = 4
"""So many offsets beyond the true end of a queue are asked for: a flipped bit may move the end far away."""


def look(store: Store, truth: Served | None = None) -> Served:
    """Ask for everything; with a `truth`, also for everything that it holds."""
    seen = Served()
    for batch in store.scan():
        columns = batch.to_pydict()
        seen.scanned.update(zip(columns["physical_offset"], columns["body"], strict=True))
    offsets = set(seen.scanned) | (set() if truth is None else set(truth.log))
    for offset in sorted(offsets):
        found = _at(store, offset)
        if found is not None:
            seen.log[offset] = found
    for info in store.queues():
        seen.ends[info.topic, info.queue_id] = info.min_offset, info.max_offset
    queues = set(seen.ends) | (set() if truth is None else set(truth.ends))
    for queue in sorted(queues):
        _read_queue(store, queue, seen, None if truth is None else truth.ends.get(queue, (0, 0))[1] + SPARE)
    asked = {key for record in seen.log.values() if record for key in keys_of(record)}
    for topic, key in sorted(asked | (set() if truth is None else set(truth.keys))):
        tag = key.removeprefix("T#")
        hits = store.query(topic, tag, max_count=64, index_type="T" if tag != key else None)
        seen.keys[topic, key] = sorted(hit.record for hit in hits)
    for group, topic in store.consumer_offsets.pairs():
        seen.groups[group, topic] = dict(store.consumer_offsets.offsets(group, topic))
    return seen


def _at(store: Store, offset: int) -> bytes | None:
    try:
        found = store.message_at(offset)
    except DamagedRecord:
        return DAMAGED
    return None if found is None else found.record


def _read_queue(store: Store, queue: Queue, seen: Served, limit: int | None) -> None:
    topic, queue_id = queue
    end = store.max_offset(topic, queue_id)
    end = end if limit is None else min(end, limit)
    for offset in range(store.min_offset(topic, queue_id), end):
        try:
            page = store.get(topic, queue_id, offset, 1)
        except DamagedRecord:
            seen.messages[topic, queue_id, offset] = DAMAGED
        else:
            # Where a batch queue has no entry, a page begins with the next batch.
            if page.messages and (topic != BATCH_TOPIC or _queue_offset(page.messages[0].record) <= offset):
                seen.messages[topic, queue_id, offset] = page.messages[0].record
    seen.pages[queue] = list(_pages(store, queue, None, end))
    seen.filtered[queue] = list(_pages(store, queue, "a", end))


def _queue_offset(record: bytes) -> int:
    return int.from_bytes(record[20:28], "big")


def _pages(store: Store, queue: Queue, tag: str | None, end: int) -> Iterator[bytes]:
    """A queue as a consumer reads it, going on after damage."""
    topic, queue_id = queue
    offset = store.min_offset(topic, queue_id)
    while offset < end:
        try:
            page = store.get(topic, queue_id, offset, filter=tag)
        except DamagedRecord as damaged:
            following = damaged.next_queue_offset
        else:
            yield from (message.record for message in page.messages)
            following = page.next_offset
        assert following is not None and following > offset, f"{queue}: a page at {offset} leads to {following}"
        offset = following


@lru_cache(maxsize=4096)
def keys_of(record: bytes) -> frozenset[tuple[str, str]]:
    """Topic and key of each index entry that a record asks for; tags as `T#tag`."""
    parsed = parse_record(record)
    if parsed.sys_flag & 0xC == 0xC:
        return frozenset()
    properties = parse_properties(parsed.properties)
    names = {key for key in properties.get(KEYS, "").split(" ") if key}
    names |= {properties[UNIQ_KEY]} if properties.get(UNIQ_KEY) else set()
    names |= {f"T#{properties[TAGS]}"} if properties.get(TAGS) else set()
    return frozenset((parsed.topic, name) for name in names)


# ---------------------------------------------------------------------- what must hold


def differences(truth: Served, seen: Served, victim: Victim) -> list[str]:
    """Messages other than the victim that are lost or served wrong."""
    if victim.hides_all:
        return [f"wrong at {place}" for place, found in seen.messages.items() if found != truth.messages.get(place)]
    return [
        *_differing_places(truth, seen, victim),
        *_differing_pages(truth.pages, seen.pages, truth, victim, "read"),
        *_differing_pages(truth.filtered, seen.filtered, truth, victim, "filtered"),
        *_differing_log(truth, seen, victim),
        *_differing_keys(truth, seen, victim),
        *([] if victim.is_offsets or seen.groups == truth.groups else [f"groups: {seen.groups}"]),
    ]


def _is_of(record: bytes, victim: Victim) -> bool:
    return len(record) > 36 and victim.record >= 0 and _place(record) == victim.record


def _place(record: bytes) -> int:
    return int.from_bytes(record[28:36], "big")


def _is_hit(place: Place, truth: Served, victim: Victim) -> bool:
    return place in victim.places or _is_of(truth.messages.get(place, b""), victim)


def _differing_places(truth: Served, seen: Served, victim: Victim) -> Iterator[str]:
    for place in sorted(truth.messages.keys() | seen.messages.keys()):
        right, found = truth.messages.get(place), seen.messages.get(place)
        if right == found:
            continue
        if found and not _is_of(found, victim):
            yield f"wrong at {place}: {_short(found)}"
        elif right is not None and not _is_hit(place, truth, victim):
            yield f"lost at {place}"
        elif right is None and not found and not _fills_a_gap(place, victim):
            yield f"damage at {place}, where nothing was"


def _fills_a_gap(place: Place, victim: Victim) -> bool:
    """The record names a queue or an offset that it has not: what lies before it there does not exist."""
    return victim.record >= 0


def _differing_pages(
    right: dict[Queue, list[bytes]], found: dict[Queue, list[bytes]], truth: Served, victim: Victim, how: str
) -> Iterator[str]:
    for queue in sorted(right.keys() | found.keys()):
        expected, got = right.get(queue, []), found.get(queue, [])
        hidden = [truth.messages.get(place) for place in victim.places]
        lost = [each for each in expected if each not in got and each not in hidden and not _is_of(each, victim)]
        added = [each for each in got if each not in expected and not _is_of(each, victim)]
        if lost or added:
            yield f"{how} from {queue}: lost {list(map(_short, lost))}, added {list(map(_short, added))}"
        if len(set(got)) < len(got):
            yield f"{how} from {queue}: some twice"


def _differing_log(truth: Served, seen: Served, victim: Victim) -> Iterator[str]:
    for offset in sorted(truth.log.keys() | seen.log.keys()):
        if offset != victim.record and truth.log.get(offset) != seen.log.get(offset):
            yield f"in the log at {offset}: {_short(seen.log.get(offset, b''))}"
    for offset in sorted(truth.scanned.keys() | seen.scanned.keys()):
        if offset != victim.record and truth.scanned.get(offset) != seen.scanned.get(offset):
            yield f"scanned at {offset}: {seen.scanned.get(offset)!r}"


def _differing_keys(truth: Served, seen: Served, victim: Victim) -> Iterator[str]:
    for name in sorted(truth.keys.keys() | seen.keys.keys()):
        right, found = truth.keys.get(name, []), seen.keys.get(name, [])
        for record in found:
            if record not in right and not _is_of(record, victim):
                yield f"wrong under {name}: {_short(record)}"
            elif name not in keys_of(record):
                yield f"under {name}, which it has not: {_short(record)}"
        for record in right:
            if record not in found and not victim.is_index and not _is_of(record, victim):
                yield f"lost under {name}: {_short(record)}"


def _short(record: bytes) -> str:
    return f"{len(record)} bytes of {_place(record)}" if record else "damage"


# ---------------------------------------------------------------------- what is put afterwards


def put_after(store: Store, truth: Served, queues: Iterable[Queue]) -> Iterator[str]:
    """Put into each queue: no offset is given twice, and none is passed over."""
    for topic, queue_id in queues:
        right = truth.ends[topic, queue_id][1]
        offset = store.put(Message(topic, b"after", queue_id=queue_id)).check().queue_offset
        if offset < right:
            yield f"{topic}/{queue_id}: the offset {offset} is given again"
        elif offset > right:
            yield f"{topic}/{queue_id}: the next offset is {offset} and should be {right}"
