"""Checks of undecided transactions: when their owner is asked, and when it is given up."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.services.transaction_store import CONFIG, DISCARD, HALF, OP, bodies, opened, order, read

from flintlog import Message
from flintlog.services.transaction.transaction_checking import CheckRules, Verdict
from flintlog.services.transaction.transaction_records import Half
from flintlog.services.transaction.transaction_service import Decision, UndecidedTransaction
from flintlog.testing import FakeClock

INTERVAL_MS = CONFIG.transaction_check_interval


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


class Owner:
    """Gives the set answers, and records the questions."""

    def __init__(self, *answers: Decision) -> None:
        self.answers = list(answers)
        self.asked: list[UndecidedTransaction] = []

    def __call__(self, transaction: UndecidedTransaction) -> Decision:
        self.asked.append(transaction)
        return self.answers.pop(0) if self.answers else Decision.UNKNOWN

    @property
    def ids(self) -> list[str]:
        return [each.id for each in self.asked]


@pytest.mark.parametrize(("answer", "seen"), [(Decision.COMMIT, [b"order 1"]), (Decision.ROLLBACK, [])])
def test_the_owners_answer_decides(answer: Decision, seen: list[bytes], tmp_path: Path, clock: FakeClock) -> None:
    owner = Owner(answer)
    with opened(tmp_path, clock) as (store, service):
        service.on_check(owner)
        service.begin(order(1, region="eu"), "shop")
        clock.advance(INTERVAL_MS)
        assert bodies(store) == seen and service.undecided() == []
        clock.advance(INTERVAL_MS * 3)
    (asked,) = owner.asked
    assert (asked.id, asked.producer_group, asked.topic, asked.check_times) == ("t1", "shop", "orders", 1)
    assert (asked.message.body, asked.message.properties["region"]) == (b"order 1", "eu")
    with opened(tmp_path, clock) as (store, service):
        service.on_check(owner)
        clock.advance(INTERVAL_MS * 3)
        assert bodies(store) == seen and len(owner.asked) == 1


def test_an_unknown_answer_is_asked_for_again_with_a_copy_each_time(tmp_path: Path, clock: FakeClock) -> None:
    owner = Owner(Decision.UNKNOWN, Decision.UNKNOWN, Decision.COMMIT)
    with opened(tmp_path, clock) as (store, service):
        service.on_check(owner)
        service.begin(Message("orders", b"x", flag=77, reconsume_times=3, properties={"UNIQ_KEY": "a"}))
        for _ in range(3):
            clock.advance(INTERVAL_MS)
        assert [each.check_times for each in owner.asked] == [1, 2, 3]
        halves = read(store, HALF)
        assert [half.properties.get("TRANSACTION_CHECK_TIMES") for half in halves] == [None, "1", "2", "3"]
        (committed,) = read(store)
        assert committed.prepared_transaction_offset == halves[-1].physical_offset
        assert (committed.body, committed.flag, committed.reconsume_times) == (b"x", 77, 3)


def test_a_young_transaction_is_left_alone_and_ends_the_round(tmp_path: Path, clock: FakeClock) -> None:
    owner = Owner()
    with opened(tmp_path, clock) as (_, service):
        service.on_check(owner)
        clock.advance(INTERVAL_MS - CONFIG.transaction_time_out)
        service.begin(order(1))
        clock.advance(CONFIG.transaction_time_out)  # exactly as old as is still left alone
        assert owner.ids == []
        clock.advance(INTERVAL_MS)
        assert owner.ids == ["t1"]


def test_without_a_callback_no_check_is_counted(tmp_path: Path, clock: FakeClock) -> None:
    with opened(tmp_path, clock) as (store, service):
        service.begin(order(1))
        for _ in range(20):
            clock.advance(INTERVAL_MS)
        assert len(read(store, HALF)) == 1
        owner = Owner(Decision.COMMIT)
        service.on_check(owner)
        clock.advance(INTERVAL_MS)
        assert owner.asked[0].check_times == 1 and bodies(store) == [b"order 1"]


def test_after_the_last_check_it_is_given_up(tmp_path: Path, clock: FakeClock) -> None:
    config = CONFIG.with_changes(transaction_check_max=2)
    owner = Owner()
    with opened(tmp_path, clock, config) as (store, service):
        service.on_check(owner)
        service.begin(order(1))
        for _ in range(5):
            clock.advance(INTERVAL_MS)
        assert [each.check_times for each in owner.asked] == [1, 2]
        (discarded,) = read(store, DISCARD)
        assert discarded.body == b"order 1"
        assert (discarded.properties["REAL_TOPIC"], discarded.properties["TRANSACTION_CHECK_TIMES"]) == ("orders", "2")
        assert bodies(store) == [] and service.undecided() == []
    with opened(tmp_path, clock, config) as (store, service):
        service.on_check(owner)
        clock.advance(INTERVAL_MS * 2)
        assert len(read(store, DISCARD)) == 1 and len(owner.asked) == 2


KEPT_AN_HOUR = CONFIG.with_changes(retention="on", file_reserved_time=1)


def test_a_transaction_older_than_the_kept_files_is_given_up_unasked(tmp_path: Path, clock: FakeClock) -> None:
    with opened(tmp_path, clock, KEPT_AN_HOUR) as (store, service):
        service.begin(order(1))
        clock.advance(3_600_000)
        assert read(store, DISCARD) == []
        clock.advance(INTERVAL_MS)
        (discarded,) = read(store, DISCARD)
        assert discarded.properties["TRANSACTION_CHECK_TIMES"] == "1"  # RocketMQ counts before it looks at the age


@pytest.mark.parametrize("changes", [{"retention": "off"}, {"protect_unconsumed": True}])
def test_where_retention_deletes_nothing_the_producer_is_asked_at_any_age(
    changes: dict[str, object], tmp_path: Path, clock: FakeClock
) -> None:
    owner = Owner(Decision.COMMIT)
    with opened(tmp_path, clock, KEPT_AN_HOUR.with_changes(**changes)) as (store, service):
        service.begin(order(1))
        clock.advance(100 * 3_600_000)
        service.on_check(owner)
        clock.advance(INTERVAL_MS)
        assert owner.ids == ["t1"] and bodies(store) == [b"order 1"] and read(store, DISCARD) == []


def test_a_message_that_was_born_long_ago_is_asked_about(tmp_path: Path, clock: FakeClock) -> None:
    owner = Owner(Decision.COMMIT)
    with opened(tmp_path, clock, KEPT_AN_HOUR) as (store, service):
        service.on_check(owner)
        service.begin(msgspec.structs.replace(order(1), born_timestamp=clock.now_ms() - 100 * 3_600_000))
        clock.advance(INTERVAL_MS)
        assert owner.ids == ["t1"] and bodies(store) == [b"order 1"] and read(store, DISCARD) == []


def test_its_own_immunity_puts_a_check_off(tmp_path: Path, clock: FakeClock) -> None:
    owner = Owner()
    with opened(tmp_path, clock) as (store, service):
        service.on_check(owner)
        service.begin(order(1, CHECK_IMMUNITY_TIME_IN_SECONDS="70"))
        service.begin(order(2))
        clock.advance(INTERVAL_MS)
        assert owner.ids == ["t2"]
        clock.advance(INTERVAL_MS)
        assert owner.ids == ["t2", "t2"]
        copies = [half for half in read(store, HALF) if half.uniq_key == "t1"]
        assert [copy.properties.get("TRAN_PREPARED_QUEUE_OFFSET") for copy in copies] == [None, "0", "0"]
        clock.advance(INTERVAL_MS)
        assert owner.ids.count("t1") == 1
        service.commit("t1").check()
        clock.advance(INTERVAL_MS)
        assert owner.ids.count("t1") == 1 and bodies(store) == [b"order 1"]


def test_an_owner_that_raises_or_answers_nonsense_is_asked_again(tmp_path: Path, clock: FakeClock) -> None:
    answers: list[object] = [KeyError("not yet"), "commit", Decision.COMMIT]

    def owner(_: UndecidedTransaction) -> Decision:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[return-value]

    with opened(tmp_path, clock) as (store, service):
        service.on_check(owner)
        service.begin(order(1))
        clock.advance(INTERVAL_MS)
        clock.advance(INTERVAL_MS)
        assert bodies(store) == []
        clock.advance(INTERVAL_MS)
        assert bodies(store) == [b"order 1"]


def test_an_owner_may_decide_while_it_is_asked(tmp_path: Path, clock: FakeClock) -> None:
    with opened(tmp_path, clock) as (store, service):

        def owner(asked: UndecidedTransaction) -> Decision:
            service.commit(asked.id).check()
            return Decision.ROLLBACK

        service.on_check(owner)
        service.begin(order(1))
        clock.advance(INTERVAL_MS)
        clock.advance(INTERVAL_MS)
        assert bodies(store) == [b"order 1"] and read(store, OP)[0].body == b"1,"


def test_decisions_are_noted_together(tmp_path: Path, clock: FakeClock) -> None:
    with opened(tmp_path, clock) as (store, service):
        for number in range(3):
            service.begin(order(number)).commit().check()
        assert read(store, OP) == []
        clock.advance(CONFIG.transaction_op_batch_interval - 1)
        assert read(store, OP) == []
        clock.advance(1)
        assert [op.body for op in read(store, OP)] == [b"0,1,2,"]


def test_a_rollback_is_noted_at_once(tmp_path: Path, clock: FakeClock) -> None:
    with opened(tmp_path, clock) as (store, service):
        service.begin(order(0)).commit().check()
        service.begin(order(1)).rollback().check()
        assert [op.body for op in read(store, OP)] == [b"1,"]


def test_a_full_note_does_not_wait(tmp_path: Path, clock: FakeClock) -> None:
    with opened(tmp_path, clock, CONFIG.with_changes(transaction_op_msg_max_size=5)) as (store, service):
        for number in range(6):
            service.begin(order(number)).commit().check()
        store.run_due()
        assert [op.body for op in read(store, OP)] == [b"0,1,2,", b"3,4,5,"]


def test_a_stop_notes_the_remaining_decisions(tmp_path: Path, clock: FakeClock) -> None:
    with opened(tmp_path, clock) as (_, service):
        service.begin(order(0)).commit().check()
    with opened(tmp_path, clock) as (store, _):
        assert [op.body for op in read(store, OP)] == [b"0,"]


def half(**changes: object) -> Half:
    fields: dict[str, object] = {
        "queue_offset": 0,
        "physical_offset": 0,
        "id": "a",
        "producer_group": "",
        "topic": "orders",
        "queue_id": 0,
        "born_timestamp": 100_000,
        "store_timestamp": 100_000,
        "check_times": None,
        "immunity": None,
        "is_copy": False,
    }
    return Half(**{**fields, **changes})  # type: ignore[arg-type]


RULES = CheckRules(time_out_ms=6000, check_max=15, keep_ms=3_600_000)


@pytest.mark.parametrize(
    ("changes", "age_ms", "verdict"),
    [
        ({}, 6000, Verdict.END_ROUND),
        ({}, 6001, Verdict.ASK),
        ({"check_times": 14}, 6001, Verdict.ASK),
        ({"check_times": 15}, 6001, Verdict.GIVE_UP),
        ({"check_times": -1}, 6001, Verdict.ASK),
        ({"check_times": 15}, 0, Verdict.GIVE_UP),
        ({}, 3_600_000, Verdict.ASK),
        ({}, 3_600_001, Verdict.GIVE_UP),
        ({"born_timestamp": 99_999}, 3_600_000, Verdict.ASK),
        ({"born_timestamp": 3_699_000}, 3_600_001, Verdict.GIVE_UP),
        ({"store_timestamp": 106_001}, 6001, Verdict.END_ROUND),
        ({"born_timestamp": 100_001}, 0, Verdict.END_ROUND),
        ({"born_timestamp": 100_002, "store_timestamp": 1}, 1, Verdict.ASK),
        ({"immunity": "60"}, 60_000, Verdict.PUT_OFF),
        ({"immunity": "60"}, 60_001, Verdict.ASK),
        ({"immunity": "1"}, 1000, Verdict.PUT_OFF),
        ({"immunity": "1"}, 1001, Verdict.ASK),
        ({"immunity": "soon"}, 6000, Verdict.PUT_OFF),
        ({"immunity": "-1"}, 6001, Verdict.ASK),
    ],
)
def test_rocketmqs_order_of_questions(changes: dict[str, object], age_ms: int, verdict: Verdict) -> None:
    assert RULES.judge(half(**changes), 100_000 + age_ms) is verdict
