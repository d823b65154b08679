"""How far each group has consumed each queue: `config/consumerOffset.json`.

    {
      "dataVersion":{ ... },
      "groupTopicMap":{ "billing":[ "orders" ] },              follows from the table; written because Java writes it
      "offsetTable":{ "orders@billing":{ 0:15, 1:12 } },       queue id: the next offset to consume
      "pullOffsetTable":{}                                     a broker's memory of pulls; kept, never used
    }

A broker that serves light queues (`enableLmq`) keeps all of this in `config/lmqConsumerOffset.json` and reads no other
file. There a light group, one whose name begins with %LMQ%, has one offset in a topic, for its queue 0:

      "lmqOffsetTable":{ "%LMQ%device-7@%LMQ%device-7":15 }    topic@group: the next offset to consume

The offsets of such a group in other queues stay in `offsetTable`, which the broker keeps and does not use. If this file
is missing and the other one exists, the offsets are taken from there: `enable_lmq` was changed.

Invariant: an ordinary commit never moves an offset backwards; only `reset` does. Commits are kept in memory and saved
`flush_consumer_offset_interval` after the first unsaved one, and when the store stops. After a crash a group may get
messages of that time again, and never misses one. The log is made durable before offsets are written: if an
acknowledgement is durable, so is everything that the consumer put before it (a retry, a result).

In a ledger's member (`follow`, `lead`) the group has the offsets. Only its leader commits, and a save brings changes to
the group before it writes them here. The other members adopt what the group has committed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, TypeAlias, cast

from flintlog.errors import DamagedStore, InvalidConfig, InvalidTopic, NotLeading, StoreClosed
from flintlog.format.config_json import JsonObject, JsonValue
from flintlog.format.java import concurrent_map_order, hash_map_order
from flintlog.format.topics import LMQ_PREFIX
from flintlog.store.model.arguments import INT64_MAX, check_offset, check_queue
from flintlog.store.runtime.clock import Milliseconds
from flintlog.store.runtime.jobs import NEVER
from flintlog.store.settings.config_table import DataVersion, parse_data_version
from flintlog.store.settings.json_file import JsonFile
from flintlog.store.settings.shared_state import Part

SEPARATOR: Final = "@"
_TABLE_CAPACITY: Final = 512
_GROUPS_CAPACITY: Final = 128
_TOPICS_CAPACITY: Final = 8
_COMMITS_A_VERSION: Final = 500
"""RocketMQ's `consumerOffsetUpdateVersionStep`."""

LIGHT_TABLE: Final = "lmqOffsetTable"
_LIGHT_QUEUE_ID: Final = 0
_MEMBERS: Final = ("dataVersion", "groupTopicMap", "offsetTable", LIGHT_TABLE)

OffsetTable: TypeAlias = dict[str, dict[int, int]]
"""topic@group → queue id → the next offset to consume."""

Share: TypeAlias = Callable[[Part], None]
"""Brings changed offsets to the group; null for a deleted key."""


