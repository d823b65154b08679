"""After an unclean stop: queue files that lost their content, and checkpoints that are wrong, cost nothing.

The log is whole in all of these. Every acknowledged message must be at its offset, and no offset is given again,
whether or not topics were deleted or files expired since the checkpoint.
"""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from flintlog import Message, Store, StoreConfig, open_store
from flintlog.disk.faulty.faulty_disk import FaultyMedium
from tests.faults.world import ROOT, small_config

ENTRIES = 8
CONFIG = small_config(mapped_file_size_consume_queue=20 * ENTRIES, message_index_enable=False)
NOTE = ROOT / "flintlog" / "queues.json"
FOLDER = ROOT / "consumequeue" / "orders" / "0"
LOGICS_AT = 40


def put(store: Store, topic: str, count: int) -> None:
    start = store.max_offset(topic, 0)
    for number in range(start, start + count):
        receipt = store.put(Message(topic, b"%s %d" % (topic.encode(), number))).check()
        assert receipt.queue_offset == number


def thorough_pass(store: Store) -> None:
    assert store._engine.flushing.queue_flush is not None
    store._engine.flushing.queue_flush.flush_all()


def crashed(before: int, after: int, *, between: str = "") -> FaultyMedium:
    """A store with messages before and after its checkpoint that was killed: nothing is lost yet."""
    medium = FaultyMedium()
    store = open_store(ROOT, CONFIG, medium=medium)
    put(store, "old", 3)
    put(store, "quiet", 2 * ENTRIES + 3)
    put(store, "orders", before)
    thorough_pass(store)
    if between == "deleted":
        store.topics.delete("old")
    elif between == "expired":
        store._engine.parts.queues.delete_expired(0)
    put(store, "orders", after)
    put(store, "new", 5)
    found = medium.kill()
    store.shutdown()
    return found


def check(medium: FaultyMedium, count: int, config: StoreConfig = CONFIG) -> list[str]:
    with open_store(ROOT, config, medium=medium) as store:
        for topic, wanted in (("orders", count), ("new", 5), ("quiet", 2 * ENTRIES + 3)):
            found = [store.get(topic, 0, number, 1).messages for number in range(wanted)]
            bodies = [[message.body for message in messages] for messages in found]
            assert bodies == [[b"%s %d" % (topic.encode(), number)] for number in range(wanted)], topic
            assert store.put(Message(topic, b"next")).queue_offset == wanted, topic
        return [finding.id for finding in store.recovery]


def lose_content(medium: FaultyMedium, path: Path, start: int = 0, stop: int | None = None) -> None:
    content = medium.read(path)
    stop = len(content) if stop is None else stop
    medium.write(path, content[:start] + bytes(stop - start) + content[stop:])


@pytest.mark.parametrize("between", ["", "deleted", "expired"])
@pytest.mark.parametrize("lost", range(1, 8))
def test_files_after_the_checkpoint_that_lost_their_content_are_built_again(between: str, lost: int) -> None:
    medium = crashed(ENTRIES + 2, 6 * ENTRIES, between=between)
    for number in range(lost, 8):
        lose_content(medium, FOLDER / f"{number * 20 * ENTRIES:020d}", 40 if number == 1 else 0)
    assert check(medium, 7 * ENTRIES + 2) == []


@pytest.mark.parametrize("between", ["", "deleted", "expired"])
@pytest.mark.parametrize("is_empty", [True, False])
@pytest.mark.parametrize("number", range(4))
def test_a_file_before_the_checkpoint_that_lost_its_content_is_noticed(
    between: str, is_empty: bool, number: int
) -> None:
    medium = crashed(5 * ENTRIES, 6 * ENTRIES, between=between)
    path = FOLDER / f"{number * 20 * ENTRIES:020d}"
    medium.write(path, b"") if is_empty else lose_content(medium, path)
    assert check(medium, 11 * ENTRIES) in (["damaged-queues"], ["missing-queues"])


@pytest.mark.parametrize("is_noted", [True, False])
@pytest.mark.parametrize("start", range(0, 5 * ENTRIES, 3))
def test_a_hole_before_the_checkpoint_is_noticed(start: int, is_noted: bool) -> None:
    medium = crashed(5 * ENTRIES, ENTRIES)
    path = FOLDER / f"{start // ENTRIES * 20 * ENTRIES:020d}"
    at = start % ENTRIES * 20
    lose_content(medium, path, at, min(at + 60, 20 * ENTRIES))
    if not is_noted:
        medium.remove(NOTE)
    assert check(medium, 6 * ENTRIES) == ["damaged-queues"]


