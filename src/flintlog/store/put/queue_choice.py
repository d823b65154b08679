"""Choosing the queue of a message that names none: by a key, or each queue in turn.

    put(message, key="customer-7")        abs(hash of the key) % number of queues       Topics.queue_of
    put(Message(…, queue_id=None))        0, 1, 2, …, 0, 1, …

The turns are of this process: each opening begins at queue 0. The messages of a batch have one queue, so a batch has
one turn.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final

import msgspec

from flintlog.errors import InvalidMessage
from flintlog.store.model.message import Message
from flintlog.store.settings.topics import Topics

_MOST_TURNS: Final = 10_000
"""Topics whose turns are kept; after that many all begin at queue 0 again."""


class QueueChoice:
    """Chooses queues of one store's topics. Any thread may call."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._turns: dict[str, itertools.count[int]] = {}

    def by_key(self, message: Message, key: str) -> Message:
        """The message with the queue of this key, whatever queue it names."""
        if type(message) is not Message:
            raise InvalidMessage(f"put takes a Message, not {type(message).__name__}")
        return msgspec.structs.replace(message, queue_id=self._topics.queue_of(message.topic, key))

    def in_turn(self, message: Message) -> Message:
        """The message, in the next queue if it names none."""
        if not _names_none(message):
            return message
        return msgspec.structs.replace(message, queue_id=self._next(message.topic))

    def batch_in_turn(self, messages: Sequence[Message]) -> Sequence[Message]:
        """The messages of a batch, those that name no queue in the next one."""
        if not any(map(_names_none, messages)):
            return messages
        queue_id = self._next(messages[0].topic)
        return [
            msgspec.structs.replace(message, queue_id=queue_id) if _names_none(message) else message
            for message in messages
        ]

    def _next(self, topic: str) -> int:
        count = self._topics.queue_count(topic)
        turns = self._turns.get(topic)
        if turns is None:
            if len(self._turns) >= _MOST_TURNS:
                self._turns.clear()
            turns = self._turns.setdefault(topic, itertools.count())
        return next(turns) % count


def _names_none(message: Message) -> bool:
    queue_id: int | None = message.queue_id  # the type is that of a message that is being stored
    return queue_id is None
