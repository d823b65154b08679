"""How long puts waited, in total and by queue, for the figures.

The thread that completes a group of puts counts it: it reads the clock once, and each put's message once. A put's time
begins when its record is in the log, and its queue is the one that the producer named. Puts that began within a
millisecond are all counted with the time of the first.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Sequence
from operator import attrgetter
from typing import Final

from flintlog.store.flush.waiters import Task, Waiting
from flintlog.store.stats.broker_stats import BrokerStats, QueueWait
from flintlog.store.stats.store_stats import StoreStatsService

log = logging.getLogger(__name__)

_QUEUE_OF: Final = attrgetter("topic", "queue_id")
_TOGETHER_S: Final = 0.001


class PutTiming:
    """Counts groups of puts. Any thread."""

    def __init__(self, counters: StoreStatsService, figures: BrokerStats) -> None:
        self._counters = counters
        self._figures = figures

    def took(self, group: Sequence[Waiting], tasks: Sequence[Task]) -> None:
        """Count puts that are completed next; a failure to count must not keep them from it."""
        try:
            self._count(group, tasks)
        except Exception:
            log.exception("puts could not be counted")

    def _count(self, group: Sequence[Waiting], tasks: Sequence[Task]) -> None:
        begun = [waiting.began for waiting in group] + [task[2] for task in tasks]
        if not begun:
            return
        now = time.monotonic()
        queues = map(_QUEUE_OF, [waiting.message for waiting in group] + [task[3] for task in tasks])
        first, last = min(begun), max(begun)
        if last - first < _TOGETHER_S:  # which is the usual case
            most_ms = int((now - first) * 1000)
            times_ms = {most_ms: len(begun)}
            waits = [QueueWait(queue, count, count * most_ms) for queue, count in Counter(queues).items()]
        else:
            each_ms = [int((now - began) * 1000) for began in begun]
            times_ms = Counter(each_ms)
            found = Counter(zip(queues, each_ms, strict=True))
            waits = [QueueWait(queue, count, count * elapsed_ms) for (queue, elapsed_ms), count in found.items()]
        for elapsed_ms, count in times_ms.items():
            if elapsed_ms > 0:
                self._counters.put_took(elapsed_ms, count)
        self._figures.puts_waited(waits)

    def failed(self, count: int) -> None:
        """So many were not acknowledged."""
        self._counters.put_failed(count)
