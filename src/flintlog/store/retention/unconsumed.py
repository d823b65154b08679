"""Messages that groups have not consumed: for each group and queue, the oldest one.

A group reads these topics, by the files of the `config` folder:

    consumerOffset.json, or           topics with an offset of any queue: the group reads the whole topic, and has
    lmqConsumerOffset.json            consumed nothing of queues without one. An opened consumer saves one at once
    consumerFilter.json               topics with a registered filter; a dead filter only if its group is configured
    subscriptionGroup.json            the topics in its `subscriptionDataSet`
    its name                          %RETRY%<group>

If a group is configured, may consume, and these files name no topic but its own retries, its topics are unknown. Then
every message of every ordinary topic is kept for it. See docs/services.md.
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
"""Transactions save how far they are decided as offsets of a group; `undelivered.py` uses them."""


@dataclass(frozen=True, slots=True)
class Readers:
    """The topics of all groups. `offsets` has an entry for each of them, also when nothing was consumed."""

    offsets: GroupOffsets
    transactions: GroupOffsets
    of_any_topic: tuple[str, ...] = ()

    @property
    def topics(self) -> frozenset[str]:
        return frozenset(topic for topic, _ in self.offsets)


def load_readers(paths: StorePaths, medium: Medium) -> Readers:
    """Read the files; `DamagedStore` when neither a file nor its backup can be read."""
    offsets = _load_offsets(paths, medium)
    transactions = {pair: offsets.pop(pair) for pair in _TRANSACTIONS if pair in offsets}
    groups = _load_groups(paths, medium)
    for pair in (*_load_filters(paths, medium, groups), *_subscribed(groups)):
        offsets.setdefault(pair, {})
    reading = {group for topic, group in offsets if topic != retry_topic(group)}
    for group in sorted(reading | groups.keys()):
        offsets.setdefault((retry_topic(group), group), {})
    unknown = (name for name, group in groups.items() if name not in reading and group.get("consumeEnable", True))
    return Readers(offsets, transactions, tuple(sorted(unknown)))


def _load_offsets(paths: StorePaths, medium: Medium) -> GroupOffsets:
    file = JsonFile(paths.consumer_offsets, medium)
    file = load_from(file, JsonFile(paths.other_consumer_offsets, medium))
    content = file.load(lambda loaded: parse_offsets(loaded, file.path)) or {}
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
        subscriptions = group.get("subscriptionDataSet")
        for subscription in subscriptions if isinstance(subscriptions, list | tuple) else ():
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
    content = file.load(lambda loaded: check_objects(loaded, member)) or {}
    return list(_objects(content.get(member)))


def _objects(table: JsonValue) -> Iterator[tuple[str, JsonObject]]:
    for name, value in table.items() if isinstance(table, dict) else ():
        if isinstance(value, dict):
            yield str(name), value


def find_unconsumed(queues: Iterable[LogicalQueue], readers: Readers, log_begin: int) -> Iterator[Hold]:
    """The first unconsumed message of each queue and group."""
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
