"""How far each group has consumed each queue: `config/consumerOffset.json`.

    {
      "dataVersion":{ ... },
      "groupTopicMap":{ "billing":[ "orders" ] },              follows from the table; written because Java writes it
      "offsetTable":{ "orders@billing":{ 0:15, 1:12 } },       queue id: the next offset to consume
      "pullOffsetTable":{}                                     a broker's memory of pulls; kept, never used
    }

Invariant: an ordinary commit never moves an offset backwards; only `reset` does. Commits are kept in memory and saved
`flush_consumer_offset_interval` after the first one that was not, and when the store stops: after a crash a group
may be given again what it consumed in that time, and never misses anything. Before offsets are written the log is made
durable: what a consumer put into this store before it acknowledged a message (a retry, a result) is never lost while
the acknowledgement is not.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from flintlog.errors import DamagedStore, InvalidConfig, InvalidTopic
from flintlog.format.config_json import JsonObject, JsonValue
from flintlog.format.java import concurrent_map_order, hash_map_order
from flintlog.store.background import NEVER
from flintlog.store.checks import check_offset, check_queue
from flintlog.store.clock import Milliseconds
from flintlog.store.config_table import DataVersion, parse_data_version
from flintlog.store.json_file import JsonFile

SEPARATOR: Final = "@"
_TABLE_CAPACITY: Final = 512
_GROUPS_CAPACITY: Final = 128
_TOPICS_CAPACITY: Final = 8
_COMMITS_A_VERSION: Final = 500
"""RocketMQ's `consumerOffsetUpdateVersionStep`."""

_MEMBERS: Final = ("dataVersion", "groupTopicMap", "offsetTable")


