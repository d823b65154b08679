"""What a group reads of one topic. Its consumers in one process share that, or they are kept apart."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from flintlog.errors import InvalidConfig, InvalidOffset, InvalidTopic
from flintlog.store.filters.tags import MessageFilter, as_filter
from flintlog.store.model.arguments import check_count, check_int64, check_queue, plain_text
from flintlog.store.settings.groups import check_group_name
from flintlog.store.settings.topics import retry_topic


class Subscription(msgspec.Struct, frozen=True):
    """A group's topic, and how it is read. Without `queue_ids` consumers share all its queues.

    `start` is not compared: it matters to a group that has not read the topic yet, and so to its first consumer.
    """

    group: str
    topic: str
    wanted: MessageFilter | None
    queue_ids: frozenset[int] | None
    start: str | int
    retry_topic: str | None
    max_unacknowledged: int

    @property
    def topics(self) -> tuple[str, ...]:
        """The topic, and that of the group's retries if they are read too."""
        return (self.topic,) if self.retry_topic is None else (self.topic, self.retry_topic)

    def ids_of(self, topic: str) -> frozenset[int] | None:
        """The only queues of one of the topics that are read; None for all."""
        return self.queue_ids if topic == self.topic else None

    def is_shared_with(self, other: Subscription) -> bool:
        """Whether both read the same queues together. Raises when they would read some of them each for itself."""
        if other.group != self.group:
            return False
        if other.topic == self.topic and other.queue_ids is self.queue_ids is None:
            for what in ("wanted", "retry_topic", "max_unacknowledged"):
                if getattr(self, what) != getattr(other, what):
                    name = {"wanted": "filter", "retry_topic": "retries"}.get(what, what)
                    raise InvalidConfig(
                        f"group {self.group!r} has a consumer of {self.topic!r} with another {name}",
                        advice=f"consumers that share a topic have the same {name}",
                    )
            return True
        for topic in (topic for topic in self.topics if topic in other.topics):
            mine, theirs = self.ids_of(topic), other.ids_of(topic)
            if mine is None or theirs is None or mine & theirs:
                is_retry = topic == self.retry_topic
                advice = "pass retries=False here" if is_retry else "part the topic by queue_ids, or share all of it"
                raise InvalidConfig(f"group {self.group!r} has a consumer of {topic!r} already", advice=advice)
        return False


def make_subscription(
    group: str,
    topic: str,
    filter: str | MessageFilter | None,
    queue_ids: Sequence[int] | None,
    start: str | int,
    retries: bool,
    max_unacknowledged: int,
) -> Subscription:
    """A subscription from a caller's arguments; a wrong one raises."""
    check_group_name(group)
    check_queue(topic, 0)
    if "@" in topic:
        raise InvalidTopic(f"no offsets can be kept for {topic!r}", advice="@ parts topic and group there")
    if queue_ids is not None:
        if not isinstance(queue_ids, (list, tuple, range)) or not queue_ids:
            raise InvalidOffset(f"queue_ids is a sequence of numbers, not {queue_ids!r}")
        for queue_id in queue_ids:
            check_queue(topic, queue_id)
    check_count("max_unacknowledged", max_unacknowledged)
    check_place(start)
    group, topic = plain_text(group), plain_text(topic)
    return Subscription(
        group,
        topic,
        None if filter is None else as_filter(filter),
        None if queue_ids is None else frozenset(queue_ids),
        start,
        retry_topic(group) if retries and topic != retry_topic(group) else None,
        max_unacknowledged,
    )


def check_place(place: str | int) -> None:
    """Raise unless a consumer can begin there."""
    if isinstance(place, str):
        if place not in ("earliest", "latest"):
            raise InvalidOffset(f"a consumer cannot begin at {place!r}", advice='"earliest", "latest" or a time in ms')
    else:
        check_int64("a timestamp", place)
