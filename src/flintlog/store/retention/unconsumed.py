"""What groups have not consumed yet: the oldest message of each queue that a group has still to read.

Which topics a group reads is told by what RocketMQ and this store keep in the `config` folder:

    consumerOffset.json, or           an offset of any queue: it reads the whole topic, and where it has none it has
    lmqConsumerOffset.json            consumed nothing. A consumer that is opened writes one down at once
    consumerFilter.json               a registered filter; a dead one only if its group is still configured
    subscriptionGroup.json            the topics in its `subscriptionDataSet`
    its name                          %RETRY%<group>

A group that is configured, may consume, and of which none of these names a topic but its own retries may read any:
nobody knows, so it needs every message of every ordinary topic. See docs/services.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from flintlog.disk.media.medium import Medium
from flintlog.format.config_json import JsonObject, JsonValue
from flintlog.format.record import HALF_TOPIC, OP_TOPIC, TRANSACTION_GROUP
from flintlog.format.topics import is_user_topic
from flintlog.store.paths import StorePaths
from flintlog.store.queues.logical_queue import LogicalQueue
from flintlog.store.retention.holds import Hold, first_entry
from flintlog.store.settings.consumer_offsets import SEPARATOR, load_from, parse_offsets
from flintlog.store.settings.groups import is_system_group
from flintlog.store.settings.json_file import JsonFile, check_objects
from flintlog.store.settings.topics import retry_topic

GroupOffsets: TypeAlias = dict[tuple[str, str], dict[int, int]]
"""(topic, group) → queue id → the queue offset that the group reads next."""

_TRANSACTIONS: Final = frozenset({(HALF_TOPIC, TRANSACTION_GROUP), (OP_TOPIC, TRANSACTION_GROUP)})
"""How far transactions are decided is kept as if a group consumed; `undelivered.py` knows what it means."""


@dataclass(frozen=True, slots=True)
class Readers:
    """Who reads what. `offsets` has an entry for each topic of each group, also when it has consumed nothing."""

    offsets: GroupOffsets
    transactions: GroupOffsets
    of_any_topic: tuple[str, ...] = ()

    @property
    def topics(self) -> frozenset[str]:
        return frozenset(topic for topic, _ in self.offsets)


def load_readers(paths: StorePaths, medium: Medium) -> Readers:
    """What the files say; `DamagedStore` when one of them cannot be read, nor its backup."""
    offsets = _load_offsets(paths, medium)
    transactions = {pair: offsets.pop(pair) for pair in _TRANSACTIONS if pair in offsets}
    groups = _load_groups(paths, medium)
    for pair in (*_load_filters(paths, medium, groups), *_subscribed(groups)):
        offsets.setdefault(pair, {})
    reading = {group for topic, group in offsets if topic != retry_topic(group)}
    for group in sorted(reading | groups.keys()):
        offsets.setdefault((retry_topic(group), group), {})
    homeless = (name for name, group in groups.items() if name not in reading and group.get("consumeEnable", True))
    return Readers(offsets, transactions, tuple(sorted(homeless)))


def _load_offsets(paths: StorePaths, medium: Medium) -> GroupOffsets:
    file = JsonFile(paths.consumer_offsets, medium)
    file = load_from(file, JsonFile(paths.other_consumer_offsets, medium))
    content = file.load(lambda told: parse_offsets(told, file.path)) or {}
    found: GroupOffsets = {}
    for key, offsets in parse_offsets(content, file.path).items():
        topic, separator, group = key.partition(SEPARATOR)
        if separator:
            found[topic, group] = offsets
    return found


def _load_groups(paths: StorePaths, medium: Medium) -> dict[str, JsonObject]:
    """The configured groups that are not RocketMQ's own."""
    table = _load_table(JsonFile(paths.groups, medium), "subscriptionGroupTable")
    return {name: group for name, group in table if not is_system_group(name)}


def _subscribed(groups: Mapping[str, JsonObject]) -> Iterator[tuple[str, str]]:
    for name, group in groups.items():
        told = group.get("subscriptionDataSet")
        for subscription in told if isinstance(told, list | tuple) else ():
            topic = subscription.get("topic") if isinstance(subscription, dict) else None
            if isinstance(topic, str):
                yield topic, name


def _load_filters(paths: StorePaths, medium: Medium, groups: Iterable[str]) -> Iterator[tuple[str, str]]:
    known = frozenset(groups)
    for topic, entry in _load_table(JsonFile(paths.consumer_filter, medium), "filterDataByTopic"):
        for group, data in _objects(entry.get("groupFilterData")):
            dead, born = data.get("deadTime"), data.get("bornTime")
            is_dead = isinstance(dead, int) and isinstance(born, int) and dead >= born
            if group in known or not is_dead:
                yield topic, group


def _load_table(file: JsonFile, member: str) -> list[tuple[str, JsonObject]]:
    content = file.load(lambda told: check_objects(told, member)) or {}
    return list(_objects(content.get(member)))


def _objects(table: JsonValue) -> Iterator[tuple[str, JsonObject]]:
    for name, value in table.items() if isinstance(table, dict) else ():
        if isinstance(value, dict):
            yield str(name), value


def find_unconsumed(queues: Iterable[LogicalQueue], readers: Readers, log_begin: int) -> Iterator[Hold]:
    """What each group has still to read; at most one hold a queue and group."""
    groups: dict[str, list[tuple[str, dict[int, int]]]] = {}
    for (topic, group), by_queue in readers.offsets.items():
        groups.setdefault(topic, []).append((group, by_queue))
    has_messages = False
    for queue in queues:
        has_messages = has_messages or is_user_topic(queue.topic)
        for group, by_queue in groups.get(queue.topic, ()):
            entry = first_entry(queue, by_queue.get(queue.queue_id, 0))
            if entry is not None:
                why = f"group {group} has not consumed"
                yield Hold(entry.physical_offset, why, queue.topic, queue.queue_id, entry.queue_offset, group)
    for group in readers.of_any_topic if has_messages else ():
        yield Hold(log_begin, f"group {group} has consumed nothing yet, and may read any topic", "*", 0, 0, group)
