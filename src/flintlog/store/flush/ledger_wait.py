"""The end of a put into a ledger: its record is committed, and can be read.

    proposed ─▶ committed by the group ─▶ dispatched by the thread that waits ─▶ the receipt, with the record's place

A thread that waits dispatches its record itself. Futures and asyncio tasks are completed by one thread, which
dispatches before: the node's own thread, which brings the answers, must not wait for queues.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from flintlog.disk.bell import Bell
from flintlog.store.dispatch.dispatcher import Dispatcher
from flintlog.store.flush.flushing import Flushing
from flintlog.store.flush.periodic_flush import join
from flintlog.store.flush.put_wait import PutWait
from flintlog.store.flush.waiters import Outcome, PutCounts, Waiting, WaitingFuture
from flintlog.store.ledger.ledger_commit_log import LedgerCommitLog
from flintlog.store.ledger.proposals import Pending, ProposalAnswer, outcome_of
from flintlog.store.model.message import Message, PutStatus
from flintlog.store.options.store_config import StoreConfig
from flintlog.store.runtime.lifecycle import Lifecycle

if TYPE_CHECKING:
    import asyncio

    from flintlog.store.components import Components

log = logging.getLogger(__name__)

_LOOK_AGAIN_S: Final = 1.0


class LedgerWait(PutWait):
    """Puts that wait for the group: always, because a record has no place before the group says which."""

    waits_always = True

    def __init__(self, log: LedgerCommitLog, dispatch: Callable[[], None], counted: PutCounts) -> None:
        # Its thread starts with the store: an interrupted `Thread.start` could leave one that does nothing.
        super().__init__(counted, {"flintlog-ledger-puts": self._run})
        self._log = log
        self._dispatch = dispatch
        self._answered: deque[Callable[[], None]] = deque()
        self._bell = Bell()
        self._is_stopped = False

    def stop(self) -> None:
        """End the thread that completes futures. Later answers complete theirs in the thread that brings them."""
        self._is_stopped = True
        self._bell.ring()
        for thread in self._threads:
            join(thread)
        self._complete_all()

    # ------------------------------------------------------------------ waiting

    def wait(self, receipt: Outcome, message: Message) -> Outcome:
        """Block until the group has committed the record, or the leader gave up."""
        began = time.monotonic()
        pending = self._log.take_pending(receipt)
        return self._finish(pending, receipt, pending.wait(), message, began)

    def _submit(self, waiting: Waiting) -> None:
        """A future; a thread waits by itself."""
        pending = self._log.take_pending(waiting.receipt)

        def hand_on(answer: ProposalAnswer) -> None:
            self._answered.append(partial(self._complete, waiting, pending, answer))
            self._bell.ring()
            if self._is_stopped:
                self._complete_all()

        pending.on_answer(hand_on)

    def task(self, receipt: Outcome, message: Message) -> asyncio.Future[Outcome]:
        """The same, from asyncio."""
        import asyncio

        return asyncio.wrap_future(self.future(receipt, message, check=False))

    def nudge(self) -> None:
        """Every put waits."""

    # ------------------------------------------------------------------ completing

    def _run(self) -> None:
        while not self._is_stopped:
            self._bell.listen(_LOOK_AGAIN_S)
            self._complete_all()

    def _complete_all(self) -> None:
        while self._answered:
            try:
                complete = self._answered.popleft()
            except IndexError:  # another thread has taken it, after the stop
                return
            try:
                complete()
            except Exception:
                log.exception("a put that was answered could not be completed")  # the others must be

    def _complete(self, waiting: Waiting, pending: Pending, answer: ProposalAnswer) -> None:
        outcome = self._finish(pending, waiting.receipt, answer, waiting.message, waiting.began)
        WaitingFuture.finish_each([(cast(WaitingFuture, waiting), outcome)])

    def _finish(
        self, pending: Pending, receipt: Outcome, answer: ProposalAnswer, message: Message, began: float
    ) -> Outcome:
        outcome = outcome_of(pending, receipt, answer)
        if outcome.status is PutStatus.PUT_OK:
            self._dispatch()
            self._counted.took([Waiting(outcome, message, began)], [])
        else:
            self._counted.failed(len(pending.sizes))
        return outcome


class LedgerFlushing(Flushing):
    """The threads of a store whose log is its group's: the node appends and syncs, and puts wait for the group."""

    def __init__(
        self,
        ledger: LedgerCommitLog,
        config: StoreConfig,
        parts: Components,
        dispatcher: Dispatcher,
        lifecycle: Lifecycle,
        counted: PutCounts,
    ) -> None:
        super().__init__(config, parts, dispatcher, lifecycle)
        self._wait = LedgerWait(ledger, dispatcher.keep_up, counted)

    @property
    def waiting(self) -> PutWait:
        return self._wait

    @property
    def is_in_own_thread(self) -> bool:
        return self._wait.is_in_own_thread

    def start(self, on_tick: Callable[[], None]) -> None:
        self._wait.start()
        super().start(on_tick)

    def stop(self) -> None:
        self._wait.stop()

    def after_append(self) -> None:
        self._dispatcher.keep_up()

    def make_readable(self) -> None:
        """What the group has committed can be read."""

    def beside_no_commit(self, work: Callable[[], None]) -> None:
        work()