class ConsumerOffsets:
    """The offsets of all groups. Any thread may call; `_lock` guards the table for moments, `_saving` the file."""

    def __init__(
        self,
        file: JsonFile,
        now_ms: Milliseconds,
        interval_ms: int,
        *,
        flush: Callable[[], None],
        is_light: bool = False,
        other: JsonFile | None = None,
    ) -> None:
        """`flush` makes the log durable.

        `is_light`: the file is that of a store with light queues. `other` is read when there is no such file.
        """
        self.taken_from: JsonFile | None = None
        self.file = file
        self._now_ms = now_ms
        self._interval_ms = interval_ms
        self._flush = flush
        self.on_change: Callable[[], None] | None = None
        """Called when there is something to save, and there was nothing before."""
        self._version = DataVersion(timestamp=now_ms())
        self._beside: JsonObject = {"pullOffsetTable": {}}
        self._table: OffsetTable = {}
        self._is_light = is_light
        self._other = other
        self._lock = threading.Lock()
        self._saving = threading.Lock()
        self._commits = 0
        self._taken = 0
        self._written = 0
        self._changed_at_ms: int | None = None
        self._share: Share | None = None
        self._is_following = False
        self._is_closed = False
        self._unshared: set[str] = set()
        self._sharing = threading.RLock()

    @property
    def path(self) -> Path:
        """The file that they are saved in."""
        return self.file.path

    def load(self) -> None:
        """Load the file. If neither it nor its backup has the right shape, this raises and changes nothing."""
        file = load_from(self.file, self._other)
        table: OffsetTable = {}

        def parse(content: JsonObject) -> None:
            nonlocal table
            table = parse_offsets(content, file.path)

        content = file.load(parse)
        if content is None:
            return
        self._table = table
        self._version = parse_data_version(content.get("dataVersion"), self._now_ms())
        self._beside.update({name: value for name, value in content.items() if name not in _MEMBERS})
        if file is not self.file:
            self.taken_from = file
            self._changed_at_ms = self._now_ms()  # save it in the file that the next opening reads

    # ------------------------------------------------------------------ reading

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        """The offset that the group consumes next; None when it has committed none."""
        return self._table.get(offset_key(group, topic), {}).get(queue_id)

    def offsets(self, group: str, topic: str) -> dict[int, int]:
        """The committed offsets by queue id."""
        with self._lock:
            return dict(self._table.get(offset_key(group, topic), {}))

    def groups_of(self, topic: str) -> list[str]:
        """The groups that have committed an offset of a topic."""
        return sorted(group for other, group in self.pairs() if other == topic)

    def topics_of(self, group: str) -> list[str]:
        """The topics of which a group has committed an offset."""
        return sorted(topic for topic, other in self.pairs() if other == group)

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Topic and group of each entry; keys of another form are left out."""
        for key in list(self._table):
            topic, separator, group = key.partition(SEPARATOR)
            if separator and SEPARATOR not in group:
                yield topic, group

    # ------------------------------------------------------------------ changing

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Everything below `offset` is consumed. False, and no change, when the group was further already."""
        check_queue(topic, queue_id)
        check_offset("a queue offset", offset)
        return self.advance(offset_key(group, topic), queue_id, offset)

    def advance(self, key: str, queue_id: int, offset: int) -> bool:
        """`commit` without checks, by key: consumers call it for each message."""
        with self._lock:
            self._check_taking()
            offsets = self._table.setdefault(key, {})
            if offset <= offsets.get(queue_id, -1):
                return False
            offsets[queue_id] = offset
            is_first = self._note_change(key)
        if is_first and self.on_change is not None:
            self.on_change()
        return True

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Go on at `offset`, forwards or backwards."""
        check_queue(topic, queue_id)
        check_offset("a queue offset", offset)
        key = offset_key(group, topic)
        with self._lock:
            self._check_taking()
            self._table.setdefault(key, {})[queue_id] = offset
            is_first = self._note_change(key)
        self._call_on_change(is_first)

    def remove_group(self, group: str) -> None:
        """Delete the offsets of a group."""
        self._remove(topic + SEPARATOR + group for topic in self.topics_of(group))

    def remove_topic(self, topic: str) -> None:
        """Delete the offsets of all groups in a topic."""
        self._remove(topic + SEPARATOR + group for group in self.groups_of(topic))

    def _remove(self, keys: Iterable[str]) -> None:
        pulls = self._beside.get("pullOffsetTable")
        with self._lock:
            self._check_taking()
            gone = [key for key in keys if self._table.pop(key, None) is not None]
            for key in gone:
                if isinstance(pulls, dict):
                    pulls.pop(key, None)
            is_first = bool(gone) and self._note_change(*gone)
        self._call_on_change(is_first)

    def clamp(self, end_of: Callable[[str, int], int]) -> list[tuple[str, str, int, int, int]]:
        """Bring back offsets beyond the end of their queue; group, topic, queue id, old and new offset of each.

        The log may have lost its tail with the power. New messages take the offsets of the lost ones, and a group that
        stood beyond them would never see those.
        """
        moved = []
        for topic, group in self.pairs():
            for queue_id, offset in sorted(self.offsets(group, topic).items()):
                end = end_of(topic, queue_id) if queue_id >= 0 else offset
                if offset > end:
                    self.reset(group, topic, queue_id, end)
                    moved.append((group, topic, queue_id, offset, end))
        return moved

    def _check_taking(self) -> None:
        if self._is_closed:
            raise StoreClosed("the store is not open", path=self.path)
        if self._is_following:
            raise NotLeading("this member does not lead its group", path=self.path, advice="consume at the leader")

    def _note_change(self, *keys: str) -> bool:
        if self._share is not None:
            self._unshared.update(keys)
        self._commits += 1
        if self._commits % _COMMITS_A_VERSION == 0:
            self._version = self._version.next(self._now_ms())
        if self._changed_at_ms is not None:
            return False
        self._changed_at_ms = self._now_ms()
        return True

    def _call_on_change(self, is_first: bool) -> None:
        if is_first and self.on_change is not None:
            self.on_change()

    # ------------------------------------------------------------------ keeping

    def run_due(self) -> int:
        """Save when the oldest change has waited long enough; the time at which that will be so."""
        changed_at_ms = self._changed_at_ms
        if changed_at_ms is None:
            return NEVER
        due_at_ms = changed_at_ms + self._interval_ms
        if changed_at_ms <= self._now_ms() < due_at_ms:
            return due_at_ms  # a change in the future is from before the clock was set back
        self.save()
        return NEVER if self._changed_at_ms is None else self._changed_at_ms + self._interval_ms

    def save(self) -> bool:
        """Write the changes; whether there were any. A ledger's leader brings them to its group first."""
        if self._share is not None:
            self._share_changes(self._share)
        return self._save_file()

    def _save_file(self) -> bool:
        with self._lock:
            changed_at_ms, self._changed_at_ms = self._changed_at_ms, None
            if changed_at_ms is None:
                return False
            self._taken += 1
            number, content = self._taken, self._encode()
        try:
            # A flush may call a listener that saves too: no lock is held, and the later content wins.
            self._flush()
            with self._saving:
                if number > self._written:
                    self.file.save(content)
                    self._written = number
        except BaseException:
            with self._lock:
                self._changed_at_ms = changed_at_ms
            raise
        return True

    def close(self) -> None:
        """Refuse commits. The save that follows has all earlier ones."""
        with self._lock:
            self._is_closed = True

    def leave_to_parent(self) -> None:
        """In a forked child: the parent takes commits. The lock is new, because its holder may not exist here."""
        self._lock = threading.Lock()
        self._is_closed = True

    # ------------------------------------------------------------------ with a group

    def lead(self, share: Share) -> None:
        """Take commits; a save brings them to the group."""
        with self._lock:
            self._share, self._is_following = share, False

    def follow(self) -> None:
        """Refuse commits: the group's leader takes them."""
        with self._lock:
            self._share, self._is_following = None, True
            self._unshared.clear()

    def adopt(self, changed: Part, *, is_whole: bool) -> None:
        """Adopt what the group has committed: all offsets, or the changed ones."""
        with self._lock:
            table = {} if is_whole else {key: offsets for key, offsets in self._table.items() if key not in changed}
            gone = {key for key, offsets in changed.items() if offsets is None}
            changed = {key: offsets for key, offsets in changed.items() if key not in gone}
            table.update(parse_offsets({"offsetTable": cast(JsonObject, changed)}, self.path))
            if table == self._table:
                return
            self._table = table
            is_first = self._note_change()
        self._call_on_change(is_first)

    def as_part(self) -> Part:
        """All offsets, as the group shares them."""
        with self._lock:
            return {key: _shared(offsets) for key, offsets in self._table.items()}

    def _share_changes(self, share: Share) -> None:
        """One lock covers reading and sharing: a later state must not enter the log before an earlier one."""
        with self._sharing:
            with self._lock:
                keys, self._unshared = self._unshared, set()
                changed: Part = {key: _shared(self._table[key]) if key in self._table else None for key in keys}
            try:
                if changed:
                    share(changed)
            except BaseException:
                with self._lock:
                    self._unshared |= keys
                raise

    def _encode(self) -> JsonObject:
        table, light = _split_light(self._table) if self._is_light else (self._table, {})
        keys = concurrent_map_order(table, _TABLE_CAPACITY)
        topics: dict[str, list[str]] = {}
        for topic, _, group in (key.partition(SEPARATOR) for key in keys if key.count(SEPARATOR) == 1):
            topics.setdefault(group, []).append(topic)
        groups = hash_map_order(topics, _GROUPS_CAPACITY)
        members: JsonObject = {
            **self._beside,
            "dataVersion": self._version.as_json(),
            "groupTopicMap": {group: hash_map_order(topics[group], _TOPICS_CAPACITY) for group in groups},
            "offsetTable": {key: _in_map_order(table[key]) for key in keys},
        }
        if self._is_light:
            members[LIGHT_TABLE] = {key: light[key] for key in concurrent_map_order(light, _TABLE_CAPACITY)}
        return dict(sorted(members.items(), key=lambda item: str(item[0])))


