"""Retention of a running store: time is turned by hand, the disk's fill is set."""

from __future__ import annotations

import json
import logging
import os
from datetime import datetime
from pathlib import Path

import pytest
from tests.store.retention_scene import BODY, CONFIG, HOUR_MS, SEGMENT_BYTES, scene
from tests.store.small_store import bodies, read_all

from flintlog import InvalidConfig, Message, open_store
from flintlog.errors import InvalidTopic, StoreClosed
from flintlog.maintenance.inspect.retention_report import report_retention
from flintlog.store.model.message import PutStatus
from flintlog.store.runtime.lifecycle import Flag


def test_expired_files_are_deleted_in_their_hour_and_not_before(tmp_path: Path) -> None:
    with scene(tmp_path) as at:
        at.go_to(14, 3)
        at.rounds()
        assert at.segments == [0, 1, 2, 3, 4]
        at.go_to(14, 4)
        at.rounds()
        assert at.segments == [4]
        assert at.store.min_physical_offset == 4 * SEGMENT_BYTES


def test_files_that_have_not_expired_stay(tmp_path: Path) -> None:
    with scene(tmp_path) as at:
        at.go_to(13, 4)  # 64 hours
        at.rounds()
        assert at.segments == [0, 1, 2, 3, 4]


def test_the_first_round_comes_after_a_minute(tmp_path: Path) -> None:
    with scene(tmp_path) as at:
        at.store.shutdown()
        at.go_to(14, 4)
        at.store = at.open()
        at.clock.advance(59_999)
        assert len(at.segments) == 5
        at.clock.advance(1)
        assert len(at.segments) < 5


def test_kept_messages_are_read_and_deleted_ones_are_not(tmp_path: Path) -> None:
    with scene(tmp_path) as at:
        before = bodies(read_all(at.store, "orders"))
        at.go_to(14, 4)
        at.rounds()
        at.store.put(Message("orders", b"new")).check()
        first = at.store.min_offset("orders", 0)
        assert first > 0
        assert bodies(read_all(at.store, "orders")) == [*before[first:], b"new"]
        assert at.store.query("orders", "k-0") == []
        last = len(before) - 1
        assert [message.body for message in at.store.query("orders", f"k-{last}")] == [before[last]]


def test_queue_files_and_index_files_follow_the_log(tmp_path: Path) -> None:
    with scene(tmp_path, mapped_file_size_consume_queue=20 * 10, max_hash_slot_num=10, max_index_num=11) as at:
        queue, index = tmp_path / "consumequeue/orders/0", tmp_path / "index"
        queue_files, index_files = len(list(queue.iterdir())), len(list(index.iterdir()))
        at.go_to(14, 4)
        at.rounds(2)
        first = at.store.min_offset("orders", 0)
        assert min(int(file.name) for file in queue.iterdir()) == first // 10 * 10 * 20
        assert len(list(queue.iterdir())) < queue_files
        assert len(list(index.iterdir())) < index_files


def test_a_round_deletes_a_batch_with_pauses(tmp_path: Path) -> None:
    with scene(tmp_path, 6, delete_file_batch_max=2, delete_commit_log_files_interval=100) as at:
        at.go_to(14, 4)
        seen = [len(at.segments)]
        for _ in range(4):
            at.clock.advance(99)
            seen.append(len(at.segments))
            at.clock.advance(1)
            seen.append(len(at.segments))
        assert seen == [5, 5, 4, 4, 4, 4, 4, 4, 4]
        at.clock.advance(10_000)
        assert len(at.segments) == 3


def test_no_pause_needs_no_time(tmp_path: Path) -> None:
    with scene(tmp_path, delete_commit_log_files_interval=0, delete_consume_queue_files_interval=0) as at:
        at.go_to(14, 4)
        assert at.segments == [4]


def test_above_75_percent_expired_files_are_deleted_at_any_hour(tmp_path: Path) -> None:
    with scene(tmp_path) as at:
        at.disk.ratios["commitlog"] = 0.76
        at.go_to(14, 15)
        at.rounds()
        assert at.segments == [4]
        assert at.store.put(Message("orders", b"x")).status is PutStatus.PUT_OK


def test_a_disk_above_75_percent_spares_what_has_not_expired(tmp_path: Path) -> None:
    with scene(tmp_path) as at:
        at.disk.ratios["commitlog"] = 0.84
        at.go_to(11, 15)
        at.rounds()
        assert len(at.segments) == 5


