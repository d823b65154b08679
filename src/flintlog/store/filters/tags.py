"""Filters: which messages of a queue a reader gets. A filter by tags is here, one by SQL in `sql92.py`.

RocketMQ asks a filter twice: about the queue entry, which has only a hash of the tags but needs no read of the log, and
about the message itself. Two tags may share a hash: a tag filter compares the text in its second answer. RocketMQ's
store leaves that to the consumer, and so does a filter that is not `exact`. An SQL filter answers the second question
only. Any object with the two methods of `MessageFilter` is a filter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from flintlog.errors import InvalidFilter
from flintlog.format.java import TRIMMED, string_hash
from flintlog.format.properties import TAGS


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

    Without `exact` a message passes too whose tag has the hash of a wanted one.

    >>> sorted(TagFilter("paid || shipped").tags)
    ['paid', 'shipped']
    """

    __slots__ = ("codes", "exact", "expression", "tags")

    def __init__(self, expression: str | None = "*", *, exact: bool = True) -> None:
        if expression is not None and not isinstance(expression, str):
            raise InvalidFilter(f"a tag expression is a text, not {type(expression).__name__}")
        self.exact = exact
        self.expression = expression or "*"
        self.tags = parse_tags(self.expression)
        self.codes = None if self.expression == "*" else frozenset(map(string_hash, self.tags))

    def __repr__(self) -> str:
        return f"TagFilter({self.expression!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TagFilter):
            return False
        return (other.codes, other.tags, other.exact) == (self.codes, self.tags, self.exact)

    def __hash__(self) -> int:
        return hash((self.codes, self.tags, self.exact))

    def matches_entry(self, tags_code: int | None, ext: Extension | None = None) -> bool:
        """Compares the lower 32 bits of the tags code; a missing code passes."""
        if self.codes is None or tags_code is None:
            return True
        return ((tags_code + 0x8000_0000) & 0xFFFF_FFFF) - 0x8000_0000 in self.codes

    def matches_message(self, stored: HasProperties) -> bool:
        """Compares the text, which sorts out tags that share a hash."""
        return self.codes is None or not self.exact or stored.properties.get(TAGS) in self.tags


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


def as_filter(value: str | MessageFilter | None, *, exact: bool = True) -> MessageFilter:
    """The filter of a caller's argument: tags as a text, a filter object, or None for all messages.

    `exact` is about a text; a filter object decides for itself.
    """
    if value is None:
        return MATCH_ALL
    if isinstance(value, str):
        return TagFilter(value, exact=exact)
    if isinstance(value, MessageFilter):
        return value
    raise InvalidFilter(
        f"{type(value).__name__} is no filter",
        advice="give a tag expression, Sql92, or an object with matches_entry and matches_message",
    )
