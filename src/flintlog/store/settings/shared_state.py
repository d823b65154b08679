"""The state that the members of a ledger's group share besides messages, as messages of their log.

    rmq_sys_flintlog_state, queue 0
    ─┬─────────────┬─────────────┬────────┬────────┬─
     │ whole, 0/2  │ whole, 1/2  │ change │ change │      the group's state = the last whole one, and what changed since
    ─┴─────────────┴─────────────┴────────┴────────┴─

    properties   STATE = whole | change      PIECE = number/count: a state that is too long for one message
    body         {"consumerOffset": {"orders@billing": {"0": 15}}, "topics": {...}, "delayOffset": {...}}

A part is replaced as a whole. Only consumers' offsets are changed by key, with null for a deleted one. Values are
absolute, so a duplicate change has no effect. The pieces of one state follow each other; a state that its leader did
not finish does not count. This module does no I/O: see `state_log.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

from flintlog.errors import FormatError
from flintlog.format.topics import STATE_TOPIC
from flintlog.store.model.message import Message
from flintlog.store.runtime.note_file import decode_json

STATE_QUEUE_ID: Final = 0
OFFSETS: Final = "consumerOffset"

_KIND: Final = "STATE"
_PIECE: Final = "PIECE"
_WHOLE: Final = "whole"
_CHANGE: Final = "change"
MAX_PIECES: Final = 4096

Part: TypeAlias = dict[str, object]
"""The content of one part, as JSON has it."""

State: TypeAlias = dict[str, Part]


class Change(msgspec.Struct, frozen=True):
    """One leader's change: the whole state (`is_whole`), or some parts."""

    parts: State
    is_whole: bool = False


class Piece(msgspec.Struct, frozen=True):
    """One message of a state."""

    is_whole: bool
    number: int
    count: int
    body: bytes


def encode_change(change: Change, piece_bytes: int) -> list[Message]:
    """The messages that say a change, none with a longer body than this.

    >>> [message.properties["PIECE"] for message in encode_change(Change({"topics": {}}), 8)]
    ['0/2', '1/2']
    """
    data = msgspec.json.encode(change.parts)
    bodies = [data[start : start + piece_bytes] for start in range(0, len(data), piece_bytes)]
    kind = _WHOLE if change.is_whole else _CHANGE
    return [
        Message(STATE_TOPIC, body, properties={_KIND: kind, _PIECE: f"{number}/{len(bodies)}"})
        for number, body in enumerate(bodies)
    ]


def parse_piece(properties: Mapping[str, str], body: bytes) -> Piece | None:
    """The piece in a message of the state's topic; None when it has none."""
    kind, (number, _, count) = properties.get(_KIND), properties.get(_PIECE, "").partition("/")
    if kind not in (_WHOLE, _CHANGE) or not (number.isdecimal() and count.isdecimal()):
        return None
    if not int(number) < int(count) <= MAX_PIECES:
        return None
    return Piece(kind == _WHOLE, int(number), int(count), body)


class Assembly:
    """Joins pieces, in the order of their queue."""

    def __init__(self) -> None:
        self._pieces: list[Piece] = []

    def take(self, piece: Piece | None) -> Change | None:
        """The change that this piece completes; None when it completes none."""
        if piece is None:
            self._pieces = []
            return None
        if piece.number == 0:
            self._pieces = []
        first = self._pieces[0] if self._pieces else piece
        is_next = (piece.number, piece.count, piece.is_whole) == (len(self._pieces), first.count, first.is_whole)
        if not is_next:
            self._pieces = []
            return None
        self._pieces.append(piece)
        if len(self._pieces) < piece.count:
            return None
        data, self._pieces = b"".join(each.body for each in self._pieces), []
        try:
            return Change(decode_json(data, State), piece.is_whole)
        except FormatError:
            return None


def merged(state: State, change: Change) -> State:
    """The state after a change; neither is changed.

    >>> before = {"consumerOffset": {"orders@billing": {"0": 15}, "orders@audit": {"0": 2}}}
    >>> merged(before, Change({"consumerOffset": {"orders@billing": {"0": 16}, "orders@audit": None}}))
    {'consumerOffset': {'orders@billing': {'0': 16}}}
    """
    if change.is_whole:
        return dict(change.parts)
    found = {**state, **change.parts}
    if OFFSETS in change.parts:
        offsets = {**state.get(OFFSETS, {}), **change.parts[OFFSETS]}
        found[OFFSETS] = {key: kept for key, kept in offsets.items() if kept is not None}
    return found
