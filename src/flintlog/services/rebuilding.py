"""Puts a stored message again: with another queue and other properties, all else unchanged."""

from __future__ import annotations

from collections.abc import Mapping

from flintlog.store.model.message import Message
from flintlog.store.model.stored_message import StoredMessage


def put_again(stored: StoredMessage, topic: str, queue_id: int, properties: Mapping[str, str]) -> Message:
    """Copy a stored message for another queue."""
    return Message(
        topic,
        stored.body,
        queue_id=queue_id,
        properties=properties,
        flag=stored.flag,
        sys_flag=stored.sys_flag,
        born_timestamp=stored.born_timestamp,
        born_host=stored.born_host,
        store_host=stored.store_host,
        reconsume_times=stored.reconsume_times,
    )
