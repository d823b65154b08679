"""Sleeping until a message arrives, at no cost to the puts of other queues.

An arrival listener gets every message, so with one added, no put may dispatch its own record. A sleeper needs much
less: the *next* message of its topics. So those topics' queues are removed from fast dispatch. Their next record stops
it, as the first record of a new queue does; the dispatcher writes that entry, wakes the sleeper and adds the queue to
fast dispatch again.

    consumer        arm ─▶ look again ─▶ wait ─────────────▶ look
    fast_dispatch            forgets the queues
    dispatcher                             writes entry ─▶ wake      one slow put for each sleep

Looking again between arming and waiting makes it safe: a message before arming is found, a later one wakes. Arming
returns the number of wake-ups so far, and a sleeper sleeps while that number stays. So a sleeper that arms cannot make
another one miss its wake-up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from flintlog.disk.bell import Bells

if TYPE_CHECKING:
    import asyncio  # imported only where a loop runs: commands start sooner without it


class ArrivalWait:
    """One place to sleep; several threads and tasks may sleep in it. Made by `ServiceHost.arrival_wait`."""

    def __init__(self, topics: Iterable[str], arm: Callable[[ArrivalWait], None]) -> None:
        self.topics = tuple(topics)
        self._arm = arm
        self._wakes = 0
        self._threads = Bells()
        self._tasks: list[asyncio.Future[None]] = []

    def arm(self) -> int:
        """Let the next message of one of the topics wake the sleepers. Returns what `wait` needs."""
        armed = self._wakes
        self._arm(self)
        return armed

    def wait(self, armed: int, timeout_s: float | None = None) -> bool:
        """Sleep until woken, at once if that was since `arm`; False after the timeout."""
        return self._threads.wait_for(lambda: self._wakes != armed, timeout_s)

    async def wait_in_loop(self, armed: int, timeout_s: float | None = None) -> bool:
        """`wait` in a task of asyncio."""
        import asyncio

        woken = asyncio.get_running_loop().create_future()
        self._tasks.append(woken)  # before the check, so that no wake-up is missed
        try:
            if self._wakes == armed:
                await asyncio.wait([woken], timeout=timeout_s)
            return self._wakes != armed
        finally:
            self._tasks.remove(woken)

    def wake(self) -> None:
        """Wake all sleepers."""
        self._wakes += 1
        self._threads.ring()
        for woken in tuple(self._tasks):
            with suppress(RuntimeError):  # its loop was closed
                woken.get_loop().call_soon_threadsafe(_finish, woken)


def _finish(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
