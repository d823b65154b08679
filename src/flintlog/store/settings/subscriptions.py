"""Which SQL filters consumer groups have registered: `config/consumerFilter.json`, and the bitmap of each message.

    register ──▶ born ──▶ tried with each message that is dispatched ──▶ its bits in the queue's extension
    unregister ──▶ dead, still tried for a day, so that a group that returns finds its bits ──▶ forgotten

With `enable_calc_filter_bit_map` and `enable_consume_queue_ext` a reader of a registered group skips messages that
did not pass without reading them: `store.get(topic, queue_id, offset, filter=store.subscriptions.get(group, topic))`.

Invariant: a message that was stored after a subscription was born has the subscription's bits. So a subscription is
tried before it is born, and after it is no longer tried it judges no entry. The rules are those of RocketMQ's
ConsumerFilterManager, with one exception: an expression that does not parse raises and leaves the old one as it was.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import Final

from flintlog.errors import InvalidFilter, StoreClosed
from flintlog.format.config_json import JsonObject, JsonValue
from flintlog.format.java import concurrent_map_order
from flintlog.format.properties import parse_properties
from flintlog.format.record import parse_record
from flintlog.store.filters.bloom import BloomFilter, GroupFilter, filter_bitmap
from flintlog.store.filters.sql92 import Sql92
from flintlog.store.filters.tags import Extension, HasProperties
from flintlog.store.model.arguments import check_queue, check_text, plain_text
from flintlog.store.runtime.clock import Milliseconds
from flintlog.store.settings.json_file import JsonFile, check_objects

log = logging.getLogger(__name__)

SQL92: Final = "SQL92"
KEPT_AFTER_DEATH_MS: Final = 24 * 60 * 60 * 1000
_ASSUMED_DEATH_MS: Final = 30_000
_TOPICS_CAPACITY: Final = 256
_NOT_BORN_YET: Final = 1 << 62


@dataclass(eq=False, slots=True)
class Subscription:
    """The filter of one group on one topic; a filter for `Store.get`. Changed by `Subscriptions` alone."""

    group: str
    topic: str
    condition: Sql92
    version: int
    judge: GroupFilter
    dead_timestamp: int = 0
    is_tried: bool = True

    @property
    def expression(self) -> str:
        return self.condition.expression

    @property
    def born_timestamp(self) -> int:
        """Messages stored after this were tried with the filter."""
        return self.judge.born_timestamp

    @property
    def is_dead(self) -> bool:
        """Whether the group has unregistered, or was not seen since the store was opened."""
        return self.dead_timestamp >= self.born_timestamp

    def __repr__(self) -> str:
        return f"Subscription({self.group!r}, {self.topic!r}, {self.condition!r})"

    def matches_entry(self, tags_code: int | None, ext: Extension | None) -> bool:
        """False only for a message that was tried and did not pass."""
        return not self.is_tried or self.judge.matches_entry(tags_code, ext)

    def matches_message(self, stored: HasProperties) -> bool:
        """Whether the condition is true of the message."""
        return self.condition.matches_message(stored)


class Subscriptions:
    """The table of one store. Any thread may call; the tables that dispatch reads are replaced, not changed."""

    def __init__(self, file: JsonFile, bloom: BloomFilter, now_ms: Milliseconds, *, read_only: bool) -> None:
        self.file = file
        self._bloom = bloom
        self._now_ms = now_ms
        self._read_only = read_only
        self._lock = threading.Lock()
        self._is_loaded = False
        self._by_topic: dict[str, dict[str, Subscription]] = {}

    # ------------------------------------------------------------------ the table

    def register(self, group: str, topic: str, condition: Sql92 | str, *, version: int | None = None) -> Subscription:
        """Subscribe a group to a topic with a filter; the subscription that counts from now on.

        Registering the same again keeps what is known of older messages. `version` is a client's: one that is older
        than what is registered changes nothing.
        """
        check_queue(topic, 0)
        check_text("a consumer group", group)
        wanted = condition if isinstance(condition, Sql92) else Sql92(condition)
        if not group or not wanted.expression:
            raise InvalidFilter("a subscription has a group and an expression")
        group, topic = plain_text(group), plain_text(topic)
        with self._lock:
            self._check_writable()
            old = self._by_topic.get(topic, {}).get(group)
            if version is None:
                version = max(self._now_ms(), 0 if old is None else old.version + 1)
            found = self._renew(old, group, topic, wanted, version)
            self._save()
            return found

    def _renew(self, old: Subscription | None, group: str, topic: str, condition: Sql92, version: int) -> Subscription:
        if old is not None and version < old.version:
            return old
        is_same = old is not None and old.condition == condition and old.judge.bit_count == self._bloom.bit_count
        if old is not None and (is_same or version == old.version):
            old.version, old.dead_timestamp = version, 0
            return old
        judge = GroupFilter.of(group, topic, condition, self._bloom, _NOT_BORN_YET)
        made = Subscription(group, topic, condition, version, judge)
        if old is not None:
            old.is_tried = False
        self._replace(topic, {**self._by_topic.get(topic, {}), group: made})
        # It is tried from here on: messages that are stored after this moment have its bits.
        made.judge = GroupFilter.of(group, topic, condition, self._bloom, self._now_ms())
        return made

    def unregister(self, group: str, topic: str | None = None) -> None:
        """The group is gone, from one topic or from all; its filter is still tried for a day."""
        with self._lock:
            self._check_writable()
            now = self._now_ms()
            for found in self._all():
                if found.group == group and topic in (None, found.topic) and not found.is_dead:
                    found.dead_timestamp = max(now, found.born_timestamp)
            self._save()

    def get(self, group: str, topic: str) -> Subscription | None:
        """The subscription of a group on a topic, dead or not."""
        self._be_loaded()
        return self._by_topic.get(topic, {}).get(group)

    def all(self, topic: str | None = None) -> list[Subscription]:
        """All subscriptions, or those on a topic, by topic and group."""
        self._be_loaded()
        found = [one for one in self._all() if topic in (None, one.topic)]
        return sorted(found, key=lambda one: (one.topic, one.group))

    def _all(self) -> list[Subscription]:
        return [found for groups in self._by_topic.values() for found in groups.values()]

    def _replace(self, topic: str, groups: dict[str, Subscription]) -> None:
        changed = {**self._by_topic, topic: groups}
        if not groups:
            del changed[topic]
        self._by_topic = changed

    def _check_writable(self) -> None:
        if self._read_only:
            raise StoreClosed("the store was opened read-only", path=self.file.path)
        self.load()

    def _be_loaded(self) -> None:
        if not self._is_loaded:
            with self._lock:
                self.load()

    # ------------------------------------------------------------------ at dispatch

    def bitmap_of(self, record: bytes) -> bytes | None:
        """The bits of every subscription that a record passes; None when its topic has none."""
        if not self._by_topic:
            return None
        parsed = parse_record(record)
        groups = self._by_topic.get(parsed.topic)
        if not groups:
            return None
        judges = [found.judge for found in groups.values()]
        return filter_bitmap(self._bloom, judges, parse_properties(parsed.properties))

    # ------------------------------------------------------------------ the file

    def load(self) -> None:
        """Read the file, once. All groups count as unregistered until they register; their bits stay valid.

        If the bitmaps had another size, the file is ignored.
        """
        if self._is_loaded:
            return
        found_content = self.file.load(lambda content: check_objects(content, "filterDataByTopic"))
        self._is_loaded = True
        topics = None if found_content is None else found_content.get("filterDataByTopic")
        found: dict[str, dict[str, Subscription]] = {}
        for topic, entry in topics.items() if isinstance(topics, dict) else ():
            groups = entry.get("groupFilterData") if isinstance(entry, dict) else None
            for group, data in groups.items() if isinstance(groups, dict) else ():
                one = self._parse(str(group), str(topic), data) if isinstance(data, dict) else None
                if one is None:
                    continue
                if one.judge.bit_count != self._bloom.bit_count:
                    self.file.warn("the bitmaps have another size now: %s is ignored", self.file.path)
                    return
                found.setdefault(one.topic, {})[one.group] = one
        self._by_topic = found

    def _parse(self, group: str, topic: str, data: JsonObject) -> Subscription | None:
        bits, expression = data.get("bloomFilterData"), data.get("expression")
        if data.get("expressionType") != SQL92 or not isinstance(expression, str) or not isinstance(bits, dict):
            return None
        try:
            condition = Sql92(expression)
        except InvalidFilter as error:
            self.file.warn("the filter of %s on %s in %s is left out: %s", group, topic, self.file.path, error)
            return None
        born, dead = _whole(data.get("bornTime")), _whole(data.get("deadTime"))
        positions = bits.get("bitPos")
        places = tuple(map(_whole, positions)) if isinstance(positions, list | tuple) else ()
        judge = GroupFilter(condition, places, _whole(bits.get("bitNum")), born)
        if judge.bit_count == self._bloom.bit_count and places != self._bloom.positions(f"{group}#{topic}"):
            return None
        dead = dead or max(born, self._now_ms() - _ASSUMED_DEATH_MS)
        return Subscription(group, topic, condition, _whole(data.get("clientVersion")), judge, dead)

    def _save(self) -> None:
        self._forget_long_dead()
        topics: JsonObject = {}
        for topic in concurrent_map_order(self._by_topic, _TOPICS_CAPACITY):
            groups = self._by_topic[topic]
            shown: JsonObject = {group: _entry_of(groups[group]) for group in concurrent_map_order(groups)}
            topics[topic] = {"groupFilterData": shown, "topic": topic}
        self.file.save({"filterDataByTopic": topics})

    def _forget_long_dead(self) -> None:
        now = self._now_ms()
        for found in self._all():
            if found.is_dead and now - found.dead_timestamp >= KEPT_AFTER_DEATH_MS:
                found.is_tried = False
                groups = self._by_topic[found.topic]
                self._replace(found.topic, {group: one for group, one in groups.items() if one is not found})


def _entry_of(found: Subscription) -> JsonObject:
    return {
        "bloomFilterData": {"bitNum": found.judge.bit_count, "bitPos": found.judge.positions},
        "bornTime": found.born_timestamp,
        "clientVersion": found.version,
        "consumerGroup": found.group,
        "dead": found.is_dead,
        "deadTime": found.dead_timestamp,
        "expression": found.expression,
        "expressionType": SQL92,
        "topic": found.topic,
    }


def _whole(value: JsonValue) -> int:
    return value if isinstance(value, int) else 0