def load_from(file: JsonFile, other: JsonFile | None) -> JsonFile:
    """The file to load offsets from: the other one only if neither the first nor its backup exists."""
    return other if other is not None and not file.exists and other.exists else file


def parse_offsets(content: JsonObject, path: Path) -> OffsetTable:
    """All offsets of a file, those of light groups too; `DamagedStore` when it has another shape."""
    table, light = content.get("offsetTable", {}), content.get(LIGHT_TABLE, {})
    if not isinstance(table, dict) or not isinstance(light, dict):
        raise DamagedStore("the offsetTable of this file is no object", path=path)
    found = {str(key): _numbers(str(key), offsets, path) for key, offsets in table.items()}
    for key, offset in light.items():
        found.setdefault(str(key), {}).update(_numbers(str(key), {_LIGHT_QUEUE_ID: offset}, path))
    return found


def _numbers(key: str, offsets: JsonValue, path: Path) -> dict[int, int]:
    try:
        assert isinstance(offsets, dict)
        found = {int(queue_id): int(str(offset)) for queue_id, offset in offsets.items()}
    except (AssertionError, ValueError):
        raise DamagedStore(f"the offsets of {key!r} are no numbers", path=path) from None
    for queue_id, offset in found.items():
        if not 0 <= offset <= INT64_MAX:
            raise DamagedStore(f"the offset of {key!r} in queue {queue_id} cannot be {offset}", path=path)
    return found


