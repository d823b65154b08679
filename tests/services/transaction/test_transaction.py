"""Transactions: which messages consumers see, and which calls are refused."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import pytest
from tests.services.transaction_store import CONFIG, DISCARD, HALF, OP, bodies, opened, order, read, service_of

from flintlog import (
    FlintlogError,
    InvalidMessage,
    Message,
    PutFailed,
    PutStatus,
    Receipt,
    ServiceNotEnabled,
    StoreClosed,
    open_store,
)
from flintlog.errors import TransactionDecided, TransactionError, UnknownTransaction
from flintlog.services.transaction.transaction_service import Decision
from flintlog.testing import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def test_consumers_do_not_see_a_message_before_its_commit(tmp_path: Path, clock: FakeClock) -> None:
    with opened(tmp_path, clock) as (store, service):
        transaction = service.begin(order(1))
        assert bodies(store) == []
        receipt = transaction.commit().check()
        assert bodies(store) == [b"order 1"]
        assert read(store)[0].physical_offset == receipt.physical_offset
        assert read(store)[0].tags == "paid" and read(store)[0].keys == ["o-1"]


def test_consumers_never_see_a_message_that_was_rolled_back(tmp_path: Path, clock: FakeClock) -> None:
    with opened(tmp_path, clock) as (store, service):
        service.on_check(lambda _: Decision.COMMIT)
        service.begin(order(1)).rollback().check()
        clock.advance(100_000)
        assert bodies(store) == []
    with opened(tmp_path, clock) as (store, service):
        service.on_check(lambda _: Decision.COMMIT)
        clock.advance(100_000)
        assert bodies(store) == [] and service.undecided() == []


def test_a_block_that_ends_commits(tmp_path: Path, clock: FakeClock) -> None:
    with opened(tmp_path, clock) as (store, service):
        with service.begin(order(1)) as transaction:
            assert bodies(store) == []
        assert transaction.decision is Decision.COMMIT
        assert bodies(store) == [b"order 1"]


def test_a_block_that_raises_rolls_back(tmp_path: Path, clock: FakeClock) -> None:
    with opened(tmp_path, clock) as (store, service):
        with pytest.raises(KeyError), service.begin(order(1)) as transaction:
            raise KeyError("no such customer")
        assert transaction.decision is Decision.ROLLBACK
        assert bodies(store) == [] and service.undecided() == []


def test_a_block_may_decide_by_itself(tmp_path: Path, clock: FakeClock) -> None:
    with opened(tmp_path, clock) as (store, service):
        with service.begin(order(1)) as transaction:
            transaction.rollback()
        with contextlib.suppress(KeyError), service.begin(order(2)) as transaction:
            transaction.commit()
            raise KeyError("too late")
        assert bodies(store) == [b"order 2"]


def test_a_message_without_a_key_gets_one_of_rocketmqs_form(tmp_path: Path, clock: FakeClock) -> None:
    with opened(tmp_path, clock) as (store, service):
        ids = {service.begin(Message("orders", b"x")).id for _ in range(20)}
        assert len(ids) == 20
        assert all(len(each) == 32 and each == each.upper() and bytes.fromhex(each) for each in ids)
        service.commit(min(ids)).check()
        assert read(store)[0].uniq_key == min(ids)


def test_a_later_opening_decides_by_the_id(tmp_path: Path, clock: FakeClock) -> None:
    with opened(tmp_path, clock) as (_, service):
        service.begin(order(1), "shop")
        service.begin(order(2), "shop")
    with opened(tmp_path, clock) as (store, service):
        assert [(each.id, each.producer_group) for each in service.undecided()] == [("t1", "shop"), ("t2", "shop")]
        service.rollback("t1").check()
        service.commit("t2").check()
        assert bodies(store) == [b"order 2"]
    with opened(tmp_path, clock) as (store, service):
        assert service.undecided() == [] and bodies(store) == [b"order 2"]


def test_an_undecided_transaction_shows_the_message_it_began_with(tmp_path: Path, clock: FakeClock) -> None:
    with opened(tmp_path, clock) as (_, service):
        service.begin(
            Message("orders", b"x", tags="paid", queue_id=3, flag=7, properties={"UNIQ_KEY": "a", "region": "eu"})
        )
        (shown,) = service.undecided()
        assert (shown.id, shown.topic, shown.queue_id, shown.check_times) == ("a", "orders", 3, 0)
        assert (shown.message.body, shown.message.tags, shown.message.properties["region"]) == (b"x", "paid", "eu")


def test_transactions_leave_other_messages_alone(tmp_path: Path, clock: FakeClock) -> None:
    with opened(tmp_path, clock) as (store, service):
        first, second = service.begin(order(1)), service.begin(order(2))
        store.put(Message("orders", b"plain")).check()
        second.commit()
        first.commit()
        assert bodies(store) == [b"plain", b"order 2", b"order 1"]


class TestRefused:
    """Clear errors, and nothing changes by them."""

    def test_an_unknown_id(self, tmp_path: Path, clock: FakeClock) -> None:
        with opened(tmp_path, clock) as (_, service):
            for decide in (service.commit, service.rollback):
                with pytest.raises(UnknownTransaction, match="no transaction 'nobody'"):
                    decide("nobody")
                for wrong in (None, 7, "", b"t1"):
                    with pytest.raises(UnknownTransaction):
                        decide(wrong)  # type: ignore[arg-type]

    @pytest.mark.parametrize("reopen", [False, True])
    @pytest.mark.parametrize(("first", "word"), [("commit", "committed"), ("rollback", "rolled back")])
    def test_a_decided_one(self, first: str, word: str, reopen: bool, tmp_path: Path, clock: FakeClock) -> None:
        with opened(tmp_path, clock) as (store, service):
            service.begin(order(1))
            getattr(service, first)("t1").check()
            before = bodies(store)
            if not reopen:
                for decide in (service.commit, service.rollback):
                    with pytest.raises(TransactionDecided, match=f"was already {word}"):
                        decide("t1")
        with opened(tmp_path, clock) as (store, service):
            for decide in (service.commit, service.rollback):
                with pytest.raises(TransactionDecided, match="'t1' was already decided"):
                    decide("t1")
            assert bodies(store) == before

    def test_another_groups(self, tmp_path: Path, clock: FakeClock) -> None:
        with opened(tmp_path, clock) as (store, service):
            service.begin(order(1), "shop")
            with pytest.raises(TransactionError, match="belongs to the group 'shop', not to 'bank'"):
                service.commit("t1", "bank")
            service.commit("t1", "shop").check()
            assert bodies(store) == [b"order 1"]

    def test_a_message_that_is_to_be_delayed_as_well(self, tmp_path: Path, clock: FakeClock) -> None:
        with opened(tmp_path, clock) as (store, service):
            for message in (Message("orders", b"", delay_level=3), Message("orders", b"", deliver_at_ms=1)):
                with pytest.raises(InvalidMessage, match="cannot be delayed"):
                    service.begin(message)
            assert read(store, HALF) == []

    def test_a_message_for_light_queues(self, tmp_path: Path, clock: FakeClock) -> None:
        """Its half message would be seen there before it is decided, and for ever when it is rolled back."""
        message = Message("orders", b"", properties={"INNER_MULTI_DISPATCH": "%LMQ%a"})
        config = CONFIG.with_changes(enable_lmq=True, enable_multi_dispatch=True)
        with opened(tmp_path, clock, config) as (store, service):
            with pytest.raises(InvalidMessage, match="light queues"):
                service.begin(message)
            assert read(store, HALF) == read(store, "%LMQ%a") == []

    @pytest.mark.parametrize(
        "message",
        [
            Message("or/ders", b""),
            Message("orders", b"", queue_id=-1),
            Message("orders", b"", prepared_transaction_offset=5),
            Message("orders", b"", properties={"TRANSACTION_CHECK_TIMES": "1"}),
            Message("orders", b"", properties={"TRAN_PREPARED_QUEUE_OFFSET": "1"}),
            Message("orders", b"", tags="a", properties={"TAGS": "b"}),
            Message("orders", b"x" * 5_000_000),
            Message("orders", "text"),  # type: ignore[arg-type]
            Message("orders", b"", properties={"PGROUP": "bank"}),
            b"no message",
        ],
    )
    def test_a_message_that_cannot_begin_one(self, message: Message, tmp_path: Path, clock: FakeClock) -> None:
        with opened(tmp_path, clock) as (store, service):
            with pytest.raises(InvalidMessage):
                service.begin(message, "shop")
            assert read(store, HALF) == []

    def test_an_id_that_is_in_use(self, tmp_path: Path, clock: FakeClock) -> None:
        with opened(tmp_path, clock) as (_, service):
            service.begin(order(1))
            with pytest.raises(InvalidMessage, match="undecided transaction 't1' already exists"):
                service.begin(order(1))

    def test_a_closed_store(self, tmp_path: Path, clock: FakeClock) -> None:
        with opened(tmp_path, clock) as (_, service):
            transaction = service.begin(order(1))
        for call in (transaction.commit, transaction.rollback, service.undecided):
            with pytest.raises(StoreClosed):
                call()
        with pytest.raises(StoreClosed):
            service.begin(order(2))

    def test_a_store_without_the_service(self, tmp_path: Path) -> None:
        with open_store(tmp_path, CONFIG.with_changes(services=frozenset())) as store, pytest.raises(ServiceNotEnabled):
            store.service("transaction")

    def test_a_check_that_is_no_function(self, tmp_path: Path, clock: FakeClock) -> None:
        with opened(tmp_path, clock) as (_, service), pytest.raises(FlintlogError):
            service.on_check(Decision.COMMIT)  # type: ignore[arg-type]


def test_an_id_may_be_used_again_after_its_decision(tmp_path: Path, clock: FakeClock) -> None:
    with opened(tmp_path, clock) as (store, service):
        service.begin(order(1)).commit().check()
        service.begin(order(1)).rollback().check()
        service.begin(order(1))  # all born in the same millisecond
    with opened(tmp_path, clock) as (store, service):
        assert [each.id for each in service.undecided()] == ["t1"]
        service.commit("t1").check()
        assert bodies(store) == [b"order 1", b"order 1"]


def test_a_begin_that_is_not_stored_leaves_nothing(tmp_path: Path, clock: FakeClock) -> None:
    with opened(tmp_path, clock) as (store, service):
        store.add_put_hook(lambda message: Receipt(PutStatus.OS_PAGE_CACHE_BUSY) if message.topic == "orders" else None)
        with pytest.raises(PutFailed):
            service.begin(order(1))
        assert read(store, HALF) == []


def test_hooks_and_compression_see_the_message_before_it_becomes_a_half_message(
    tmp_path: Path, clock: FakeClock
) -> None:
    seen: list[str] = []
    with opened(tmp_path, clock) as (store, service):
        store.add_put_hook(lambda message: seen.append(message.topic))
        with service.begin(Message("orders", b"long " * 50, compress="zlib")):
            pass
        assert seen == ["orders"]
        (message,) = read(store)
        assert message.plain_body() == b"long " * 50 and len(message.body) < 250


def test_of_many_threads_one_decides(tmp_path: Path, clock: FakeClock) -> None:
    outcomes: list[str] = []

    def decide(number: int) -> None:
        try:
            (service.commit if number % 2 else service.rollback)("t1").check()
            outcomes.append("commit" if number % 2 else "rollback")
        except TransactionDecided:
            pass

    with opened(tmp_path, clock) as (store, service):
        service.begin(order(1))
        threads = [threading.Thread(target=decide, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(outcomes) == 1
        assert bodies(store) == ([b"order 1"] if outcomes == ["commit"] else [])


def test_many_threads_with_transactions_of_their_own(tmp_path: Path, clock: FakeClock) -> None:
    def work(first: int) -> None:
        for number in range(first, first + 20):
            transaction = service.begin(order(number))
            (transaction.commit if number % 2 else transaction.rollback)().check()

    with opened(tmp_path, clock) as (store, service):
        threads = [threading.Thread(target=work, args=(100 * number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        expected = {
            b"order %d" % number for first in range(6) for number in range(100 * first + 1, 100 * first + 20, 2)
        }
        assert sorted(bodies(store)) == sorted(expected)
        assert service.undecided() == []


def test_the_service_runs_in_its_own_thread_with_the_systems_clock(tmp_path: Path) -> None:
    config = CONFIG.with_changes(
        transaction_check_interval=20, transaction_time_out=0, transaction_op_batch_interval=10
    )
    asked = threading.Event()

    def answer(_: object) -> Decision:
        asked.set()
        return Decision.COMMIT

    with open_store(tmp_path, config) as store:
        service = service_of(store)
        service.on_check(answer)
        service.begin(order(1))
        assert asked.wait(10)
        for _ in range(500):
            if bodies(store) and read(store, OP):
                break
            threading.Event().wait(0.01)
        assert bodies(store) == [b"order 1"] and len(read(store, OP)) == 1
    assert DISCARD not in {info.topic for info in store._queues.all()}
