"""The leadership of a ledger's member: services run and settings may be changed only while it leads.

                 serving                    paused                    follow
    following ────────────▶ services run ──────────▶ leading, silent ────────▶ following
                                 ▲                         │
                                 └───── serving again ─────┘

A leader is *paused* while it accepts no puts, because one was refused or its outcome is unknown. Its services are
stopped and started again from the log, so they repeat a put only where the log shows that it was not made. A member
that *follows* drops from memory what the group has not committed.

Invariant: the services of an earlier time have stopped before puts are accepted again (`is_idle`), so none of them puts
a message late. All of it runs in a thread of its own, because services may take long to start and to stop.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from flintlog.disk.bell import Bells
from flintlog.errors import FlintlogError

log = logging.getLogger(__name__)

RETRY_S: Final = 1.0


class Leader(Protocol):
    """Carries out the changes, one call at a time. After an error in `start`, `stop` is called."""

    def start(self) -> None:
        """This member accepts puts: it may change offsets and settings, and services start."""

    def stop(self) -> None:
        """Stop the services, and save what can still be saved."""

    def demote(self) -> None:
        """This member does not lead any more: adopt what the group has committed."""


class Leadership:
    """Brings a store into the state that its node asks for. Any thread may call; only `resign` and `stop` wait."""

    def __init__(self, leader: Leader) -> None:
        self._leader = leader
        self._leads = False
        self._serves = False
        self._falls = 0  # how often this member has ceased to lead
        self._promoted_at: int | None = None
        self._has_services = False
        self._is_ready = False
        self._is_stopped = False
        self._gate = threading.Lock()
        self._changed = Bells()
        self._thread = threading.Thread(target=self._run, name="flintlog-ledger-lead", daemon=True)
        self._thread.start()

    def ask(self, *, leads: bool, serves: bool) -> None:
        """Set the state that the node wants; returns at once."""
        with self._gate:
            if (leads, serves) == (self._leads, self._serves):
                return
            self._falls += self._leads and not leads
            self._leads, self._serves = leads, serves
            self._is_ready = self._is_ready and serves
        self._changed.ring()

    @property
    def is_idle(self) -> bool:
        """Whether nothing of an earlier leadership is left to be stopped."""
        return not self._has_services and not self._is_to_be_demoted

    @property
    def is_ready(self) -> bool:
        """Whether services run, and a leader's methods may be called."""
        return self._is_ready

    def resign(self) -> None:
        """Stop the services while puts are still accepted, so that they can save; returns when they have stopped."""
        self.ask(leads=False, serves=False)
        self._changed.wait_for(lambda: self._is_settled or self._is_stopped)

    def stop(self) -> None:
        """Stop the services and the thread."""
        with self._gate:
            self._falls += self._leads
            self._leads = self._serves = self._is_ready = False
            self._is_stopped = True
        self._changed.ring()
        self._thread.join()

    # ------------------------------------------------------------------ the thread

    @property
    def _is_to_be_demoted(self) -> bool:
        return self._promoted_at is not None and self._promoted_at != self._falls

    @property
    def _is_settled(self) -> bool:
        return self._is_ready if self._serves else self.is_idle

    def _run(self) -> None:
        while True:
            self._changed.wait_for(lambda: not self._is_settled or self._is_stopped)
            with self._gate:
                if self._is_stopped and self._is_settled:
                    return
                asked = falls, serves = self._falls, self._serves
            has_failed = not self._step(falls, serves=serves)
            self._changed.ring()
            if has_failed:
                self._changed.wait_for(partial(self._is_outdated, *asked), RETRY_S)

    def _is_outdated(self, falls: int, serves: bool) -> bool:
        return self._is_stopped or (falls, serves) != (self._falls, self._serves)

    def _step(self, falls: int, *, serves: bool) -> bool:
        """Take one step towards the wanted state; returns whether it succeeded."""
        if self._has_services:
            _try(self._leader.stop)
            self._has_services = False
        elif self._is_to_be_demoted:
            _try(self._leader.demote)
            self._promoted_at = None
        elif serves:
            return self._start(falls)
        return True

    def _start(self, falls: int) -> bool:
        self._promoted_at, self._has_services = falls, True
        if not _try(self._leader.start):
            _try(self._leader.stop)
            self._has_services = False
            return False
        with self._gate:
            self._is_ready = self._serves
        return True


def _try(step: Callable[[], None]) -> bool:
    try:
        step()
    except FlintlogError as failure:
        log.warning("leading a group: %s", failure)
        return False
    except Exception:
        log.exception("leading a group")  # the thread must live on: the member may lead again
        return False
    return True
