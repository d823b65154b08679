"""RocketMQ's BrokerStatsManager and BrokerStats: figures by topic, queue and group, and totals by day.

    name                              key                     counted by
    TOPIC_PUT_NUMS, _SIZE             topic                   the store, from its queues
    QUEUE_PUT_NUMS, _SIZE             topic@queue             the store, from its queues
    BROKER_PUT_NUMS, _GET_NUMS        cluster                 the store
    GROUP_GET_NUMS, _SIZE             topic@group             `Store.get` with a group
    QUEUE_GET_NUMS, _SIZE             topic@queue@group       `Store.get` with a group
    GROUP_GET_LATENCY                 queue@topic@group       `Store.get` with a group
    GROUP_GET_FALL_SIZE, _FALL_TIME   queue@topic@group       `Store.get` with a group; the last value
    GROUP_GET_FROM_DISK_NUMS, _SIZE   topic@group             `Store.get` with a group, far from the log's end
    BROKER_GET_FROM_DISK_NUMS, _SIZE  cluster                 the store
    GROUP_ACK_NUMS, BROKER_ACK_NUMS   topic@group, cluster    consumers
    TOPIC_PUT_LATENCY                 queue@topic             where puts wait: `PutTiming`
    SNDBCK_PUT_NUMS, DLQ_PUT_NUMS     topic@group             `send_back`
    SNDBCK2DLQ_TIMES                  owner@topic@group@…     `send_back`

Puts are not counted one by one. A queue's offsets give the number of messages since the last look, and its end gives
the bytes of their records: `PutFigures`. Both are exact. The number of calls is not known that way, so `times` of a
put figure is its number of messages, where RocketMQ counts a batch once.

The engine calls `tick` about once a second, from one thread at a time. `_lock` guards the tables. It is held briefly,
and no other lock is taken under it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from flintlog.errors import InvalidConfig
from flintlog.format.queue_entry import QueueKey
from flintlog.format.topics import LMQ_PREFIX, is_system_topic
from flintlog.store.runtime.clock import Milliseconds
from flintlog.store.stats.figure_names import KEY_FIELDS, parse_key
from flintlog.store.stats.put_figures import QueuePuts
from flintlog.store.stats.store_stats import PutTotals

CLUSTER: Final = "DefaultCluster"
_NO_OWNER: Final = "null"
"""RocketMQ's key for an account without a name."""
_TICKS_BETWEEN_REFRESHES: Final = 10


class QueueWait(NamedTuple):
    """Puts to a queue that waited, and the sum of their milliseconds."""

    queue: QueueKey
    times: int
    elapsed_ms: int


class Tally:
    """A count with one owner, who adds to it. `BrokerStats` takes over the difference at each refresh."""

    __slots__ = ("count", "is_closed", "key", "seen")

    def __init__(self, key: str) -> None:
        self.key = key
        self.count = 0
        self.seen = 0
        self.is_closed = False


@dataclass(slots=True)
class StatsItem:
    """One figure under one key since the opening: its sum, and how often something was added."""

    value: int = 0
    times: int = 0


