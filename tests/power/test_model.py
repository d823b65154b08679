"""The model of what workers promised, in situations that a seed meets only now and then."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from flintlog import Message, Receipt, Store, StoreConfig, open_store
from tests.power.checks import check_cut
from tests.power.model import Broken, Model, State
from tests.power.plan import ORDERS, TEMPORARY, Plan, without_services
from tests.power.worker import body_of

CONFIG = StoreConfig(
    flush="sync",
    mapped_file_size_commit_log=64 * 1024,
    mapped_file_size_consume_queue=20 * 50,
    max_hash_slot_num=100,
    max_index_num=400,
    services=frozenset({"schedule", "transaction"}),
    message_delay_level="1s 1s",
)
PLAN = Plan(0, CONFIG, deletes=False, lives=())


def put(store: Store, key: str, delay_level: int = 0) -> Receipt:
    return store.put(Message(ORDERS, body_of(key), queue_id=0, keys=[key], delay_level=delay_level)).check()


def acknowledge(model: Model, key: str, receipt: Receipt) -> None:
    model.take(["ack", True, [[key, ORDERS, 0, receipt.queue_offset, receipt.physical_offset]]])


def test_what_only_the_checks_copy_delivered_is_no_promise(tmp_path: Path) -> None:
    """A delayed message whose receipt never arrived is due. The check's copy delivers it; the next life has not yet.

    The model must not hold the place in the copy for one that was given: the next life gives it to another message.
    """
    model = Model()
    left = tmp_path / "left"
    long_ago_ms = int(time.time() * 1000) - 60_000
    with open_store(tmp_path / "store", CONFIG, clock=lambda: long_ago_ms) as store:
        acknowledge(model, "first", put(store, "first"))
        put(store, "unheard", delay_level=1)  # the cut came before the line that reports it
        heard = put(store, "heard", delay_level=1)
        model.take(["delayed", True, "heard", ORDERS, heard.physical_offset])
        shutil.copytree(tmp_path / "store", left)
    model.cut()
    check_cut(left, PLAN, model, tmp_path)  # waits for `heard`, and `unheard` is delivered before it
    assert model.messages.keys() == {"first"}
    with open_store(left, without_services(CONFIG)) as store:
        second = put(store, "second")
        acknowledge(model, "second", second)
    assert second.queue_offset == 1, "the place that `unheard` had in the copy"
    model.take(["stopped"])
    check_cut(left, PLAN, model, tmp_path)
    assert model.messages.keys() == {"first", "second"}


def test_what_the_log_held_at_the_opening_is_a_promise_though_nobody_heard_of_it() -> None:
    model = Model()
    model.settle({(ORDERS, 0, 0): ("unheard", 100), (ORDERS, 0, 1): ("delivered", 300)}, [], 0, 300)
    assert [(promise.key, promise.physical) for promise in model.messages.values()] == [("unheard", 100)]
    assert model.given == {(ORDERS, 0, 0): "unheard"}


def test_a_deletion_that_the_first_check_found_done_is_no_loss_at_the_second() -> None:
    """A worker is killed inside a deletion: `deleting` was reported, `deleted` was not."""
    model = Model()
    model.take(["ack", True, [["kept", ORDERS, 0, 0, 100], ["doomed", "temporary", 0, 0, 200]]])
    model.take(["deleting", "temporary"])
    model.cut()
    model.settle({(ORDERS, 0, 0): ("kept", 100)}, [], 0, 300)
    assert model.messages.keys() == {"kept"} and model.gone == {"doomed"}


def test_a_deleted_topic_may_begin_at_0_again_only_once_retention_ran() -> None:
    model = Model()
    model.take(["ack", True, [["first", TEMPORARY, 0, 0, 100]]])
    model.take(["deleting", TEMPORARY])
    model.take(["deleted", TEMPORARY])
    again = ["ack", True, [["again", TEMPORARY, 0, 0, 9000]]]
    with pytest.raises(Broken, match="offset given twice"):
        model.take(again)
    model.take(["retaining"])
    model.take(again)


def test_a_stop_promises_nothing_of_what_an_earlier_kill_took_from_the_write_buffers() -> None:
    model = Model(has_pool=True)
    model.take(["ack", False, [["buffered", ORDERS, 0, 0, 0]]])
    model.killed()
    model.take(["open", []])
    model.take(["ack", False, [["later", ORDERS, 0, 1, 100]]])
    model.take(["stopped"])
    assert {key: promise.state for key, promise in model.messages.items()} == {
        "buffered": State.MAYBE,
        "later": State.DURABLE,
    }
