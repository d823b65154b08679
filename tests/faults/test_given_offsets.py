"""A log that lost its end, and queues that are built again from it: no offset is given twice, whenever the power fails.

The queue files know which offsets were given, and the rebuild deletes them. What they know is kept in a note first.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from flintlog import Message, Store, open_store
from flintlog.disk.faulty.faulty_disk import FaultyMedium
from tests.faults.stopping import PowerLost, StoppingMedium
from tests.faults.world import ROOT, SEGMENT_BYTES, small_config

BATCHES = {"batches": "BatchCQ", "lone-batches": "BatchCQ"}
TOPICS = ("orders", "lone", *BATCHES)
CONFIG = small_config(message_index_enable=False, topic_queue_types=BATCHES)
MAX_STEPS = 300
STEPS = pytest.mark.parametrize(("way", "stride"), [("kill", 1), ("crash", 3)], ids=["kill", "crash"])


def put(store: Store, topic: str, count: int = 1, size: int = 500) -> int:
    """Put messages; the offset of the first."""
    receipts = [store.put(Message(topic, bytes(size))).check() for _ in range(count)]
    return receipts[0].queue_offset


def kill(store: Store, medium: FaultyMedium) -> FaultyMedium:
    found = medium.kill()
    store.shutdown()
    return found


def pass_thoroughly(store: Store) -> None:
    assert store._engine.flushing.queue_flush is not None
    store._engine.flushing.queue_flush.flush_all()


def log_files(medium: FaultyMedium) -> list[Path]:
    return sorted(ROOT / "commitlog" / info.name for info in medium.listing(ROOT / "commitlog"))


def short_log(*, is_clean: bool) -> tuple[FaultyMedium, dict[str, int], int]:
    """A store whose log lost its last file, and some queue of it; the next offset of each queue, and the log's end."""
    medium = FaultyMedium()
    store = open_store(ROOT, CONFIG, medium=medium)
    put(store, "other", 5)
    put(store, "orders", 30)
    put(store, "batches", 10)
    while store.max_physical_offset < 2 * SEGMENT_BYTES:
        put(store, "other")
    for topic in TOPICS:
        put(store, topic, 4)
    given = {topic: store.max_offset(topic, 0) for topic in TOPICS}
    end = store.max_physical_offset
    pass_thoroughly(store)
    if is_clean:
        store.shutdown()
    else:
        medium = kill(store, medium)
        medium.remove(ROOT / "flintlog" / "queues.json")
    for file in log_files(medium):
        if int(file.name) >= 2 * SEGMENT_BYTES:  # and one that was made ahead
            medium.remove(file)
    medium.sync_directory(ROOT / "commitlog")
    medium.remove_tree(ROOT / "consumequeue" / "other" / "0")
    medium.sync_directory(ROOT / "consumequeue" / "other")
    return medium, given, end


def check_nothing_is_given_again(
    medium: FaultyMedium, given: dict[str, int], end: int, *, is_covered: bool = False
) -> None:
    """In this opening, and in those that follow it; `is_covered`: a checkpoint is written before each kill."""
    for _ in range(2):
        store = open_store(ROOT, CONFIG, medium=medium)
        assert "short-log" in [finding.id for finding in store.recovery]
        assert store.max_physical_offset >= end
        if is_covered:
            pass_thoroughly(store)
        medium = kill(store, medium)
    first = {}
    with open_store(ROOT, CONFIG, medium=medium) as store:
        for topic in TOPICS:
            first[topic] = put(store, topic)
            assert first[topic] >= given[topic], topic
        check_are_there(store, first)
        medium = kill(store, medium)
    for _ in range(2):
        with open_store(ROOT, CONFIG, medium=medium) as store:
            check_are_there(store, first)


def check_are_there(store: Store, first: dict[str, int]) -> None:
    for topic, offset in first.items():
        assert [message.queue_offset for message in store.get(topic, 0, offset, 1).messages] == [offset], topic


@STEPS
@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "unclean"])
def test_the_power_fails_at_each_step_of_a_rebuild_of_a_short_log(is_clean: bool, way: str, stride: int) -> None:
    found, given, end = short_log(is_clean=is_clean)
    for step in range(0, MAX_STEPS, stride):
        dying = StoppingMedium.over(found, step)
        try:
            store = open_store(ROOT, CONFIG, medium=dying)
        except PowerLost:
            left = dying.kill() if way == "kill" else dying.crash(step)
            check_nothing_is_given_again(left, given, end)
        else:
            dying.left = MAX_STEPS
            store.shutdown()
            assert step > 10
            return
    raise AssertionError("an opening that does not end")


@pytest.mark.parametrize("is_covered", [True, False], ids=["covered", "not covered"])
def test_queues_whose_folders_are_lost_with_the_end_of_the_log_go_on_counting(is_covered: bool) -> None:
    """The notes are all that knows of them, and of the log's end."""
    found, given, end = short_log(is_clean=True)
    for folder in ("consumequeue/orders", "consumequeue/lone", "batchconsumequeue/lone-batches"):
        found.remove_tree(ROOT / folder)
    check_nothing_is_given_again(found, given, end, is_covered=is_covered)


@STEPS
def test_the_power_fails_at_each_step_of_an_opening_without_a_log(way: str, stride: int) -> None:
    """After a crash before the first sync queues may be there without a log."""
    medium = FaultyMedium()
    store = open_store(ROOT, CONFIG.with_changes(flush="async"), medium=medium)
    for topic in TOPICS:
        put(store, topic, 4)
    store.wait_dispatched()
    store._engine.parts.queues.sync.flush_all()
    store._engine.parts.queues.sync_names()
    found = kill(store, medium)
    for path in (*log_files(found), ROOT / "checkpoint"):
        if found.exists(path):
            found.remove(path)
            found.sync_directory(path.parent)
    for step in range(0, MAX_STEPS, stride):
        dying = StoppingMedium.over(found, step)
        try:
            store = open_store(ROOT, CONFIG, medium=dying)
        except PowerLost:
            left = dying.kill() if way == "kill" else dying.crash(step)
            check_goes_on_without_a_log(left)
        else:
            dying.left = MAX_STEPS
            check_goes_on_without_a_log(kill(store, dying))
            assert step > 10
            return
    raise AssertionError("an opening that does not end")


def check_goes_on_without_a_log(medium: FaultyMedium) -> None:
    for _ in range(2):
        medium = kill(open_store(ROOT, CONFIG, medium=medium), medium)
    with open_store(ROOT, CONFIG, medium=medium) as store:
        assert {topic: put(store, topic) for topic in TOPICS} == dict.fromkeys(TOPICS, 4)


def test_a_deleted_topic_goes_on_counting_without_a_log_and_its_messages_are_seen() -> None:
    """The new log begins at 0, below where the topic was deleted."""
    medium = FaultyMedium()
    store = open_store(ROOT, CONFIG.with_changes(flush="async"), medium=medium)
    put(store, "orders", 4)
    store.topics.delete("orders")
    found = kill(store, medium)
    for path in (*log_files(found), ROOT / "checkpoint"):
        if found.exists(path):
            found.remove(path)
    for expected in (4, 5):
        with open_store(ROOT, CONFIG, medium=found) as store:
            assert put(store, "orders") == expected
            check_are_there(store, {"orders": expected})
