"""The thread that dispatches what other threads left: it sleeps until the bell rings, then does a round.

A caller sets the flag that a round is wanted, then rings. The thread checks the flag before it listens, and a ring
meanwhile wakes it at once. A signal may interrupt a caller between the two, so that it never rings: the thread also
checks the flag once a second.
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
        """Wake the thread, if it sleeps."""
        self._bell.ring()

    def stop(self) -> None:
        """End it. A round that is still wanted is not done."""
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
                # In the thread of a put this would be raised; here it would be lost.
                log.exception("a round of dispatch failed")
