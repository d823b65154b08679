"""The lock that orders appends: blocking, or spinning a little before it blocks.

One lock is enough here. RocketMQ takes a lock a queue for the queue offset and a second, global one for the
append, because its encoding runs between the two, in parallel. Here the interpreter runs one thread of Python
at a time and encoding is part of the append (a fraction of a microsecond), so a lock a queue
(`topicQueueLockNum`) would only be taken and released: the queue offset is assigned, used and advanced
under the put lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Protocol

SPINS = 64


class PutLock(Protocol):
    """What the commit log needs of a lock; `threading.Lock` is one."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...
    def release(self) -> None: ...

    @property
    def locked(self) -> Callable[[], bool]:
        """Tells whether it is taken: a built-in method, so that no other thread runs before a put has the answer."""
        ...

    def __enter__(self) -> bool: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class SpinningLock:
    """Tries a few times before it goes to sleep: a holder is gone sooner than a sleeper wakes."""

    __slots__ = ("_lock", "locked")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.locked = self._lock.locked

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        take = self._lock.acquire
        for _ in range(SPINS):
            if take(False):
                return True
        return take(blocking, timeout) if blocking else False

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()


def make_put_lock(kind: str) -> PutLock:
    return SpinningLock() if kind == "spinning" else threading.Lock()
