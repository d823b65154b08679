"""Deletes whole queues: those whose messages were all deleted, and those of topics that are not used any more.

Both happen only when a caller asks for it. No offset is reused: later messages of a deleted queue get offsets after its
old ones, also after a restart (`deleted_queues.py`). RocketMQ begins at 0 again, and a group that had consumed the
queue skips as many new messages. A queue is deleted under the put lock while dispatch stands still, so no acknowledged
message can be on its way into it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from functools import partial

from flintlog.errors import InvalidTopic
from flintlog.format.topics import LMQ_PREFIX, is_system_topic
from flintlog.store.engine import Engine
from flintlog.store.model.arguments import check_topics

log = logging.getLogger(__name__)


def clean_expired_queues(engine: Engine) -> list[tuple[str, int]]:
    """Delete the queues of which the log has no record left, except those of system topics. Returns them."""
    queues, minimum = engine.parts.queues, max(0, engine.log.min_offset)
    gone: list[tuple[str, int]] = []
    for queue in queues.all():
        topic, queue_id = queue.topic, queue.queue_id
        if is_system_topic(topic) or not queues.is_expired(topic, queue_id, minimum):
            continue
        if engine.dispatcher.exclusively(partial(_remove_expired, engine, topic, queue_id, minimum)):
            gone.append((topic, queue_id))
    for topic, queue_id in gone:
        log.info("queue %s/%d was deleted: the log has none of its messages", topic, queue_id)
    return gone


def _remove_expired(engine: Engine, topic: str, queue_id: int, minimum: int) -> bool:
    queues = engine.parts.queues
    with engine.log.lock():
        is_expired = queues.is_expired(topic, queue_id, minimum)  # checked again, now that no put can change it
        if is_expired:
            queues.remove(topic, queue_id)
        return is_expired


def clean_unused_topics(engine: Engine, retained: Collection[str]) -> list[str]:
    """Delete the queues of all topics except retained ones, system topics and light queues. Returns the topics."""
    queues = engine.parts.queues
    named = check_topics(retained)
    if named is None:
        raise InvalidTopic("the retained topics must be named", advice="an empty list retains none")
    unused = sorted({queue.topic for queue in queues.all()} - set(named))
    gone = [topic for topic in unused if not is_system_topic(topic) and not topic.startswith(LMQ_PREFIX)]
    for topic in gone:
        engine.dispatcher.exclusively(partial(_remove_topic, engine, topic))
        log.info("the queues of topic %s were deleted", topic)
    return gone


def _remove_topic(engine: Engine, topic: str) -> None:
    with engine.log.lock():
        engine.parts.queues.remove_topic(topic, engine.dispatcher.position)
