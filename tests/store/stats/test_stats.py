"""Statistics: RocketMQ's names and texts, taken from its StoreStatsService, under a clock that the test moves."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintlog.store.stats.store_stats import (
    LATENCY_BOUNDS,
    SAMPLES_KEPT,
    PutTotals,
    StoreStatsService,
    java_double,
)

BOOT_MS = 1_700_000_000_000


class Clock:
    def __init__(self) -> None:
        self.now_ms = BOOT_MS

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


class Puts:
    """Stands for the queues of a store."""

    def __init__(self) -> None:
        self.times = self.bytes = 0

    def totals(self) -> PutTotals:
        return PutTotals(self.times, self.bytes)


@pytest.fixture
def puts() -> Puts:
    return Puts()


@pytest.fixture
def stats(clock: Clock, puts: Puts) -> StoreStatsService:
    return StoreStatsService(clock, puts.totals)


def test_asking_before_the_first_sample_is_allowed(stats: StoreStatsService) -> None:
    assert stats.values()["putTps"] == "  "


def test_names_and_values_of_the_runtime_map(stats: StoreStatsService, puts: Puts) -> None:
    puts.times, puts.bytes = 15, 12360
    stats.put_took(20_000, 10)
    stats.put_failed(3)
    for _ in range(7):
        stats.get_done(11, 33)
    stats.get_done(0, 12)
    stats.dispatch_backlog(5)
    stats.dispatch_backlog(3)
    assert stats.values() == {
        "bootTimestamp": BOOT_MS,
        "runtime": "[ 0 days, 0 hours, 0 minutes, 0 seconds ]",
        "putMessageEntireTimeMax": 20000,
        "putMessageTimesTotal": 15,
        "putMessageFailedTimes": 3,
        "putMessageSizeTotal": 12360,
        "putMessageDistributeTime": "null",
        "putMessageAverageSize": 824.0,
        "dispatchMaxBuffer": 5,
        "getMessageEntireTimeMax": 33,
        "putTps": "  ",
        "getFoundTps": "  ",
        "getMissTps": "  ",
        "getTotalTps": "0.0 0.0 0.0",
        "getTransferredTps": "  ",
        "putLatency99": 0.0,
        "putLatency999": 0.0,
    }
    assert (stats.get_found_times, stats.get_miss_times, stats.get_transferred_count) == (7, 1, 77)


# RocketMQ's texts for i-th samples 1003 ms apart, in which the total is 7 · i²
@pytest.mark.parametrize(
    ("samples", "put_tps"),
    [
        (1, "  "),
        (10, "  "),
        (11, "69.79062811565304  "),
        (60, "753.7387836490528  "),
        (61, "767.6969092721835 418.7437686939183 "),
        (600, "8291.126620139581 7942.1734795613165 "),
        (601, "8305.084745762711 7956.131605184447 4187.437686939182"),
        (602, "8319.042871385844 7970.089730807577 4201.395812562313"),
    ],
)
def test_rates_over_10_60_and_600_samples(
    stats: StoreStatsService, puts: Puts, clock: Clock, samples: int, put_tps: str
) -> None:
    for i in range(samples):
        clock.now_ms = BOOT_MS + i * 1003
        puts.times = 7 * i * i
        stats.sample()
    assert stats.values()["putTps"] == put_tps


def test_all_gets_are_found_and_missed_ones(stats: StoreStatsService, clock: Clock) -> None:
    for i in range(11):
        clock.now_ms = BOOT_MS + i * 1003
        stats.get_found_times, stats.get_miss_times, stats.get_transferred_count = 3 * i * i, 2 * i * i, 11 * i * i
        stats.sample()
    info = stats.values()
    assert info["getFoundTps"] == "29.91026919242273  "
    assert info["getMissTps"] == "19.940179461615156  "
    assert info["getTotalTps"] == "49.85044865403789 0.0 0.0"
    assert info["getTransferredTps"] == "109.67098703888335  "


def test_samples_at_one_moment_have_no_rate(stats: StoreStatsService, puts: Puts) -> None:
    for _ in range(11):
        puts.times += 1
        stats.sample()
    assert stats.rate("put", 10) == 0.0


def test_only_so_many_samples_are_kept(stats: StoreStatsService, puts: Puts, clock: Clock) -> None:
    for i in range(SAMPLES_KEPT + 50):
        clock.now_ms = BOOT_MS + i * 1000
        puts.times += 1
        stats.sample()
    assert stats.rate("put", SAMPLES_KEPT - 1) == 1.0
    assert stats.rate("put", SAMPLES_KEPT) is None


def test_the_distribution_is_that_of_the_last_full_minute(stats: StoreStatsService, clock: Clock) -> None:
    times_ms = [-1, 0, 1, 5, 9, 10, 11, 49, 50, 51, 99, 100, 150, 200, 499, 500, 999, 1000, 1999, 2000]
    for elapsed_ms in [*times_ms, 3000, 4000, 5000, 9999, 10_000, 20_000]:
        stats.put_took(elapsed_ms)
    clock.now_ms += 59_999
    stats.sample()
    assert stats.values()["putMessageDistributeTime"] == "null"
    clock.now_ms += 1
    stats.sample()
    assert stats.values()["putMessageDistributeTime"] == (
        "[<=0ms]:2 [0~10ms]:3 [10~50ms]:3 [50~100ms]:3 [100~200ms]:2 [200~500ms]:2 [500ms~1s]:2 "
        "[1~2s]:2 [2~3s]:1 [3~4s]:1 [4~5s]:1 [5~10s]:2 [10s~]:2 "
    )
    clock.now_ms += 60_000
    stats.sample()
    assert str(stats.values()["putMessageDistributeTime"]).startswith("[<=0ms]:0 [0~10ms]:0 ")
    assert stats.put_entire_time_max_ms == 20_000


def test_puts_that_were_not_reported_took_no_time(stats: StoreStatsService, puts: Puts, clock: Clock) -> None:
    for count in (1000, 500):
        puts.times += count
        stats.put_took(7, count=2)
        clock.now_ms += 60_000
        stats.sample()
        assert str(stats.values()["putMessageDistributeTime"]).startswith(
            f"[<=0ms]:{count - 2} [0~10ms]:2 [10~50ms]:0 "
        )


# RocketMQ's answers for 0, 1, 10, 25, 50, 75, 90, 99, 99.9 and 100 percent
@pytest.mark.parametrize(
    ("times_ms", "expected"),
    [
        ([], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        ([0], [0, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
        ([5, 5, 5, 5], [0, 0, 0, 4.25, 4.5, 4.75, 4.75, 4.75, 4.75, 5]),
        ([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], [0, 0, 1, 2, 5, 7, 9, 9, 9, 10]),
        ([21, 22, 23], [0, 0, 0, 0, 21, 22, 22, 22, 22, 24]),
        ([100, 200], [0, 0, 0, 0, 100, 100, 100, 100, 100, 200]),
        (
            [3, 3, 3, 7, 7, 20, 21, 22, 49, 50, 51, 55, 56, 100, 101, 500, 501, 999, 1000, 1001, 9999],
            [0, 0, 2.6666666666666665, 7, 50, 110, 950, 2000, 2000, 10000],
        ),
    ],
)
def test_percentiles(stats: StoreStatsService, clock: Clock, times_ms: list[int], expected: list[float]) -> None:
    for elapsed_ms in times_ms:
        stats.put_took(elapsed_ms)
    clock.now_ms += 60_000
    stats.sample()
    parts = (0, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 1)
    assert [stats.put_latency_ms(part) for part in parts] == expected


def test_a_latency_beyond_all_buckets_is_the_last_bound(stats: StoreStatsService, clock: Clock) -> None:
    stats.put_took(3_600_000, 10)
    clock.now_ms += 60_000
    stats.sample()
    assert stats.values()["putLatency99"] == LATENCY_BOUNDS[-1] == 10_000


@pytest.mark.parametrize(
    ("elapsed_ms", "text"),
    [
        (999, "[ 0 days, 0 hours, 0 minutes, 0 seconds ]"),
        (61_000, "[ 0 days, 0 hours, 1 minutes, 1 seconds ]"),
        (90_061_000, "[ 1 days, 1 hours, 1 minutes, 1 seconds ]"),
        (8_640_000_000, "[ 100 days, 0 hours, 0 minutes, 0 seconds ]"),
    ],
)
def test_runtime(stats: StoreStatsService, clock: Clock, elapsed_ms: int, text: str) -> None:
    clock.now_ms += elapsed_ms
    assert stats.values()["runtime"] == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        *((0.0, "0.0"), (1.0, "1.0"), (1e7, "1.0E7"), (9999999.999, "9999999.999"), (0.001, "0.001")),
        *((0.00099, "9.9E-4"), (123.456, "123.456"), (1e-5, "1.0E-5"), (100 / 3, "33.333333333333336")),
        *((1e22, "1.0E22"), (12345678.9, "1.23456789E7"), (-0.0, "-0.0"), (123456789012.0, "1.23456789012E11")),
    ],
)
def test_doubles_as_java_writes_them(number: float, text: str) -> None:
    assert java_double(number) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_double_comes_back_from_its_text(number: float) -> None:
    assert float(java_double(number)) == number


def test_readers_on_many_threads_lose_no_count(stats: StoreStatsService) -> None:
    def read() -> None:
        for _ in range(5000):
            stats.get_done(1, 0)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stats.get_found_times == stats.get_transferred_count == 20_000
