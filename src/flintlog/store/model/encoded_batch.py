"""Messages of one queue, encoded before they are put: what a client sends to a broker, and the fastest put."""

from __future__ import annotations

from collections.abc import Sequence

from flintlog.errors import FormatError, InvalidMessage
from flintlog.format.client_batch import ClientMessage, encode_client_batch
from flintlog.format.message_fields import check_in_batch, merged_properties
from flintlog.format.properties import encode_properties
from flintlog.store.model.arguments import check_batch, check_types
from flintlog.store.model.message import Message


def encoded_batch(messages: Sequence[Message]) -> Message:
    """One message whose body is all of these, for `Store.put_encoded`.

    Its hosts, times and sys flag are those of the first message; each keeps its body, flag, tags, keys and properties.
    """
    batch = check_batch(messages)
    first = batch[0]
    for message in batch:
        check_types(message)
        check_in_batch(message, first)
        if message.compress is not None:
            raise InvalidMessage("a message of an encoded batch cannot ask for compression")
    try:
        body = encode_client_batch(_inner(message) for message in batch)
    except FormatError as error:
        raise InvalidMessage(error.what) from error
    return Message(
        first.topic,
        body,
        queue_id=first.queue_id,
        sys_flag=first.sys_flag,
        born_timestamp=first.born_timestamp,
        born_host=first.born_host,
        store_host=first.store_host,
        reconsume_times=first.reconsume_times,
    )


def _inner(message: Message) -> ClientMessage:
    properties = encode_properties(merged_properties(message))
    return ClientMessage(bytes(message.body), properties, message.flag)
