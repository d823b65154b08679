"""What the last days of a log say about its disk: exact, by samples, a disk and a clock that are handed in."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.maintenance.verify.test_verify import snapshot
from tests.store.small_store import SMALL

from flintlog import Message, StoreConfig, open_store
from flintlog.cli import main
from flintlog.cli.look.forecast import foresee
from flintlog.disk.media.medium import DiskUsage
from flintlog.maintenance.inspect.forecast import DAY_MS, HOUR_MS, DayVolume, Forecast, Limit, Sample, forecast
from flintlog.maintenance.inspect.log_samples import MOST_SAMPLES, derived_bytes, sample_log
from flintlog.maintenance.inspect.store_files import look_at
from flintlog.testing import FakeClock

Golden = Callable[[str], Path]
MIDNIGHT_MS = int(datetime(2026, 3, 10, tzinfo=UTC).timestamp() * 1000)
GB = 10**9
LIMITS = (Limit(75, "expired"), Limit(85, "forced"), Limit(90, "refused"))
HALF_FULL = DiskUsage(1000 * GB, 500 * GB, 0.5)


def steady(days: int, a_day: int = 10 * GB, until_ms: int = MIDNIGHT_MS) -> list[Sample]:
    """A log that grew evenly."""
    return [Sample(until_ms - (days - day) * DAY_MS, day * a_day) for day in range(days + 1)]


def tell(
    samples: list[Sample],
    disk: DiskUsage | None = HALF_FULL,
    *,
    now_ms: int = MIDNIGHT_MS,
    days: int = 7,
    reserved_ms: int | None = None,
    derived_ratio: float = 0.0,
) -> Forecast:
    return forecast(
        samples, disk, LIMITS, now_ms=now_ms, days=days, reserved_ms=reserved_ms, derived_ratio=derived_ratio
    )


def in_days(result: Forecast) -> list[float | None]:
    return [None if limit.at_ms is None else (limit.at_ms - result.until_ms) / DAY_MS for limit in result.limits]


def test_a_steady_log_that_keeps_everything() -> None:
    result = tell(steady(3))
    assert result.bytes_a_day == 10 * GB
    assert [day.bytes for day in result.days] == [10 * GB] * 3
    assert in_days(result) == [25, 35, 40]
    assert result.kept_bytes is None


def test_what_queues_and_index_add_fills_the_disk_too() -> None:
    assert in_days(tell(steady(3), derived_ratio=0.25)) == [20, 28, 32]


def test_retention_that_holds_never_reaches_a_limit() -> None:
    result = tell(steady(3), reserved_ms=3 * DAY_MS)
    assert result.kept_bytes == 40 * GB  # three days, and the one that waits for the hour
    assert in_days(result) == [None, None, None]


def test_retention_that_holds_too_much_reaches_the_first_limits_only() -> None:
    # 30 GB are there. Kept are 381 GB, so 351 are to come: more than the 350 that bring the disk to 85 %.
    result = tell(steady(3), reserved_ms=int(37.1 * DAY_MS))
    assert in_days(result) == [25, 35, None]


def test_for_how_long_messages_could_be_kept() -> None:
    result = tell(steady(3), reserved_ms=72 * HOUR_MS)
    # (30 GB there + 250 GB of room) / 10 GB a day, less the day that waits.
    assert [limit.holds_hours for limit in result.limits] == [27 * 24, 37 * 24, 42 * 24]
    kept_so = tell(steady(3), reserved_ms=27 * 24 * HOUR_MS)
    assert in_days(kept_so)[0] is None
    one_more = tell(steady(3), reserved_ms=(27 * 24 + 1) * HOUR_MS)
    assert in_days(one_more)[0] is not None


def test_a_disk_that_is_over_a_limit_is_there_now() -> None:
    result = tell(steady(3), DiskUsage(1000 * GB, 130 * GB, 0.87), reserved_ms=3 * DAY_MS)
    assert in_days(result) == [0, 0, None]
    assert result.limits[0].holds_hours is None


def test_the_busiest_day_is_another_pace() -> None:
    samples = [Sample(MIDNIGHT_MS - 2 * DAY_MS, 0), Sample(MIDNIGHT_MS - DAY_MS, 10 * GB), Sample(MIDNIGHT_MS, 50 * GB)]
    result = tell(samples)
    assert (result.bytes_a_day, result.busiest_day_bytes) == (25 * GB, 40 * GB)
    assert in_days(result)[0] == 10
    assert result.limits[0].at_busiest_ms == MIDNIGHT_MS + int(6.25 * DAY_MS)


def test_only_the_last_days_count() -> None:
    old = [
        Sample(MIDNIGHT_MS - 100 * DAY_MS, 0),
        Sample(MIDNIGHT_MS - 2 * DAY_MS, 900 * GB),
        Sample(MIDNIGHT_MS, 902 * GB),
    ]
    result = tell(old, days=2)
    assert result.bytes_a_day == 1 * GB
    assert result.log_bytes == 902 * GB


def test_a_writer_that_stopped_makes_the_average_smaller() -> None:
    samples = [Sample(MIDNIGHT_MS - 4 * DAY_MS, 0), Sample(MIDNIGHT_MS - 2 * DAY_MS, 20 * GB)]
    result = tell(samples)
    assert result.bytes_a_day == 5 * GB
    assert [day.bytes for day in result.days] == [10 * GB, 10 * GB, 0, 0]
    silent = tell(samples, days=1)
    assert (silent.bytes_a_day, silent.limits) == (0.0, ())


def test_days_are_those_of_utc_and_the_ends_are_parts() -> None:
    now = MIDNIGHT_MS + 6 * HOUR_MS
    samples = [Sample(MIDNIGHT_MS - 30 * HOUR_MS, 0), Sample(now, 36 * GB)]
    result = tell(samples, now_ms=now)
    assert result.days == (
        DayVolume(MIDNIGHT_MS - 30 * HOUR_MS, 6 * GB),
        DayVolume(MIDNIGHT_MS - 24 * HOUR_MS, 24 * GB),
        DayVolume(MIDNIGHT_MS, 6 * GB),
    )


def test_a_clock_that_jumped_does_no_harm() -> None:
    back = [Sample(MIDNIGHT_MS - DAY_MS, 0), Sample(MIDNIGHT_MS - 2 * DAY_MS, GB), Sample(MIDNIGHT_MS, 2 * GB)]
    assert tell(back).bytes_a_day == 2 * GB
    ahead = [Sample(MIDNIGHT_MS - DAY_MS, 0), Sample(MIDNIGHT_MS + 99 * DAY_MS, 2 * GB)]
    assert tell(ahead).bytes_a_day == 2 * GB


@pytest.mark.parametrize(
    "samples", [[], [Sample(MIDNIGHT_MS, 0)], [Sample(MIDNIGHT_MS - 9, 0), Sample(MIDNIGHT_MS, GB)]]
)
def test_too_little_to_foresee_anything(samples: list[Sample]) -> None:
    result = tell(samples)
    assert (result.bytes_a_day, result.limits) == (None, ())


def test_without_a_disk_there_are_no_limits() -> None:
    assert tell(steady(3), None).limits == ()


# ---------------------------------------------------------------------- from files


def write_days(path: Path, volumes: list[int], config: StoreConfig = SMALL) -> int:
    """So many messages of a little over 1,000 bytes on each of the days before midnight; the size of one."""
    clock = FakeClock(MIDNIGHT_MS - len(volumes) * DAY_MS)
    size = 0
    with open_store(path, config, clock=clock) as store:
        for count in volumes:
            for number in range(count):
                clock.advance(DAY_MS // count)
                size = store.put(Message("orders", bytes(1000), keys=[str(number)], queue_id=number % 3)).check().size
            clock.advance(DAY_MS - DAY_MS // count * count)
    return size


def test_samples_of_a_real_log_give_its_days(tmp_path: Path) -> None:
    size = write_days(tmp_path / "s", [100, 300, 200])
    before = snapshot(tmp_path / "s")
    result, disk = foresee(look_at(tmp_path / "s"), SMALL, 7, MIDNIGHT_MS)
    assert snapshot(tmp_path / "s") == before
    assert disk is not None
    for day, count in zip(result.days[-3:], [100, 300, 200], strict=True):
        assert day.bytes == pytest.approx(count * size, rel=0.1)
    # A key and a queue entry for each message.
    assert result.derived_ratio == pytest.approx(40 / size, rel=0.05)


def test_few_records_are_read_however_long_the_log(tmp_path: Path) -> None:
    write_days(tmp_path / "s", [400, 400])
    files = look_at(tmp_path / "s")
    assert len(files.log) > 10
    samples = sample_log(files, 0)
    assert len(files.log) < len(samples) <= MOST_SAMPLES + 2 * len(files.log)
    assert samples == sorted(samples) and len({sample.physical_offset for sample in samples}) == len(samples)
    old = sample_log(files, MIDNIGHT_MS + DAY_MS)
    assert len(old) < len(samples)
    assert (old[0], old[-1]) == (samples[0], samples[-1])


def test_damage_between_costs_a_sample_and_nothing_else(tmp_path: Path) -> None:
    write_days(tmp_path / "s", [200, 200])
    files = sorted((tmp_path / "s" / "commitlog").iterdir())
    with files[2].open("r+b") as file:
        file.write(b"\xff" * (files[2].stat().st_size // 2))
    whole, _ = foresee(look_at(tmp_path / "s"), SMALL, 7, MIDNIGHT_MS)
    assert [day.bytes for day in whole.days][-1] == pytest.approx(whole.days[-2].bytes, rel=0.15)


@pytest.mark.parametrize("case", ["batch", "cqext", "delay", "multi", "plain", "transaction"])
def test_golden_stores_can_be_foreseen(case: str, golden: Golden) -> None:
    files = look_at(golden(case) / "store")
    assert derived_bytes(files) > 0
    samples = sample_log(files, 0)
    assert samples[0].physical_offset == 0
    assert samples[-1].physical_offset > 0


# ---------------------------------------------------------------------- the command


def test_the_command_for_people_and_programs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_days(tmp_path / "s", [50, 50])
    monkeypatch.setattr("time.time_ns", lambda: MIDNIGHT_MS * 1_000_000)
    assert main.run(["forecast", str(tmp_path / "s"), "-o", "json"]) == 0
    captured = capsys.readouterr()
    result = json.loads(captured.out)
    assert [limit["percent"] for limit in result["limits"]] == [75, 85, 90]
    assert result["bytes_a_day"] > 50_000 and result["until_ms"] == MIDNIGHT_MS
    assert captured.err == "no --config: RocketMQ's defaults (72 hours, deleted at 04:00)\n"
    assert main.run(["forecast", str(tmp_path / "s")]) == 0
    shown = capsys.readouterr().out
    assert "2026-03-08" in shown and "KiB a day" in shown and "puts are refused" in shown


def test_a_configuration_that_keeps_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_days(tmp_path / "s", [50, 50])
    config = tmp_path / "config.json"
    config.write_text('{"retention": "off"}')
    assert main.run(["forecast", str(tmp_path / "s"), "--config", str(config), "--days", "3650", "-o", "json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert {limit["means"] for limit in result["limits"]} == {"nothing is deleted by this configuration"}
    assert result["kept_bytes"] is None


def test_a_store_without_messages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    open_store(tmp_path / "s").shutdown()
    assert main.run(["forecast", str(tmp_path / "s")]) == 0
    assert "not known" in capsys.readouterr().out
    assert main.run(["forecast", str(tmp_path)]) == 3
    assert main.run(["forecast", str(tmp_path / "s"), "--days", "0"]) == 2