def _split_light(table: OffsetTable) -> tuple[OffsetTable, dict[str, int]]:
    """The contents of `offsetTable` and `lmqOffsetTable` of a store with light queues."""
    plain: OffsetTable = {}
    light: dict[str, int] = {}
    for key, offsets in table.items():
        rest = dict(offsets)
        if key.partition(SEPARATOR)[2].startswith(LMQ_PREFIX) and _LIGHT_QUEUE_ID in rest:
            light[key] = rest.pop(_LIGHT_QUEUE_ID)
        if rest or key not in light:
            plain[key] = rest
    return plain, light


def offset_key(group: str, topic: str) -> str:
    """The key of a group's offsets in a topic."""
    if SEPARATOR in topic:
        raise InvalidTopic(f"no offsets can be kept for {topic!r}", advice=f"{SEPARATOR} separates topic and group")
    if not isinstance(group, str) or not group or SEPARATOR in group:
        raise InvalidConfig(f"a group cannot be {group!r}")
    return topic + SEPARATOR + group


def _shared(offsets: dict[int, int]) -> Part:
    return {str(queue_id): offset for queue_id, offset in offsets.items()}


def _in_map_order(offsets: dict[int, int]) -> dict[int, int]:
    """The order of Java's ConcurrentHashMap of queue ids: ascending, as long as they have no great gaps."""
    size = 4
    while len(offsets) >= size * 3 // 4:
        size *= 2
    by_bucket = sorted((queue_id & (size - 1), queue_id) for queue_id in offsets)
    return {queue_id: offsets[queue_id] for _, queue_id in by_bucket}
