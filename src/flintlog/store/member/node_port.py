"""Between a ledger's node and its store.

    node ── committed(index) ──▶ the log may be read up to there; it is dispatched, and what the group shares is taken
    node ── lead(proposer)   ──▶ once everything is committed and dispatched, queue offsets are taken from the queues,
                                 puts are taken, and services begin
    node ── follow()         ──▶ no puts, no services

Dispatching and taking over run in a thread of the port's own, so that a node is never held up by its store.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from flintlog.disk.bell import Latch
from flintlog.errors import FlintlogError
from flintlog.store.ledger.ledger_commit_log import LedgerCommitLog, Proposer
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
        """Runs something while the node does nothing, and returns when it is done."""
        self.on_failed: Callable[[Exception], None] = lambda error: None
        """Called in the port's thread when it ends: what is committed is not dispatched any more."""
        self.take_polled = member.take_polled
        self._take_shared = member.take_shared
        self._leading = Leadership(member)
        self._log.on_refused = self._woken.set
        self._log.on_let_go = self.let_go
        self._log.keep_from = member.needed_from
        self._thread = threading.Thread(target=self._run, name="flintlog-ledger-apply", daemon=True)
        self._thread.start()

    def committed(self, index: int) -> None:
        """Everything up to this entry is committed, and in the files."""
        self._committed = index
        self._engine.parts.segments.readable_limit = self.files.position_after(index)
        self._woken.set()

    def lead(self, proposer: Proposer) -> None:
        """This member leads: take puts as soon as that is safe. The proposer takes nothing once it does not lead."""
        self._proposer = proposer
        self._woken.set()

    def follow(self) -> None:
        """This member does not lead, or not any more."""
        self._proposer = None
        self._log.pause()
        self._leading.ask(leads=False, serves=False)

    def resign(self) -> None:
        """The node will stop: end services while the group still takes what they save."""
        self._has_resigned = True
        self._leading.resign()

    def let_go(self, position: int) -> bool:
        """The files that end here or before will be deleted; False when they have to stay."""
        answers: list[bool] = []
        self.between_steps(lambda: answers.append(self.files.let_go(position)))
        return answers == [True]

    @property
    def is_serving(self) -> bool:
        """Whether puts are taken."""
        return self._log.is_serving

    @property
    def is_ready(self) -> bool:
        """Whether puts are taken and services run."""
        return self._leading.is_ready and self._log.is_serving

    @property
    def committed_position(self) -> int:
        """Where the readable log ends."""
        return self._engine.parts.segments.max_offset

    def stop(self) -> None:
        """No more news will come."""
        self.follow()
        self._is_stopped = True
        self._woken.set()
        self._thread.join()
        self._leading.stop()

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
                    self._tell_leading()
                    self._take_over()
            except FlintlogError as failure:
                log.warning("the ledger's store could not go on: %s", failure)
            except Exception as error:
                log.exception("the ledger's store cannot go on")
                self._log.pause()
                self.on_failed(error)
                return

    def _tell_leading(self) -> None:
        self._leading.ask(leads=self._proposer is not None, serves=self._log.is_serving)

    def _take_over(self) -> None:
        """Serve, if this member leads and nothing of what is in its log is still on its way."""
        proposer = self._proposer
        if proposer is None or self._log.is_serving or self._log.outstanding or not self._leading.is_idle:
            return
        if self._committed != self.files.end or self._engine.dispatcher.backlog_bytes:
            return
        self._take_shared()
        parts = self._engine.parts
        minimum = max(0, parts.segments.min_offset)
        self._engine.dispatcher.alone(partial(parts.queues.rebuild_offsets, minimum))
        if self._proposer is proposer:
            self._log.serve(proposer)
            self._tell_leading()
