"""Which files go, when and why: the rules alone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintlog import StoreConfig
from flintlog.disk.media.medium import DiskUsage
from flintlog.store.log.disk_use import used_percent
from flintlog.store.retention.holds import Hold
from flintlog.store.retention.retention_rules import (
    HOUR_MS,
    LogFile,
    RetentionRules,
    is_delete_hour,
    judge_space,
    next_delete_time,
    parse_hours,
    plan_files,
)

SIZE = 1000


def rules(**changes: object) -> RetentionRules:
    found = RetentionRules.of(StoreConfig(file_reserved_time=72).with_changes(**changes))
    assert found is not None
    return found


def at(hour: int, minute: int = 0, day: int = 10) -> int:
    return int(datetime(2026, 3, day, hour, minute).timestamp() * 1000)


def files(*modified_ms: int) -> list[LogFile]:
    return [LogFile(Path(f"/log/{n}"), n * SIZE, SIZE, moment) for n, moment in enumerate(modified_ms)]


def going(found: Sequence[LogFile], now_ms: int, **changes: object) -> list[int | None]:
    chosen = rules(**changes)
    return [each.goes_at_ms for each in plan_files(found, chosen, judge_space(chosen, [50], 50), now_ms)]


# Space


@pytest.mark.parametrize(
    ("log", "queues", "expected"),
    [
        (75, 75, (False, False, False, False)),
        (76, 10, (False, False, True, False)),
        (10, 76, (False, False, True, False)),
        (85, 10, (False, False, True, False)),
        (86, 10, (None, None, True, True)),
        (90, 10, (None, None, True, True)),
        (91, 10, (True, None, True, True)),
        (10, 86, (False, None, True, True)),
        (10, 91, (False, True, True, True)),
        (-1, 10, (False, False, True, False)),
        (10, -1, (False, False, True, False)),
    ],
)
def test_three_limits_have_three_meanings(log: int, queues: int, expected: tuple[object, ...]) -> None:
    space = judge_space(rules(), [log], queues)
    assert (space.log_is_full, space.queues_are_full, space.deletes, space.at_once) == expected


def test_of_several_paths_the_emptiest_counts() -> None:
    assert judge_space(rules(), [95, 50, 99], 10).deletes is False
    assert judge_space(rules(), [95, 91, 99], 10).log_is_full is True


@pytest.mark.parametrize(
    ("asked", "used"),
    [((5, 5, 5), (10, 30, 35)), ((99, 99, 99), (95, 85, 90)), ((75, 80, 88), (75, 80, 88))],
)
def test_limits_are_taken_within_bounds(asked: tuple[int, int, int], used: tuple[int, int, int]) -> None:
    found = rules(
        disk_max_used_space_ratio=asked[0],
        disk_space_clean_forcibly_ratio=asked[1],
        disk_space_warning_level_ratio=asked[2],
    )
    assert (found.expired_above_percent, found.forced_above_percent, found.refused_above_percent) == used


@pytest.mark.parametrize(
    ("share", "deletes", "at_once"), [(0.75, False, False), (0.76, True, False), (0.81, True, True)]
)
def test_stores_that_divide_a_disk_are_judged_by_their_part(share: float, deletes: bool, at_once: bool) -> None:
    space = judge_space(rules(replicas_per_disk_partition=3), [60], 60, share)
    assert (space.deletes, space.at_once) == (deletes, at_once)


@pytest.mark.parametrize(
    ("ratio", "percent"),
    [(0.75, 75), (0.7500001, 76), (0.57, 57), (0.07, 7), (0.751, 76), (0.85, 85), (1.0, 100), (-1.0, -1)],
)
def test_percent_is_rounded_up(ratio: float, percent: int) -> None:
    assert used_percent(DiskUsage(100, 0, ratio)) == percent


# Hours


def test_every_minute_of_a_named_hour_counts() -> None:
    assert [is_delete_hour(at(hour, 59), (4, 16)) for hour in (3, 4, 5, 16)] == [False, True, False, True]


@pytest.mark.parametrize(
    ("now_ms", "expected"),
    [(at(4, 30), at(4, 30)), (at(5), at(16)), (at(3, 59), at(4)), (at(17), at(4, day=11)), (at(15, 1), at(16))],
)
def test_the_next_hour_to_delete(now_ms: int, expected: int) -> None:
    assert next_delete_time(now_ms, parse_hours("04;16")) == expected


def test_no_hour_means_never() -> None:
    assert next_delete_time(at(4), ()) is None
    assert going(files(0, 0), at(4), delete_when="") == [None, None]


@given(st.integers(0, 4_000_000_000_000), st.sets(st.integers(0, 23), min_size=1))
def test_the_next_hour_is_one_of_them_and_none_lies_before(now_ms: int, hours: set[int]) -> None:
    found = next_delete_time(now_ms, sorted(hours))
    assert found is not None
    assert found >= now_ms
    assert is_delete_hour(found, sorted(hours))
    earlier = range(now_ms, found, HOUR_MS // 4)
    assert not any(is_delete_hour(moment, sorted(hours)) for moment in earlier)


# Plans


def test_expired_files_are_deleted_in_the_hour_and_the_newest_never() -> None:
    old = at(4) - 72 * HOUR_MS
    assert going(files(old, old, old), at(4)) == [at(4), at(4), None]
    assert going(files(old, old + 1, old), at(4)) == [at(4), at(4) + 1, None]


def test_outside_of_the_hour_they_wait_for_it() -> None:
    old = at(5) - 100 * HOUR_MS
    assert going(files(old, at(5), old), at(5)) == [at(4, day=11), at(4, day=14), None]


def test_a_young_file_keeps_all_later_ones() -> None:
    old = at(4) - 100 * HOUR_MS
    assert going(files(at(4), old, old), at(4)) == [at(4, day=13), at(4, day=13), None]


def test_above_the_first_limit_expired_files_are_deleted_at_any_hour() -> None:
    chosen = rules()
    old = at(12) - 100 * HOUR_MS
    planned = list(plan_files(files(old, at(12), old), chosen, judge_space(chosen, [80], 50), at(12)))
    assert [each.goes_at_ms for each in planned] == [at(12), at(12) + 72 * HOUR_MS, None]
    assert "80 % full" in planned[0].why


def test_above_the_second_limit_files_are_deleted_until_there_is_room() -> None:
    chosen = rules()
    space = judge_space(chosen, [88], 50)
    planned = plan_files(files(at(12), at(12), at(12), at(12)), chosen, space, at(12), to_free_bytes=SIZE + 1)
    assert [each.goes_at_ms for each in planned] == [at(12), at(12), at(12) + 72 * HOUR_MS, None]


def test_without_force_age_counts_on_any_disk() -> None:
    chosen = rules(clean_file_forcibly_enable=False)
    space = judge_space(chosen, [99], 50)
    planned = plan_files(files(at(12), at(12)), chosen, space, at(12), to_free_bytes=SIZE)
    assert [each.goes_at_ms for each in planned] == [at(12) + 72 * HOUR_MS, None]


def test_what_a_group_has_not_consumed_is_named_and_kept_if_that_is_on() -> None:
    old = at(4) - 100 * HOUR_MS
    lacking = [
        Hold(SIZE + 10, "group billing has not consumed", "orders", 0, 7, "billing"),
        Hold(SIZE + 20, "delay level 3 waits", "SCHEDULE_TOPIC_XXXX", 2, 9),
        Hold(SIZE + 30, "group billing has not consumed", "orders", 1, 7, "billing"),
    ]
    for protects, expected in ((False, [at(4), at(4), at(4), None]), (True, [at(4), None, None, None])):
        chosen = rules(protect_unconsumed=protects)
        planned = list(plan_files(files(old, old, old, old), chosen, judge_space(chosen, [1], 1), at(4), lacking))
        assert [each.goes_at_ms for each in planned] == expected
        assert [len(each.holds) for each in planned] == [0, 3, 3, 3]
    assert planned[1].why == "group billing has not consumed (and 1 more)"


def test_a_configuration_that_keeps_everything_has_no_rules() -> None:
    assert RetentionRules.of(StoreConfig()) is None
