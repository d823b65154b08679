"""RocketMQ's StoreStatsService: what the store counts in all, under RocketMQ's names.

A put may cost a microsecond, so it counts nothing. The number of puts and their bytes are read from the queues and the
log when they are asked for (`put_totals`, `topic_totals`). Only puts that waited for a flush, a new file or a replica
report how long they took (`put_took`).

Puts that were not reported took less than a millisecond. Their number is all puts minus the reported ones; it is added
to the distribution when a minute ends. `sample` keeps the totals once a second, driven by the store's clock; rates are
differences between samples.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from itertools import accumulate, chain, repeat
from typing import Final, NamedTuple

SAMPLES_KEPT: Final = 601
RATE_WINDOWS: Final = (10, 60, 600)
"""Numbers of samples, one a second, that rates are taken over."""

MINUTE_MS: Final = 60_000

# Upper bounds, exclusive, in milliseconds; the last label has none
_DISTRIBUTION_BOUNDS = (1, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10_000)
DISTRIBUTION_LABELS: Final = (
    *("[<=0ms]", "[0~10ms]", "[10~50ms]", "[50~100ms]", "[100~200ms]", "[200~500ms]", "[500ms~1s]"),
    *("[1~2s]", "[2~3s]", "[3~4s]", "[4~5s]", "[5~10s]", "[10s~]"),
)

_LATENCY_STEPS = ((1, 20), (2, 15), (5, 10), (10, 10), (50, 6), (100, 5), (1000, 9))
# Upper bounds, inclusive: 1 2 … 20 22 … 50 55 … 10000; one more bucket takes what is longer
LATENCY_BOUNDS: Final = tuple(accumulate(chain.from_iterable(repeat(step, count) for step, count in _LATENCY_STEPS)))


class PutTotals(NamedTuple):
    """Messages that were put since the start, and the bytes of their records."""

    times: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Sample:
    """The totals at a moment."""

    timestamp_ms: int
    put: int
    found: int
    miss: int
    transferred: int


class _Latencies:
    """How long the reported puts of one minute took."""

    __slots__ = ("buckets", "distribution", "reported", "total_ms")

    def __init__(self) -> None:
        self.total_ms = 0
        self.distribution = [0] * len(DISTRIBUTION_LABELS)
        self.buckets = [0] * (len(LATENCY_BOUNDS) + 1)
        self.reported = 0

    def add(self, elapsed_ms: int, count: int) -> None:
        self.distribution[bisect_right(_DISTRIBUTION_BOUNDS, elapsed_ms)] += count
        self.buckets[bisect_left(LATENCY_BOUNDS, elapsed_ms)] += count
        self.reported += count
        self.total_ms += elapsed_ms * count

    def percentile(self, part: float) -> float:
        """The time that this part of the puts did not exceed, interpolated inside its bucket.

        For times beyond the last bound it is that bound, because the last bucket has no upper end.
        """
        target = int(sum(self.buckets) * part)
        low = seen = 0
        for high, count in zip(LATENCY_BOUNDS, self.buckets, strict=False):
            if target <= seen + count:
                return low + (high - low) * (target - seen) / count if count else float(low)
            seen += count
            low = high
        return float(low)

    def text(self) -> str:
        return "".join(f"{label}:{count} " for label, count in zip(DISTRIBUTION_LABELS, self.distribution, strict=True))


class StoreStatsService:
    """The store's counters, latencies and rates.

    Only the thread that calls `sample` writes samples. `_lock` guards the rest; no other lock is taken under it.
    """

    def __init__(
        self,
        clock_ms: Callable[[], int],
        put_totals: Callable[[], PutTotals],
        topic_totals: Callable[[], Mapping[str, PutTotals]] = dict,
    ) -> None:
        """`put_totals` returns what was put in all, `topic_totals` what was put to each topic."""
        self._clock_ms = clock_ms
        self._put_totals = put_totals
        self._topic_totals = topic_totals
        self._lock = threading.Lock()
        self._samples: deque[Sample] = deque(maxlen=SAMPLES_KEPT)
        self._latencies = _Latencies()
        self._last_minute: _Latencies | None = None
        self._ever = _Latencies()
        self._minute_began_ms = self.boot_timestamp = clock_ms()
        self._minute_began_puts = 0
        self.put_failed_times = 0
        self.put_entire_time_max_ms = 0
        self.get_entire_time_max_ms = 0
        self.dispatch_max_buffer = 0
        self.get_found_times = 0
        self.get_miss_times = 0
        self.get_transferred_count = 0

    # -- counting

    def put_took(self, elapsed_ms: int, count: int = 1) -> None:
        """Report puts that took a millisecond or more."""
        with self._lock:
            self._latencies.add(elapsed_ms, count)
            self._ever.add(elapsed_ms, count)
            self.put_entire_time_max_ms = max(self.put_entire_time_max_ms, elapsed_ms)

    def put_failed(self, count: int = 1) -> None:
        """Puts that were refused or not acknowledged."""
        with self._lock:
            self.put_failed_times += count

    def get_done(self, message_count: int, elapsed_ms: int) -> None:
        """One answer to a reader, with so many messages or none."""
        with self._lock:
            if message_count:
                self.get_found_times += 1
                self.get_transferred_count += message_count
            else:
                self.get_miss_times += 1
            self.get_entire_time_max_ms = max(self.get_entire_time_max_ms, elapsed_ms)

    def dispatch_backlog(self, size: int) -> None:
        """Report how many bytes the dispatcher had to catch up on; the maximum is kept."""
        self.dispatch_max_buffer = max(self.dispatch_max_buffer, size)

    @property
    def put_times_total(self) -> int:
        """Messages put since the start."""
        return self._put_totals().times

    @property
    def topics(self) -> Mapping[str, PutTotals]:
        """Messages and bytes put to each topic since the start."""
        return self._topic_totals()

    # -- once a second

    def sample(self) -> None:
        """Keep the totals of this moment; at the end of a minute also close its latencies."""
        now = self._clock_ms()
        self._samples.append(
            Sample(now, self.put_times_total, self.get_found_times, self.get_miss_times, self.get_transferred_count)
        )
        if now >= self._minute_began_ms + MINUTE_MS:
            self._end_minute(now)

    def _end_minute(self, now_ms: int) -> None:
        total = self._samples[-1].put
        with self._lock:
            ended, self._latencies = self._latencies, _Latencies()
        ended.add(0, max(0, total - self._minute_began_puts - ended.reported))
        self._last_minute, self._minute_began_ms, self._minute_began_puts = ended, now_ms, total

    # -- asking

    def rate(self, name: str, window: int) -> float | None:
        """Counts a second of put, found, miss or transferred over the last `window` samples, if there are as many."""
        if len(self._samples) <= window:
            return None
        first, last = self._samples[-window - 1], self._samples[-1]
        elapsed_ms = last.timestamp_ms - first.timestamp_ms
        counted: int = getattr(last, name) - getattr(first, name)
        return counted / elapsed_ms * 1000 if elapsed_ms > 0 else 0.0

    def put_latency_ms(self, part: float) -> float:
        """The time that this part of the puts of the last full minute did not exceed."""
        return 0.0 if self._last_minute is None else self._last_minute.percentile(part)

    def put_latencies(self) -> tuple[list[int], int]:
        """Puts since the start by `LATENCY_BOUNDS`, with one more bucket after the last; their milliseconds in all.

        Puts that were not reported took less than a millisecond and are counted in the first bucket.
        """
        total = self.put_times_total
        with self._lock:
            buckets = list(self._ever.buckets)
            buckets[0] += max(0, total - self._ever.reported)
            return buckets, self._ever.total_ms

    def values(self) -> dict[str, int | float | str]:
        """All values under RocketMQ's names; texts where RocketMQ shows several numbers in one."""
        times, size = self._put_totals()
        return {
            "bootTimestamp": self.boot_timestamp,
            "runtime": self._runtime_text(),
            "putMessageEntireTimeMax": self.put_entire_time_max_ms,
            "putMessageTimesTotal": times,
            "putMessageFailedTimes": self.put_failed_times,
            "putMessageSizeTotal": size,
            "putMessageDistributeTime": "null" if self._last_minute is None else self._last_minute.text(),
            "putMessageAverageSize": size / times if times else 0.0,
            "dispatchMaxBuffer": self.dispatch_max_buffer,
            "getMessageEntireTimeMax": self.get_entire_time_max_ms,
            "putTps": self._rates_text("put"),
            "getFoundTps": self._rates_text("found"),
            "getMissTps": self._rates_text("miss"),
            "getTotalTps": " ".join(self._total_rate_text(window) for window in RATE_WINDOWS),
            "getTransferredTps": self._rates_text("transferred"),
            "putLatency99": self.put_latency_ms(0.99),
            "putLatency999": self.put_latency_ms(0.999),
        }

    def _rates_text(self, name: str) -> str:
        rates = (self.rate(name, window) for window in RATE_WINDOWS)
        return " ".join("" if rate is None else java_double(rate) for rate in rates)

    def _total_rate_text(self, window: int) -> str:
        return java_double((self.rate("found", window) or 0.0) + (self.rate("miss", window) or 0.0))

    def _runtime_text(self) -> str:
        minutes, seconds = divmod((self._clock_ms() - self.boot_timestamp) // 1000, 60)
        hours, minutes = divmod(minutes, 60)
        days, hours = divmod(hours, 24)
        return f"[ {days:,} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def java_double(number: float) -> str:
    """A double as Java writes it.

    >>> java_double(12345678.9), java_double(0.5), java_double(1e-4)
    ('1.23456789E7', '0.5', '1.0E-4')
    """
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return repr(float(number))
    sign, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    assert isinstance(exponent, int), "rates and sizes are finite"
    fraction = "".join(map(str, digits[1:])) or "0"
    return f"{'-' * sign}{digits[0]}.{fraction}E{exponent + len(digits) - 1}"