class ConsumerOffsets:
    """The offsets of all groups. Any thread may call; `_lock` guards the table for moments, `_saving` the file."""

    def __init__(
        self,
        file: JsonFile,
        now_ms: Milliseconds,
        interval_ms: int,
        *,
        flush: Callable[[], None],
        on_change: Callable[[], None] | None = None,
    ) -> None:
        """`flush` makes the log durable. `on_change`: there is something to save, and there was nothing before."""
        self._file = file
        self._now_ms = now_ms
        self._interval_ms = interval_ms
        self._flush = flush
        self._on_change = on_change
        self._version = DataVersion(timestamp=now_ms())
        self._beside: JsonObject = {"pullOffsetTable": {}}
        self._table: dict[str, dict[int, int]] = {}
        self._lock = threading.Lock()
        self._saving = threading.Lock()
        self._commits = 0
        self._taken = 0
        self._written = 0
        self._changed_at_ms: int | None = None

    def load(self) -> None:
        """Take what the file holds; a file of another shape raises, and nothing is changed."""
        content = self._file.load()
        if content is None:
            return
        table = content.get("offsetTable", {})
        if not isinstance(table, dict):
            raise DamagedStore("the offsetTable of this file is no object", path=self._file.path)
        self._table = {str(key): self._parse(str(key), offsets) for key, offsets in table.items()}
        self._version = parse_data_version(content.get("dataVersion"), self._now_ms())
        self._beside.update({name: value for name, value in content.items() if name not in _MEMBERS})

    def _parse(self, key: str, offsets: JsonValue) -> dict[int, int]:
        try:
            assert isinstance(offsets, dict)
            return {int(queue_id): int(str(offset)) for queue_id, offset in offsets.items()}
        except (AssertionError, ValueError):
            raise DamagedStore(f"the offsets of {key!r} are no numbers", path=self._file.path) from None

    # ------------------------------------------------------------------ looking

    def get(self, group: str, topic: str, queue_id: int) -> int | None:
        """The offset that the group consumes next; None when it has committed none."""
        return self._table.get(offset_key(group, topic), {}).get(queue_id)

    def offsets(self, group: str, topic: str) -> dict[int, int]:
        """The committed offsets by queue id."""
        with self._lock:
            return dict(self._table.get(offset_key(group, topic), {}))

    def groups_of(self, topic: str) -> list[str]:
        """The groups that have committed an offset of a topic."""
        return sorted(group for other, group in self._pairs() if other == topic)

    def topics_of(self, group: str) -> list[str]:
        """The topics of which a group has committed an offset."""
        return sorted(topic for topic, other in self._pairs() if other == group)

    def _pairs(self) -> Iterator[tuple[str, str]]:
        """Topic and group of each entry; keys that are not of that form are nobody's."""
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
        """`commit` for those who have checked their arguments and know their key: consumers do it once a message."""
        with self._lock:
            offsets = self._table.setdefault(key, {})
            if offset <= offsets.get(queue_id, -1):
                return False
            offsets[queue_id] = offset
            is_first = self._note_change()
        if is_first and self._on_change is not None:
            self._on_change()
        return True

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Go on at `offset`, forwards or backwards."""
        check_queue(topic, queue_id)
        check_offset("a queue offset", offset)
        key = offset_key(group, topic)
        with self._lock:
            self._table.setdefault(key, {})[queue_id] = offset
            is_first = self._note_change()
        self._tell(is_first)

    def remove_group(self, group: str) -> None:
        """Forget how far a group is."""
        self._remove(topic + SEPARATOR + group for topic in self.topics_of(group))

    def remove_topic(self, topic: str) -> None:
        """Forget how far all groups are in a topic."""
        self._remove(topic + SEPARATOR + group for group in self.groups_of(topic))

    def _remove(self, keys: Iterable[str]) -> None:
        pulls = self._beside.get("pullOffsetTable")
        with self._lock:
            gone = [key for key in keys if self._table.pop(key, None) is not None]
            for key in gone:
                if isinstance(pulls, dict):
                    pulls.pop(key, None)
            is_first = bool(gone) and self._note_change()
        self._tell(is_first)

    def clamp(self, end_of: Callable[[str, int], int]) -> list[tuple[str, str, int, int, int]]:
        """Bring back offsets beyond the end of their queue; group, topic, queue id, old and new offset of each.

        The log may have lost its tail with the power. New messages take the offsets of the lost ones, and a group that
        stood beyond them would never see those.
        """
        moved = []
        for topic, group in self._pairs():
            for queue_id, offset in sorted(self.offsets(group, topic).items()):
                end = end_of(topic, queue_id) if queue_id >= 0 else offset
                if offset > end:
                    self.reset(group, topic, queue_id, end)
                    moved.append((group, topic, queue_id, offset, end))
        return moved

    def _note_change(self) -> bool:
        self._commits += 1
        if self._commits % _COMMITS_A_VERSION == 0:
            self._version = self._version.next(self._now_ms())
        if self._changed_at_ms is not None:
            return False
        self._changed_at_ms = self._now_ms()
        return True

    def _tell(self, is_first: bool) -> None:
        if is_first and self._on_change is not None:
            self._on_change()

    # ------------------------------------------------------------------ keeping

    def run_due(self) -> int:
        """Save when the oldest change has waited long enough; the time at which that will be so."""
        changed_at_ms = self._changed_at_ms
        if changed_at_ms is None:
            return NEVER
        due_at_ms = changed_at_ms + self._interval_ms
        if changed_at_ms <= self._now_ms() < due_at_ms:
            return due_at_ms  # a change that lies ahead is one from before the clock was turned back
        self.save()
        return NEVER if self._changed_at_ms is None else self._changed_at_ms + self._interval_ms

    def save(self) -> bool:
        """Write what has changed; whether anything had."""
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
                    self._file.save(content)
                    self._written = number
        except BaseException:
            with self._lock:
                self._changed_at_ms = changed_at_ms
            raise
        return True

    def _encode(self) -> JsonObject:
        keys = concurrent_map_order(self._table, _TABLE_CAPACITY)
        topics: dict[str, list[str]] = {}
        for topic, _, group in (key.partition(SEPARATOR) for key in keys if key.count(SEPARATOR) == 1):
            topics.setdefault(group, []).append(topic)
        groups = hash_map_order(topics, _GROUPS_CAPACITY)
        members: JsonObject = {
            **self._beside,
            "dataVersion": self._version.as_json(),
            "groupTopicMap": {group: hash_map_order(topics[group], _TOPICS_CAPACITY) for group in groups},
            "offsetTable": {key: _in_map_order(self._table[key]) for key in keys},
        }
        return dict(sorted(members.items(), key=lambda item: str(item[0])))


def offset_key(group: str, topic: str) -> str:
    """What the offsets of a group in a topic stand under."""
    if SEPARATOR in topic:
        raise InvalidTopic(f"no offsets can be kept for {topic!r}", advice=f"{SEPARATOR} parts topic and group there")
    if not isinstance(group, str) or not group or SEPARATOR in group:
        raise InvalidConfig(f"a group cannot be {group!r}")
    return topic + SEPARATOR + group


def _in_map_order(offsets: dict[int, int]) -> dict[int, int]:
    """The order of Java's ConcurrentHashMap of queue ids: ascending, as long as they have no great gaps."""
    size = 4
    while len(offsets) >= size * 3 // 4:
        size *= 2
    by_bucket = sorted((queue_id & (size - 1), queue_id) for queue_id in offsets)
    return {queue_id: offsets[queue_id] for _, queue_id in by_bucket}
