"""The message with which RocketMQ reports that a consumer's offset was corrected.

    topic OFFSET_MOVED_EVENT, queue 0, tag and key: the group

    {"consumerGroup":"billing","messageQueue":{"brokerName":"…","queueId":3,"topic":"orders"},
     "offsetNew":9,"offsetRequest":5}                                                            one line

Brokers up to 4.x put it at each such pull; 5.5.0 still has the code, but never calls it. Here the option
`offset_moved_event` turns it on.
"""

from __future__ import annotations

import logging
import platform
from typing import TYPE_CHECKING

from flintlog.errors import FlintlogError
from flintlog.format.config_json import JsonObject, encode_config_json
from flintlog.format.properties import DELAY_TIME_LEVEL, KEYS
from flintlog.format.topics import OFFSET_MOVED_EVENT
from flintlog.store.consume.consumer_queue import OffsetMove
from flintlog.store.model.message import Message

if TYPE_CHECKING:
    from flintlog.store.store import Store

log = logging.getLogger(__name__)


def encode_offset_moved(group: str, move: OffsetMove, broker_name: str) -> bytes:
    """The body of the event."""
    queue: JsonObject = {"brokerName": broker_name, "queueId": move.queue_id, "topic": move.topic}
    event: JsonObject = {
        "consumerGroup": group,
        "messageQueue": queue,
        "offsetNew": move.offset,
        "offsetRequest": move.requested,
    }
    return encode_config_json(event, pretty=False)


def put_offset_moved(store: Store, group: str, move: OffsetMove) -> None:
    """Put the event. A failure is only logged, so that the consumer continues."""
    message = Message(
        OFFSET_MOVED_EVENT,
        # A broker's name is by default its host's.
        encode_offset_moved(group, move, platform.node()),
        tags=group,
        properties={KEYS: group, DELAY_TIME_LEVEL: "0"},
        born_host=store.config.store_host,
    )
    try:
        store.put(message)
    except FlintlogError as failure:
        log.warning("%s of group %s was not put: %s", OFFSET_MOVED_EVENT, group, failure)
