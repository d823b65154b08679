"""The next offsets of queues: one object has them, and its tables are changed in place."""

from __future__ import annotations

from pathlib import Path

from tests.store.small_store import SMALL

from flintlog import Message, open_store
from flintlog.store.log.queue_offsets import OffsetsBefore, QueueOffsets, apply_moves


def test_a_rebuild_changes_the_table_that_the_kernel_has(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL) as store:
        queues, log = store._engine.parts.queues, store._engine.log
        assert store.put(Message("orders", b"1")).queue_offset == 0
        store.wait_dispatched()
        queues.offsets.by_queue["expired", 0] = 5
        queues.rebuild_offsets(0)
        assert log.fast_put.next_offsets is log.offsets.by_queue is queues.offsets.by_queue
        assert queues.offsets.by_queue == {("orders", 0): 1}
        assert store.put(Message("orders", b"2")).queue_offset == 1


def test_moves_are_made_by_their_append_alone() -> None:
    offsets = QueueOffsets()
    offset, moves = offsets.plan(("orders", 1), 4, light=["%LMQ%dev", "%LMQ%dev"])
    assert (offset, offsets.next("orders", 1), offsets.next_light("%LMQ%dev")) == (0, 0, 0)
    apply_moves(moves)
    assert (offsets.next("orders", 1), offsets.next_light("%LMQ%dev")) == (4, 2)
    assert (offsets.given("orders", 1), offsets.given("%LMQ%dev", 0), offsets.given("%LMQ%dev", 1)) == (4, 2, 0)
    assert (offsets.given_count, offsets.given_by_queue()) == (4, {("orders", 1): 4})


def test_deleted_queues_go_on_where_they_ended() -> None:
    offsets = QueueOffsets()
    offsets.take({("orders", 0): 7, ("made anew", 0): 2}, {("orders", 0): 5, ("made anew", 0): 3, ("gone", 1): 4})
    assert offsets.by_queue == {("orders", 0): 7, ("made anew", 0): 3, ("gone", 1): 4}


def test_a_deleted_light_queue_keeps_its_offsets_and_does_not_count() -> None:
    offsets = QueueOffsets()
    offsets.take({("%LMQ%a", 0): 1, ("%LMQ%a", 3): 9}, {("%LMQ%b", 0): 2})
    assert (offsets.light_count, offsets.has_light("%LMQ%a"), offsets.has_light("%LMQ%b")) == (1, True, False)
    assert (offsets.next_light("%LMQ%a"), offsets.next_light("%LMQ%b")) == (1, 2)
    apply_moves(offsets.plan(("orders", 0), light=["%LMQ%b"])[1])
    assert (offsets.light_count, offsets.next_light("%LMQ%b")) == (2, 3)
    offsets.delete_light("%LMQ%b")
    offsets.delete_light("%LMQ%never")
    assert (offsets.light_count, offsets.next_light("%LMQ%b")) == (1, 3)
    offsets.forget("%LMQ%b", 0)
    assert (offsets.light_count, offsets.next_light("%LMQ%b")) == (1, 0)


def test_an_offset_that_is_set_moves_a_light_queue_only_as_queue_0() -> None:
    offsets = QueueOffsets()
    offsets.set("%LMQ%a", 3, 9)
    assert (offsets.next("%LMQ%a", 3), offsets.next_light("%LMQ%a")) == (9, 0)
    offsets.set("%LMQ%a", 0, 4)
    assert (offsets.next("%LMQ%a", 0), offsets.next_light("%LMQ%a")) == (4, 4)


def test_forgotten_queues_stay_in_the_count() -> None:
    offsets = QueueOffsets()
    offsets.set("orders", 0, 3)
    offsets.forget("orders", 0)
    assert (offsets.next("orders", 0), offsets.given_count) == (0, 3)


def test_a_batch_that_is_cut_back_sets_its_offsets_back() -> None:
    offsets, before = QueueOffsets(), OffsetsBefore()
    offsets.set("orders", 0, 3)
    for _ in range(2):
        for queue_id in (0, 1):
            _, moves = offsets.plan(("orders", queue_id), light=["%LMQ%a"])
            before.note(moves)
            apply_moves(moves)
    before.set_back()
    assert offsets.by_queue == {("orders", 0): 3}
    assert offsets.light_count == 0
