"""The checker of histories sees what it is there to see."""

from __future__ import annotations

from tests.replication.ledger_history import History, violations

OWN = frozenset({b"leads"})
LOG = [b"leads", b"a", b"b", b"c"]


def _history() -> History:
    history = History()
    for index, body in enumerate(LOG):
        if body not in OWN:
            history.acknowledge(history.begin(body), index)
    return history


def test_a_log_that_explains_everything() -> None:
    history = _history()
    history.begin(b"unknown")
    history.read(2, b"b")
    assert violations(history, LOG, OWN) == []
    assert violations(history, [*LOG, b"unknown"], OWN) == []


def test_an_acknowledged_body_that_is_gone() -> None:
    assert any("acknowledged" in each for each in violations(_history(), LOG[:3], OWN))


def test_an_entry_that_was_read_and_changed() -> None:
    history = _history()
    history.read(0, b"other")
    assert any("was read as" in each for each in violations(history, LOG, OWN))


def test_a_body_twice_and_one_from_nowhere() -> None:
    assert any("twice" in each for each in violations(_history(), [*LOG, b"a"], OWN))
    assert any("nobody sent" in each for each in violations(_history(), [*LOG, b"z"], OWN))


def test_a_later_send_before_an_earlier_one() -> None:
    history = History()
    history.acknowledge(history.begin(b"first"), 1)
    history.acknowledge(history.begin(b"second"), 0)
    assert any("behind" in each for each in violations(history, [b"second", b"first"], OWN))


def test_sends_that_overlap_may_have_any_order() -> None:
    history = History()
    first, second = history.begin(b"first"), history.begin(b"second")
    history.acknowledge(first, 1)
    history.acknowledge(second, 0)
    assert violations(history, [b"second", b"first"], OWN) == []
