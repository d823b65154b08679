"""A thread that runs an asyncio loop for all sockets of a node, so that no put waits for a peer's socket."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Coroutine
from typing import Final, TypeVar

log = logging.getLogger(__name__)

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
        """Run a coroutine in the loop and wait for its result."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout_s)

    def leave(self, work: Coroutine[object, object, None], timeout_s: float = _STOP_TIMEOUT_S) -> None:
        """Run the last work, then `stop`. A failure or timeout is only logged: the caller must close its store."""
        try:
            self.call(work, timeout_s)
        except Exception as failure:  # noqa: BLE001 - the store must be closed whatever a peer did
            log.warning("a node did not stop cleanly: %s", str(failure) or type(failure).__name__)
        self.stop()

    def stop(self) -> None:
        """Cancel all tasks and end the thread. A second call does nothing."""
        if self.loop.is_closed():
            return
        with contextlib.suppress(TimeoutError):
            self.call(_cancel_all())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(_STOP_TIMEOUT_S)
        if not self._thread.is_alive():
            self.loop.close()


async def _cancel_all() -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
