"""The thread that dispatches what others left: it sleeps until somebody rings, and does a round while one is wanted.

Whoever rings has said before that a round is wanted. The thread asks for that before it listens, and a bell that rang
meanwhile is heard at once. Only the bell says whether it rang: a flag could be set by a thread that a signal interrupts
before it rings. Such a ring is lost, so the thread looks again by itself.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from flintlog.disk.bell import Bell

log = logging.getLogger(__name__)

_LOOK_AGAIN_S: Final = 1.0


class DispatchThread:
    """See the module. Any thread may ring."""

    def __init__(self, is_wanted: Callable[[], bool], do_round: Callable[[], None]) -> None:
        self._is_wanted = is_wanted
        self._do_round = do_round
        self._bell = Bell()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="flintlog-dispatch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ring(self) -> None:
        """Wake it, if it sleeps."""
        self._bell.ring()

    def stop(self) -> None:
        """End it; a round that was wanted and not done is left."""
        self._is_stopping = True
        self._bell.ring()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_stopping:
            if not self._is_wanted():
                self._bell.listen(_LOOK_AGAIN_S)
            try:
                if self._is_wanted():
                    self._do_round()
            except Exception:
                # A put in whose thread this happened would raise it; here nobody would hear of it.
                log.exception("a round of dispatch failed")
