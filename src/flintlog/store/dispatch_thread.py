"""The thread that dispatches what others left: it sleeps until somebody rings, and does a round while one is wanted.

Who rings has said before that a round is wanted, and the thread asks for that after it has said that it sleeps: so no
ring is lost, and one that is not needed costs a look at a flag.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)


class DispatchThread:
    """See the module. Any thread may ring."""

    def __init__(self, is_wanted: Callable[[], bool], do_round: Callable[[], None]) -> None:
        self._is_wanted = is_wanted
        self._do_round = do_round
        self._bell = threading.Lock()
        self._bell.acquire()
        self._is_asleep = False
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="flintlog-dispatch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ring(self) -> None:
        """Wake it, if it sleeps."""
        if self._is_asleep:
            self._is_asleep = False
            self._wake()

    def stop(self) -> None:
        """End it; a round that was wanted and not done is left."""
        self._is_stopping = True
        self._wake()
        self._thread.join()

    def _wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # it rings already
            self._bell.release()

    def _run(self) -> None:
        while not self._is_stopping:
            self._is_asleep = True
            if not self._is_wanted() and not self._is_stopping:
                self._bell.acquire()
            self._is_asleep = False
            try:
                if self._is_wanted():
                    self._do_round()
            except Exception:
                # A put in whose thread this happened would raise it; here nobody would hear of it.
                log.exception("a round of dispatch failed")
