"""A topic that was deleted stays deleted, however the store stops; one made again keeps its messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from flintlog import Message, Store, open_store
from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.maintenance.verify.verify import verify
from flintlog.store.queues.deleted_queues import DeletedQueue
from tests.faults.world import ROOT, small_config

CONFIG = small_config(max_message_size=4096)
STOPS = ["clean", "clean after a closed batch", "killed", "killed after a thorough pass"]


def put(store: Store, topic: str, count: int) -> None:
    for number in range(count):
        store.put(Message(topic, b"%s %d" % (topic.encode(), number), keys=[f"{topic}-{number}"])).check()


def thorough_pass(store: Store) -> None:
    assert store._engine.flushing.queue_flush is not None
    store._engine.flushing.queue_flush.flush_all()


def stop(store: Store, medium: FaultyMedium, how: str) -> FaultyMedium:
    """The disk as the next opening finds it."""
    if how == "clean after a closed batch":
        store.put_closed([Message("other", b"closed")])
    if how == "killed after a thorough pass":
        thorough_pass(store)
        put(store, "other", 1)
    found = medium
    if how.startswith("killed"):
        found = medium.kill()
    store.shutdown()
    return found


@pytest.mark.parametrize("how", STOPS)
@pytest.mark.parametrize("is_counted", [False, True])
def test_a_deleted_topic_does_not_come_back(how: str, is_counted: bool) -> None:
    medium = FaultyMedium()
    store = open_store(ROOT, CONFIG, medium=medium)
    store.topics.create("gone")
    put(store, "gone", 6)
    if is_counted:
        thorough_pass(store)
    store.topics.delete("gone")
    put(store, "other", 10)
    with open_store(ROOT, CONFIG, medium=stop(store, medium, how)) as opened:
        assert "gone" not in {queue.topic for queue in opened.queues()}
        assert not opened.get("gone", 0, 0).messages
        assert not [finding for finding in opened.recovery if finding.id.endswith("-queues")]
        assert opened.max_offset("other", 0) >= 10


@pytest.mark.parametrize("how", STOPS)
@pytest.mark.parametrize("is_queue_lost", [False, True])
def test_a_topic_made_again_has_its_new_messages_alone(how: str, is_queue_lost: bool) -> None:
    medium = FaultyMedium()
    store = open_store(ROOT, CONFIG, medium=medium)
    store.topics.create("gone")
    put(store, "gone", 6)
    store.topics.delete("gone")
    store.topics.create("gone")
    put(store, "gone", 3)
    put(store, "other", 10)
    found = stop(store, medium, how)
    if is_queue_lost:
        found.remove_tree(ROOT / "consumequeue")
    with open_store(ROOT, CONFIG, medium=found) as opened:
        assert [message.queue_offset for message in opened.get("gone", 0, 6).messages] == [6, 7, 8]
        assert (opened.min_offset("gone", 0), opened.max_offset("gone", 0)) == (6, 9)
        assert opened.put(Message("gone", b"next", keys=["next"])).queue_offset == 9


@pytest.mark.parametrize("is_known", [True, False])
def test_verify_does_not_miss_what_was_deleted(tmp_path: Path, is_known: bool) -> None:
    with open_store(tmp_path, small_config()) as store:
        store.topics.create("gone")
        put(store, "gone", 6)
        put(store, "other", 2)
        store.topics.delete("gone")
        if is_known:
            store.topics.create("gone")
    assert verify(tmp_path).findings == []
    with open_store(tmp_path, small_config()) as store:
        put(store, "gone", 3)
        put(store, "other", 2)
    assert verify(tmp_path).findings == []


def test_verify_misses_new_messages_of_a_topic_that_was_made_again(tmp_path: Path) -> None:
    with open_store(tmp_path, small_config()) as store:
        put(store, "gone", 6)
        store.topics.delete("gone")
        put(store, "gone", 3)
        put(store, "other", 2)
    (file,) = (tmp_path / "consumequeue" / "gone" / "0").iterdir()
    content = file.read_bytes()
    file.write_bytes(content[: 20 * 7] + bytes(20) + content[20 * 8 :])
    (found,) = verify(tmp_path).findings
    assert (found.id, found.evidence) == ("missing-queue-entries", "queue offset 7 of gone/0 have no queue entry")


@pytest.mark.parametrize("way", ["topics.delete", "clean_unused_topics"])
def test_deleted_messages_are_durable_before_the_note_of_their_deletion(way: str) -> None:
    """Otherwise a power cut takes them, the topic goes on after their offsets, and the log has a gap for good."""
    config = small_config("async")
    for seed in range(4):
        medium = FaultyMedium()
        store = open_store(ROOT, config, medium=medium)
        put(store, "gone", 2)
        store.flush()
        last = store.put(Message("gone", b"last" * 1000)).check()
        if way == "topics.delete":
            store.topics.delete("gone")
        else:
            assert store.cleaning.clean_unused_topics([]) == ["gone"]
        medium = medium.crash(seed)
        store.shutdown()
        with open_store(ROOT, config, medium=medium) as store:
            assert store.put(Message("gone", b"new")).check().queue_offset == last.queue_offset + 1
            assert store.get("gone", 0, last.queue_offset + 1).messages[0].body == b"new"
        assert verify(ROOT, config, medium=medium).findings == []
        for folder in ("flintlog", "consumequeue"):
            medium.remove_tree(ROOT / folder)
        with open_store(ROOT, config, medium=medium) as store:  # what a slave, or a rebuild from the log alone, has
            assert [message.queue_offset for message in store.get("gone", 0, 0).messages] == [0, 1, 2, 3]


def test_a_message_that_is_put_during_a_deletion_is_not_in_its_note(monkeypatch: pytest.MonkeyPatch) -> None:
    """It begins the new queue. If a power cut takes it, its offset is free."""
    medium = FaultyMedium()
    config = small_config("async")
    store = open_store(ROOT, config, medium=medium)
    put(store, "gone", 2)
    queues = store._engine.parts.queues
    remove_topic = queues.remove_topic

    def put_meanwhile(topic: str, dispatched: int) -> None:
        queues.offsets.set(topic, 0, 3)  # as a put does that has its offset, and waits for dispatch
        remove_topic(topic, dispatched)

    monkeypatch.setattr(queues, "remove_topic", put_meanwhile)
    store.topics.delete("gone")
    assert queues.deleted.next_offset("gone", 0) == 2
    assert queues.offsets.next("gone", 0) == 3
    store.shutdown()


@pytest.mark.parametrize("deletions", [1, 2])
def test_offsets_of_deleted_messages_that_a_power_cut_took_are_no_gap(deletions: int) -> None:
    """An earlier version noted a deletion before the deleted messages were durable."""
    medium = FaultyMedium()
    with open_store(ROOT, CONFIG, medium=medium) as store:
        put(store, "gone", 2)
        for _ in range(deletions):
            queues, lost = store._engine.parts.queues, store.max_offset("gone", 0)
            store.topics.delete("gone")
            queues.deleted.add([DeletedQueue("gone", 0, lost + 1, store.max_physical_offset)])
            queues.offsets.set("gone", 0, lost + 1)
            put(store, "gone", 1)
    assert verify(ROOT, CONFIG, medium=medium).findings == []


def test_a_gap_after_the_offsets_of_a_deletion_is_reported() -> None:
    medium = FaultyMedium()
    with open_store(ROOT, CONFIG, medium=medium) as store:
        put(store, "gone", 2)
        store.topics.delete("gone")
        store._engine.parts.queues.offsets.set("gone", 0, 3)
        put(store, "gone", 1)
    (found,) = verify(ROOT, CONFIG, medium=medium).findings
    assert (found.id, found.evidence) == ("queue-gap", "queue offsets 2 to 2 of gone/0 were never given")
