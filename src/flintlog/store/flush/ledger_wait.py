"""The end of a put into a ledger: its record is committed, and can be read.

    proposed ─▶ committed by the group ─▶ dispatched by whoever waits ─▶ the receipt, with the record's place

A thread that waits dispatches what it waited for itself. Futures and asyncio tasks are completed by one thread, which
dispatches before: the node's own thread, which brings the answers, must not be held up by queues.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from flintlog.store.ledger.ledger_commit_log import LedgerCommitLog, Pending, ProposalAnswer, outcome_of
from flintlog.store.model.message import Message, PutStatus
from flintlog.store.flush.waiters import Outcome, PutCounts, Waiting

if TYPE_CHECKING:
    import asyncio


class LedgerWaiting:
    """Puts that wait for the group. Any thread may call."""

    def __init__(self, log: LedgerCommitLog, dispatch: Callable[[], None], counted: PutCounts) -> None:
        self._log = log
        self._dispatch = dispatch
        self._counted = counted
        self._teller: ThreadPoolExecutor | None = None

    def wait(self, receipt: Outcome, message: Message) -> Outcome:
        """Block until the group has committed the record, or the leader gave up."""
        began = time.monotonic()
        pending = self._log.take_pending(receipt)
        return self._finish(pending, receipt, pending.answer.result(), message, began)

    def future(self, receipt: Outcome, message: Message) -> Future[Outcome]:
        """The same, for whoever holds the future."""
        began = time.monotonic()
        pending = self._log.take_pending(receipt)
        told: Future[Outcome] = Future()
        teller = self._tellers()

        def finish(done: Future[ProposalAnswer]) -> None:
            outcome = self._finish(pending, receipt, done.result(), message, began)
            if told.set_running_or_notify_cancel():
                told.set_result(outcome)

        pending.answer.add_done_callback(lambda done: teller.submit(finish, done))
        return told

    def task(self, receipt: Outcome, message: Message) -> asyncio.Future[Outcome]:
        """The same, from asyncio."""
        import asyncio

        return asyncio.wrap_future(self.future(receipt, message))

    def nudge(self) -> None:
        """Nothing is put that nobody waits for."""

    def stop(self) -> None:
        """End the thread that completes futures."""
        teller, self._teller = self._teller, None
        if teller is not None:
            teller.shutdown()

    def _tellers(self) -> ThreadPoolExecutor:
        if self._teller is None:
            self._teller = ThreadPoolExecutor(1, thread_name_prefix="flintlog-ledger-tell")
        return self._teller

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
