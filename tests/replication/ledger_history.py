"""What clients of a ledger saw, and whether one log explains it.

Every body is sent once, so a body that is in the log twice, or one that nobody sent, is a fault by itself. The rules:

    one value       an index, once read or acknowledged, has that body for ever, on every node
    nothing lost    an acknowledged body is in the final log, at the index that was reported
    once            no body is in the final log twice
    real time       a send that began after another was acknowledged lies behind it

A send that was not acknowledged may be in the log or not: the client cannot know, and the checker does not ask.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Send:
    """One send: when it began, when it was acknowledged (if it was), and with which index."""

    body: bytes
    began: int
    acknowledged: int | None = None
    index: int | None = None


@dataclass
class History:
    """Taken by many threads. Time is a counter, so that before and after are never equal."""

    sends: list[Send] = field(default_factory=list)
    reads: list[tuple[int, bytes]] = field(default_factory=list)
    _clock: itertools.count[int] = field(default_factory=itertools.count)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, body: bytes) -> Send:
        """A client is about to send."""
        with self._lock:
            send = Send(body, next(self._clock))
            self.sends.append(send)
            return send

    def acknowledge(self, send: Send, index: int) -> None:
        """The send came back with success."""
        with self._lock:
            send.acknowledged, send.index = next(self._clock), index

    def read(self, index: int, body: bytes) -> None:
        """A client read an entry."""
        with self._lock:
            self.reads.append((index, body))

    @property
    def acknowledged(self) -> list[Send]:
        """Every send that succeeded."""
        return [send for send in self.sends if send.index is not None]


def violations(history: History, log: Sequence[bytes], own: frozenset[bytes]) -> list[str]:
    """Everything in the history that the final log does not explain; `own` are bodies that nodes write themselves."""
    found = [*_wrong_values(history, log), *_unsent(history, log, own), *_out_of_order(history)]
    twice = [body for body, count in Counter(body for body in log if body not in own).items() if count > 1]
    return found + [f"{body[:40]!r} is in the log twice" for body in twice]


def _wrong_values(history: History, log: Sequence[bytes]) -> list[str]:
    reported = [(send.index, send.body, "acknowledged") for send in history.acknowledged]
    reported += [(index, body, "read") for index, body in history.reads]
    return [
        f"entry {index} was {how} as {body[:40]!r}, and is {log[index][:40] if index < len(log) else None!r}"
        for index, body, how in reported
        if index is not None and (index >= len(log) or log[index] != body)
    ]


def _unsent(history: History, log: Sequence[bytes], own: frozenset[bytes]) -> list[str]:
    sent = {send.body for send in history.sends}
    return [f"nobody sent {body[:40]!r}" for body in log if body not in sent and body not in own]


def _out_of_order(history: History) -> list[str]:
    """Go through time; no send may get an index below one that was acknowledged before it began."""
    events: list[tuple[int, bool, Send]] = []
    for send in history.acknowledged:
        events.append((send.began, True, send))
        events.append((send.acknowledged or 0, False, send))
    highest, least = -1, {}
    found: list[str] = []
    for _, is_begin, send in sorted(events, key=lambda event: event[0]):
        if is_begin:
            least[id(send)] = highest
            continue
        index = send.index if send.index is not None else -1
        if index <= least[id(send)]:
            found.append(f"{send.body[:40]!r} has index {index}, behind {least[id(send)]} which was there before it")
        highest = max(highest, index)
    return found
