"""How `flintlog top` shows live figures: order, filter, history and the cells of its two tables.

Everything here is plain values and styled text; the full screen (`top_app`) and the single frame (`top_frame`) lay it
out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rich.text import Text

from flintlog.cli.drawing import NOTHING, chart, show_age, show_bytes, show_count, show_wait
from flintlog.format.topics import is_user_topic
from flintlog.maintenance.inspect.live import GroupSnapshot, Snapshot, TopicSnapshot

HISTORY = 600
TOPIC_HISTORY = 60
LEAST_TREND = 8
TOPIC_COLUMNS = ("topic", "queues", "msg/s", "bytes/s", "messages", "lag", "last", "trend")
GROUP_COLUMNS = ("group", "topic", "queues", "lag", "done/s", "caught up in")
RIGHT = frozenset({"queues", "msg/s", "bytes/s", "messages", "lag", "last", "done/s", "trend"})

_Key = Callable[[TopicSnapshot], tuple[float | str, ...]]
SORTS: Mapping[str, _Key] = {
    "rate": lambda topic: (-(topic.messages_a_second or 0), -topic.messages, topic.topic),
    "bytes": lambda topic: (-(topic.bytes_a_second or 0), -topic.messages, topic.topic),
    "messages": lambda topic: (-topic.messages, topic.topic),
    "lag": lambda topic: (-(topic.lag or 0), topic.topic),
    "name": lambda topic: (topic.topic,),
}
"""The orders of the topics, as `s` cycles through them; each ends with the name, so that rows do not jump."""


@dataclass(slots=True)
class View:
    """The chosen order and filter, and the history of the rates."""

    sort: str = "rate"
    filter: str = ""
    can_draw: bool = True
    rates: deque[float | None] = field(default_factory=lambda: deque(maxlen=HISTORY))
    byte_rates: deque[float | None] = field(default_factory=lambda: deque(maxlen=HISTORY))
    _of_topics: dict[str, deque[float | None]] = field(default_factory=dict)

    def add(self, snapshot: Snapshot) -> None:
        """Remember the rates of a look; the first look has none."""
        if snapshot.span_s is None:
            return
        self.rates.append(snapshot.messages_a_second)
        self.byte_rates.append(snapshot.bytes_a_second)
        known = {topic.topic for topic in snapshot.topics}
        for gone in self._of_topics.keys() - known:
            del self._of_topics[gone]
        for topic in snapshot.topics:
            own = self._of_topics.setdefault(topic.topic, deque(maxlen=TOPIC_HISTORY))
            own.append(topic.messages_a_second)

    def next_sort(self) -> None:
        """Switch to the next order; after the last comes the first."""
        names = list(SORTS)
        self.sort = names[(names.index(self.sort) + 1) % len(names)]

    def topics(self, snapshot: Snapshot) -> list[TopicSnapshot]:
        """The topics that pass the filter, in order."""
        return sorted((topic for topic in snapshot.topics if self._passes(topic.topic)), key=SORTS[self.sort])

    def groups(self, snapshot: Snapshot) -> list[GroupSnapshot]:
        """The groups that pass the filter by their own or their topic's name, the one furthest behind first."""
        found = (group for group in snapshot.groups if self._passes(group.group) or self._passes(group.topic))
        return sorted(found, key=lambda group: (-group.lag, group.group, group.topic))

    def _passes(self, name: str) -> bool:
        return self.filter.lower() in name.lower()

    def topic_cells(self, topic: TopicSnapshot, now_ms: int, trend_width: int = TOPIC_HISTORY) -> list[Text]:
        """One row of the topics' table."""
        width = min(TOPIC_HISTORY, max(LEAST_TREND, trend_width))
        is_busy = bool(topic.messages_a_second)
        is_system = not is_user_topic(topic.topic)
        age = None if topic.last_store_timestamp is None else now_ms - topic.last_store_timestamp
        trend = chart(self._of_topics.get(topic.topic, ()), width, can_draw=self.can_draw)[0]
        return [
            Text(_printable(topic.topic), style="dim" if is_system else "bold" if is_busy else ""),
            Text(show_count(topic.queues), style="dim"),
            Text(show_count(topic.messages_a_second), style="bold #ffb454" if is_busy else "dim"),
            Text(show_bytes(topic.bytes_a_second), style="" if is_busy else "dim"),
            Text(show_count(topic.messages)),
            _lag(topic.lag),
            Text(show_age(age), style="dim"),
            Text(trend, style="#ffb454" if is_busy else "dim"),
        ]

    def group_cells(self, group: GroupSnapshot, snapshot: Snapshot) -> list[Text]:
        """One row of the groups' table."""
        put = next((topic.messages_a_second for topic in snapshot.topics if topic.topic == group.topic), None)
        wait = show_wait(group.lag, group.messages_a_second, put)
        style = {"caught up": "#7fd962", "falling behind": "bold #f26d78", "standing": "#f26d78"}.get(wait, "")
        return [
            Text(_printable(group.group), style="bold"),
            Text(_printable(group.topic)),
            Text(show_count(group.queues), style="dim"),
            _lag(group.lag),
            Text(show_count(group.messages_a_second)),
            Text(wait, style=style),
        ]


def _lag(lag: int | None) -> Text:
    if lag is None:
        return Text(NOTHING, style="dim")
    return Text(show_count(lag), style="#7fd962" if lag == 0 else "#f2c14e")


def _printable(name: str) -> str:
    return name if name.isprintable() else "".join(char if char.isprintable() else "?" for char in name)
