"""Filters: which messages of a queue a reader gets. A filter by tags is here, one by SQL in `sql92.py`.

RocketMQ asks a filter twice: about the queue entry, which has only a hash of the tags but needs no read of the log, and
about the message itself. A tag filter answers the first question. Two tags may share a hash; as in RocketMQ, the store
leaves the comparison of the text to the consumer. An SQL filter answers the second question. Any object with the two
methods of `MessageFilter` is a filter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from flintlog.errors import InvalidFilter
from flintlog.format.java import TRIMMED, string_hash


class HasProperties(Protocol):
    """The part of a stored message that a filter reads."""

    @property
    def properties(self) -> Mapping[str, str]: ...


class Extension(Protocol):
    """The parts of a queue entry's extension that a filter reads."""

    @property
    def store_timestamp(self) -> int: ...

    @property
    def bitmap(self) -> bytes: ...


@runtime_checkable
class MessageFilter(Protocol):
    """RocketMQ's two questions. An entry that may match must pass; the answer about a message is final."""

    def matches_entry(self, tags_code: int | None, ext: Extension | None) -> bool:
        """False only if the message cannot match. The tags code is None when its extension is lost."""

    def matches_message(self, stored: HasProperties) -> bool:
        """Whether the message is wanted."""


class TagFilter:
    """Tags separated by `||`, of which a message must have one; `*`, or nothing, stands for all messages.

    >>> sorted(TagFilter("paid || shipped").tags)
    ['paid', 'shipped']
    """

    __slots__ = ("codes", "expression", "tags")

    def __init__(self, expression: str | None = "*") -> None:
        if expression is not None and not isinstance(expression, str):
            raise InvalidFilter(f"a tag expression is a text, not {type(expression).__name__}")
        self.expression = expression or "*"
        self.tags = parse_tags(self.expression)
        self.codes = None if self.expression == "*" else frozenset(map(string_hash, self.tags))

    def __repr__(self) -> str:
        return f"TagFilter({self.expression!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TagFilter) and other.codes == self.codes and other.tags == self.tags

    def __hash__(self) -> int:
        return hash((self.codes, self.tags))

    def matches_entry(self, tags_code: int | None, ext: Extension | None = None) -> bool:
        """Compares the lower 32 bits of the tags code; a missing code passes."""
        if self.codes is None or tags_code is None:
            return True
        return ((tags_code + 0x8000_0000) & 0xFFFF_FFFF) - 0x8000_0000 in self.codes

    def matches_message(self, stored: HasProperties) -> bool:
        """Always true: the store does not compare the text of tags; see `matches_text`."""
        return True

    def matches_text(self, tags: str | None) -> bool:
        """The consumer's check, which sorts out tags that share a hash."""
        return self.codes is None or tags in self.tags


def parse_tags(expression: str) -> frozenset[str]:
    """The tags of an expression; none for `*`.

    Only `*` alone is special: `" *"` and `"a || *"` name a tag `*`.
    """
    if expression in ("", "*"):
        return frozenset()
    if expression.replace("||", "") == "":
        raise InvalidFilter(f"{expression!r} names no tags", offset=0, advice="write * for all messages")
    return frozenset(tag for part in expression.split("||") if (tag := part.strip(TRIMMED)))


MATCH_ALL = TagFilter("*")


def as_filter(value: str | MessageFilter | None) -> MessageFilter:
    """The filter of a caller's argument: tags as a text, a filter object, or None for all messages."""
    if value is None:
        return MATCH_ALL
    if isinstance(value, str):
        return TagFilter(value)
    if isinstance(value, MessageFilter):
        return value
    raise InvalidFilter(
        f"{type(value).__name__} is no filter",
        advice="give a tag expression, Sql92, or an object with matches_entry and matches_message",
    )
