"""Spark's filters: what they ask for, and whether Spark has to apply them again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringStartsWith,
)

from flintlog.pipeline.reading.filters import Range, Wanted, parse_filter
from flintlog.pipeline.reading.rows import RowShape

MOMENT = datetime(2026, 11, 18, tzinfo=UTC) + timedelta(microseconds=1500)
MOMENT_MS = 1_794_960_000_001


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (EqualTo(("topic",), "a"), (Wanted(topics=frozenset({"a"})), True)),
        (In(("topic",), ("a", None, "b")), (Wanted(topics=frozenset({"a", "b"})), True)),
        (StringStartsWith(("topic",), "or"), (Wanted(topic_prefixes=("or",)), True)),
        (EqualTo(("uniq_key",), "u"), (Wanted(uniq_keys=frozenset({"u"})), True)),
        (EqualTo(("queue_id",), 3), (Wanted(ranges={"queue_id": Range(3, 3)}), True)),
        (In(("queue_id",), (3, 7)), (Wanted(ranges={"queue_id": Range(3, 7)}), False)),
        (GreaterThan(("queue_offset",), 5), (Wanted(ranges={"queue_offset": Range(first=6)}), True)),
        (LessThanOrEqual(("physical_offset",), 5), (Wanted(ranges={"physical_offset": Range(last=5)}), True)),
        (LessThan(("store_timestamp",), 5), (Wanted(ranges={"store_timestamp": Range(last=4)}), True)),
        (
            GreaterThanOrEqual(("store_timestamp",), MOMENT),
            (Wanted(ranges={"store_timestamp": Range(first=MOMENT_MS - 1)}), False),
        ),
        (Not(EqualTo(("topic",), "a")), None),
        (StringContains(("topic",), "a"), None),
        (StringStartsWith(("tags",), "a"), None),
        (EqualTo(("tags",), "a"), None),
        (EqualTo(("properties", "x"), "a"), None),
        (IsNotNull(("uniq_key",)), None),
        (EqualTo(("queue_offset",), datetime(2026, 1, 1)), None),
    ],
)
def test_a_filter_of_a_record_is_understood_or_left(given: Filter, expected: tuple[Wanted, bool] | None) -> None:
    assert parse_filter(given, RowShape()) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (EqualTo(("key",), b"k"), (Wanted(keys=frozenset({"k"})), False)),
        (EqualTo(("key",), b"\xff"), None),
        (EqualTo(("partition",), 1), (Wanted(ranges={"queue_id": Range(1, 1)}), True)),
        (EqualTo(("timestampType",), 1), None),
        (EqualTo(("queue_id",), 1), None),
    ],
)
def test_a_filter_of_kafkas_columns_is_understood_or_left(given: Filter, expected: tuple[Wanted, bool] | None) -> None:
    assert parse_filter(given, RowShape("kafka")) == expected


def test_what_two_filters_want_is_wanted_by_both() -> None:
    one = Wanted(topics=frozenset("ab"), topic_prefixes=("a",), ranges={"queue_id": Range(1, 5)})
    both = one.both(Wanted(topics=frozenset("bc"), topic_prefixes=("ab",), ranges={"queue_id": Range(3)}))
    assert both == Wanted(frozenset("b"), ("a", "ab"), ranges={"queue_id": Range(3, 5)})
    assert both.exact_topics() == frozenset()


def test_a_topic_whose_bytes_are_not_certain_is_compared_as_text() -> None:
    wanted = Wanted(topics=frozenset({"a\ufffd"}))
    assert wanted.exact_topics() is None
    mask = wanted.mask(pa.record_batch({"topic": ["a", "a\ufffd"]}))
    assert mask is not None and mask.to_pylist() == [False, True]
