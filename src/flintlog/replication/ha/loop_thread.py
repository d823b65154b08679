"""A thread of its own with an asyncio loop in it: all sockets of a node, so that no put waits for a peer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Final, TypeVar

T = TypeVar("T")

_STOP_TIMEOUT_S: Final = 10.0


class LoopThread:
    """Runs coroutines for any other thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="flintlog-ha", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def call(self, work: Coroutine[object, object, T], timeout_s: float = _STOP_TIMEOUT_S) -> T:
        """Run to the end in the loop; the caller waits."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout_s)

    def stop(self) -> None:
        """Cancel what still runs and end the thread. A second call does nothing."""
        if self.loop.is_closed():
            return
        self.call(_cancel_all())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(_STOP_TIMEOUT_S)
        self.loop.close()


async def _cancel_all() -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
