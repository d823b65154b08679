"""RocketMQ's BrokerStatsManager and BrokerStats: figures by topic, queue and group, and totals by day.

    name                              key                     who counts it
    TOPIC_PUT_NUMS, _SIZE             topic                   the store, from its queues
    QUEUE_PUT_NUMS, _SIZE             topic@queue             the store, from its queues
    BROKER_PUT_NUMS, _GET_NUMS        cluster                 the store
    GROUP_GET_NUMS, _SIZE             topic@group             `Store.get` with a group
    QUEUE_GET_NUMS, _SIZE             topic@queue@group       `Store.get` with a group
    GROUP_GET_LATENCY                 queue@topic@group       `Store.get` with a group
    GROUP_GET_FALL_SIZE, _FALL_TIME   queue@topic@group       `Store.get` with a group (moment items)
    GROUP_GET_FROM_DISK_NUMS, _SIZE   topic@group             `Store.get` with a group, far behind the log's end
    BROKER_GET_FROM_DISK_NUMS, _SIZE  cluster                 the store
    GROUP_ACK_NUMS, BROKER_ACK_NUMS   topic@group, cluster    consumers
    TOPIC_PUT_LATENCY                 queue@topic             where puts wait: `PutWaits`
    SNDBCK_PUT_NUMS, DLQ_PUT_NUMS     topic@group             `send_back`
    SNDBCK2DLQ_TIMES                  owner@topic@group@…     `send_back`
    the others of STATS_NAMES         as in RocketMQ          nobody here (NOT_COUNTED says why); `add` is for all

Puts are not counted one by one. A queue's offsets say how many messages it took since the last look, and its end
how many bytes their records have: `PutFigures`. Both are exact; what is not known that way is how many calls they
came in, so `times` of a put item is its number of messages, where RocketMQ counts a batch once.

`tick` is called about once a second, from one thread at a time, and samples what is due. The tables belong to `_lock`,
which is held briefly and while no other is taken.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from flintlog.errors import InvalidConfig
from flintlog.format.queue_entry import QueueKey
from flintlog.format.topics import LMQ_PREFIX, is_system_topic
from flintlog.store.runtime.clock import Milliseconds
from flintlog.store.stats.figure_names import LATENCY_NAMES, MOMENT_NAMES, STATS_NAMES, parse_key
from flintlog.store.stats.put_figures import QueuePuts
from flintlog.store.stats.stats_items import (
    PERIODS,
    MomentItem,
    Pace,
    Period,
    StatsItem,
    StatsSnapshot,
    after_each,
    next_morning_ms,
    next_whole,
)
from flintlog.store.stats.store_stats import PutTotals

log = logging.getLogger(__name__)

DEFAULT_CLUSTER: Final = "DefaultCluster"
_MINUTE_MS, _HOUR_MS, _DAY_MS = 60_000, 3_600_000, 86_400_000
_MOMENTS_MS = 300_000
_NO_OWNER: Final = "null"
"""What RocketMQ writes into a key for an account that nobody named."""


class QueueWait(NamedTuple):
    """Puts to a queue that waited, and their milliseconds together."""

    queue: QueueKey
    times: int
    elapsed_ms: int


class Tally:
    """A count that its one owner adds to, and that is looked at now and then."""

    __slots__ = ("count", "is_closed", "key", "seen")

    def __init__(self, key: str) -> None:
        self.key = key
        self.count = 0
        self.seen = 0
        self.is_closed = False


class BrokerStats:
    """The figures of one store; see the module."""

    def __init__(
        self,
        now_ms: Milliseconds,
        take_puts: Callable[[], list[QueuePuts]],
        got_total: Callable[[], int],
        cluster: str = DEFAULT_CLUSTER,
        *,
        puts_wait: bool = False,
        light_as_one: bool = False,
    ) -> None:
        """`take_puts` says what was put since it was last asked, `got_total` how many messages were ever got.

        Where no put waits (`puts_wait`) all take less than a millisecond. As in a broker with light queues, the groups'
        figures of all of them may go under one name (`light_as_one`): there can be a great many.
        """
        self.cluster = cluster
        self.msg_put_total_yesterday_morning = 0
        self.msg_put_total_today_morning = 0
        self.msg_get_total_yesterday_morning = 0
        self.msg_get_total_today_morning = 0
        self._now_ms = now_ms
        self._take_puts = take_puts
        self._got_total = got_total
        self._got_seen = 0
        self._got_of_system = self._got_of_system_seen = 0
        self._puts_wait = puts_wait
        self._light_as_one = light_as_one
        self._waits: dict[QueueKey, list[int]] = {}  # how many puts, and how many milliseconds they took together
        self._tallies: list[Tally] = []
        self._lock = threading.Lock()
        self._refreshing = threading.Lock()
        self._items: dict[str, dict[str, StatsItem]] = {name: {} for name in STATS_NAMES}
        self._moments: dict[str, dict[str, MomentItem]] = {name: {} for name in MOMENT_NAMES}
        self._awake: dict[Period, dict[StatsItem, None]] = {period: {} for period in PERIODS}
        now = now_ms()
        self._samplings = {period: Pace(after_each(period.interval_ms), now, at_once=True) for period in PERIODS}
        self._prints = {
            Period.MINUTE: Pace(next_whole(_MINUTE_MS), now),
            Period.HOUR: Pace(next_whole(_HOUR_MS), now),
            Period.DAY: Pace(next_morning_ms, now),
        }
        self._moment_print = Pace(next_whole(_MOMENTS_MS), now)

    # ------------------------------------------------------------------ counting

    def add(self, name: str, key: str, value: int, times: int = 1) -> None:
        """Add to a figure, by RocketMQ's name for it; the key as RocketMQ makes it."""
        with self._lock:
            self._add(name, key, value, times)

    def _add(self, name: str, key: str, value: int, times: int) -> None:
        table = self._items.get(name)
        if table is None:
            raise InvalidConfig(f"there is no figure {name!r}", advice="the names are RocketMQ's: STATS_NAMES")
        item = table.get(key)
        if item is None:
            item = table[key] = StatsItem(name, key, is_latency=name in LATENCY_NAMES)
        item.add(value, times, self._now_ms())
        for period, awake in self._awake.items():
            if item.wake(period):
                awake[item] = None

    def puts_waited(self, waits: Iterable[QueueWait]) -> None:
        """Puts were completed; added up here, and to the items with the next look."""
        with self._lock:
            for queue, times, elapsed_ms in waits:
                known = self._waits.get(queue)
                if known is None:
                    known = self._waits[queue] = [0, 0]
                known[0] += times
                known[1] += elapsed_ms

    def acknowledgements(self, group: str, topic: str) -> Tally:
        """A count for one owner to add to: messages of a topic that a group has done."""
        tally = Tally(self._group_key(group, topic))
        with self._lock:
            self._tallies.append(tally)
        return tally

    def sent_back(self, group: str, topic: str, *, is_dead: bool) -> None:
        """A message of a topic was stored again for a group, for another try or as a dead letter."""
        key = self._group_key(group, topic)
        with self._lock:
            self._add("SNDBCK_PUT_NUMS", key, 1, 1)
            if is_dead:
                self._add("DLQ_PUT_NUMS", key, 1, 1)
                self._add("SNDBCK2DLQ_TIMES", f"{_NO_OWNER}@{key}@SEND_BACK_TO_DLQ", 1, 1)

    def got_of_system(self, count: int) -> None:
        """Messages of RocketMQ's own topics were read; all others are the rest of all."""
        with self._lock:
            self._got_of_system += count

    def got(self, group: str, topic: str, queue_id: int, count: int, size: int, elapsed_ms: int) -> None:
        """One answer to a reader of a group."""
        key = self._group_key(group, topic)
        with self._lock:
            self._add("GROUP_GET_LATENCY", f"{queue_id}@{key}", elapsed_ms, 1)
            if count:
                self._add("GROUP_GET_NUMS", key, count, 1)
                self._add("GROUP_GET_SIZE", key, size, 1)
                self._add("QUEUE_GET_NUMS", f"{topic}@{queue_id}@{group}", count, 1)
                self._add("QUEUE_GET_SIZE", f"{topic}@{queue_id}@{group}", size, 1)

    def got_from_disk(self, group: str | None, topic: str, count: int, size: int) -> None:
        """Messages of an answer lay so far back that they are taken to be on disk only."""
        keys = {"BROKER": self.cluster}
        if group is not None:
            keys["GROUP"] = self._group_key(group, topic)
        with self._lock:
            for kind, key in keys.items():
                self._add(f"{kind}_GET_FROM_DISK_NUMS", key, count, 1)
                self._add(f"{kind}_GET_FROM_DISK_SIZE", key, size, 1)

    def fell_behind(self, group: str, topic: str, queue_id: int, *, size: int, elapsed_ms: int | None) -> None:
        """How far behind the log's end, and behind the time, a group reads a queue."""
        key = f"{queue_id}@{self._group_key(group, topic)}"
        told = (size, elapsed_ms)
        with self._lock:
            for name, value in zip(MOMENT_NAMES, told, strict=True):
                if value is not None:
                    moment = self._moments[name].setdefault(key, MomentItem(name, key))
                    moment.value, moment.updated_at_ms = value, self._now_ms()

    def _group_key(self, group: str, topic: str) -> str:
        if self._light_as_one:
            group, topic = (LMQ_PREFIX if name.startswith(LMQ_PREFIX) else name for name in (group, topic))
        return f"{topic}@{group}"

    def refresh(self) -> None:
        """Count the puts up to now; a question does it too, so that its answer is not ten seconds old."""
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
        self._add("BROKER_PUT_NUMS", self.cluster, count, 0)
        if not is_system_topic(topic):
            self._add("BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", self.cluster, count, 0)
        if not self._puts_wait:
            self._add("TOPIC_PUT_LATENCY", f"{queue_id}@{topic}", 0, count)

    def _add_waits(self) -> None:
        for (topic, queue_id), (times, elapsed_ms) in self._waits.items():
            self._add("TOPIC_PUT_LATENCY", f"{queue_id}@{topic}", elapsed_ms, times)
        self._waits.clear()

    def _add_acknowledged(self) -> None:
        for tally in self._tallies:
            count = tally.count - tally.seen
            if count:
                tally.seen += count
                self._add("GROUP_ACK_NUMS", tally.key, count, count)
                self._add("BROKER_ACK_NUMS", self.cluster, count, 0)
        self._tallies = [tally for tally in self._tallies if not tally.is_closed]

    def _add_got(self) -> None:
        total, of_system = self._got_total(), self._got_of_system
        count, count_of_system = total - self._got_seen, of_system - self._got_of_system_seen
        self._got_seen, self._got_of_system_seen = total, of_system
        if count:
            self._add("BROKER_GET_NUMS", self.cluster, count, 0)
        if count > count_of_system:
            self._add("BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC", self.cluster, count - count_of_system, 0)

    def forget_topic(self, topic: str) -> None:
        """A topic was deleted: so are its figures."""
        self._forget("topic", topic)

    def forget_group(self, group: str) -> None:
        """A consumer group was deleted: so are its figures."""
        self._forget("group", group)

    def _forget(self, field: str, value: str) -> None:
        self.refresh()
        with self._lock:
            for name, items in self._items.items():
                for key in [key for key in items if value in key and parse_key(name, key).get(field) == value]:
                    item = items.pop(key)
                    for awake in self._awake.values():
                        awake.pop(item, None)
            for name, moments in self._moments.items():
                for key in [key for key in moments if value in key and parse_key(name, key).get(field) == value]:
                    del moments[key]

    # ------------------------------------------------------------------ once a second

    def tick(self) -> None:
        """Sample and log what is due."""
        now = self._now_ms()
        if self._samplings[Period.MINUTE].is_due(now):
            self.refresh()
            self._sample(Period.MINUTE, now)
        for period in (Period.HOUR, Period.DAY):
            if self._samplings[period].is_due(now):
                self._sample(period, now)
        for period, pace in self._prints.items():
            if pace.is_due(now):
                self._log(lambda period=period: self.lines(period))  # type: ignore[misc]
                if period is Period.DAY:
                    self._record_day()
        if self._moment_print.is_due(now):
            self._log(self.moment_lines)

    def _sample(self, period: Period, now_ms: int) -> None:
        with self._lock:
            awake = self._awake[period]
            for item in [item for item in awake if not item.sample(period, now_ms)]:
                del awake[item]

    def _log(self, lines: Callable[[], list[str]]) -> None:
        if log.isEnabledFor(logging.INFO):
            for line in lines():
                log.info("%s", line)

    def _record_day(self) -> None:
        """A new day: what was counted up to this morning."""
        self.msg_put_total_yesterday_morning = self.msg_put_total_today_morning
        self.msg_get_total_yesterday_morning = self.msg_get_total_today_morning
        self.msg_put_total_today_morning = self.msg_put_total_today_now
        self.msg_get_total_today_morning = self.msg_get_total_today_now
        for kind in ("put", "get"):
            morning: int = getattr(self, f"msg_{kind}_total_today_morning")
            before: int = getattr(self, f"msg_{kind}_total_yesterday_morning")
            log.info("yesterday %s message total: %d", kind, morning - before)

    # ------------------------------------------------------------------ asking

    def item(self, name: str, key: str) -> StatsItem | None:
        """One figure; None when nothing was counted under this key."""
        return self.items(name).get(key)

    def items(self, name: str) -> Mapping[str, StatsItem]:
        """All keys of a figure, with what was counted since the opening and over the last minute, hour and day."""
        if name not in self._items:
            raise InvalidConfig(f"there is no figure {name!r}", advice="the names are RocketMQ's: STATS_NAMES")
        self.refresh()
        with self._lock:
            return dict(self._items[name])

    def moments(self, name: str) -> Mapping[str, MomentItem]:
        """All keys of a figure that has no history: GROUP_GET_FALL_SIZE (bytes) and GROUP_GET_FALL_TIME (ms)."""
        if name not in self._moments:
            raise InvalidConfig(f"there is no figure {name!r}", advice=f"one of {', '.join(MOMENT_NAMES)}")
        with self._lock:
            return dict(self._moments[name])

    def put_totals(self) -> dict[str, PutTotals]:
        """Messages and bytes that were put to each topic since the opening."""
        counts, sizes = self.items("TOPIC_PUT_NUMS"), self.items("TOPIC_PUT_SIZE")
        return {topic: PutTotals(item.value, sizes[topic].value) for topic, item in counts.items()}

    def tps_topic_put_nums(self, topic: str) -> float:
        """Messages a second that a topic took, over the last minute."""
        return self._minute("TOPIC_PUT_NUMS", topic).tps

    def tps_group_get_nums(self, group: str, topic: str) -> float:
        """Messages a second that a group got of a topic, over the last minute."""
        return self._minute("GROUP_GET_NUMS", f"{topic}@{group}").tps

    def _minute(self, name: str, key: str) -> StatsSnapshot:
        item = self.item(name, key)
        return StatsSnapshot() if item is None else item.in_minute

    @property
    def msg_put_total_today_now(self) -> int:
        """Messages put since the opening, without those of RocketMQ's own topics."""
        return self._total("BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC")

    @property
    def msg_get_total_today_now(self) -> int:
        """Messages got since the opening, without those of RocketMQ's own topics."""
        return self._total("BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC")

    def _total(self, name: str) -> int:
        item = self.item(name, self.cluster)
        return 0 if item is None else item.value

    def values(self) -> dict[str, int]:
        """The totals by day, under the names that RocketMQ's admin tools show."""
        return {
            "msgPutTotalYesterdayMorning": self.msg_put_total_yesterday_morning,
            "msgPutTotalTodayMorning": self.msg_put_total_today_morning,
            "msgPutTotalTodayNow": self.msg_put_total_today_now,
            "msgGetTotalYesterdayMorning": self.msg_get_total_yesterday_morning,
            "msgGetTotalTodayMorning": self.msg_get_total_today_morning,
            "msgGetTotalTodayNow": self.msg_get_total_today_now,
        }

    def lines(self, period: Period = Period.MINUTE) -> list[str]:
        """The lines that RocketMQ logs each minute, hour or day, one an item."""
        with self._lock:
            return [item.line(period) for table in self._items.values() for item in table.values()]

    def moment_lines(self) -> list[str]:
        """The lines that RocketMQ logs every five minutes."""
        with self._lock:
            return [item.line() for table in self._moments.values() for item in table.values()]
