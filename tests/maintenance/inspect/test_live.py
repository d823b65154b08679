"""Live figures of a store, seen from outside: exact rates by a clock that is handed in, beside a writer."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.maintenance.verify.test_verify import snapshot

from flintlog import Message, Store, StoreConfig, open_store
from flintlog.errors import DamagedStore
from flintlog.maintenance.inspect.live import SAVED_WITHIN_S, Snapshot, TopicSnapshot, Watch
from flintlog.maintenance.inspect.overview import queues
from flintlog.maintenance.inspect.queue_ends import queue_begin, queue_end
from flintlog.maintenance.inspect.store_files import look_at

Golden = Callable[[str], Path]
CASES = ["batch", "cqext", "delay", "multi", "plain", "transaction"]
SMALL = StoreConfig(
    flush="async",
    mapped_file_size_commit_log=16 * 1024,
    mapped_file_size_consume_queue=20 * 100,
    max_hash_slot_num=100,
    max_index_num=400,
)


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


def watch(path: Path, clock: Clock) -> Watch:
    return Watch(path, now_ms=lambda: 1_700_000_000_000, monotonic=clock)


def of(snapshot: Snapshot, name: str) -> TopicSnapshot:
    return next(topic for topic in snapshot.topics if topic.topic == name)


def put(store: Store, topic: str, count: int, queue_id: int = 0) -> int:
    """The bytes that so many messages take in the log."""
    receipts = [store.put(Message(topic, b"x" * 100, queue_id=queue_id)) for _ in range(count)]
    store.wait_dispatched()
    return sum(receipt.size for receipt in receipts)


def test_the_first_look_has_totals_and_no_rates(tmp_path: Path, clock: Clock) -> None:
    with open_store(tmp_path / "s", SMALL) as store:
        put(store, "a", 7)
        snapshot = watch(tmp_path / "s", clock).look()
    assert (snapshot.messages, snapshot.is_running, snapshot.span_s) == (7, True, None)
    assert snapshot.messages_a_second is None and of(snapshot, "a").messages_a_second is None
    assert snapshot.max_offset == 7 * (snapshot.max_offset // 7) > 0


def test_rates_are_what_came_by_the_time_that_passed(tmp_path: Path, clock: Clock) -> None:
    with open_store(tmp_path / "s", SMALL) as store:
        put(store, "a", 5)
        looking = watch(tmp_path / "s", clock)
        looking.look()
        size_a, size_b = put(store, "a", 30), put(store, "b", 10)
        last = put(store, "c", 1)
        clock.seconds += 4.0
        snapshot = looking.look()
        assert of(snapshot, "a").messages_a_second == 30 / 4
        assert of(snapshot, "a").bytes_a_second == size_a / 4
        assert of(snapshot, "b").messages_a_second == 10 / 4
        assert snapshot.bytes_a_second == (size_a + size_b + last) / 4
        assert (of(snapshot, "a").messages, of(snapshot, "c").messages) == (35, 1)
        assert snapshot.max_offset == store.max_physical_offset
        assert of(snapshot, "c").messages_a_second == 1 / 4
        clock.seconds += 2.0
        assert looking.look().messages_a_second == 0


def test_nothing_is_missed_or_counted_twice_over_many_files(tmp_path: Path, clock: Clock) -> None:
    with open_store(tmp_path / "s", SMALL) as store:
        looking = watch(tmp_path / "s", clock)
        put(store, "a", 1)
        looking.look()
        counted = 0.0
        for round_ in range(12):
            put(store, "a", 37 + round_)
            clock.seconds += 1.0
            counted += looking.look().messages_a_second or 0
        clock.seconds += 1.0
        counted += looking.look().messages_a_second or 0
        assert len(list((tmp_path / "s" / "commitlog").iterdir())) > 4
    assert counted == sum(37 + round_ for round_ in range(12))


def test_a_record_that_is_half_there_is_not_counted_under_a_wrong_name(tmp_path: Path, clock: Clock) -> None:
    with open_store(tmp_path / "s", SMALL) as store:
        put(store, "a", 2)
        whole = store.put(Message("wanted", b"y" * 50))
    log = tmp_path / "s" / "commitlog" / "0".rjust(20, "0")
    data = log.read_bytes()
    place = data.index(b"wanted")
    before = data[: whole.physical_offset] + bytes(len(data) - whole.physical_offset)
    log.write_bytes(before)
    looking = watch(tmp_path / "s", clock)
    looking.look()
    log.write_bytes(data[: place + 1] + bytes(len(data) - place - 1))  # the body is there, the topic not yet
    clock.seconds += 1.0
    assert looking.look().messages_a_second == 0
    log.write_bytes(data)
    clock.seconds += 1.0
    snapshot = looking.look()
    assert {topic.topic for topic in snapshot.topics if topic.messages_a_second} == {"wanted"}


def test_a_log_that_was_replaced_begins_anew(tmp_path: Path, clock: Clock) -> None:
    for name, count in (("long", 400), ("short", 3)):
        with open_store(tmp_path / name, SMALL) as store:
            put(store, "a", count)
    looking = watch(tmp_path / "s", clock)
    shutil.copytree(tmp_path / "long", tmp_path / "s")
    looking.look()
    shutil.rmtree(tmp_path / "s")
    shutil.copytree(tmp_path / "short", tmp_path / "s")
    clock.seconds += 1.0
    snapshot = looking.look()
    assert (snapshot.messages_a_second, snapshot.messages) == (None, 3)


def test_a_log_that_was_cut_within_its_file_begins_anew(tmp_path: Path, clock: Clock) -> None:
    with open_store(tmp_path / "s", SMALL) as store:
        put(store, "a", 3)
        looking = watch(tmp_path / "s", clock)
        looking.look()
        put(store, "a", 10)
        clock.seconds += 1.0
        assert looking.look().messages_a_second == 10
        end = store.max_physical_offset
    log = tmp_path / "s" / "commitlog" / "0".rjust(20, "0")
    data = log.read_bytes()
    log.write_bytes(data[: end // 13 * 3] + bytes(len(data) - end // 13 * 3))
    clock.seconds += 1.0
    snapshot = looking.look()
    assert (snapshot.messages_a_second, snapshot.max_offset) == (None, end // 13 * 3)


def test_messages_of_inner_batches_are_counted_each(tmp_path: Path, clock: Clock) -> None:
    config = SMALL.with_changes(topic_queue_types={"b": "BatchCQ"})
    with open_store(tmp_path / "s", config) as store:
        looking = watch(tmp_path / "s", clock)
        put(store, "a", 1)
        looking.look()
        store.put(Message("b", b"abc", sys_flag=0x80, properties={"INNER_NUM": "6"})).check()
        put(store, "a", 1)
        clock.seconds += 1.0
        snapshot = looking.look()
    assert (of(snapshot, "b").messages_a_second, of(snapshot, "b").messages) == (6, 6)


def test_lag_and_rate_of_a_group(tmp_path: Path, clock: Clock) -> None:
    with open_store(tmp_path / "s", SMALL) as store:
        put(store, "a", 40, queue_id=0)
        put(store, "a", 20, queue_id=1)
        store.consumer_offsets.commit("g", "a", 0, 10)
        store.consumer_offsets.commit("g", "a", 1, 0)
        store.consumer_offsets.save()
        looking = watch(tmp_path / "s", clock)
        (group,) = looking.look().groups
        assert (group.queues, group.lag, group.messages_a_second) == (2, 50, None)
        clock.seconds += 5.0
        store.consumer_offsets.commit("g", "a", 0, 30)
        store.consumer_offsets.commit("g", "a", 1, 5)
        store.consumer_offsets.save()
        (group,) = looking.look().groups
        assert (group.lag, group.messages_a_second) == (25, 5.0)
        clock.seconds += 1.0
        assert looking.look().groups[0].messages_a_second == 5.0  # between two saves it has not stopped
        clock.seconds += SAVED_WITHIN_S
        snapshot = looking.look()
        assert snapshot.groups[0].messages_a_second == 0
        assert of(snapshot, "a").lag == 25


@pytest.mark.parametrize("case", CASES)
def test_offsets_found_by_halving_are_those_of_the_whole_queue(case: str, golden: Golden) -> None:
    files = look_at(golden(case) / "store")
    reported = {(queue.topic, queue.queue_id): queue for queue in queues(files)}
    assert reported
    for log_min in (0, files.log[0].size // 3, files.log[0].size // 2):
        for key, queue in files.queues.items():
            end = queue_end(files, queue)
            begin = queue_begin(files, queue, log_min, end)
            if log_min == 0:
                assert (begin, end) == (reported[key].min_offset, reported[key].max_offset)
            assert begin <= end


def test_messages_that_the_log_has_no_more_are_not_counted(tmp_path: Path, clock: Clock) -> None:
    with open_store(tmp_path / "s", SMALL) as store:
        put(store, "a", 300)
    for file in sorted((tmp_path / "s" / "commitlog").iterdir())[:2]:
        file.unlink()
    (queue,) = queues(look_at(tmp_path / "s"))
    assert 0 < queue.min_offset < 300
    snapshot = watch(tmp_path / "s", clock).look()
    assert snapshot.messages == 300 - queue.min_offset
    assert snapshot.min_offset == 2 * 16 * 1024


@pytest.mark.parametrize("case", CASES)
def test_looking_changes_nothing(case: str, golden: Golden, clock: Clock) -> None:
    before = snapshot(golden(case) / "store")
    looking = watch(golden(case) / "store", clock)
    looking.look()
    clock.seconds += 1
    assert looking.look().messages_a_second == 0
    assert snapshot(golden(case) / "store") == before


def test_a_directory_without_a_store_is_an_error(tmp_path: Path, clock: Clock) -> None:
    with pytest.raises(DamagedStore, match="no store here"):
        watch(tmp_path, clock).look()


def test_a_store_without_messages_has_a_snapshot(tmp_path: Path, clock: Clock) -> None:
    with open_store(tmp_path / "s", SMALL) as store:
        looking = watch(tmp_path / "s", clock)
        assert looking.look().messages == 0
        put(store, "a", 2)
        clock.seconds += 1
        assert looking.look().messages == 2