def test_the_end_of_a_queue_that_got_nothing_since_the_checkpoint_is_missed() -> None:
    medium = crashed(ENTRIES, 2, between="deleted")
    medium.remove(ROOT / "consumequeue" / "quiet" / "0" / f"{2 * 20 * ENTRIES:020d}")
    assert check(medium, ENTRIES + 2) == ["damaged-queues"]


def test_a_queue_that_is_gone_is_missed_after_a_deletion() -> None:
    medium = crashed(ENTRIES, 2, between="deleted")
    medium.remove_tree(ROOT / "consumequeue" / "quiet")
    assert check(medium, ENTRIES + 2) == ["missing-queues"]


def test_only_the_doubtful_queue_is_built_again() -> None:
    medium = crashed(5 * ENTRIES, 2)
    before = medium.read(ROOT / "consumequeue" / "quiet" / "0" / f"{0:020d}")
    lose_content(medium, FOLDER / f"{4 * 20 * ENTRIES:020d}", 40)
    with open_store(ROOT, CONFIG, medium=medium) as store:
        (finding,) = store.recovery
        assert "orders/0 had 40 messages at the checkpoint, and has entries up to 34" in finding.evidence
        entry = store._engine.parts.queues.get("orders", 0)
        assert entry is not None and store.recovery.dispatched_from > 0
        assert medium.read(ROOT / "consumequeue" / "quiet" / "0" / f"{0:020d}") == before
    assert check(medium, 5 * ENTRIES + 2) == []


@pytest.mark.parametrize("is_noted", [True, False])
@pytest.mark.parametrize("bit", range(64))
def test_a_flipped_bit_of_the_checkpoint_costs_nothing(bit: int, is_noted: bool) -> None:
    """As a power loss leaves it: the queue entries after the checkpoint are lost."""
    medium = crashed(64, 200)
    if not is_noted:
        medium.remove(NOTE)
    for number in range(8, 40):
        path = FOLDER / f"{number * 20 * ENTRIES:020d}"
        if medium.exists(path):
            lose_content(medium, path)
    medium.flip_bit(ROOT / "checkpoint", LOGICS_AT + bit // 8, bit % 8)
    check(medium, 264)


@pytest.mark.parametrize("number", range(6))
def test_every_field_of_the_checkpoint_may_be_wrong(number: int) -> None:
    for value in (1, 1 << 20, (1 << 62) - 1, -1, -(1 << 63)):
        medium = crashed(64, 20)
        content = medium.read(ROOT / "checkpoint")
        changed = content[: 8 * number] + struct.pack(">q", value) + content[8 * number + 8 :]
        medium.write(ROOT / "checkpoint", changed)
        check(medium, 84)


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("offset", [(1 << 63) - 1, (1 << 62), -1, 0, 77])
@pytest.mark.parametrize("size", [97, (1 << 31) - 1])
def test_a_garbage_entry_at_the_end_of_a_queue_is_no_bare_error(
    is_clean: bool, read_only: bool, offset: int, size: int
) -> None:
    medium = FaultyMedium()
    with open_store(ROOT, CONFIG, medium=medium) as store:
        put(store, "t", 5)
        thorough_pass(store)
        if not is_clean:
            medium = medium.kill()
    path = ROOT / "consumequeue" / "t" / "0" / f"{0:020d}"
    content = medium.read(path)
    medium.write(path, content[:80] + struct.pack(">qiq", offset, size, 0) + content[100:])
    with open_store(ROOT, CONFIG, medium=medium, read_only=read_only) as store:
        assert [message.body for message in store.get("t", 0, 0).messages] == [b"t %d" % number for number in range(5)]
        assert [finding.id for finding in store.recovery] == ["damaged-queues"]
        if not read_only:
            assert store.put(Message("t", b"next")).queue_offset == 5


def test_an_index_that_the_power_took_is_no_finding() -> None:
    """No checkpoint vouches for an index file that was never full: a power loss may take it with its name."""
    medium = FaultyMedium()
    config = small_config()
    with open_store(ROOT, config, medium=medium) as store:
        store.put(Message("t", b"x", keys=["a"])).check()
        medium = medium.kill()
    medium.remove_tree(ROOT / "index")
    with open_store(ROOT, config, medium=medium) as store:
        assert list(store.recovery) == []
        assert len(store.query("t", "a")) == 1
