"""Connects a ledger's node with its store.

    node ── committed(index) ──▶ the log is readable up to there; it is dispatched, and the shared state is adopted
    node ── lead(proposer)   ──▶ once everything is committed and dispatched, queue offsets are taken from the queues,
                                 puts are accepted, and services start
    node ── follow()         ──▶ no puts, no services

Dispatching and taking over run in a thread of the port, so that the node never waits for its store.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from flintlog.disk.bell import Latch
from flintlog.errors import FlintlogError
from flintlog.store.ledger.ledger_commit_log import LedgerCommitLog
from flintlog.store.ledger.proposals import Proposer
from flintlog.store.member.leadership import Leadership
from flintlog.store.member.ledger_member import LedgerMember

if TYPE_CHECKING:
    from flintlog.store.engine import Engine

log = logging.getLogger(__name__)

POLL_S: Final = 0.02


class NodePort:
    """One store's side of its node. `committed`, `lead` and `follow` return at once."""

    def __init__(self, engine: Engine, commit_log: LedgerCommitLog, member: LedgerMember) -> None:
        self.files = files = commit_log.files
        files.is_read_from = True
        self._engine = engine
        self._log = commit_log
        self._committed = files.committed
        self._proposer: Proposer | None = None
        self._woken = Latch()
        self._is_stopped = False
        self._has_resigned = False
        self.between_steps: Callable[[Callable[[], None]], None] = lambda work: work()
        """Runs a function between two steps of the node, and returns when it has ended."""
        self.on_failed: Callable[[Exception], None] = lambda error: None
        """Called when the port's thread fails: from then on committed entries are not dispatched."""
        self.take_polled = member.take_polled
        self._take_shared = member.take_shared
        self._leadership = Leadership(member)
        self._log.on_refused = self._woken.set
        self._log.on_let_go = self.let_go
        self._log.keep_from = member.needed_from
        self._thread = threading.Thread(target=self._run, name="flintlog-ledger-apply", daemon=True)
        self._thread.start()

    def committed(self, index: int) -> None:
        """All entries up to this one are committed, and in the files."""
        self._committed = index
        self._engine.parts.segments.readable_limit = self.files.position_after(index)
        self._woken.set()

    def lead(self, proposer: Proposer) -> None:
        """This member leads: accept puts as soon as that is safe. The proposer refuses all once it does not lead."""
        self._proposer = proposer
        self._woken.set()

    def follow(self) -> None:
        """This member does not lead."""
        self._proposer = None
        self._log.pause()
        self._leadership.ask(leads=False, serves=False)

    def resign(self) -> None:
        """The node will stop: stop the services while the group still accepts what they save."""
        self._has_resigned = True
        self._leadership.resign()

    def let_go(self, position: int) -> bool:
        """Release the files that end at this position or before, for deletion; False when they must be kept."""
        answers: list[bool] = []
        self.between_steps(lambda: answers.append(self.files.let_go(position)))
        return answers == [True]

    @property
    def is_serving(self) -> bool:
        """Whether puts are accepted."""
        return self._log.is_serving

    @property
    def is_ready(self) -> bool:
        """Whether puts are accepted and services run."""
        return self._leadership.is_ready and self._log.is_serving

    @property
    def committed_position(self) -> int:
        """Where the readable log ends."""
        return self._engine.parts.segments.max_offset

    def stop(self) -> None:
        """Stop the services and the threads; the node makes no more calls."""
        self.follow()
        self._is_stopped = True
        self._woken.set()
        self._thread.join()
        self._leadership.stop()

    # ------------------------------------------------------------------ the port's thread

    def _run(self) -> None:
        while not self._is_stopped:
            is_waiting = self._proposer is not None and not self._log.is_serving
            self._woken.wait(POLL_S if is_waiting else None)
            self._woken.clear()
            try:
                self._engine.dispatcher.advance()
                self._take_shared()
                if not self._has_resigned:
                    self._ask_leadership()
                    self._take_over()
            except FlintlogError as failure:
                log.warning("the ledger's store could not follow its log: %s", failure)
            except Exception as error:
                log.exception("the ledger's store cannot follow its log any more")
                self._log.pause()
                self.on_failed(error)
                return

    def _ask_leadership(self) -> None:
        self._leadership.ask(leads=self._proposer is not None, serves=self._log.is_serving)

    def _take_over(self) -> None:
        """Accept puts, if this member leads and everything in its log is committed and dispatched."""
        proposer = self._proposer
        if proposer is None or self._log.is_serving or self._log.outstanding or not self._leadership.is_idle:
            return
        if self._committed != self.files.end or self._engine.dispatcher.backlog_bytes:
            return
        self._take_shared()
        parts = self._engine.parts
        minimum = max(0, parts.segments.min_offset)
        self._engine.dispatcher.alone(partial(parts.queues.rebuild_offsets, minimum))
        if self._proposer is proposer:
            self._log.serve(proposer)
            self._ask_leadership()
