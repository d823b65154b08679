"""The store as its services and consumers use it: its public methods, and those that only they may call.

A service reads and puts through `store`, as every caller does. Only through its host can it store a message that it
rewrote or made from a stored one, ask to be called before its time, and share its state with a ledger's group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from flintlog.checks.finding import Finding
from flintlog.disk.media.medium import Medium
from flintlog.kernel import Decoded
from flintlog.store.dispatch.arrival_wait import ArrivalWait
from flintlog.store.engine import Engine
from flintlog.store.log.column_scan import scan_columns
from flintlog.store.model.arguments import named_topics
from flintlog.store.model.message import Message, Receipt
from flintlog.store.put.appender import Appender, Rewrite
from flintlog.store.queues.entries import CqUnit
from flintlog.store.runtime.jobs import Background
from flintlog.store.runtime.service import Rewritten
from flintlog.store.settings.shared_state import Part, State

if TYPE_CHECKING:
    from flintlog.store.store import Store


class Finish(Protocol):
    """The end of every put; see `Writable`."""

    def __call__(self, outcome: Receipt, message: Message, check: bool, waits: bool | None = True) -> Receipt: ...


class Group(Protocol):
    """The ledger's group of a store; see `LedgerMember`."""

    def share(self, parts: State) -> None: ...

    def shared(self, name: str) -> Part | None: ...


@dataclass(frozen=True, slots=True)
class Putting:
    """A put that was begun. Unless `receipt` refuses it, `finish` returns its outcome; call it once."""

    receipt: Receipt
    finish: Callable[[], Receipt]


class ServiceHost:
    """One open store, as its services see it. Any thread may call."""

    def __init__(
        self, store: Store, engine: Engine, appender: Appender, finish: Finish, background: Background
    ) -> None:
        self.store = store
        self.medium: Medium = engine.medium
        self.now_ms = engine.now_ms
        self.group: Group | None = None
        self._engine = engine
        self._appender = appender
        self._finish = finish
        self._background = background
        self._waits_always = engine.flushing.waiting is not None and engine.flushing.waiting.waits_always

    def nudge(self, name: str) -> None:
        """Call a service now: it has work that is due before the time it asked for."""
        self._background.nudge(name)

    def report(self, findings: Sequence[Finding]) -> None:
        """Add to what the opening found: services read their files when they start."""
        if findings:
            self._engine.recovery = self._engine.recovery.with_findings(findings)

    # ------------------------------------------------------------------ reading

    def queue_ids(self, topic: str) -> list[int]:
        """The queues of a topic that have had a message."""
        self._engine.check_readable()
        return self._engine.parts.queues.queue_ids(topic)

    def entry(self, topic: str, queue_id: int, offset: int) -> CqUnit | None:
        """One entry of a queue: where its message lies, and its tags code; None where the queue has none."""
        self._engine.check_readable()
        queue = self._engine.parts.queues.get(topic, queue_id)
        return None if queue is None else queue.entry(offset)

    def columns(self, topics: Sequence[str], start: int) -> Iterator[Decoded]:
        """The records of topics from a physical offset on, in log order, without bodies; see `column_scan.py`."""
        self._engine.check_readable()
        parts, config = self._engine.parts, self._engine.config
        return scan_columns(parts.segments, parts.damage, config, topics=topics, start=start, include_body=False)

    def arrival_wait(self, topics: Sequence[str]) -> ArrivalWait:
        """A place to sleep until a message arrives for one of these topics; see `arrival_wait.py`."""
        return ArrivalWait(named_topics(topics), self._engine.dispatcher.arm)

    # ------------------------------------------------------------------ putting

    def put_rewritten(self, message: Message, rewrite: Rewrite, *, check: bool = True) -> Receipt:
        """Store the message that `rewrite` returns; hooks and compression come first, as in `put`."""
        receipt = self._appender.append(self._appender.admit(message, rewrite))
        return self._finish(receipt, message, check)

    def put_rebuilt(self, rebuilt: Rewritten, *, wait: bool = True, check: bool = True) -> Receipt:
        """Store a message that was made from a stored one, with its properties in the order that Java would write.

        Without `wait` a later `flush` makes it durable, so many messages share one sync. A ledger's leader always
        waits; if the group leaves the outcome open, this raises, and services stop until it is known.
        """
        receipt = self._append_rebuilt(rebuilt)
        receipt = self._settled(self._finish(receipt, rebuilt.message, check=False, waits=wait))
        return receipt.check() if check else receipt

    def put_rebuilt_soon(self, rebuilt: Rewritten) -> Putting:
        """`put_rebuilt` without `wait` and `check`. A put that has to wait is ended by the caller: many can wait."""
        if not self._waits_always:
            done = self.put_rebuilt(rebuilt, wait=False, check=False)
            return Putting(done, lambda: done)
        receipt = self._append_rebuilt(rebuilt)
        return Putting(receipt, lambda: self._settled(self._finish(receipt, rebuilt.message, check=False)))

    def _append_rebuilt(self, rebuilt: Rewritten) -> Receipt:
        return self._appender.append(self._appender.admit_rebuilt(rebuilt))

    def _settled(self, receipt: Receipt) -> Receipt:
        self._engine.log.check_answered(receipt)
        return receipt

    # ------------------------------------------------------------------ a ledger's group

    def share(self, parts: State) -> None:
        """In a ledger's leader, return once the group has committed these parts; otherwise do nothing."""
        if self.group is not None:
            self.group.share(parts)

    def shared(self, name: str) -> Part | None:
        """A part of the state, as the group has committed it; None in a store without a group."""
        return None if self.group is None else self.group.shared(name)