class BrokerStats:
    """The figures of one store; see the module."""

    def __init__(
        self,
        now_ms: Milliseconds,
        take_puts: Callable[[], list[QueuePuts]],
        got_total: Callable[[], int],
        *,
        puts_wait: bool = False,
        light_as_one: bool = False,
    ) -> None:
        """`take_puts` returns the puts since its last call, `got_total` the number of messages ever returned.

        Without `puts_wait` every put counts as 0 ms. With `light_as_one` all light queues share one name in the
        groups' figures, as in a broker: there can be very many.
        """
        self._put_total_yesterday_morning = self._put_total_today_morning = 0
        self._get_total_yesterday_morning = self._get_total_today_morning = 0
        self._now_ms = now_ms
        self._today = self._local_date()
        self._take_puts = take_puts
        self._got_total = got_total
        self._got_seen = 0
        self._got_of_system = self._got_of_system_seen = 0
        self._puts_wait = puts_wait
        self._light_as_one = light_as_one
        self._waits: dict[QueueKey, StatsItem] = {}  # milliseconds and number of puts since the last refresh
        self._tallies: list[Tally] = []
        self._lock = threading.Lock()
        self._refreshing = threading.Lock()
        self._items: dict[str, dict[str, StatsItem]] = {name: {} for name in KEY_FIELDS}
        self._ticks = 0

    # ------------------------------------------------------------------ counting

    def _add(self, name: str, key: str, value: int, times: int = 1) -> None:
        item = self._items[name].setdefault(key, StatsItem())
        item.value += value
        item.times += times

    def puts_waited(self, waits: Iterable[QueueWait]) -> None:
        """Puts were completed. The next refresh adds them to the items."""
        with self._lock:
            for queue, times, elapsed_ms in waits:
                wait = self._waits.setdefault(queue, StatsItem())
                wait.value += elapsed_ms
                wait.times += times

    def acknowledgements(self, group: str, topic: str) -> Tally:
        """A count of the messages of a topic that a group has acknowledged. The caller adds to it."""
        tally = Tally(self._group_key(group, topic))
        with self._lock:
            self._tallies.append(tally)
        return tally

    def sent_back(self, group: str, topic: str, *, is_dead: bool) -> None:
        """A message of a topic was stored again for a group, for another try or as a dead letter."""
        key = self._group_key(group, topic)
        with self._lock:
            self._add("SNDBCK_PUT_NUMS", key, 1)
            if is_dead:
                self._add("DLQ_PUT_NUMS", key, 1)
                self._add("SNDBCK2DLQ_TIMES", f"{_NO_OWNER}@{key}@SEND_BACK_TO_DLQ", 1)

    def got_of_system(self, count: int) -> None:
        """Messages of RocketMQ's own topics were read."""
        with self._lock:
            self._got_of_system += count

    def got(self, group: str, topic: str, queue_id: int, count: int, size: int, elapsed_ms: int) -> None:
        """One answer to a reader of a group."""
        key = self._group_key(group, topic)
        with self._lock:
            self._add("GROUP_GET_LATENCY", f"{queue_id}@{key}", elapsed_ms)
            if count:
                self._add("GROUP_GET_NUMS", key, count)
                self._add("GROUP_GET_SIZE", key, size)
                self._add("QUEUE_GET_NUMS", f"{topic}@{queue_id}@{group}", count)
                self._add("QUEUE_GET_SIZE", f"{topic}@{queue_id}@{group}", size)

    def got_from_disk(self, group: str | None, topic: str, count: int, size: int) -> None:
        """Messages of an answer were so far from the log's end that they are taken to be on disk only."""
        keys = {"BROKER": CLUSTER}
        if group is not None:
            keys["GROUP"] = self._group_key(group, topic)
        with self._lock:
            for kind, key in keys.items():
                self._add(f"{kind}_GET_FROM_DISK_NUMS", key, count)
                self._add(f"{kind}_GET_FROM_DISK_SIZE", key, size)

    def set_lag(self, group: str, topic: str, queue_id: int, *, size: int, elapsed_ms: int | None) -> None:
        """A group read a queue this many bytes before the log's end, messages of this age (None: it got none)."""
        key = f"{queue_id}@{self._group_key(group, topic)}"
        with self._lock:
            self._items["GROUP_GET_FALL_SIZE"][key] = StatsItem(size, 1)
            if elapsed_ms is not None:
                self._items["GROUP_GET_FALL_TIME"][key] = StatsItem(elapsed_ms, 1)

    def _group_key(self, group: str, topic: str) -> str:
        if self._light_as_one:
            group, topic = (LMQ_PREFIX if name.startswith(LMQ_PREFIX) else name for name in (group, topic))
        return f"{topic}@{group}"

    def refresh(self) -> None:
        """Count puts, gets and acknowledgements up to now."""
        with self._refreshing:
            puts = self._take_puts()
            with self._lock:
                for put in puts:
                    self._add_put(put)
                self._add_waits()
                self._add_got()
                self._add_acknowledged()

    def _add_put(self, put: QueuePuts) -> None:
        topic, queue_id, count, size = put
        self._add("TOPIC_PUT_NUMS", topic, count, count)
        self._add("TOPIC_PUT_SIZE", topic, size, count)
        self._add("QUEUE_PUT_NUMS", f"{topic}@{queue_id}", count, count)
        self._add("QUEUE_PUT_SIZE", f"{topic}@{queue_id}", size, count)
        self._add("BROKER_PUT_NUMS", CLUSTER, count, 0)
        if not is_system_topic(topic):
            self._add("BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", CLUSTER, count, 0)
        if not self._puts_wait:
            self._add("TOPIC_PUT_LATENCY", f"{queue_id}@{topic}", 0, count)

    def _add_waits(self) -> None:
        for (topic, queue_id), wait in self._waits.items():
            self._add("TOPIC_PUT_LATENCY", f"{queue_id}@{topic}", wait.value, wait.times)
        self._waits.clear()

    def _add_acknowledged(self) -> None:
        for tally in self._tallies:
            count = tally.count - tally.seen
            if count:
                tally.seen += count
                self._add("GROUP_ACK_NUMS", tally.key, count, count)
                self._add("BROKER_ACK_NUMS", CLUSTER, count, 0)
        self._tallies = [tally for tally in self._tallies if not tally.is_closed]

    def _add_got(self) -> None:
        total, of_system = self._got_total(), self._got_of_system
        count, count_of_system = total - self._got_seen, of_system - self._got_of_system_seen
        self._got_seen, self._got_of_system_seen = total, of_system
        if count:
            self._add("BROKER_GET_NUMS", CLUSTER, count, 0)
        if count > count_of_system:
            self._add("BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC", CLUSTER, count - count_of_system, 0)

    def forget_topic(self, topic: str) -> None:
        """Drop the figures of a deleted topic."""
        self._forget("topic", topic)

    def forget_group(self, group: str) -> None:
        """Drop the figures of a deleted consumer group."""
        self._forget("group", group)

    def _forget(self, field: str, value: str) -> None:
        self.refresh()
        with self._lock:
            for name, items in self._items.items():
                for key in [key for key in items if value in key and parse_key(name, key).get(field) == value]:
                    del items[key]

    # ------------------------------------------------------------------ once a second

    def tick(self) -> None:
        """Refresh now and then, so that no deleted queue takes its last puts with it, and keep totals at midnight."""
        self._ticks += 1
        if self._ticks % _TICKS_BETWEEN_REFRESHES == 0:
            self.refresh()
        today = self._local_date()
        if today > self._today:
            self._today = today
            self._begin_day()

    def _local_date(self) -> tuple[int, ...]:
        return time.localtime(self._now_ms() / 1000)[:3]

    def _begin_day(self) -> None:
        self._put_total_yesterday_morning = self._put_total_today_morning
        self._get_total_yesterday_morning = self._get_total_today_morning
        self._put_total_today_morning = self._user_total("PUT")
        self._get_total_today_morning = self._user_total("GET")

    # ------------------------------------------------------------------ asking

    def item(self, name: str, key: str) -> StatsItem | None:
        """One figure; None when nothing was counted under this key."""
        return self.items(name).get(key)

    def items(self, name: str) -> Mapping[str, StatsItem]:
        """All keys of a figure, up to now."""
        if name not in self._items:
            raise InvalidConfig(f"there is no figure {name!r}", advice=f"one of {', '.join(KEY_FIELDS)}")
        self.refresh()
        with self._lock:
            return dict(self._items[name])

    def put_totals(self) -> dict[str, PutTotals]:
        """Messages and bytes that were put to each topic since the opening."""
        self.refresh()
        with self._lock:
            sizes = self._items["TOPIC_PUT_SIZE"]
            counts = self._items["TOPIC_PUT_NUMS"]
            return {topic: PutTotals(item.value, sizes[topic].value) for topic, item in counts.items()}

    def _user_total(self, kind: str) -> int:
        """Messages put or got since the opening, without those of RocketMQ's own topics."""
        item = self.item(f"BROKER_{kind}_NUMS_WITHOUT_SYSTEM_TOPIC", CLUSTER)
        return 0 if item is None else item.value

    def values(self) -> dict[str, int]:
        """The totals by day, under the names that RocketMQ's admin tools show."""
        return {
            "msgPutTotalYesterdayMorning": self._put_total_yesterday_morning,
            "msgPutTotalTodayMorning": self._put_total_today_morning,
            "msgPutTotalTodayNow": self._user_total("PUT"),
            "msgGetTotalYesterdayMorning": self._get_total_yesterday_morning,
            "msgGetTotalTodayMorning": self._get_total_today_morning,
            "msgGetTotalTodayNow": self._user_total("GET"),
        }
