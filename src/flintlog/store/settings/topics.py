"""The topics of a store: number of queues, permissions, kind of queue. Kept in `config/topics.json`.

    store.topics.create("orders", read_queue_nums=4, write_queue_nums=4)
    store.topics.change("orders", perm=READ)

A put does not check them: like RocketMQ's own store, this one takes a message for any topic, created or not. The
configuration matters to consumers (which queues there are, whether the topic may be read), to brokers that open the
directory, and for the kind of queue that is made (`queue.type`). In a store with light queues every light topic
(%LMQ%...) exists, with one queue, and is in no file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypedDict, Unpack

import msgspec

from flintlog.errors import InvalidConfig, InvalidMessage, InvalidTopic, StoreClosed
from flintlog.format.config_json import BATCH_TYPE, QUEUE_TYPE, SIMPLE_TYPE
from flintlog.format.java import string_hash
from flintlog.format.record import HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC
from flintlog.format.timer import TIMER_TOPIC
from flintlog.format.topics import DLQ_PREFIX, LEGAL_NAME, LMQ_PREFIX, OFFSET_MOVED_EVENT, RETRY_PREFIX, is_system_topic
from flintlog.store.log.log import Log
from flintlog.store.model.arguments import check_queue, plain_text
from flintlog.store.queues.queue_table import QueueTable
from flintlog.store.settings.config_table import ConfigTable

INHERIT: Final = 1
WRITE: Final = 2
READ: Final = 4

DEFAULT_QUEUE_NUMS: Final = 8
"""RocketMQ's `defaultTopicQueueNums`, and what its admin tool gives a new topic."""

_MAX_NAME: Final = 127
_MAX_GROUP_TOPIC_NAME: Final = 255
_MAX_QUEUE_NUMS: Final = 65_536
_CHOICES: Final = {
    QUEUE_TYPE: (SIMPLE_TYPE, BATCH_TYPE),
    "cleanup.policy": ("DELETE", "COMPACTION"),
    "message.type": ("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", "LITE", "PRIORITY"),
}
_RANGES: Final = {"reserve.time": (-1, (1 << 63) - 1), "lite.topic.expiration": (-1, 43_200)}
_FIXED: Final = (QUEUE_TYPE, "cleanup.policy")
"""Attributes that RocketMQ does not change after a topic was created."""


class TopicConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One topic, with RocketMQ's names; the defaults are those of a topic that its admin tool creates."""

    topic_name: str
    read_queue_nums: int = DEFAULT_QUEUE_NUMS
    write_queue_nums: int = DEFAULT_QUEUE_NUMS
    perm: int = READ | WRITE
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] = {}

    @property
    def name(self) -> str:
        return self.topic_name

    @property
    def is_readable(self) -> bool:
        return bool(self.perm & READ)

    @property
    def is_writeable(self) -> bool:
        return bool(self.perm & WRITE)

    @property
    def queue_type(self) -> str | None:
        """SimpleCQ or BatchCQ, when the topic says so."""
        return self.attributes.get(QUEUE_TYPE)


class TopicValues(TypedDict, total=False):
    """The values of a topic that can be changed: the fields of `TopicConfig` without its name."""

    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_filter_type: str
    topic_sys_flag: int
    order: bool
    attributes: Mapping[str, str]


def _system(name: str, queue_nums: int = 1, perm: int = READ | WRITE) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=queue_nums, write_queue_nums=queue_nums, perm=perm)


SYSTEM_TOPICS: Final = (
    _system("SELF_TEST_TOPIC"),
    _system("TBW102", DEFAULT_QUEUE_NUMS, READ | WRITE | INHERIT),
    _system("BenchmarkTest", 1024),
    _system(OFFSET_MOVED_EVENT),
    _system(SCHEDULE_TOPIC, 18),
    _system(HALF_TOPIC),
    _system(OP_TOPIC),
    _system("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"),
    _system("RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"),
    _system(TIMER_TOPIC),
)
"""The topics of every new broker, except those with its own name or its cluster's."""


def retry_topic(group: str) -> str:
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    return DLQ_PREFIX + group