def test_a_disk_above_85_percent_lets_young_files_go(tmp_path: Path) -> None:
    with scene(tmp_path) as at:
        at.disk.ratios["commitlog"] = 0.86
        at.clock.advance(60_000)
        assert at.segments == [1, 2, 3, 4]
        assert at.store.put(Message("orders", b"x")).status is PutStatus.PUT_OK


def test_a_disk_above_85_percent_spares_them_without_force(tmp_path: Path) -> None:
    with scene(tmp_path, clean_file_forcibly_enable=False) as at:
        at.disk.ratios["commitlog"] = 0.95
        at.clock.advance(60_000)
        assert len(at.segments) == 5
        assert at.store.put(Message("orders", b"x"), check=False).status is PutStatus.SERVICE_NOT_AVAILABLE


@pytest.mark.parametrize(("folder", "flag"), [("commitlog", Flag.DISK_FULL), ("consumequeue", Flag.LOGIC_DISK_FULL)])
def test_a_disk_above_90_percent_refuses_puts_until_it_is_at_85(tmp_path: Path, folder: str, flag: Flag) -> None:
    with scene(tmp_path, clean_file_forcibly_enable=False) as at:

        def status_at(ratio: float) -> PutStatus:
            at.disk.ratios[folder] = ratio
            at.clock.advance(60_000)
            return at.store.put(Message("orders", b"x"), check=False).status

        assert status_at(0.90) is PutStatus.PUT_OK
        assert status_at(0.901) is PutStatus.SERVICE_NOT_AVAILABLE
        assert at.store._engine.lifecycle.flags == flag
        assert at.store.get("orders", 0, 0).messages, "reads go on"
        assert status_at(0.88) is PutStatus.SERVICE_NOT_AVAILABLE
        assert status_at(0.85) is PutStatus.PUT_OK
        assert at.store._engine.lifecycle.flags == 0


def test_deletion_by_hand_ignores_the_hour_and_not_the_age(tmp_path: Path) -> None:
    with scene(tmp_path, delete_file_batch_max=1) as at:
        at.go_to(11, 20)
        at.store.cleaning.delete_expired_files()
        at.store.run_due()
        assert len(at.segments) == 5
        at.go_to(14, 20)
        at.store.cleaning.delete_expired_files()
        at.store.run_due()
        assert len(at.segments) == 4, "at once"
        at.rounds(3)
        assert at.segments == [4]


def test_deletion_by_hand_lasts_twenty_rounds(tmp_path: Path) -> None:
    with scene(tmp_path) as at:
        at.store.cleaning.delete_expired_files()
        at.rounds(30)
        at.age(100 * HOUR_MS)
        at.rounds(3)
        assert len(at.segments) == 5


def test_a_store_that_keeps_everything_keeps_everything(tmp_path: Path) -> None:
    with scene(tmp_path, retention="off") as at:
        at.disk.ratios["/"] = 0.99
        at.go_to(31, 4)
        at.rounds()
        assert len(at.segments) == 5
        assert at.store.put(Message("orders", b"x")).status is PutStatus.PUT_OK
        with pytest.raises(InvalidConfig, match="keeps everything"):
            at.store.cleaning.delete_expired_files()


def test_a_file_that_a_reader_holds_stops_deletion_and_is_deleted_later(tmp_path: Path) -> None:
    with scene(tmp_path) as at:
        second = at.store._engine.parts.segments.segments[1]
        selected = second.select(0, 100)
        assert selected is not None
        at.go_to(14, 4)
        at.rounds(2)
        assert at.segments == [1, 2, 3, 4]
        selected.release()
        at.rounds(2)
        assert at.segments == [4]


def test_a_file_that_is_held_for_too_long_is_taken_away(tmp_path: Path) -> None:
    with scene(tmp_path) as at:
        first = at.store._engine.parts.segments.first
        assert first is not None
        selected = first.select(0, 100)
        assert selected is not None
        before = bytes(selected.view)
        at.go_to(14, 4, 59)  # a minute later the hour is over, and only the retry is left
        assert at.segments == [0, 1, 2, 3, 4]
        assert not first.available
        at.clock.advance(120_000)
        assert at.segments == [0, 1, 2, 3, 4]
        at.clock.advance(10_000)
        assert at.segments == [1, 2, 3, 4]
        assert bytes(selected.view) == before, "what a reader has stays valid"
        selected.release()


# Groups


