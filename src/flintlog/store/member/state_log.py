"""The state that a store shares with its group: read from the log that the group has committed, written by its leader.

    leader        share(parts) ──▶ messages of the state's topic ──▶ committed by the group
    every member  advance() ◀── the state's queue                    committed changes, in log order

Invariants. `state` holds the content of committed messages and nothing else, on the leader too. When `share` returns,
the group has committed the parts. After every WHOLE_EVERY changes a leader writes the whole state, which bounds how far
back a reader has to go. That state is the one it found when it began to lead, with its own changes since, unconfirmed
ones included: the log holds those before any later message.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from flintlog.errors import DamagedRecord, NotLeading, PutFailed
from flintlog.format.topics import STATE_TOPIC
from flintlog.store.model.message import Message, PutStatus, Receipt
from flintlog.store.settings.shared_state import (
    STATE_QUEUE_ID,
    Assembly,
    Change,
    Part,
    Piece,
    State,
    encode_change,
    merged,
    parse_piece,
)

if TYPE_CHECKING:
    from flintlog.store.put.service_host import ServiceHost

log = logging.getLogger(__name__)

WHOLE_EVERY: Final = 64
PIECE_BYTES: Final = 256 * 1024

_REFUSED: Final = frozenset({PutStatus.SERVICE_NOT_AVAILABLE, PutStatus.OS_PAGE_CACHE_BUSY})
"""With these statuses nothing was written."""


class StateLog:
    """One member's view of the shared state. Any thread may call; `_reading` guards the state, `_writing` the order.

    `put` stores a message and waits for the group.
    """

    def __init__(
        self,
        host: ServiceHost,
        put: Callable[[Message], Receipt],
        *,
        piece_bytes: int = PIECE_BYTES,
    ) -> None:
        self.state: State = {}
        self._host = host
        self._store = host.store
        self._put = put
        self._piece_bytes = piece_bytes
        self._assembly = Assembly()
        self._next_offset = 0
        self._whole_at = -1
        self._written: State = {}
        self._written_count = 0
        self._reading = threading.Lock()
        self._writing = threading.RLock()

    @property
    def next_offset(self) -> int:
        """The offset in the state's queue up to which it was read."""
        return self._next_offset

    @property
    def whole_at(self) -> int:
        """The physical offset of the last message of the last whole state; -1 when there is none."""
        return self._whole_at

    # ------------------------------------------------------------------ reading

    def load(self, local: Callable[[], State]) -> bool:
        """Read the state from its queue; returns whether the queue holds any.

        The whole state may have been deleted with the oldest files. `local` then gives the copy of this member.
        """
        with self._reading:
            low, high = self._bounds()
            start = self._last_whole(low, high)
            if start is None and high > low:
                self.state = local()
            self._next_offset = low if start is None else start
        self.advance()
        return high > low

    def advance(self) -> list[Change]:
        """Read the queue further; returns the changes in order."""
        found: list[Change] = []
        with self._reading:
            low, high = self._bounds()
            self._next_offset = max(self._next_offset, low)
            while self._next_offset < high:
                piece, where = self._piece(self._next_offset)
                self._next_offset += 1
                change = self._assembly.take(piece)
                if change is None:
                    continue
                self.state = merged(self.state, change)
                if change.is_whole:
                    self._whole_at = where
                found.append(change)
        return found

    def _bounds(self) -> tuple[int, int]:
        store = self._store
        return store.min_offset(STATE_TOPIC, STATE_QUEUE_ID), store.max_offset(STATE_TOPIC, STATE_QUEUE_ID)

    def _last_whole(self, low: int, high: int) -> int | None:
        """The offset at which the last complete whole state begins."""
        for offset in range(high - 1, low - 1, -1):
            last = self._piece(offset)[0]
            if last is None or not last.is_whole or last.number != last.count - 1:
                continue
            start, assembly, made = offset - last.number, Assembly(), None
            for place in range(max(low, start), offset + 1):
                made = assembly.take(self._piece(place)[0])
            if made is not None and start >= low:
                return start
        return None

    def _piece(self, offset: int) -> tuple[Piece | None, int]:
        entry = self._host.entry(STATE_TOPIC, STATE_QUEUE_ID, offset)
        if entry is None:
            return None, -1
        try:
            message = self._store.message_at(entry.physical_offset)
        except DamagedRecord as damage:
            log.error("a message of the group's shared state cannot be read: %s", damage)
            return None, entry.physical_offset
        found = None if message is None else parse_piece(message.properties, message.body)
        if found is None:
            log.warning("%s has a message at %d that is no part of a state", STATE_TOPIC, offset)
        return found, entry.physical_offset

    # ------------------------------------------------------------------ writing

    def lead(self) -> None:
        """This member leads, and everything in its log is committed and read: it may write from now on."""
        with self._writing, self._reading:
            self._written = self.state
            self._written_count = WHOLE_EVERY

    def share(self, parts: State) -> None:
        """Write parts of the state; returns once the group has committed them. After an error it may still do so."""
        with self._writing:
            change = Change(parts)
            if self._written_count + 1 >= WHOLE_EVERY:
                change = Change(merged(self._written, change), is_whole=True)
            self._write(change)

    def renew(self) -> None:
        """Write the whole state again, because the last one lies in a file that shall be deleted."""
        with self._writing:
            self._write(Change(self._written, is_whole=True))

    def part(self, name: str) -> Part | None:
        """A part of the state, as the group has committed it."""
        return self.state.get(name)

    def _write(self, change: Change) -> None:
        status = PutStatus.PUT_OK
        for message in encode_change(change, self._piece_bytes):
            status = self._put(message).status
            if status in _REFUSED:
                raise NotLeading("this member does not lead its group now", advice="ask the leader")
            if status is PutStatus.UNKNOWN_ERROR:
                break
        self._written = merged(self._written, change)
        self._written_count = 0 if change.is_whole else self._written_count + 1
        if status is not PutStatus.PUT_OK:
            raise PutFailed(f"the group has not confirmed the shared state: {status}", advice="it may do so yet")
