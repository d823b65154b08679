"""Puts whose queue offset or properties are decided inside the put lock.

plain message                 next offset of its queue                          (CommitLog.put, not here)
prepared, rolled back         offset 0; it is in no queue
inner batch, batch topic      next offset of the batch queue, by INNER_NUM; INNER_BASE is written into it
multi-dispatch (LMQ)          next offset of its queue, and of each light queue it names
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from flintlog.derive.entries import MAX_BATCH_COUNT
from flintlog.errors import InvalidMessage
from flintlog.format.properties import (
    INNER_BASE,
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    INNER_NUM,
    WAIT_STORE_MSG_OK,
)
from flintlog.format.sys_flag import INNER_BATCH
from flintlog.format.topics import LMQ_PREFIX, can_be_topic
from flintlog.kernel import Moves
from flintlog.store.log.queue_offsets import QueueOffsets
from flintlog.store.model.message import Message


class Unqueued:
    """A message that is in no queue."""

    is_unqueued = True

    def __init__(self, message: Message) -> None:
        self._message = message

    def prepare(self) -> tuple[Message, int, Moves]:
        return self._message, 0, ({}, {}, {}, {})


class InBatchQueue:
    """A message of a topic with a batch queue: an inner batch, or a plain message as a batch of one."""

    is_unqueued = False

    def __init__(self, message: Message, offsets: QueueOffsets) -> None:
        self._message = message
        self._offsets = offsets
        self._count = inner_count(message)

    def prepare(self) -> tuple[Message, int, Moves]:
        message = self._message
        offset, moves = self._offsets.plan((message.topic, message.queue_id), self._count)
        if not message.sys_flag & INNER_BATCH:
            return message, offset, moves
        return with_properties(message, {INNER_BASE: str(offset)}), offset, moves


class MultiDispatched:
    """A message that is also put into the light queues that it names."""

    is_unqueued = False

    def __init__(self, message: Message, offsets: QueueOffsets) -> None:
        self._message = message
        self._offsets = offsets
        names = (message.properties or {})[INNER_MULTI_DISPATCH]
        if not isinstance(names, str):
            raise InvalidMessage(f"{INNER_MULTI_DISPATCH} is text, not {type(names).__name__}")
        self._names = names.split(",")

    def check_names(self) -> None:
        """Refuse names that cannot be directories: dispatch would stop at this record."""
        for name in self._names:
            if name.startswith(LMQ_PREFIX) and not can_be_topic(name):
                raise InvalidMessage(f"a light queue cannot be called {name[:80]!a}")

    @property
    def new_queue_count(self) -> int:
        """How many light queues this message would create."""
        names = {name for name in self._names if name.startswith(LMQ_PREFIX)}
        return sum(not self._offsets.has_light(name) for name in names)

    def prepare(self) -> tuple[Message, int, Moves]:
        message = self._message
        offsets = [str(self._offsets.next_light(name)) if name.startswith(LMQ_PREFIX) else "" for name in self._names]
        changed = with_properties(message, {INNER_MULTI_QUEUE_OFFSET: ",".join(offsets)}, without=WAIT_STORE_MSG_OK)
        light = [name for name in self._names if name.startswith(LMQ_PREFIX)]
        offset, moves = self._offsets.plan((message.topic, message.queue_id), light=light)
        return changed, offset, moves


def with_properties(message: Message, added: Mapping[str, str], without: str | None = None) -> Message:
    """The same message with properties added after its own, and one left out."""
    properties = {name: value for name, value in (message.properties or {}).items() if name != without}
    properties.update(added)
    return msgspec.structs.replace(message, properties=properties)


def inner_count(message: Message) -> int:
    """The number of messages that an inner batch states; 1 for any other message."""
    text = (message.properties or {}).get(INNER_NUM)
    if not message.sys_flag & INNER_BATCH:
        if text is not None:
            raise InvalidMessage(f"{INNER_NUM} without the inner batch flag in sys_flag")
        return 1
    count = int(text) if isinstance(text, str) and text.isdecimal() and len(text) <= len(str(MAX_BATCH_COUNT)) else 0
    if not 1 <= count <= MAX_BATCH_COUNT:
        raise InvalidMessage(f"an inner batch says its count in {INNER_NUM}, 1 to {MAX_BATCH_COUNT}, not {text!r:.80}")
    return count
