"""Sleeping until a message arrives, at no cost to the puts of other queues.

An arrival listener is told of every message, so with one on, no put may dispatch its own record. A sleeper wants much
less: to hear of the *next* message of its topics. So the lane is made to forget those topics' queues: their next record
stops it, as the first record of a new queue does, the dispatcher writes that one entry by hand, wakes the sleeper and
shows the queue to the lane again.

    consumer        arm ─▶ look again ─▶ wait ─────────────▶ look
    lane            forgets the queues
    dispatcher                             entry by hand ─▶ wake      one slow put a sleep, none without

Looking again between arming and waiting makes it safe: what came before arming is found, what comes after wakes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from flintlog.disk.bell import Latch


class ArrivalWait:
    """One place to sleep; several threads may sleep in it. Made by `Store.arrival_wait`."""

    def __init__(self, topics: Iterable[str], arm: Callable[[ArrivalWait], None]) -> None:
        self.topics = tuple(topics)
        self._arm = arm
        self._woken = Latch()

    def arm(self) -> None:
        """From now on the next message of one of the topics wakes those who wait."""
        self._woken.clear()
        self._arm(self)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Sleep until woken; False when the time passed without."""
        return self._woken.wait(timeout_s)

    def wake(self) -> None:
        self._woken.set()
