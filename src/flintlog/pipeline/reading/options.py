"""The options of the Spark source: their names, values and defaults, checked before anything is read.

Names follow the Kafka connector's, so that users know them; Spark passes them in any case. An unknown name or an
invalid value raises one clear error that names the option.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from flintlog.errors import InvalidConfig
from flintlog.store.options.option import did_you_mean

SPLIT_BYTES: Final = 128 * 1024 * 1024
MESSAGES: Final = "messages"
VIEWS: Final = (MESSAGES, "queue_entries", "index", "groups", "files", "findings")
OF_EVERY_VIEW: Final = frozenset({"view", "timestamps", "pushdown"})
EARLIEST: Final = "earliest"
LATEST: Final = "latest"
_EARLIEST_NUMBER: Final = -2
_LATEST_NUMBER: Final = -1
_UNITS: Final = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_OTHER_WORDS: Final = {"kb": "k", "kib": "k", "mb": "m", "mib": "m", "gb": "g", "gib": "g"}

OF_SPARK: Final = frozenset({"queryname", "checkpointlocation", "outputmode", "serialization.format"})
"""Options that Spark itself adds, in lower case."""

Offsets = str | dict[str, int]
"""`earliest`, `latest`, or physical offsets by store ("" for the only one)."""

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of a source; `None` where the default depends on how it is read."""

    paths: tuple[str, ...]
    view: str = MESSAGES
    schema: str = "record"
    topics: tuple[str, ...] | None = None
    topic_pattern: str | None = None
    keys: tuple[str, ...] | None = None
    starting_offsets: Offsets | None = None
    ending_offsets: Offsets | None = None
    starting_timestamp: int | None = None
    ending_timestamp: int | None = None
    min_partitions: int | None = None
    split_bytes: int = SPLIT_BYTES
    max_bytes_per_trigger: int | None = None
    min_bytes_per_trigger: int | None = None
    max_trigger_delay_s: float = 15 * 60
    columns: tuple[str, ...] | None = None
    are_times_numbers: bool = False
    include_body: bool = True
    decompress: bool = False
    verify_crc: bool = False
    fail_on_data_loss: bool = True
    pushdown: bool = True


def parse_source_options(given: Mapping[str, str]) -> SourceOptions:
    """The options that Spark passes to a source.

    >>> parse_source_options({"path": "/data/store", "includebody": "false"}).include_body
    False
    """
    values: dict[str, object] = {"paths": _paths(given)}
    known = {name.lower(): name for name in _OPTIONS}
    named = []
    for name, text in given.items():
        lowered = name.lower()
        if lowered in ("path", "paths") or lowered in OF_SPARK:
            continue
        if lowered not in known:
            advice = did_you_mean(name, _OPTIONS) or f"there are: {', '.join(_OPTIONS)}"
            raise InvalidConfig(f"there is no option {name}", advice=advice)
        option = known[lowered]
        field, parse = _OPTIONS[option]
        values[field] = _parsed(option, text, parse)
        named.append(option)
    if "topics" in values and "topic_pattern" in values:
        raise InvalidConfig("options topics and topicPattern exclude each other", advice="give one of them")
    view = values.get("view", MESSAGES)
    if view != MESSAGES and not OF_EVERY_VIEW.issuperset(named):
        other = next(name for name in named if name not in OF_EVERY_VIEW)
        raise InvalidConfig(f"option {other} has no effect on the view {view}", advice="it is for messages")
    return SourceOptions(**values)  # type: ignore[arg-type]  # each parser gives its field's type


def check_kind(asked: SourceOptions, *, is_streaming: bool) -> None:
    """Refuse options that would have no effect."""
    if is_streaming:
        if asked.view != MESSAGES:
            raise InvalidConfig(f"the view {asked.view} is not for streams", advice="read it as a batch")
        for option, value in (("endingOffsets", asked.ending_offsets), ("endingTimestamp", asked.ending_timestamp)):
            if value is not None:
                raise InvalidConfig(f"option {option} is not for streams", advice="a stream has no end")
        return
    for option, value in (
        ("maxBytesPerTrigger", asked.max_bytes_per_trigger),
        ("minBytesPerTrigger", asked.min_bytes_per_trigger),
    ):
        if value is not None:
            raise InvalidConfig(f"option {option} is for streams", advice="a batch reads all of its range")


def _parsed(option: str, text: str, parse: Callable[[str], Value]) -> Value:
    try:
        return parse(str(text))
    except ValueError as error:
        raise InvalidConfig(f"option {option} = {str(text)[:200]!r}", advice=str(error)) from None


def _paths(given: Mapping[str, str]) -> tuple[str, ...]:
    lowered = {name.lower(): text for name, text in given.items()}
    if "paths" in lowered:
        found = _parsed("paths", lowered["paths"], _texts)
    elif lowered.get("path"):
        found = (lowered["path"],)
    else:
        found = ()
    if not found:
        raise InvalidConfig("no path was given", advice="load(path), a store directory or a glob of several")
    return found


