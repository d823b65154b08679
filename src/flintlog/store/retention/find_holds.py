"""Finds the messages that are still needed: by consumer groups, delay levels, timers, transactions.

    load      the files of the `config` folder
    find      the first message that each of them needs, the oldest first

Everything is read from the directory. So the answer does not depend on which services run, and a directory need not be
open.
"""

from __future__ import annotations

from flintlog.format.record import HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC
from flintlog.format.timer import TIMER_TOPIC
from flintlog.store.components import Components
from flintlog.store.retention.holds import Hold, in_log_order
from flintlog.store.retention.unconsumed import Readers, find_unconsumed, load_readers
from flintlog.store.retention.undelivered import find_delayed, find_undecided, load_delay_offsets
from flintlog.store.retention.waiting_timers import WaitingTimers

_OWN_TOPICS = frozenset({SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, OP_TOPIC})


class HoldFinder:
    """Finds the holds of one store. Used by one thread at a time."""

    def __init__(self, parts: Components) -> None:
        self._parts = parts
        self._timers = WaitingTimers(parts)
        self._readers = Readers({}, {})
        self._delays: dict[int, int] = {}

    def load(self) -> None:
        """Read how far each group and delay level is; `DamagedStore` when a file cannot be read."""
        paths, medium = self._parts.paths, self._parts.medium
        self._readers = load_readers(paths, medium)
        self._delays = load_delay_offsets(paths, medium)

    @property
    def topics(self) -> frozenset[str]:
        """The topics whose queues `find` reads."""
        return self._readers.topics | _OWN_TOPICS

    def find(self) -> list[Hold]:
        """The holds, in log order; call `load` first."""
        parts = self._parts
        queues = parts.queues.all()
        return in_log_order(
            [
                *find_unconsumed(queues, self._readers, max(0, parts.segments.min_offset)),
                *find_delayed(queues, self._delays),
                *self._timers.find(),
                *find_undecided(parts.queues, parts.commit_log, self._readers.transactions),
            ]
        )
