"""Deletion on request: expired files of the log, queues without messages, queues of topics that are not used any more.

No offset of a deleted queue is reused: its next message gets the offset after its last one, also after a restart
(`deleted_queues.py`). RocketMQ begins at 0 again, and a group that had consumed the queue skips as many new messages.
A queue is deleted under the put lock while dispatch stands still, so no acknowledged message can be on its way into it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from functools import partial
from typing import Final

from flintlog.errors import InvalidConfig, InvalidTopic
from flintlog.format.topics import LMQ_PREFIX, is_system_topic
from flintlog.store.engine import Engine
from flintlog.store.model.arguments import check_topics
from flintlog.store.retention.retention import Retention
from flintlog.store.runtime.jobs import Background

log = logging.getLogger(__name__)

RETENTION_JOB: Final = "retention"


class Cleaning:
    """Deletes what its caller asks for. Any thread may call."""

    def __init__(self, engine: Engine, background: Background) -> None:
        self.retention: Retention | None = None
        self._engine = engine
        self._background = background

    def delete_expired_files(self) -> None:
        """Delete expired files now, at any hour; the next rounds delete those that are left."""
        if self.retention is None:
            raise InvalidConfig(
                "this store keeps everything", advice="open it with retention='on' or with a file_reserved_time"
            )
        self.retention.delete_expired_files()
        self._background.nudge(RETENTION_JOB)

    def clean_expired_queues(self) -> list[tuple[str, int]]:
        """Delete the queues of which the log has no message any more; those of system topics stay. Returns which."""
        engine = self._engine
        engine.check_writable()
        queues, minimum = engine.parts.queues, max(0, engine.log.min_offset)
        deleted: list[tuple[str, int]] = []
        for queue in queues.all():
            topic, queue_id = queue.topic, queue.queue_id
            if is_system_topic(topic) or not queues.is_expired(topic, queue_id, minimum):
                continue
            if engine.dispatcher.exclusively(partial(_remove_expired, engine, topic, queue_id, minimum)):
                deleted.append((topic, queue_id))
        for topic, queue_id in deleted:
            log.info("queue %s/%d was deleted: the log has none of its messages", topic, queue_id)
        return deleted

    def clean_unused_topics(self, retained: Collection[str]) -> list[str]:
        """Delete the queues of all topics that are not retained; system topics and light queues stay. Returns which."""
        engine = self._engine
        engine.check_writable()
        named = check_topics(retained)
        if named is None:
            raise InvalidTopic("the retained topics must be named", advice="an empty list retains none")
        unused = sorted({queue.topic for queue in engine.parts.queues.all()} - set(named))
        deleted = [topic for topic in unused if not is_system_topic(topic) and not topic.startswith(LMQ_PREFIX)]
        for topic in deleted:
            engine.dispatcher.exclusively(partial(_remove_topic, engine, topic))
            log.info("the queues of topic %s were deleted", topic)
        return deleted


def _remove_expired(engine: Engine, topic: str, queue_id: int, minimum: int) -> bool:
    queues = engine.parts.queues
    with engine.log.lock():
        is_expired = queues.is_expired(topic, queue_id, minimum)  # checked again, now that no put can change it
        if is_expired:
            queues.remove(topic, queue_id)
        return is_expired


def _remove_topic(engine: Engine, topic: str) -> None:
    engine.log.sync()
    with engine.log.lock():
        engine.parts.queues.remove_topic(topic, engine.dispatcher.position)