class Topics:
    """The configured topics. Any thread may call; a change is on disk when the call returns."""

    def __init__(
        self,
        table: ConfigTable[TopicConfig],
        *,
        read_only: bool,
        queues: QueueTable,
        on_queue_type: Callable[[], None],
        remove: Callable[[str], None],
        wait_dispatched: Callable[[], None],
        log: Log,
        is_light: bool = False,
    ) -> None:
        """`on_queue_type` is called when a topic got another kind of queue, `remove` when one was deleted.

        `wait_dispatched` returns when everything that was put has its queue.

        `is_light`: light queues are served.
        """
        self._is_light = is_light
        self._log = log
        self._table = table
        self._read_only = read_only
        self._queues = queues
        self._on_queue_type = on_queue_type
        self._remove = remove
        self._wait_dispatched = wait_dispatched

    def get(self, name: str) -> TopicConfig | None:
        """The topic's configuration; None when it was never created, whether there are messages for it or not."""
        found = self._table.get(name)
        if found is None and self._is_light and isinstance(name, str) and name.startswith(LMQ_PREFIX):
            return TopicConfig(topic_name=name, read_queue_nums=1, write_queue_nums=1)
        return found

    def queue_count(self, name: str) -> int:
        """The number of queues that messages are put to: configured, or as many as RocketMQ would create."""
        check_queue(name, 0)
        topic = self.get(name)
        return DEFAULT_QUEUE_NUMS if topic is None else topic.write_queue_nums

    def queue_of(self, name: str, key: str) -> int:
        """The queue of a key, in which `put(message, key=key)` stores: the same in each process and after each opening.

        It is the Java hash of the key, without its sign, modulo the number of queues; a Java producer's
        SelectMessageQueueByHash chooses the same one if one broker has the topic. If `write_queue_nums` is changed,
        keys change their queues.
        """
        if not isinstance(key, str):
            raise InvalidMessage(f"a key is text, not {type(key).__name__}")
        return abs(string_hash(key)) % self.queue_count(name)

    def list(self, *, system: bool = False) -> list[TopicConfig]:
        """The topics by name; RocketMQ's own only when they are asked for."""
        return [topic for topic in self._table.all() if system or not is_system_topic(topic.name)]

    def __iter__(self) -> Iterator[TopicConfig]:
        return iter(self.list())

    def __len__(self) -> int:
        return len(self.list())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.get(name) is not None

    def create(
        self,
        name: str,
        *,
        read_queue_nums: int = DEFAULT_QUEUE_NUMS,
        write_queue_nums: int = DEFAULT_QUEUE_NUMS,
        perm: int = READ | WRITE,
        order: bool = False,
        attributes: Mapping[str, str] | None = None,
    ) -> TopicConfig:
        """Create a topic; one that is there already is an error."""
        self._check_changeable(name)
        if name in self:
            raise InvalidTopic(f"there is a topic {name!r} already", advice="change it instead")
        topic = TopicConfig(
            topic_name=plain_text(name),
            read_queue_nums=read_queue_nums,
            write_queue_nums=write_queue_nums,
            perm=perm,
            order=order,
            attributes=check_attributes(attributes or {}),
        )
        return self._put(topic)

    def change(self, name: str, **values: Unpack[TopicValues]) -> TopicConfig:
        """Change some values of a topic; `attributes` replaces those it names and keeps the others."""
        old = self._get_changeable(name)
        unknown = values.keys() - set(TopicConfig.__struct_fields__) | values.keys() & {"topic_name"}
        if unknown:
            raise InvalidConfig(f"a topic has no value {min(unknown)} that could be changed")
        if "attributes" in values:
            given = check_attributes(values["attributes"])
            for fixed in _FIXED:
                if fixed in given and given[fixed] != old.attributes.get(fixed, _CHOICES[fixed][0]):
                    raise InvalidConfig(f"{fixed} of a topic stays as it was created", advice="create another topic")
            values["attributes"] = {**old.attributes, **given}
        return self._put(msgspec.structs.replace(old, **values))

    def get_or_create(self, name: str, queue_nums: int, perm: int = READ | WRITE) -> TopicConfig:
        """The topic; created if need be, as RocketMQ does for the topics of a group."""
        found = self.get(name)
        if found is not None:
            return found
        return self.create(name, read_queue_nums=queue_nums, write_queue_nums=queue_nums, perm=perm)

    def delete(self, name: str) -> None:
        """Delete a topic, its queues and its groups' offsets. Its messages stay in the log until that is deleted.

        One that was never created, and has queues because messages were put for it, is deleted likewise.
        """
        self._check_writable()
        self._log.check_topic_deletion()
        if not self._has_queues(name):
            check_topic_name(name)  # a put takes names that cannot be created
        self._check_ours(name)
        if self._table.get(name) is not None:
            self._table.remove(name)
        elif not self._has_queues(name):
            self._wait_dispatched()  # a message that was just put may have no queue yet
            if not self._has_queues(name):
                raise InvalidTopic(f"there is no topic {name!r}")
        self._remove(plain_text(name))

    def _has_queues(self, name: object) -> bool:
        return isinstance(name, str) and bool(self._queues.queue_ids(name))

    def _put(self, topic: TopicConfig) -> TopicConfig:
        _check_values(topic)
        kind = topic.queue_type
        self._log.check_queue_type(kind)
        if kind is not None:
            self._queues.check_type(topic.name, kind)
        self._table.put(topic)
        if kind is not None:
            self._queues.set_type(topic.name, kind)
            self._on_queue_type()
        return topic

    def _check_changeable(self, name: str) -> None:
        self._check_writable()
        check_topic_name(name)
        self._check_ours(name)

    def _check_writable(self) -> None:
        if self._read_only:
            raise StoreClosed("the store was opened read-only", path=self._table.file.path)

    def _check_ours(self, name: str) -> None:
        if is_system_topic(name):
            raise InvalidTopic(f"the topic {name!r} is RocketMQ's own")

    def _get_changeable(self, name: str) -> TopicConfig:
        self._check_changeable(name)
        found = self._table.get(name)
        if found is None:
            raise InvalidTopic(f"there is no topic {name!r}", advice="create it first")
        return found