def commit(path: Path, offsets: dict[str, dict[int, int]]) -> None:
    (path / "config").mkdir(exist_ok=True)
    (path / "config/consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))


def test_what_a_group_has_not_consumed_is_kept(tmp_path: Path) -> None:
    with scene(tmp_path, protect_unconsumed=True) as at:
        a_file = SEGMENT_BYTES // (len(BODY) + 200)
        commit(tmp_path, {"orders@billing": {0: 2 * a_file}, "orders@audit": {0: 4 * a_file}})
        at.go_to(14, 4)
        at.rounds(2)
        kept_from = at.segments[0]
        message = at.store.get("orders", 0, 2 * a_file).messages[0]
        assert message.physical_offset // SEGMENT_BYTES == kept_from
        assert kept_from > 0
        commit(tmp_path, {"orders@billing": {0: at.store.max_offset("orders", 0)}})
        at.rounds(2)
        assert at.segments == [4]


def test_without_protection_it_is_deleted(tmp_path: Path) -> None:
    with scene(tmp_path) as at:
        commit(tmp_path, {"orders@billing": {0: 0}})
        at.go_to(14, 4)
        at.rounds(2)
        assert at.segments == [4]


def test_a_group_that_has_no_offset_for_a_queue_has_consumed_nothing_of_it(tmp_path: Path) -> None:
    with scene(tmp_path, protect_unconsumed=True) as at:
        commit(tmp_path, {"orders@billing": {7: 3}})
        at.go_to(14, 4)
        at.rounds()
        assert len(at.segments) == 5


def test_a_full_disk_takes_even_what_was_not_consumed(tmp_path: Path) -> None:
    with scene(tmp_path, protect_unconsumed=True) as at:
        commit(tmp_path, {"orders@billing": {0: 0}})
        at.disk.ratios["commitlog"] = 0.87
        at.clock.advance(60_000)
        assert at.segments[0] > 0


def test_offsets_that_cannot_be_read_keep_everything(tmp_path: Path) -> None:
    with scene(tmp_path, protect_unconsumed=True) as at:
        (tmp_path / "config").mkdir()
        for name in ("consumerOffset.json", "consumerOffset.json.bak"):
            (tmp_path / "config" / name).write_text("{")
        with pytest.raises(Exception, match="neither this file nor its backup"):
            at.go_to(14, 4)
        assert len(at.segments) == 5


@pytest.mark.parametrize(("hour", "ratio"), [(4, 0.5), (5, 0.5), (5, 0.8)])
def test_the_report_names_the_files_that_are_deleted_now(tmp_path: Path, hour: int, ratio: float) -> None:
    with scene(tmp_path, 6, delete_commit_log_files_interval=0) as at:
        for segment in at.store._engine.parts.segments.segments[3:]:
            os.utime(segment.path, (at.clock.now_ms() / 1000 + 80 * 3600,) * 2)
        at.disk.ratios["commitlog"] = ratio
        now_ms = int(datetime(2026, 3, 14, hour).timestamp() * 1000)
        report = report_retention(tmp_path, at.config, at.disk, lambda: now_ms)
        said = [each.file.base // SEGMENT_BYTES for each in report.files if each.goes_at_ms == now_ms]
        before = at.segments
        at.go_to(14, hour)
        assert [number for number in before if number not in at.segments] == said
        assert said == ([] if (hour, ratio) == (5, 0.5) else [0, 1, 2])


# Opening again


def test_a_store_that_lost_files_opens_well_after_a_clean_stop_and_a_kill(tmp_path: Path) -> None:
    with scene(tmp_path) as at:
        at.go_to(14, 4)
        at.rounds(2)
        first, last = at.store.min_offset("orders", 0), at.store.max_offset("orders", 0)
        at.store.shutdown()
        at.store = at.open()
        assert not at.store.recovery.findings
        assert (at.store.min_offset("orders", 0), at.store.max_offset("orders", 0)) == (first, last)
        (tmp_path / "abort").write_text("1")
        (tmp_path / "flintlog/stop.json").unlink(missing_ok=True)
        at.store._engine.leave_to_parent()
        at.store = at.open()
        assert (at.store.min_offset("orders", 0), at.store.max_offset("orders", 0)) == (first, last)


def test_a_reader_beside_the_store_continues(tmp_path: Path) -> None:
    with scene(tmp_path) as at:
        with open_store(tmp_path, CONFIG, read_only=True, clock=at.clock) as beside:
            at.go_to(14, 4)
            at.rounds(2)
            last = at.store.max_offset("orders", 0) - 1
            assert bodies(beside.get("orders", 0, last).messages)
        with open_store(tmp_path, CONFIG, read_only=True, clock=at.clock) as beside:
            assert beside.min_offset("orders", 0) == at.store.min_offset("orders", 0)
            assert bodies(read_all(beside, "orders")) == bodies(read_all(at.store, "orders"))


# Queues


def test_queues_without_messages_are_deleted_by_hand(tmp_path: Path) -> None:
    with scene(tmp_path, 1) as at:
        at.store.put(Message("old", b"x", queue_id=3)).check()
        at.store.put(Message("SCHEDULE_TOPIC_XXXX", b"x")).check()
        while len(at.segments) < 3:
            at.store.put(Message("orders", BODY)).check()
        assert at.store.cleaning.clean_expired_queues() == []
        at.age(0)
        at.go_to(14, 4)
        at.rounds()
        assert at.store.cleaning.clean_expired_queues() == [("old", 3)]
        assert not (tmp_path / "consumequeue/old/3").exists()
        assert {info.topic for info in at.store.queues()} == {"orders", "SCHEDULE_TOPIC_XXXX"}
        assert at.store.put(Message("old", b"again", queue_id=3)).check().queue_offset == 1
        at.store.wait_dispatched()
        assert at.store.min_offset("old", 3) == 1
        assert bodies(at.store.get("old", 3, 1).messages) == [b"again"]


def test_a_consumer_at_the_end_of_a_queue_that_was_deleted_skips_nothing(tmp_path: Path) -> None:
    with scene(tmp_path, 1) as at:
        at.store.put(Message("old", b"x")).check()
        with at.store.consumer("g", "old", timeout_s=0) as consumer:
            for message in consumer:
                consumer.acknowledge(message)
            while len(at.segments) < 3:
                at.store.put(Message("orders", BODY)).check()
            at.age(0)
            at.go_to(14, 4)
            at.rounds()
            assert at.store.cleaning.clean_expired_queues() == [("old", 0)]
            at.store.put(Message("old", b"again")).check()
            assert [message.body for message in consumer] == [b"again"]


def test_unused_topics_are_deleted_on_request(tmp_path: Path) -> None:
    with scene(tmp_path, 1) as at:
        for topic in ("a", "b", "%LMQ%c", "rmq_sys_x"):
            at.store.put(Message(topic, b"x")).check()
        assert at.store.cleaning.clean_unused_topics({"orders", "b"}) == ["a"]
        assert not (tmp_path / "consumequeue/a").exists()
        assert at.store.max_offset("b", 0) == 1


@pytest.mark.parametrize("retained", ["orders", b"orders", None, 5, [["orders"]], [None]], ids=repr)
def test_what_are_no_topics_retains_nothing_and_deletes_nothing(tmp_path: Path, retained: list[str]) -> None:
    with scene(tmp_path, 1) as at:
        at.store.put(Message("orders", b"x")).check()
        with pytest.raises(InvalidTopic):
            at.store.cleaning.clean_unused_topics(retained)
        assert at.store.max_offset("orders", 0) > 0
        assert at.store.cleaning.clean_unused_topics(["orders"]) == []


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "unclean"])
def test_a_queue_that_was_deleted_on_request_reuses_no_offset_in_later_runs(tmp_path: Path, is_clean: bool) -> None:
    with scene(tmp_path, 1) as at:
        for _ in range(5):
            at.store.put(Message("old", b"x")).check()
        for day in (14, 20):
            # The second time nothing is left of the log in which the queue was deleted.
            for _ in range(2 * SEGMENT_BYTES // len(BODY) + 1):
                at.store.put(Message("orders", BODY)).check()
            at.age(0)
            at.go_to(day, 4)
            at.rounds()
            assert at.store.cleaning.clean_expired_queues() == ([("old", 0)] if day == 14 else [])
            at.store.shutdown()
            if not is_clean:
                (tmp_path / "abort").write_text("1")
            at.store = at.open()
        assert at.store.put(Message("old", b"again")).check().queue_offset == 5
        at.store.wait_dispatched()
        assert bodies(at.store.get("old", 0, 5).messages) == [b"again"]


def test_a_store_that_is_read_only_deletes_nothing(tmp_path: Path) -> None:
    with scene(tmp_path, 1) as at, open_store(tmp_path, CONFIG, read_only=True, clock=at.clock) as beside:
        with pytest.raises(StoreClosed):
            beside.cleaning.clean_expired_queues()
        with pytest.raises(StoreClosed):
            beside.cleaning.clean_unused_topics(())


def test_deletions_are_in_the_log_of_the_program(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with scene(tmp_path) as at, caplog.at_level(logging.INFO, "flintlog"):
        at.go_to(14, 4)
        at.rounds()
    assert any("00000000000000000000 was deleted: it has expired" in record.message for record in caplog.records)
