"""The state that a group shares, as messages: what they say together, whatever became of the last of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flintlog.store.model.message import Message
from flintlog.store.settings.shared_state import Assembly, Change, Piece, State, encode_change, merged, parse_piece


def pieces(change: Change, piece_bytes: int = 1000) -> list[Piece]:
    return [_piece(message) for message in encode_change(change, piece_bytes)]


def _piece(message: Message) -> Piece:
    piece = parse_piece(message.properties or {}, bytes(message.body))
    assert piece is not None
    return piece


def read(found: list[Piece | None]) -> list[Change]:
    assembly = Assembly()
    return [change for piece in found if (change := assembly.take(piece)) is not None]


OLD = Change({"topics": {"a": 1}}, is_whole=True)
LONG = Change({"topics": {"name": "x" * 100}}, is_whole=True)


@given(
    st.dictionaries(st.text(max_size=5), st.dictionaries(st.text(max_size=5), st.integers(-9, 9)), max_size=5),
    st.booleans(),
    st.integers(1, 50),
)
def test_what_is_written_is_read_again_in_any_pieces(state: State, is_whole: bool, piece_bytes: int) -> None:
    change = Change(state, is_whole)
    messages = encode_change(change, piece_bytes)
    assert max(len(message.body) for message in messages) <= piece_bytes
    assert read([_piece(message) for message in messages]) == [change]


def test_what_a_leader_did_not_finish_does_not_count() -> None:
    torn = pieces(LONG, 50)[:-1]
    assert len(torn) >= 2
    assert read([*pieces(OLD), *torn, *pieces(Change({"b": {}}))]) == [OLD, Change({"b": {}})]
    assert read([*torn, *pieces(LONG, 50)]) == [LONG]


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_state_with_a_piece_missing_or_unreadable_does_not_count(lost: int) -> None:
    found: list[Piece | None] = [*pieces(LONG, 50)]
    assert len(found) == 3
    assert read([*found[:lost], *found[lost + 1 :]]) == []
    found[lost] = None
    assert read([*found, *pieces(OLD)]) == [OLD]


def test_a_body_that_is_no_state_does_not_count() -> None:
    for body in (b"", b"{", b"[]", b'{"topics": 1}', b"\xff"):
        assert read([Piece(is_whole=False, number=0, count=1, body=body), *pieces(OLD)]) == [OLD]


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"STATE": "whole"},
        {"STATE": "half", "PIECE": "0/1"},
        {"STATE": "whole", "PIECE": "1/1"},
        {"STATE": "whole", "PIECE": "0/0"},
        {"STATE": "whole", "PIECE": "-1/2"},
        {"STATE": "whole", "PIECE": "0"},
        {"STATE": "whole", "PIECE": "0/99999"},
        {"STATE": "whole", "PIECE": "x/y"},
    ],
)
def test_a_message_that_is_no_piece_is_told(properties: dict[str, str]) -> None:
    assert parse_piece(properties, b"{}") is None


def test_offsets_change_by_key_and_the_rest_as_a_whole() -> None:
    state: State = {"consumerOffset": {"a@g": {"0": 1, "1": 1}, "b@g": {"0": 2}}, "topics": {"x": 1, "y": 2}}
    change = Change({"consumerOffset": {"a@g": {"0": 3}, "b@g": None, "c@g": {"0": 4}}, "topics": {"x": 3}})
    assert merged(state, change) == {"consumerOffset": {"a@g": {"0": 3}, "c@g": {"0": 4}}, "topics": {"x": 3}}
    assert merged(merged(state, change), change) == merged(state, change)
    assert merged(state, Change({}, is_whole=True)) == {}
    assert state["consumerOffset"]["b@g"] == {"0": 2}