def check_topic_name(name: str) -> None:
    """Raise unless a broker of RocketMQ's would take the name; a store alone takes more."""
    if not isinstance(name, str):
        raise InvalidTopic(f"a topic is text, not {type(name).__name__}")
    if not LEGAL_NAME.fullmatch(name):
        raise InvalidTopic(f"{name[:80]!a} cannot be created", advice="letters, digits, %, |, _ and - make a topic")
    most = _MAX_GROUP_TOPIC_NAME if name.startswith((RETRY_PREFIX, DLQ_PREFIX)) else _MAX_NAME
    if len(name) > most:
        raise InvalidTopic(f"a topic of {len(name)} characters", advice=f"at most {most}")


def check_attributes(attributes: object) -> dict[str, str]:
    """The attributes, if RocketMQ has them and they can have these values."""
    if not isinstance(attributes, Mapping):
        raise InvalidConfig(f"attributes is a mapping, not {type(attributes).__name__}")
    for name, value in attributes.items():
        if name in _CHOICES:
            if value not in _CHOICES[name]:
                raise InvalidConfig(f"attribute {name} = {value!r}", advice=" or ".join(_CHOICES[name]))
        elif name in _RANGES:
            low, high = _RANGES[name]
            if not isinstance(value, str) or not re.fullmatch(r"-?[0-9]{1,19}", value) or not low <= int(value) <= high:
                raise InvalidConfig(f"attribute {name} = {value!r}", advice=f"a number from {low} to {high}, as text")
        else:
            raise InvalidConfig(f"a topic has no attribute {name!r}", advice=", ".join(sorted({*_CHOICES, *_RANGES})))
    return dict(attributes)


def _check_values(topic: TopicConfig) -> None:
    for what, value, low, high in (
        ("read_queue_nums", topic.read_queue_nums, 1, _MAX_QUEUE_NUMS),
        ("write_queue_nums", topic.write_queue_nums, 1, _MAX_QUEUE_NUMS),
        ("perm", topic.perm, 0, READ | WRITE | INHERIT),
        ("topic_sys_flag", topic.topic_sys_flag, 0, (1 << 31) - 1),
    ):
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise InvalidConfig(f"{what} = {value!r}", advice=f"a number from {low} to {high}")
    if topic.topic_filter_type not in ("SINGLE_TAG", "MULTI_TAG"):
        raise InvalidConfig(f"topic_filter_type = {topic.topic_filter_type!r}", advice="SINGLE_TAG or MULTI_TAG")
    if not isinstance(topic.order, bool):
        raise InvalidConfig(f"order = {topic.order!r}", advice="True or False")
