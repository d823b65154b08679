"""Checks the fields of a message before they become a record.

Both kernels encode only messages that pass. Delays, timers and transactions make the same checks before they hold a
message back.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, SupportsIndex

from flintlog.errors import FormatError, InvalidMessage
from flintlog.format.message_id import parse_host
from flintlog.format.properties import KEY_SEPARATOR, KEYS, TAGS
from flintlog.format.sys_flag import TRANSACTION_MASK

INT32 = (-(1 << 31), (1 << 31) - 1)
INT64 = (-(1 << 63), (1 << 63) - 1)


class MessageFields(Protocol):
    """The fields of a message that an encoder reads."""

    @property
    def topic(self) -> str: ...
    @property
    def body(self) -> bytes | bytearray | memoryview: ...
    @property
    def tags(self) -> str | None: ...
    @property
    def keys(self) -> Sequence[str]: ...
    @property
    def queue_id(self) -> int: ...
    @property
    def properties(self) -> Mapping[str, str] | None: ...
    @property
    def flag(self) -> int: ...
    @property
    def sys_flag(self) -> int: ...
    @property
    def born_timestamp(self) -> int | None: ...
    @property
    def born_host(self) -> str | None: ...
    @property
    def store_host(self) -> str | None: ...
    @property
    def reconsume_times(self) -> int: ...
    @property
    def prepared_transaction_offset(self) -> int: ...


def encode_host(text: str, what: str) -> bytes:
    """A host as a record holds it."""
    if not isinstance(text, str):
        raise InvalidMessage(f"{what} is text, not {type(text).__name__}")
    try:
        return parse_host(text)
    except FormatError as error:
        raise InvalidMessage(f"{what}: {error.what}", advice=error.advice) from error


def check_in_batch(message: MessageFields, first: MessageFields) -> None:
    """Raise unless a message may be in one batch with the first."""
    try:
        if message.topic != first.topic or message.queue_id != first.queue_id:
            raise InvalidMessage("the messages of a batch have one topic and one queue")
        if check_number("sys_flag", message.sys_flag, INT32) & TRANSACTION_MASK:
            raise InvalidMessage("a message of a transaction cannot be in a batch")
        if message.prepared_transaction_offset != 0:
            raise InvalidMessage("a message of a batch has no prepared transaction offset")
    except AttributeError as error:
        raise InvalidMessage(f"not a message: {type(message).__name__}") from error


def check_encoded(batch: MessageFields) -> None:
    """Raise unless this message can carry an encoded batch as its body."""
    check_in_batch(batch, batch)
    if has_properties(batch):
        raise InvalidMessage("tags, keys and properties belong to the messages inside of an encoded batch")


def has_properties(message: MessageFields) -> bool:
    """Whether a record of the message needs properties."""
    return message.tags is not None or bool(message.keys) or bool(message.properties)


def merged_properties(message: MessageFields) -> dict[str, str]:
    """TAGS, KEYS and the other properties, in the order in which Java's client would put them."""
    merged: dict[str, str] = {}
    if message.tags is not None:
        merged[TAGS] = _text("tags", message.tags)
    if message.keys:
        if isinstance(message.keys, str):
            raise InvalidMessage("keys is a sequence of texts, not one text", advice='write keys=["one"]')
        try:
            merged[KEYS] = KEY_SEPARATOR.join(map(_key, message.keys))
        except TypeError:
            raise InvalidMessage(f"keys is a sequence of texts, not {type(message.keys).__name__}") from None
    for name, value in _pairs(message.properties):
        if name in merged:
            raise InvalidMessage(f"{name} is given twice: as an argument and in properties")
        merged[name] = value
    return merged


def _key(key: str) -> str:
    text = _text("a key", key)
    if KEY_SEPARATOR in text:  # it would be stored as several keys, and never be found
        raise InvalidMessage(
            f"a key holds a space, which separates keys: {text[:80]!a}",
            advice="give each word as a key of its own, or use another character",
        )
    return text


def _pairs(properties: Mapping[str, str] | None) -> Iterator[tuple[str, str]]:
    if properties is None:
        return
    if not isinstance(properties, Mapping):
        raise InvalidMessage(f"properties is a mapping, not {type(properties).__name__}")
    for name, value in properties.items():
        plain_name = _text("a property's name", name)
        if plain_name == "":
            raise InvalidMessage("a property has an empty name")
        yield plain_name, _text(f"the property {plain_name!a}", value)


def _text(what: str, text: str) -> str:
    if not isinstance(text, str):
        raise InvalidMessage(f"{what} is text, not {type(text).__name__}")
    text = str.__str__(text)  # a subclass of str may override comparison
    if "\x01" in text or "\x02" in text:
        raise InvalidMessage(f"{what} holds 0x01 or 0x02, which separate properties: {text[:80]!a}")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InvalidMessage(f"{what} holds a lone surrogate: {text[:80]!a}") from None
    return text


def check_number(name: str, value: SupportsIndex, bounds: tuple[int, int]) -> int:
    """The value, if it is a whole number within these bounds."""
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidMessage(f"{name} is a number, not {type(value).__name__}") from None
    if not bounds[0] <= number <= bounds[1]:
        raise InvalidMessage(f"{name} is {number}, outside of {bounds[0]} to {bounds[1]}")
    return number
