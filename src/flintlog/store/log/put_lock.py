"""The lock that orders appends: blocking, or spinning a little before it blocks.

One lock is enough here. RocketMQ takes a lock a queue for the queue offset and a second, global one for the
append, because its encoding runs between the two, in parallel. Here the GIL lets one thread of Python run
at a time and encoding is part of the append (a fraction of a microsecond), so a lock a queue
(`topicQueueLockNum`) would only be taken and released: the queue offset is assigned, used and advanced
under the put lock.

It is taken by `with lock():`, which enters a built-in lock. Python code in its place could be interrupted by a
signal's handler between taking the lock and the block that gives it back.

Reasons and costs: docs/decisions/0004.
"""

from __future__ import annotations

import threading
from typing import Final

SPINS: Final = 64


class PutLock:
    """A built-in lock; `spins`: how often to check whether it is free before sleeping. It is held only briefly."""

    __slots__ = ("_lock", "_spins", "acquire", "locked", "release")

    def __init__(self, spins: int = 0) -> None:
        self._lock = threading.Lock()
        self._spins = spins
        self.acquire = self._lock.acquire
        self.release = self._lock.release
        self.locked = self._lock.locked

    def __call__(self) -> threading.Lock:
        """The lock to enter, after spinning."""
        for _ in range(self._spins):
            if not self.locked():
                break
        return self._lock


def make_put_lock(kind: str) -> PutLock:
    return PutLock(SPINS if kind == "spinning" else 0)
