"""What the workers of one store promised, and what must therefore be there after a cut.

    line                                       promises, once it arrived before the cut
    ack        is_durable, places              these messages lie at these places
    flush / flushed                            what was acknowledged before `flush` is durable
    delayed    is_durable, key, topic, at      it will be delivered
    begun      is_durable, key, …, at          a transaction: nobody sees it, and it is not forgotten
    deciding, then committed / rolled-back     it is visible / it never will be
    closing, then closed                       the batch is whole; without `closed` it is whole or absent
    deleting, then deleted                     what the topic held does not come back
    open                                       what the opening found is durable
    stopped                                    what this process put, and what it found, is durable

A promise is *maybe* kept after a cut until it is durable. One that a check found on the disk stays, because the next
opening makes it durable. A place (topic, queue, offset) that was given to a durable message is never given again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

Place = tuple[str, int, int]
Report = list[Any]


class Broken(AssertionError):
    """The store did not keep a promise."""


class State(IntEnum):
    """How sure a promise is."""

    MAYBE = 0
    FOUND = 1
    DURABLE = 2


@dataclass(slots=True)
class Promise:
    """Something that was acknowledged. `physical` is where its record begins."""

    key: str
    physical: int
    state: State
    place: Place | None = None
    topic: str = ""


@dataclass(slots=True)
class Batch:
    """A closed batch: its messages, and where it begins once it was closed."""

    keys: list[str]
    start: int | None = None


@dataclass
class Model:
    """Everything that was promised about one store; `has_pool`: a kill may lose what was not flushed."""

    has_pool: bool = False
    messages: dict[str, Promise] = field(default_factory=dict)
    given: dict[Place, str] = field(default_factory=dict)
    delayed: dict[str, Promise] = field(default_factory=dict)
    ever_delayed: set[str] = field(default_factory=set)
    """Keys that may be served at a place of the check's own copy, and more than once."""
    begun: dict[str, Promise] = field(default_factory=dict)
    deciding: set[str] = field(default_factory=set)
    rolled_back: dict[str, Promise] = field(default_factory=dict)
    batches: dict[int, Batch] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    doomed: set[str] = field(default_factory=set)
    known_damage: set[tuple[str, int | None]] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    _pending: list[Promise] = field(default_factory=list)
    _flushed_count: int = 0
    _marks: dict[str, int] = field(default_factory=dict)

    # ------------------------------------------------------------------ lines

    def take(self, line: Report, *, is_late: bool = False) -> None:
        """One line of a worker. `is_late`: it came after the cut, so it promises nothing, but says what may be."""
        kind, *values = line
        self.counts[kind] = self.counts.get(kind, 0) + 1
        handle: Callable[..., None] | None = getattr(self, f"_take_{kind.replace('-', '_')}", None)
        if handle is not None:
            handle(*values, is_late=is_late)

    def _take_error(self, trace: str, *, is_late: bool) -> None:
        if not is_late:
            self.errors.append(trace)

    def _take_open(self, findings: list[Report], *, is_late: bool) -> None:
        if is_late:
            return
        self.judge(findings)
        for promise in self._promises():
            if promise.state is State.FOUND:
                promise.state = State.DURABLE

    def _take_ack(self, is_durable: bool, places: list[Report], *, is_late: bool) -> None:
        for key, topic, queue_id, offset, physical in places:
            self._add(Promise(key, physical, self._state(is_durable, is_late), (topic, queue_id, offset), topic))

    def _add(self, promise: Promise) -> None:
        assert promise.place is not None
        other = self.given.get(promise.place)
        if other is not None and other != promise.key:
            held = self.messages.get(other)
            if held is None or held.state is not State.MAYBE:
                raise Broken(f"offset given twice: {promise.place} to {other} and to {promise.key}")
            del self.messages[other]  # a kill took it from the write buffers, and its offset was free again
        self.given[promise.place] = promise.key
        self.messages[promise.key] = promise
        self._pending.append(promise)

    def _take_flush(self, thread: str, *, is_late: bool) -> None:
        self._marks[thread] = len(self._pending)

    def _take_flushed(self, thread: str, *, is_late: bool) -> None:
        if is_late:
            return
        mark = self._marks[thread]
        for promise in self._pending[self._flushed_count : mark]:
            promise.state = State.DURABLE
        self._flushed_count = max(self._flushed_count, mark)

    def _take_delayed(self, is_durable: bool, key: str, topic: str, physical: int, *, is_late: bool) -> None:
        promise = Promise(key, physical, self._state(is_durable, is_late), topic=topic)
        self.delayed[key] = promise
        self.ever_delayed.add(key)
        self._pending.append(promise)

    def _take_begun(
        self, is_durable: bool, key: str, topic: str, queue_id: int, physical: int, *, is_late: bool
    ) -> None:
        promise = Promise(key, physical, self._state(is_durable, is_late), topic=topic)
        self.begun[key] = promise
        self._pending.append(promise)

    def _take_deciding(self, key: str, *, is_late: bool) -> None:
        self.deciding.add(key)

    def _take_committed(
        self, is_durable: bool, key: str, topic: str, queue_id: int, offset: int, physical: int, *, is_late: bool
    ) -> None:
        self._add(Promise(key, physical, self._state(is_durable, is_late), (topic, queue_id, offset), topic))

    def _take_rolled_back(self, is_durable: bool, key: str, physical: int, *, is_late: bool) -> None:
        promise = Promise(key, physical, self._state(is_durable, is_late))
        self.rolled_back[key] = promise
        self._pending.append(promise)

    def _take_closing(self, batch_id: int, places: list[Report], *, is_late: bool) -> None:
        self.batches[batch_id] = Batch([key for key, _, _ in places])

    def _take_closed(self, batch_id: int, start: int, *, is_late: bool) -> None:
        if not is_late:
            self.batches[batch_id].start = start

    def _take_deleting(self, topic: str, *, is_late: bool) -> None:
        self.doomed |= {key for key, promise in self.messages.items() if promise.topic == topic}

    def _take_deleted(self, topic: str, *, is_late: bool) -> None:
        if not is_late:
            self._delete(self.doomed)
            self.doomed = set()

    def _delete(self, keys: Collection[str]) -> None:
        for key in keys:
            promise = self.messages.pop(key, None)
            if self.has_pool and promise is not None and promise.place is not None and promise.state is State.MAYBE:
                self.given.pop(promise.place, None)  # a kill may take it, and its offset is free then
        self.gone |= set(keys)

    def _take_retaining(self, *, is_late: bool) -> None:
        """Retention may delete the last records of a deleted topic. A topic of that name then begins at 0 again."""
        self.given = {place: key for place, key in self.given.items() if key not in self.gone}

    def _take_stopped(self, *, is_late: bool) -> None:
        """What this life put is durable, and what it found. A kill may have taken the rest from the write buffers."""
        if is_late:
            return
        for promise in self._pending:
            promise.state = State.DURABLE
        for promise in self._promises():
            if promise.state is State.FOUND:
                promise.state = State.DURABLE

    @staticmethod
    def _state(is_durable: bool, is_late: bool) -> State:
        return State.DURABLE if is_durable and not is_late else State.MAYBE

    def _promises(self) -> Iterable[Promise]:
        for held in (self.messages, self.delayed, self.begun, self.rolled_back):
            yield from held.values()

    # ------------------------------------------------------------------ ends of a life

    def killed(self) -> None:
        """The process is gone, the page cache is not: everything is there but what was in its write buffers."""
        if not self.has_pool:
            for promise in self._promises():
                promise.state = max(promise.state, State.FOUND)
        self._forget_flushes()

    def cut(self) -> None:
        """The power is gone. `settle` says what is left of what was not durable."""
        self._forget_flushes()

    def _forget_flushes(self) -> None:
        self._pending, self._flushed_count, self._marks = [], 0, {}

    @property
    def durable_end(self) -> int:
        """Where the last record begins that must be there."""
        return max((promise.physical for promise in self._promises() if promise.state is State.DURABLE), default=-1)

    # ------------------------------------------------------------------ what was found

    def judge(self, findings: list[Report]) -> None:
        """Allow what a cut explains: a torn end, and holes in what was never synced. They stay known."""
        end = self.durable_end
        for kind, severity, physical, text in findings:
            is_known = (kind, physical) in self.known_damage or kind == "unclosed-batch"
            if severity in ("error", "warning") and not is_known:
                if kind not in ("torn-tail", "damaged-range", "damaged-record") or physical is None or physical <= end:
                    raise Broken(f"a cut that damaged nothing was reported: {text} (durable to {end})")
                self.known_damage.add((kind, physical))

    def settle(self, served: Mapping[Place, tuple[str, int]], undecided: Iterable[str], begin: int, end: int) -> None:
        """After a check: what is there stays, what is not durable and not there is forgotten.

        `begin` and `end` are those of the log: services of the check's own copy have put what lies after the end.
        """
        keys = {key for key, _ in served.values()}
        waiting = set(undecided)
        for lost in self._settle(self.messages, keys, begin):
            if lost.place is not None and lost.physical >= begin:
                self.given.pop(lost.place, None)  # the log lost it before anybody could rely on it
        self._settle(self.delayed, keys, begin)
        self._settle(self.rolled_back, self.begun.keys() - keys - waiting, begin)
        self._settle(self.begun, keys | waiting | self.rolled_back.keys(), begin)
        for place, (key, physical) in served.items():
            if physical < end and key not in self.messages and key not in self.ever_delayed:
                self.given[place] = key
                self.messages[key] = Promise(key, physical, State.FOUND, place, place[0])
        deleted = self.doomed - keys  # the deletion that was under way has happened
        self._delete(deleted)
        self.doomed -= deleted
        self.deciding -= waiting  # it was not decided, then: nothing is under way after a cut
        self.deciding |= {key for key in keys if key in self.begun}
        self.batches = {}

    @staticmethod
    def _settle(held: dict[str, Promise], found: Collection[str], begin: int) -> list[Promise]:
        """Drop what retention deleted, and what is neither durable nor there."""
        dropped = [
            promise
            for key, promise in held.items()
            if promise.physical < begin or (promise.state is not State.DURABLE and key not in found)
        ]
        for promise in dropped:
            del held[promise.key]
        for promise in held.values():
            promise.state = max(promise.state, State.FOUND)
        return dropped
