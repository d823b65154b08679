"""The timer's topic, as its service reads it: page by page in order, or one message by the unit that points at it.

This queue is the truth about what waits; wheel and timer log only say where to find what is due. A message that can
never be delivered, because its record is damaged or its properties do not say where to, is passed over and said so: it
must not keep those behind it waiting.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from flintlog.errors import DamagedRecord
from flintlog.format.timer import TIMER_TOPIC, TimerUnit
from flintlog.services.timer.timer_message import Timed, parse_timed
from flintlog.store.model.stored_message import StoredMessage

if TYPE_CHECKING:
    from flintlog.store.store import Store

log = logging.getLogger(__name__)


class TimerQueue:
    """Reads queue 0 of the timer's topic."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def min_offset(self) -> int:
        return self._store.min_offset(TIMER_TOPIC, 0)

    @property
    def max_offset(self) -> int:
        return self._store.max_offset(TIMER_TOPIC, 0)

    def pages(self, start: int, stop: int) -> Iterator[tuple[list[Timed], int]]:
        """What waits from an offset on, some at a time, each with the offset behind it; all below `stop` is read."""
        for messages, behind in read_pages(self._store, TIMER_TOPIC, 0, start, stop):
            yield [timed for message in messages if (timed := self._parse(message)) is not None], behind

    def _parse(self, message: StoredMessage) -> Timed | None:
        timed = parse_timed(message)
        if timed is None:
            log.warning("message %d of %s says not when or where to: passed over", message.queue_offset, TIMER_TOPIC)
        return timed

    def timed_at(self, unit: TimerUnit) -> Timed | None:
        """The message that a unit was made for; None when it is gone, or another one lies there."""
        try:
            message = self._store.message_at(unit.physical_offset)
        except DamagedRecord:
            return None
        if message is None or message.size != unit.size or message.topic != TIMER_TOPIC:
            return None
        timed = parse_timed(message)
        if timed is None or timed.topic_hash != unit.topic_hash:
            return None
        return timed if unit.rolls or timed.slot_ms == unit.slot_ms else None


def read_pages(
    store: Store, topic: str, queue_id: int, start: int, stop: int
) -> Iterator[tuple[list[StoredMessage], int]]:
    """The messages of a queue, some at a time, each time with the offset behind them; damaged ones are left out."""
    offset = start
    while offset < stop:
        try:
            page = store.get(topic, queue_id, offset, max_count=min(1024, stop - offset))
        except DamagedRecord as damage:
            log.error("message %d of %s is passed over: %s", offset, topic, damage)
            offset += 1
            yield [], offset
            continue
        if page.next_offset <= offset:
            return
        offset = page.next_offset
        yield page.messages, offset
