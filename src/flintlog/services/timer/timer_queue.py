"""Reads the timer's topic: page by page in order, or one message by the unit that points at it.

This queue defines which messages wait; wheel and timer log only locate the due ones. A message that can never be
delivered (its record is damaged, or its properties name no time or destination) is skipped with a warning, so that it
does not block those after it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from flintlog.errors import DamagedRecord
from flintlog.format.timer import TIMER_TOPIC, TimerUnit
from flintlog.services.queue_reading import read_pages
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
        """Pages of waiting messages from `start` up to `stop`, each with the offset after its last message."""
        for messages, next_offset in read_pages(self._store, TIMER_TOPIC, 0, start, stop):
            yield [timed for message in messages if (timed := self._parse(message)) is not None], next_offset

    def _parse(self, message: StoredMessage) -> Timed | None:
        timed = parse_timed(message)
        if timed is None:
            log.warning("message %d of %s has no valid time or destination: skipped", message.queue_offset, TIMER_TOPIC)
        return timed

    def timed_at(self, unit: TimerUnit) -> Timed | None:
        """The message that a unit was made for; None when it was deleted, is damaged, or another one lies there."""
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
