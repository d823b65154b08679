"""RocketMQ's BrokerStatsManager and BrokerStats: figures by topic, queue and group, and totals by day.

    name                              key                     who counts it
    TOPIC_PUT_NUMS, _SIZE             topic                   the store, from its queues
    QUEUE_PUT_NUMS, _SIZE             topic@queue             the store, from its queues
    BROKER_PUT_NUMS, _GET_NUMS        cluster                 the store
    GROUP_GET_NUMS, _SIZE             topic@group             `Store.get` with a group
    QUEUE_GET_NUMS, _SIZE             topic@queue@group       `Store.get` with a group
    GROUP_GET_LATENCY                 queue@topic@group       `Store.get` with a group
    GROUP_GET_FALL_SIZE, _FALL_TIME   queue@topic@group       `Store.get` with a group (moment items)
    TOPIC_PUT_LATENCY                 queue@topic             whoever measures it: `add_latency`
    all others                        as in RocketMQ          services and brokers: `add`

Puts are not counted one by one. A queue's offsets say how many messages it took since the last look, and its end
how many bytes their records have: `PutFigures`. Both are exact; what is not known that way is how many calls they
came in, so `times` of a put item is its number of messages, where RocketMQ counts a batch once.

`tick` is called about once a second, from one thread at a time, and samples what is due. The tables belong to `_lock`,
which is held briefly and while no other is taken.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

from flintlog.errors import InvalidConfig
from flintlog.store.clock import Milliseconds
from flintlog.store.put_figures import QueuePuts
from flintlog.store.stats_items import PERIODS, MomentItem, Pace, Period, StatsItem, StatsSnapshot
from flintlog.store.topics import is_system_topic

log = logging.getLogger(__name__)

DEFAULT_CLUSTER: Final = "DefaultCluster"
LATENCY_NAMES: Final = frozenset({"TOPIC_PUT_LATENCY", "GROUP_GET_LATENCY"})
MOMENT_NAMES: Final = ("GROUP_GET_FALL_SIZE", "GROUP_GET_FALL_TIME")
STATS_NAMES: Final = (
    *("QUEUE_PUT_NUMS", "QUEUE_PUT_SIZE", "QUEUE_GET_NUMS", "QUEUE_GET_SIZE"),
    *("TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE", "GROUP_GET_NUMS", "GROUP_GET_SIZE"),
    *("GROUP_ACK_NUMS", "GROUP_CK_NUMS", "GROUP_GET_LATENCY", "TOPIC_PUT_LATENCY"),
    *("SNDBCK_PUT_NUMS", "DLQ_PUT_NUMS", "SNDBCK2DLQ_TIMES"),
    *("BROKER_PUT_NUMS", "BROKER_GET_NUMS", "BROKER_ACK_NUMS", "BROKER_CK_NUMS"),
    *("BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC", "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC"),
    *("GROUP_GET_FROM_DISK_NUMS", "GROUP_GET_FROM_DISK_SIZE"),
    *("BROKER_GET_FROM_DISK_NUMS", "BROKER_GET_FROM_DISK_SIZE"),
    *("COMMERCIAL_SEND_TIMES", "COMMERCIAL_RCV_TIMES", "COMMERCIAL_SEND_SIZE", "COMMERCIAL_RCV_SIZE"),
    *("COMMERCIAL_RCV_EPOLLS", "COMMERCIAL_SNDBCK_TIMES", "COMMERCIAL_PERM_FAILURES"),
    *("CONSUMER_REGISTER_TIME", "PRODUCER_REGISTER_TIME", "CHANNEL_ACTIVITY"),
)
_MINUTE_MS, _HOUR_MS, _DAY_MS = 60_000, 3_600_000, 86_400_000
_MOMENTS_MS = 300_000


class BrokerStats:
    """The figures of one store; see the module."""

    def __init__(
        self,
        now_ms: Milliseconds,
        take_puts: Callable[[], list[QueuePuts]],
        got_total: Callable[[], int],
        cluster: str = DEFAULT_CLUSTER,
    ) -> None:
        """`take_puts` says what was put since it was last asked, `got_total` how many messages were ever got."""
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
        self._lock = threading.Lock()
        self._refreshing = threading.Lock()
        self._items: dict[str, dict[str, StatsItem]] = {name: {} for name in STATS_NAMES}
        self._moments: dict[str, dict[str, MomentItem]] = {name: {} for name in MOMENT_NAMES}
        self._awake: dict[Period, dict[StatsItem, None]] = {period: {} for period in PERIODS}
        now = now_ms()
        self._samplings = {period: Pace(_after(period.interval_ms), now, at_once=True) for period in PERIODS}
        self._prints = {
            Period.MINUTE: Pace(_next_whole(_MINUTE_MS), now),
            Period.HOUR: Pace(_next_whole(_HOUR_MS), now),
            Period.DAY: Pace(next_morning_ms, now),
        }
        self._moment_print = Pace(_next_whole(_MOMENTS_MS), now)

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

    def add_latency(self, topic: str, queue_id: int, elapsed_ms: int) -> None:
        """A put took so long, as whoever waited for it measured; the store itself measures only all puts together."""
        self.add("TOPIC_PUT_LATENCY", f"{queue_id}@{topic}", elapsed_ms)

    def got_of_system(self, count: int) -> None:
        """Messages of RocketMQ's own topics were read; all others are the rest of all."""
        with self._lock:
            self._got_of_system += count

    def got(self, group: str, topic: str, queue_id: int, count: int, size: int, elapsed_ms: int) -> None:
        """One answer to a reader of a group."""
        with self._lock:
            self._add("GROUP_GET_LATENCY", f"{queue_id}@{topic}@{group}", elapsed_ms, 1)
            if count:
                self._add("GROUP_GET_NUMS", f"{topic}@{group}", count, 1)
                self._add("GROUP_GET_SIZE", f"{topic}@{group}", size, 1)
                self._add("QUEUE_GET_NUMS", f"{topic}@{queue_id}@{group}", count, 1)
                self._add("QUEUE_GET_SIZE", f"{topic}@{queue_id}@{group}", size, 1)

    def fell_behind(self, group: str, topic: str, queue_id: int, *, size: int, elapsed_ms: int | None) -> None:
        """How far behind the log's end, and behind the time, a group reads a queue."""
        key = f"{queue_id}@{topic}@{group}"
        told = (size, elapsed_ms)
        with self._lock:
            for name, value in zip(MOMENT_NAMES, told, strict=True):
                if value is not None:
                    moment = self._moments[name].setdefault(key, MomentItem(name, key))
                    moment.value, moment.updated_at_ms = value, self._now_ms()

    def refresh(self) -> None:
        """Count the puts up to now; a question does it too, so that its answer is not ten seconds old."""
        with self._refreshing:
            puts = self._take_puts()
            with self._lock:
                for put in puts:
                    self._add("TOPIC_PUT_NUMS", put.topic, put.message_count, put.message_count)
                    self._add("TOPIC_PUT_SIZE", put.topic, put.byte_count, put.message_count)
                    self._add("QUEUE_PUT_NUMS", f"{put.topic}@{put.queue_id}", put.message_count, put.message_count)
                    self._add("QUEUE_PUT_SIZE", f"{put.topic}@{put.queue_id}", put.byte_count, put.message_count)
                    self._add("BROKER_PUT_NUMS", self.cluster, put.message_count, 0)
                    if not is_system_topic(put.topic):
                        self._add("BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", self.cluster, put.message_count, 0)
                self._add_got()

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
        self._forget(lambda parts: topic in parts[:2])

    def forget_group(self, group: str) -> None:
        """A consumer group was deleted: so are its figures."""
        self._forget(lambda parts: len(parts) > 1 and parts[-1] == group)

    def _forget(self, is_gone: Callable[[list[str]], bool]) -> None:
        with self._lock:
            for name, items in self._items.items():
                if name.startswith(("BROKER_", "CHANNEL_", "CONSUMER_", "PRODUCER_")):
                    continue
                for key in [key for key in items if is_gone(key.split("@"))]:
                    item = items.pop(key)
                    for awake in self._awake.values():
                        awake.pop(item, None)
            for moments in self._moments.values():
                for key in [key for key in moments if is_gone(key.split("@"))]:
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


def _after(interval_ms: int) -> Callable[[int], int]:
    return lambda now_ms: now_ms + interval_ms


def _next_whole(interval_ms: int) -> Callable[[int], int]:
    return lambda now_ms: now_ms - now_ms % interval_ms + interval_ms


def next_morning_ms(now_ms: int) -> int:
    """The next midnight of the local time zone; days may have 23 or 25 hours."""
    today = time.localtime(now_ms / 1000)
    return int(time.mktime((today.tm_year, today.tm_mon, today.tm_mday + 1, 0, 0, 0, 0, 0, -1)) * 1000)
