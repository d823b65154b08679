"""Deleting whole queues: those whose messages are all gone, and those of topics that nobody wants any more.

Both are asked for by hand. No offset is given twice: what is put into a queue later goes on behind what it had, in
later runs too (`deleted_queues.py`). RocketMQ begins at 0 again, and a group that has consumed the queue takes as many
new messages for read. Inside the put lock and with dispatch standing still nothing is on its way into a queue, so
none is deleted under a message that was just acknowledged.
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
    """Delete the queues none of whose records the log still has, but for those of system topics; which."""
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
        is_expired = queues.is_expired(topic, queue_id, minimum)  # asked again: now nobody can put into it
        if is_expired:
            queues.remove(topic, queue_id)
        return is_expired


def clean_unused_topics(engine: Engine, retained: Collection[str]) -> list[str]:
    """Delete the queues of all topics that are neither retained nor system topics nor light queues; which topics."""
    queues = engine.parts.queues
    named = check_topics(retained)
    if named is None:
        raise InvalidTopic("it must be said which topics are retained", advice="an empty list retains none")
    unused = sorted({queue.topic for queue in queues.all()} - set(named))
    gone = [topic for topic in unused if not is_system_topic(topic) and not topic.startswith(LMQ_PREFIX)]
    for topic in gone:
        engine.dispatcher.exclusively(partial(_remove_topic, engine, topic))
        log.info("the queues of topic %s were deleted", topic)
    return gone


def _remove_topic(engine: Engine, topic: str) -> None:
    with engine.log.lock():
        engine.parts.queues.remove_topic(topic, engine.dispatcher.position)