def _texts(text: str) -> tuple[str, ...]:
    """A JSON array of texts, or texts separated by commas."""
    if text.lstrip().startswith("["):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"not a JSON array: {error}") from None
        if not all(isinstance(each, str) for each in found):
            raise ValueError("an array of texts")
        return tuple(found)
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _some(what: str) -> Callable[[str], tuple[str, ...]]:
    def parse(text: str) -> tuple[str, ...]:
        found = _texts(text)
        if not found:
            raise ValueError(f"at least one {what}, separated by commas")
        return found

    return parse


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"no regular expression: {error}") from None
    return text


def _seconds(text: str) -> float:
    """A length of time, as Spark writes it: 500ms, 30s, 15m, 1h."""
    found = re.fullmatch(r"(\d+)\s*(ms|s|m|min|h|d)", text.strip().lower())
    if found is None:
        raise ValueError("a length of time such as 30s, 15m or 1h")
    return int(found[1]) * _SECONDS[found[2]]


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.lower() == "true"


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError("a whole number above 0")
    return int(text)


def _bytes(text: str) -> int:
    """A number of bytes, as Spark writes it: 134217728, 128m, 1g."""
    number = text.strip().rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ").strip()
    word = text.strip()[len(number) :].strip().lower()
    unit = _UNITS.get(_OTHER_WORDS.get(word, word))
    if not number.isdecimal() or unit is None or int(number) < 1:
        raise ValueError("a number of bytes such as 134217728, 128m or 1g")
    return int(number) * unit


def _milliseconds(text: str) -> int:
    if not text.isdecimal():
        raise ValueError("milliseconds since 1970")
    return int(text)


def _view(text: str) -> str:
    if text.lower() not in VIEWS:
        raise ValueError(f"one of {', '.join(VIEWS)}")
    return text.lower()


def _schema(text: str) -> str:
    if text.lower() not in ("record", "kafka"):
        raise ValueError("record or kafka")
    return text.lower()


def _are_numbers(text: str) -> bool:
    if text.lower() not in ("timestamp", "millis"):
        raise ValueError("timestamp, or millis for milliseconds since 1970 as numbers")
    return text.lower() == "millis"


def _offsets(text: str) -> Offsets:
    if text.lower() in (EARLIEST, LATEST):
        return text.lower()
    if text.isdecimal():
        return {"": int(text)}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not all(
        type(each) is int and each >= _EARLIEST_NUMBER for each in found.values()
    ):
        raise ValueError(
            'earliest, latest, a physical offset, or {"broker": offset} where -2 is earliest and -1 latest'
        )
    return found


_OPTIONS: Final[Mapping[str, tuple[str, Callable[[str], object]]]] = {
    "view": ("view", _view),
    "schema": ("schema", _schema),
    "topics": ("topics", _some("topic")),
    "topicPattern": ("topic_pattern", _pattern),
    "keys": ("keys", _some("key")),
    "startingOffsets": ("starting_offsets", _offsets),
    "endingOffsets": ("ending_offsets", _offsets),
    "startingTimestamp": ("starting_timestamp", _milliseconds),
    "endingTimestamp": ("ending_timestamp", _milliseconds),
    "minPartitions": ("min_partitions", _count),
    "splitBytes": ("split_bytes", _bytes),
    "maxBytesPerTrigger": ("max_bytes_per_trigger", _bytes),
    "minBytesPerTrigger": ("min_bytes_per_trigger", _bytes),
    "maxTriggerDelay": ("max_trigger_delay_s", _seconds),
    "columns": ("columns", _some("column")),
    "timestamps": ("are_times_numbers", _are_numbers),
    "includeBody": ("include_body", _truth),
    "decompress": ("decompress", _truth),
    "verifyCrc": ("verify_crc", _truth),
    "failOnDataLoss": ("fail_on_data_loss", _truth),
    "pushdown": ("pushdown", _truth),
}


def resolve(offsets: Offsets, broker: str, first: int, last: int, option: str, brokers: list[str]) -> int:
    """The physical offset of an option's value in a store whose log begins at `first` and ends at `last`."""
    if isinstance(offsets, str):
        return first if offsets == EARLIEST else last
    unknown = offsets.keys() - {*brokers, ""}
    if unknown:
        raise InvalidConfig(
            f"option {option} names {min(unknown)!r}, which is none of the stores",
            advice=f"there are: {', '.join(brokers)}",
        )
    if "" in offsets and len(brokers) > 1:
        raise InvalidConfig(f"option {option} is one number for {len(brokers)} stores", advice='{"broker": offset, …}')
    asked = offsets.get(broker, offsets.get("", _EARLIEST_NUMBER if option == "startingOffsets" else _LATEST_NUMBER))
    if option == "startingOffsets" and asked > last:
        raise InvalidConfig(
            f"option startingOffsets = {asked} is beyond the log of {broker}", advice=f"its records end at {last}"
        )
    return {_EARLIEST_NUMBER: first, _LATEST_NUMBER: last}.get(asked, asked)
