"""Adds one `get` to the figures: to the totals, to those of its group, and to the group's lag.

RocketMQ measures the lag from the last entry that a page looked at, whether it passed the filter or not, to the end of
the log, and from the store time of the last message to now. A group that has read everything has no lag.
"""

from __future__ import annotations

from typing import Final

from flintlog.format.topics import is_system_topic
from flintlog.store.engine import Engine
from flintlog.store.model.stored_message import GetStatus, Page
from flintlog.store.read.reader import Reader

_EXAMINED: Final = frozenset({GetStatus.FOUND, GetStatus.NO_MATCHED_MESSAGE, GetStatus.MESSAGE_WAS_REMOVING})


class GetFigures:
    """Counts pages. Any thread."""

    def __init__(self, engine: Engine, reader: Reader) -> None:
        self._engine = engine
        self._reader = reader
        self._counters = engine.figures.counters
        self._figures = engine.figures.broker
        self._reports_lag = engine.config.disk_fall_recorded

    def count(self, page: Page, topic: str, queue_id: int, elapsed_ms: int, group: str | None) -> None:
        """Count one page; without a group only in the totals."""
        count = self._reader.message_count(topic, queue_id, page)
        self._counters.get_done(count, elapsed_ms)
        if is_system_topic(topic):
            self._figures.got_of_system(count)
        from_disk, size_from_disk = self._reader.on_disk_only(page)
        if from_disk:
            self._figures.got_from_disk(group, topic, from_disk, size_from_disk)
        if group is None:
            return
        size = sum(message.size for message in page.messages)
        self._figures.got(group, topic, queue_id, count, size, elapsed_ms)
        if self._reports_lag:
            self._set_lag(page, topic, queue_id, group)

    def _set_lag(self, page: Page, topic: str, queue_id: int, group: str) -> None:
        if page.status is GetStatus.OFFSET_OVERFLOW_ONE:
            self._figures.set_lag(group, topic, queue_id, size=0, elapsed_ms=0)
        elif page.status in _EXAMINED:
            size = self._engine.log.max_offset - self._reader.last_examined(topic, queue_id, page)
            elapsed_ms = self._engine.now_ms() - page.messages[-1].store_timestamp if page.messages else None
            self._figures.set_lag(group, topic, queue_id, size=size, elapsed_ms=elapsed_ms)
