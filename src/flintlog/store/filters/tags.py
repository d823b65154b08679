"""Which messages of a queue a reader wants.

RocketMQ asks a filter twice: about the queue entry, which carries only the hash of the tags and is there
without reading the log, and about the message itself. A filter by tags answers the first question; two tags
may share a hash, and like RocketMQ's store it leaves the comparison of the text to the consumer. A filter by
SQL answers the second. Any object with the two methods of `MessageFilter` is a filter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from flintlog.errors import InvalidFilter
from flintlog.format.java import TRIMMED, string_hash

# String.trim: everything up to and including the space, and nothing that only Unicode calls a space


class HasProperties(Protocol):
    """What a filter looks at in a stored message."""

    @property
    def properties(self) -> Mapping[str, str]: ...


class Extension(Protocol):
    """What a filter looks at in the extension of a queue entry, where there is one."""

    @property
    def store_timestamp(self) -> int: ...

    @property
    def bitmap(self) -> bytes: ...


@runtime_checkable
class MessageFilter(Protocol):
    """RocketMQ's two questions. An entry that may match must be let through; a message is judged for good."""

    def matches_entry(self, tags_code: int | None, ext: Extension | None) -> bool:
        """False only if the message cannot match; the tags code is None when its extension is lost."""

    def matches_message(self, stored: HasProperties) -> bool:
        """Whether the message is wanted."""


class TagFilter:
    """Tags separated by `||`, of which a message must carry one; `*`, or nothing, stands for all messages.

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
        """By the lower 32 bits of the tags code; a missing code may be any."""
        if self.codes is None or tags_code is None:
            return True
        return ((tags_code + 0x8000_0000) & 0xFFFF_FFFF) - 0x8000_0000 in self.codes

    def matches_message(self, stored: HasProperties) -> bool:
        """The store does not compare the text of tags; see `matches_text`."""
        return True

    def matches_text(self, tags: str | None) -> bool:
        """The consumer's own check, against tags that share a hash."""
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
    """The filter that a caller means: tags as a text, any filter object, or all messages by None."""
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
