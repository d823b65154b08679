"""Gathers the queue offsets of committed half messages for one op message.

These notes may wait, because the committed message in the log already proves the commit. A rollback leaves no other
record than its op message, so it is written at once and never gathered here.

    add 12      add 7       ...      after transaction_op_batch_interval, or at transaction_op_msg_max_size bytes
     |           |                    |
     +-----------+--------------------+ ─▶ one op message "12,7,...,"
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from flintlog.store.runtime.jobs import NEVER


class GatheredOps:
    """The gathered offsets. The owner holds a lock around every call."""

    def __init__(self, max_size: int, interval_ms: int) -> None:
        self._max_size = max_size
        self._interval_ms = interval_ms
        self._offsets: deque[int] = deque()
        self._size = 0
        self._since_ms = 0

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, half_offsets: Iterable[int], now_ms: int) -> bool:
        """Add offsets; returns whether the due time changed."""
        was_full, was_empty = self.is_full, not self._offsets
        if was_empty:
            self._since_ms = now_ms
        for offset in half_offsets:
            self._offsets.append(offset)
            self._size += _size(offset)
        return (was_empty and bool(self._offsets)) or (self.is_full and not was_full)

    @property
    def is_full(self) -> bool:
        return self._size >= self._max_size

    def due_at_ms(self) -> int:
        """When to write; a full message is due at once."""
        if not self._offsets:
            return NEVER
        return 0 if self.is_full else self._since_ms + self._interval_ms

    def follow_clock(self, now_ms: int) -> None:
        """Adapt to a clock that was turned back: the wait began now at the latest."""
        self._since_ms = min(self._since_ms, now_ms)

    def take(self) -> list[int]:
        """The offsets of one message; as in RocketMQ, it ends when its size reaches the limit."""
        taken: list[int] = []
        size = 0
        while self._offsets and size < self._max_size:
            taken.append(self._offsets.popleft())
            size += _size(taken[-1])
        self._size -= size
        return taken

    def put_back(self, half_offsets: list[int]) -> None:
        """Return offsets that could not be written."""
        self._offsets.extendleft(reversed(half_offsets))
        self._size += sum(map(_size, half_offsets))


def _size(offset: int) -> int:
    return len(str(offset)) + 1
