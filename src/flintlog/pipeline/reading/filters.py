"""What the rows of a query must satisfy, as far as its filters and options say so, and Spark's filters as such.

    filter                                       columns
    =, in                                        topic, unique key, numbers; Kafka's key
    starts with                                  topic
    <, <=, >, >=                                 numbers: queue id, queue offset, physical offset, store time

Tasks read only rows that satisfy the filters. Spark is asked to apply again those that it compares in another way than
we do: times, and Kafka's key, which is only the first of several.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

    from flintlog.pipeline.reading.rows import RowShape

REPLACEMENT: Final = "\ufffd"
"""Stands in a decoded text for bytes that are no UTF-8; such a text does not tell the bytes."""

_MIN, _MAX = -(1 << 63), (1 << 63) - 1
_NUMBERS: Final = ("queue_id", "queue_offset", "physical_offset", "store_timestamp")


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from `first` to `last`, both included."""

    first: int = _MIN
    last: int = _MAX

    def __contains__(self, number: int) -> bool:
        return self.first <= number <= self.last

    def both(self, other: Range) -> Range:
        return Range(max(self.first, other.first), min(self.last, other.last))


ALL: Final = Range()


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which rows are wanted; what is None or empty chooses nothing."""

    topics: frozenset[str] | None = None
    topic_prefixes: tuple[str, ...] = ()
    topic_pattern: str | None = None
    keys: frozenset[str] | None = None
    """Rows with one of these among their keys."""
    uniq_keys: frozenset[str] | None = None
    ranges: Mapping[str, Range] = field(default_factory=dict)
    """Of fields that are numbers."""

    def fields(self) -> frozenset[str]:
        """The fields of a record that decide."""
        found = set(self.ranges)
        if self.chooses_topics:
            found.add("topic")
        found |= {"keys"} if self.keys is not None else set()
        found |= {"uniq_key"} if self.uniq_keys is not None else set()
        return frozenset(found)

    def range_of(self, name: str) -> Range:
        return self.ranges.get(name, ALL)

    @property
    def chooses_topics(self) -> bool:
        return self.topics is not None or bool(self.topic_prefixes) or self.topic_pattern is not None

    @property
    def all_keys(self) -> frozenset[str] | None:
        """Keys of which a wanted row has at least one, as the index holds them; None if it need not have any."""
        found = self.uniq_keys if self.keys is None else self.keys
        return None if found is None or any(REPLACEMENT in key for key in found) else found

    def has_topic(self, topic: str) -> bool:
        """Whether rows of a topic may be wanted."""
        return (
            (self.topics is None or topic in self.topics)
            and all(topic.startswith(prefix) for prefix in self.topic_prefixes)
            and (self.topic_pattern is None or re.fullmatch(self.topic_pattern, topic) is not None)
        )

    def exact_topics(self) -> frozenset[bytes] | None:
        """The topics as bytes, if they are known by name and their bytes are certain."""
        if self.topics is None or any(REPLACEMENT in topic for topic in self.topics):
            return None
        return frozenset(topic.encode() for topic in self.topics if self.has_topic(topic))

    def both(self, other: Wanted) -> Wanted:
        """Rows that both want. Of two patterns, or two lists of keys, this one's is used."""
        return Wanted(
            _common(self.topics, other.topics),
            (*self.topic_prefixes, *other.topic_prefixes),
            other.topic_pattern if self.topic_pattern is None else self.topic_pattern,
            other.keys if self.keys is None else self.keys,
            _common(self.uniq_keys, other.uniq_keys),
            {name: self.range_of(name).both(other.range_of(name)) for name in {**self.ranges, **other.ranges}},
        )

    def mask(self, records: pa.RecordBatch) -> pa.Array | None:
        """Which records are wanted; None if all are."""
        parts = [*self._range_masks(records)]
        if self.chooses_topics:
            parts.append(self._topic_mask(records.column("topic")))
        if self.uniq_keys is not None:
            parts.append(pc.is_in(records.column("uniq_key"), pa.array(sorted(self.uniq_keys), pa.utf8())))
        if self.keys is not None:
            parts.append(_has_key(records.column("keys"), self.keys))
        found: pa.Array | None = None
        for part in parts:
            found = part if found is None else pc.and_(found, part)
        return found

    def _range_masks(self, records: pa.RecordBatch) -> Iterable[pa.Array]:
        for name, wanted in self.ranges.items():
            column = records.column(name).cast(pa.int64())
            yield pc.and_(pc.greater_equal(column, wanted.first), pc.less_equal(column, wanted.last))

    def _topic_mask(self, topics: pa.Array) -> pa.Array:
        known = topics.dictionary_encode()
        chosen = [topic for topic in known.dictionary.to_pylist() if self.has_topic(topic)]
        return pc.is_in(topics, pa.array(chosen, pa.utf8()))


