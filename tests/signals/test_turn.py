"""A turn is taken and given back by assignments: nothing may come between."""

from __future__ import annotations

import dis
import threading
import time

from flintlog.store.runtime.turn import Turn
from tests.signals.interrupting import QUIET, Interrupter
from tests.signals.test_every_point import interrupter

__all__ = ["interrupter"]


def test_nothing_runs_between_the_look_at_the_owner_and_its_assignment() -> None:
    code = list(dis.get_instructions(Turn.take))
    stores = [place for place, each in enumerate(code) if each.opname == "STORE_ATTR" and each.argval == "owner"]
    assert len(stores) == 1
    looks = [place for place, each in enumerate(code[: stores[0]]) if each.argval == "owner"]
    between = code[looks[-1] + 1 : stores[0]]
    assert between
    assert {each.opcode for each in between} <= QUIET
    assert all(each.opcode in QUIET for each in code[stores[0] + 1 : stores[0] + 3])  # and then it returns


def test_one_thread_at_a_time_has_the_turn() -> None:
    turn = Turn()
    inside, most, count = 0, 0, 0

    def work() -> None:
        nonlocal inside, most, count
        for _ in range(200):
            with turn:
                inside += 1
                most = max(most, inside)
                time.sleep(0)
                count += 1
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (most, count) == (1, 800)


def test_who_waits_gets_the_turn_though_nobody_rings() -> None:
    turn = Turn()
    turn.owner = 1
    taken: list[bool] = []
    thread = threading.Thread(target=lambda: taken.append(turn.take(None)))
    thread.start()
    time.sleep(0.05)
    turn.owner = None
    thread.join(10)
    assert taken == [True]


def test_who_does_not_wait_is_refused_at_once() -> None:
    turn = Turn()
    assert turn.take()
    assert not turn.take()
    began = time.monotonic()
    assert not turn.take(0.1)
    assert 0.09 <= time.monotonic() - began < 5


def test_work_that_is_interrupted_at_any_point_gives_the_turn_back(interrupter: Interrupter) -> None:
    turn = Turn()
    interrupter.run(lambda: turn.run(time.monotonic))
    total = interrupter.count
    hits = 0
    for point in range(1, total + 1):
        hits += interrupter.run(lambda: turn.run(time.monotonic), point)
        assert turn.owner is None, f"point {point} of {total}, interrupted at\n{interrupter.where}"
    assert hits
