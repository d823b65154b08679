"""A topic that was deleted stays deleted, however the store stops; one made again keeps its messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from flintlog import Message, Store, open_store
from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.maintenance.verify.verify import verify
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


@pytest.mark.parametrize("deletions", [1, 2])
def test_offsets_of_deleted_messages_that_a_power_cut_took_are_no_gap(deletions: int) -> None:
    """The note of a deletion is durable at once, the deleted messages may not be. Their offsets are not given again."""
    config = small_config("async")
    medium = FaultyMedium()
    store = open_store(ROOT, config, medium=medium)
    put(store, "gone", 2)
    for number in range(deletions):
        store.flush()
        lost = store.put(Message("gone", b"lost" * 1000)).check()
        store.topics.delete("gone")
        medium = medium.crash(number)
        store.shutdown()
        store = open_store(ROOT, config, medium=medium)
        assert store.max_physical_offset == lost.physical_offset, "the cut took nothing"
        assert store.put(Message("gone", b"new")).check().queue_offset == lost.queue_offset + 1
    store.close()
    assert verify(ROOT, config, medium=medium).findings == []


def test_a_gap_after_the_offsets_of_a_deletion_is_reported() -> None:
    medium = FaultyMedium()
    with open_store(ROOT, CONFIG, medium=medium) as store:
        put(store, "gone", 2)
        store.topics.delete("gone")
        store._engine.parts.queues.offsets.set("gone", 0, 3)
        put(store, "gone", 1)
    (found,) = verify(ROOT, CONFIG, medium=medium).findings
    assert (found.id, found.evidence) == ("queue-gap", "queue offsets 2 to 2 of gone/0 were never given")