EVERYTHING: Final = Wanted()


def _common(one: frozenset[str] | None, other: frozenset[str] | None) -> frozenset[str] | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other


def _has_key(keys: pa.ListArray, wanted: frozenset[str]) -> pa.Array:
    is_hit = pc.is_in(keys.flatten(), pa.array(sorted(wanted), pa.utf8()))
    rows = pc.list_parent_indices(keys).filter(is_hit)
    return pc.is_in(pa.array(range(len(keys)), pa.int64()), rows.cast(pa.int64()))


# ---------------------------------------------------------------------- Spark's filters


def parse_filter(given: Filter, shape: RowShape) -> tuple[Wanted, bool] | None:
    """What a filter of Spark's asks for, and whether it is that exactly; None for one that is of no use here."""
    from pyspark.sql.datasource import (
        EqualTo,
        GreaterThan,
        GreaterThanOrEqual,
        In,
        LessThan,
        LessThanOrEqual,
        StringStartsWith,
    )

    if not isinstance(
        given, (EqualTo, In, StringStartsWith, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
    ):
        return None
    if len(given.attribute) != 1 or given.attribute[0] not in dict(shape.columns()):
        return None
    name = shape.field_of(given.attribute[0])
    if isinstance(given, (EqualTo, In)):
        values = given.value if isinstance(given, In) else (given.value,)
        return _one_of(name, [value for value in values if value is not None])
    if isinstance(given, StringStartsWith):
        return (Wanted(topic_prefixes=(given.value,)), True) if name == "topic" and given.value else None
    if name not in _NUMBERS or given.value is None:
        return None
    return _ranged(name, type(given).__name__, given.value)


def _one_of(name: str, values: list[object]) -> tuple[Wanted, bool] | None:
    if name in _NUMBERS:
        ranges = [found for value in values if (found := _equal(value)) is not None]
        if not values or len(ranges) < len(values):
            return None
        spread = Range(min(each.first for each in ranges), max(each.last for each in ranges))
        is_exact = len(values) == 1 and all(type(value) is int for value in values)
        return Wanted(ranges={name: spread}), is_exact
    texts = [value if isinstance(value, str) else _text(value) for value in values]
    known = frozenset(text for text in texts if text is not None)
    if len(known) < len({*texts}):
        return None
    if name == "topic":
        return Wanted(topics=known), True
    if name == "uniq_key":
        return Wanted(uniq_keys=known), True
    return (Wanted(keys=known), False) if name == "keys" else None


def _text(value: object) -> str | None:
    """Kafka's key: bytes, which are a text in the store."""
    try:
        return bytes(value).decode() if isinstance(value, (bytes, bytearray)) else None
    except UnicodeDecodeError:
        return None


def _equal(value: object) -> Range | None:
    low, high = _milliseconds(value, up=False), _milliseconds(value, up=True)
    return None if low is None or high is None else Range(low, high)


def _ranged(name: str, kind: str, value: object) -> tuple[Wanted, bool] | None:
    is_exact = type(value) is int
    low, high = _milliseconds(value, up=False), _milliseconds(value, up=True)
    if low is None or high is None:
        return None
    asked = {
        "GreaterThan": Range(first=low + 1 if is_exact else low),
        "GreaterThanOrEqual": Range(first=low),
        "LessThan": Range(last=high - 1 if is_exact else high),
        "LessThanOrEqual": Range(last=high),
    }[kind]
    return Wanted(ranges={name: asked}), is_exact


def _milliseconds(value: object, *, up: bool) -> int | None:
    """A number, or a time as milliseconds since 1970: those before and after it."""
    if type(value) is int:
        return value
    if isinstance(value, datetime) and value.tzinfo is not None:
        micros = round(value.timestamp() * 1_000_000)
        return -(-micros // 1000) + 1 if up else micros // 1000 - 1
    return None
