"""Producers in step are told by halves, stay apart from then on, and nobody is held back for longer than a moment."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TypeVar

import pytest

from flintlog import Message, Store, StoreConfig, open_store
from flintlog.store import group_commit
from flintlog.store.turns import LEAST_GROUP, Turns

pytestmark = pytest.mark.timeout(60)

GROUP = list(range(LEAST_GROUP * 2))
HALF = len(GROUP) // 2
PRODUCERS = 64
ROUNDS = 60

_T = TypeVar("_T")


class Moments:
    """A clock that moves by what a group takes."""

    def __init__(self, step_s: float = 0.001) -> None:
        self.now = 0.0
        self.step_s = step_s

    def __call__(self) -> float:
        self.now += self.step_s
        return self.now


def _in_step(turns: Turns, rounds: int) -> list[tuple[list[int], list[int]]]:
    """Groups that all come after the disk stood idle, each as large as the one before."""
    told = []
    for _ in range(rounds):
        turns.arrived(len(GROUP), has_waited=True, has_held=False)
        told.append(turns.split(GROUP, is_next_here=False))
    return told


def _taking() -> Turns:
    turns = Turns(Moments())
    assert _in_step(turns, 5)[-1] == (GROUP[:HALF], GROUP[HALF:])
    return turns


def test_a_group_in_step_is_told_by_halves_once_it_is_known_to_be() -> None:
    told = _in_step(Turns(Moments()), 5)
    assert [len(now) for now, _held in told] == [len(GROUP)] * 4 + [HALF]
    assert told[-1] == (GROUP[:HALF], GROUP[HALF:])


@pytest.mark.parametrize("is_next_here", [True, False])
def test_in_turns_a_group_is_told_when_the_next_is_there(is_next_here: bool) -> None:
    turns = _taking()
    turns.arrived(HALF, has_waited=True, has_held=True)
    now, held = turns.split(GROUP[:HALF], is_next_here=is_next_here)
    assert (len(now), len(held)) == ((HALF, 0) if is_next_here else (0, HALF))


def test_groups_that_found_together_again_are_parted_again() -> None:
    turns = _taking()
    told = _in_step(turns, 6)
    assert [len(now) for now, _held in told] == [len(GROUP)] * 3 + [HALF, len(GROUP), len(GROUP)]


@pytest.mark.parametrize("count", [1, LEAST_GROUP - 1])
def test_a_small_group_is_told_at_once(count: int) -> None:
    turns = Turns(Moments())
    for _ in range(20):
        turns.arrived(count, has_waited=True, has_held=False)
        assert turns.split(GROUP[:count], is_next_here=False) == (GROUP[:count], [])


def test_in_turns_too() -> None:
    turns = _taking()
    turns.arrived(3, has_waited=True, has_held=True)
    assert turns.split([1, 2, 3], is_next_here=False) == ([1, 2, 3], [])


def test_bursts_with_a_pause_between_them_are_told_at_once() -> None:
    assert all(not held for _now, held in _in_step(Turns(Moments(step_s=0.006)), 20))


def test_who_comes_while_the_disk_works_is_not_in_step() -> None:
    turns = Turns(Moments())
    for _ in range(20):
        turns.arrived(len(GROUP), has_waited=False, has_held=False)
        assert turns.split(GROUP, is_next_here=True) == (GROUP, [])


def test_after_a_hold_in_vain_it_is_long_not_tried_again() -> None:
    turns = _taking()
    turns.held_in_vain()
    told = _in_step(turns, 66)
    assert [place for place, (_now, held) in enumerate(told) if held] == [63]


def test_producers_that_end_amid_a_turn_are_all_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each puts a different number of messages, so that the halves end one after the other."""
    held_back: list[int] = []

    class SeenTurns(Turns):
        def split(self, group: list[_T], *, is_next_here: bool) -> tuple[list[_T], list[_T]]:
            told, held = super().split(group, is_next_here=is_next_here)
            held_back.append(len(held))
            return told, held

    monkeypatch.setattr(group_commit, "Turns", SeenTurns)

    async def produce(store: Store, number: int) -> int:
        receipts = [await store.aput(Message("orders", b"x", queue_id=number % 4)) for _ in range(ROUNDS + number % 7)]
        return sum(map(bool, receipts))

    async def all_of_them(store: Store) -> int:
        return sum(await asyncio.gather(*(produce(store, number) for number in range(PRODUCERS))))

    with open_store(tmp_path / "store", StoreConfig(mapped_file_size_commit_log=1 << 24)) as store:
        assert asyncio.run(all_of_them(store)) == sum(ROUNDS + number % 7 for number in range(PRODUCERS))
    assert any(held_back), "the producers went in step, and never took turns"
