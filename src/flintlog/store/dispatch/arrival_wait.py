"""Sleeping until a message arrives, at no cost to the puts of other queues.

An arrival listener gets every message, so with one added, no put may dispatch its own record. A sleeper needs much
less: the *next* message of its topics. So those topics' queues are removed from fast dispatch. Their next record stops
it, as the first record of a new queue does; the dispatcher writes that entry, wakes the sleeper and adds the queue to
fast dispatch again.

    consumer        arm ─▶ look again ─▶ wait ─────────────▶ look
    fast_dispatch            forgets the queues
    dispatcher                             writes entry ─▶ wake      one slow put for each sleep

Looking again between arming and waiting makes it safe: a message before arming is found, a later one wakes.
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
        """Let the next message of one of the topics wake the sleepers."""
        self._woken.clear()
        self._arm(self)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Sleep until woken; False after the timeout."""
        return self._woken.wait(timeout_s)

    def wake(self) -> None:
        self._woken.set()
