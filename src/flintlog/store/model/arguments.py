"""Checks of callers' arguments: a wrong one raises an error that names it, never a bare TypeError.

The kernel checks a message's values when it encodes the record. This module checks types that would fail before that
(because they cannot be compared or hashed), and the arguments of reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from flintlog.errors import FormatError, InvalidConfig, InvalidFilter, InvalidMessage, InvalidOffset, InvalidTopic
from flintlog.format.client_batch import count_client_messages
from flintlog.format.message_fields import check_encoded
from flintlog.format.sys_flag import INNER_BATCH
from flintlog.format.topics import encode_topic
from flintlog.store.model.message import Message

INT32_MAX = (1 << 31) - 1
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1

_NUMBERS = ("queue_id", "flag", "sys_flag", "reconsume_times", "prepared_transaction_offset", "delay_level")


def check_types(message: Message) -> None:
    """Raise for a field of the wrong type. The kernel checks the values."""
    encode_topic(message.topic)
    check_body(message.body)
    for name in _NUMBERS:
        if not isinstance(getattr(message, name), int):
            raise InvalidMessage(f"{name} is a number, not {type(getattr(message, name)).__name__}")
    if message.deliver_at_ms is not None and not isinstance(message.deliver_at_ms, int):
        raise InvalidMessage(f"deliver_at_ms is a number, not {type(message.deliver_at_ms).__name__}")
    properties: object = message.properties
    if properties is not None and not isinstance(properties, Mapping):
        raise InvalidMessage(f"properties is a mapping, not {type(properties).__name__}")


def check_body(body: object) -> None:
    try:
        memoryview(body)  # type: ignore[arg-type]  # the type is what is checked
    except TypeError:
        raise InvalidMessage(f"a body is bytes, not {type(body).__name__}") from None
    except ValueError:
        raise InvalidMessage("the body is a memoryview that was released") from None


def check_batch(messages: Iterable[Message]) -> list[Message]:
    """The messages of a batch as a list; raises if there are none, or if one cannot be in a batch."""
    if isinstance(messages, (Message, str, bytes)) or not isinstance(messages, Iterable):
        raise InvalidMessage(f"a batch is a sequence of messages, not {type(messages).__name__}")
    batch = list(messages)
    if not batch:
        raise InvalidMessage("a batch has at least one message")
    for message in batch:
        if type(message) is not Message:
            raise InvalidMessage(f"a batch holds Messages, not {type(message).__name__}")
        if message.delay_level != 0 or message.deliver_at_ms is not None:
            check_types(message)
            raise InvalidMessage("a delayed message cannot be in a batch")
    return batch


def check_encoded_batch(batch: Message) -> int:
    """The number of messages in an encoded batch; raises if it is none."""
    if type(batch) is not Message:
        raise InvalidMessage(f"an encoded batch is a Message, not {type(batch).__name__}")
    check_types(batch)
    if batch.delay_level or batch.deliver_at_ms is not None:
        raise InvalidMessage("a delayed message cannot be in a batch")
    if batch.compress is not None or batch.sys_flag & INNER_BATCH:
        raise InvalidMessage("an encoded batch is neither compressed as a whole nor an inner batch")
    check_encoded(batch)
    try:
        return count_client_messages(batch.body)
    except FormatError as error:
        raise InvalidMessage(f"the body is no encoded batch: {error.what}") from error


def check_int64(what: str, value: int) -> None:
    """Raise unless the value is a whole number that fits 64 bits."""
    if not isinstance(value, int) or not INT64_MIN <= value <= INT64_MAX:
        raise InvalidOffset(f"{what} cannot be {value!r}")


def check_offset(what: str, offset: int) -> None:
    """Raise unless the value can be an offset."""
    if not isinstance(offset, int) or not 0 <= offset <= INT64_MAX:
        raise InvalidOffset(f"{what} cannot be {offset!r}")


def check_count(what: str, count: int) -> None:
    """Raise unless the value is a whole number above 0."""
    if not isinstance(count, int) or count < 1:
        raise InvalidOffset(f"{what} cannot be {count!r}")


def check_flag(what: str, value: bool) -> None:
    """Raise unless the value is True or False: a word such as "no" would count as True."""
    if not isinstance(value, bool):
        raise InvalidConfig(f"{what} is True or False, not {value!r:.80}")


def check_queue(topic: str, queue_id: int) -> None:
    """Raise unless a queue could have this topic and id. It need not exist."""
    if not isinstance(topic, str):
        raise InvalidTopic(f"a topic is text, not {type(topic).__name__}")
    if not isinstance(queue_id, int) or not 0 <= queue_id <= INT32_MAX:
        raise InvalidOffset(f"a queue id cannot be {queue_id!r}")


def check_text(what: str, text: str) -> None:
    if not isinstance(text, str):
        raise InvalidFilter(f"{what} is text, not {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidFilter(f"{what} holds a lone surrogate: {text[:80]!a}") from None


def plain_text(text: str) -> str:
    """A plain `str` from a subclass of it, which may compare in its own way, and which JSON and the kernel refuse."""
    return text if type(text) is str else str.__str__(text)


def check_topics(topics: Iterable[str] | None) -> list[str] | None:
    """The topics as a list of plain texts, or None; a single text is refused, because it iterates over its letters."""
    return None if topics is None else named_topics(topics)


def named_topics(topics: Iterable[str]) -> list[str]:
    if isinstance(topics, (str, bytes)) or not isinstance(topics, Iterable):
        raise InvalidTopic("topics is a sequence of names", advice='write topics=["orders"]')
    named = list(topics)  # an iterator can be consumed only once
    for topic in named:
        encode_topic(topic)
    return [plain_text(topic) for topic in named]
