"""Reporting messages that became visible: listeners get every record, sleepers are woken once for a topic.

Invariant: listeners know every record below `reported_to`, and are called in log order. If a report is interrupted, a
listener may get a record twice, but it misses none.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from flintlog import kernel
from flintlog.format.sys_flag import takes_queue_offset
from flintlog.kernel import Scan
from flintlog.store.dispatch.arrival_wait import ArrivalWait
from flintlog.store.model.stored_message import Arrival

log = logging.getLogger(__name__)

Listener = Callable[[Arrival], None]


class Arrivals:
    """The listeners and sleepers of one store. The dispatching thread alone reports and wakes."""

    def __init__(self, delay_levels_ms: Sequence[int]) -> None:
        self.reported_to = 0
        self._delay_levels_ms = tuple(delay_levels_ms)
        self._listeners: list[Listener] = []
        self._waits: dict[str, set[ArrivalWait]] = {}

    def add_listener(self, listener: Listener, position: int) -> None:
        """Report to a listener too; the first one gets the records after `position`."""
        if not self._listeners:
            self.reported_to = position
        self._listeners.append(listener)

    @property
    def has_listeners(self) -> bool:
        return bool(self._listeners)

    def report(self, view: memoryview, base: int, position: int) -> None:
        """Report the records of a log file that begins at `base`, up to this offset of the log."""
        if self._listeners:
            start, stop = max(self.reported_to - base, 0), min(position - base, len(view))
            self.report_rows(kernel.scan(view, start, stop, base, delay_levels_ms=self._delay_levels_ms))
        self.reported_to = position

    def report_rows(self, seen: Scan) -> None:
        """Report the records of a scan."""
        for place in range(seen.count):
            row = seen.row(place)
            if takes_queue_offset(row.sys_flag):
                topic, queue_id = seen.queues[row.queue]
                self._call(
                    Arrival(topic, queue_id, row.queue_offset, row.physical_offset, row.tags_code, row.store_timestamp)
                )
                self.reported_to = row.physical_offset + row.size

    def _call(self, arrival: Arrival) -> None:
        for listener in tuple(self._listeners):
            try:
                listener(arrival)
            except Exception:
                # A listener is the user's code: its failure must stop neither dispatch nor the put it runs in.
                log.exception("an arrival listener failed")

    def add_wait(self, wait: ArrivalWait) -> None:
        """Wake these sleepers at the next entry for one of their topics."""
        for topic in wait.topics:
            self._waits.setdefault(topic, set()).add(wait)

    def wake(self, topics: Iterable[str]) -> None:
        """Wake the sleepers of these topics."""
        if not self._waits:
            return
        for topic in topics:
            for wait in self._waits.pop(topic, ()):
                for other in wait.topics:
                    self._waits.get(other, set()).discard(wait)
                wait.wake()
