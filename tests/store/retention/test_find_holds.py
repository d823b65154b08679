"""The reasons to keep expired files: each holds alone, ends when it is over, and is reported."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest
from tests.store.retention_scene import BODY, HOUR_MS, SEGMENT_BYTES, Scene, scene

from flintlog import Message, open_store
from flintlog.format.timer import TIMER_TOPIC
from flintlog.maintenance.inspect.retention_report import report_retention
from flintlog.services.timer.timer_service import TimerService
from flintlog.services.transaction.transaction_service import TransactionService

PROTECTED: dict[str, object] = {
    "protect_unconsumed": True,
    "file_reserved_time": 1,
    "delete_when": ";".join(map(str, range(24))),
    "delete_commit_log_files_interval": 0,
}
TOPIC = "orders"
NEARLY_MS = HOUR_MS - 60_000
"""Just before files expire, so that the report is asked before anything goes."""


@pytest.fixture(autouse=True)
def small_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real one, of two weeks, is 38 MB."""
    monkeypatch.setattr(TimerService, "wheel_slots", 60_000)


def fill(at: Scene, files: int = 4) -> None:
    """Fill some files with messages that no group reads; all were written now."""
    while len(at.segments) < files:
        at.store.put(Message(TOPIC, BODY)).check()
    at.store.wait_dispatched()
    at.age(0)


def reopen(at: Scene, **changes: object) -> None:
    at.store.shutdown()
    at.config = at.config.with_changes(**changes)
    at.store = at.open()


def kept(at: Scene) -> str | None:
    """Let go what may: why the first file is still there, if it is. The report must have known."""
    said = report_retention(at.path, at.config, at.disk, at.clock.now_ms).files[0]
    rounds(at)
    is_kept = at.segments[0] == 0
    assert is_kept == (said.goes_at_ms is None)
    if is_kept:
        assert said.why == said.holds[0].why
    return said.why if is_kept else None


def rounds(at: Scene) -> None:
    """Some rounds of retention; the first comes a minute after an opening."""
    for _ in range(8):
        at.clock.advance(10_000)


def config_file(at: Scene, name: str) -> Path:
    return at.path / "config" / name


# Groups


def test_messages_without_a_reader_are_not_kept(tmp_path: Path) -> None:
    with scene(tmp_path, 1, **PROTECTED) as at:
        fill(at)
        at.clock.advance(NEARLY_MS)
        assert kept(at) is None


def test_a_group_that_was_only_created_may_read_anything(tmp_path: Path) -> None:
    with scene(tmp_path, 1, **PROTECTED) as at:
        at.store.groups.create("billing")
        fill(at)
        at.clock.advance(NEARLY_MS)
        assert kept(at) == "group billing has consumed nothing yet, and may read any topic"
        with at.store.consumer("billing", "events"):
            assert kept(at) is None, "now it is known what it reads"


@pytest.mark.parametrize("ending", ["deleted", "forbidden"])
def test_a_group_that_will_not_read_keeps_nothing(tmp_path: Path, ending: str) -> None:
    with scene(tmp_path, 1, **PROTECTED) as at:
        at.store.groups.create("billing")
        if ending == "deleted":
            at.store.groups.delete("billing")
        else:
            at.store.groups.change("billing", consume_enable=False)
        fill(at)
        at.clock.advance(NEARLY_MS)
        assert kept(at) is None


def test_a_consumer_that_never_acknowledged_keeps_all_also_after_a_kill(tmp_path: Path) -> None:
    with scene(tmp_path, 1, **PROTECTED) as at:
        at.store.consumer("billing", TOPIC)
        fill(at)
        at.store._engine.leave_to_parent()
        at.store = at.open()
        at.clock.advance(NEARLY_MS)
        assert kept(at) == "group billing has not consumed"
        with at.store.consumer("billing", TOPIC, timeout_s=0.01) as consumer:
            for message in consumer:
                consumer.acknowledge(message)
        at.store.consumer_offsets.save()
        assert kept(at) is None


def test_a_group_with_an_offset_of_one_queue_reads_them_all(tmp_path: Path) -> None:
    with scene(tmp_path, 1, **PROTECTED) as at:
        at.store.put(Message(TOPIC, b"in another queue", queue_id=1)).check()
        fill(at)
        at.store.consumer_offsets.commit("billing", TOPIC, 0, at.store.max_offset(TOPIC, 0))
        at.store.consumer_offsets.save()
        at.clock.advance(NEARLY_MS)
        assert kept(at) == "group billing has not consumed"


def test_a_group_that_went_back_and_was_not_saved_keeps_what_it_went_back_to(tmp_path: Path) -> None:
    with scene(tmp_path, 1, **PROTECTED) as at:
        fill(at)
        offsets = at.store.consumer_offsets
        offsets.commit("billing", TOPIC, 0, at.store.max_offset(TOPIC, 0))
        at.clock.advance(HOUR_MS - 1000)
        offsets.reset("billing", TOPIC, 0, 0)
        at.clock.set(at.clock.now_ms() + 1000)
        at.store.cleaning.delete_expired_files()
        at.store.run_due()
        assert at.segments[0] == 0


def test_a_registered_filter_ties_its_group_to_the_topic(tmp_path: Path) -> None:
    with scene(tmp_path, 1, **PROTECTED) as at:
        at.store.subscriptions.register("billing", TOPIC, "a > 5")
        fill(at)
        at.clock.advance(NEARLY_MS)
        assert kept(at) == "group billing has not consumed"
        at.store.subscriptions.unregister("billing")
        assert kept(at) is None


def test_a_group_that_is_configured_keeps_the_topic_of_a_filter_that_is_dead(tmp_path: Path) -> None:
    with scene(tmp_path, 1, **PROTECTED) as at:
        at.store.groups.create("billing")
        at.store.subscriptions.register("billing", TOPIC, "a > 5")
        at.store.subscriptions.unregister("billing")
        fill(at)
        at.clock.advance(NEARLY_MS)
        assert kept(at) == "group billing has not consumed"


def test_topics_that_a_groups_configuration_names_are_its_own(tmp_path: Path) -> None:
    with scene(tmp_path, 1, **PROTECTED) as at:
        at.store.groups.create("billing")
        fill(at)
        path = config_file(at, "subscriptionGroup.json")
        content = json.loads(path.read_bytes())
        group = content["subscriptionGroupTable"]["billing"]
        group["subscriptionDataSet"] = [{"topic": "events", "expression": "*", "expressionType": "TAG", "version": 1}]
        path.write_text(json.dumps(content))
        at.clock.advance(NEARLY_MS)
        assert kept(at) is None
    with scene(tmp_path / "other", 1, **PROTECTED) as at:
        at.store.groups.create("billing")
        fill(at)
        group["subscriptionDataSet"][0]["topic"] = TOPIC
        config_file(at, "subscriptionGroup.json").write_text(json.dumps(content))
        at.clock.advance(NEARLY_MS)
        assert kept(at) == "group billing has not consumed"


def test_retries_are_their_groups(tmp_path: Path) -> None:
    with scene(tmp_path, 1, **PROTECTED) as at:
        at.store.consumer("billing", "events")
        at.store.put(Message("%RETRY%billing", b"again")).check()
        fill(at)
        at.clock.advance(NEARLY_MS)
        assert kept(at) == "group billing has not consumed"
        at.store.consumer_offsets.commit("billing", "%RETRY%billing", 0, 1)
        at.store.consumer_offsets.save()
        assert kept(at) is None


def test_dead_letters_hold_nothing(tmp_path: Path) -> None:
    with scene(tmp_path, 1, **PROTECTED) as at:
        at.store.consumer("billing", "events")
        at.store.put(Message("%DLQ%billing", b"given up")).check()
        fill(at)
        at.clock.advance(NEARLY_MS)
        assert kept(at) is None


def test_a_light_group_keeps_its_light_queue(tmp_path: Path) -> None:
    lights: dict[str, object] = {"enable_lmq": True, "enable_multi_dispatch": True}
    with scene(tmp_path, 1, **PROTECTED, **lights) as at:
        for _ in range(2):
            at.store.put(Message("mixed", b"x", properties={"INNER_MULTI_DISPATCH": "%LMQ%device"})).check()
        fill(at)
        at.store.consumer_offsets.commit("%LMQ%device", "%LMQ%device", 0, 1)
        at.store.consumer_offsets.save()
        at.clock.advance(NEARLY_MS)
        assert kept(at) == "group %LMQ%device has not consumed"
        at.store.consumer_offsets.commit("%LMQ%device", "%LMQ%device", 0, 2)
        at.store.consumer_offsets.save()
        assert kept(at) is None


# What waits in the store's own topics


def say(moment_ms: int) -> str:
    return datetime.fromtimestamp(moment_ms / 1000).isoformat(" ", "seconds")


def test_a_delayed_message_is_kept_until_it_is_delivered(tmp_path: Path) -> None:
    with scene(tmp_path, 1, **PROTECTED, services={"schedule"}) as at:
        at.store.put(Message("mails", b"in two hours", delay_level=18)).check()
        due_ms = at.clock.now_ms() + 2 * HOUR_MS
        fill(at)
        at.clock.advance(NEARLY_MS)
        assert kept(at) == f"delay level 18 waits until {say(due_ms)}"
        reopen(at, services=frozenset())
        at.clock.set(due_ms + HOUR_MS)
        assert kept(at) == f"delay level 18 waits until {say(due_ms)}", "the service does not run, and nobody delivered"
        reopen(at, services={"schedule"})
        at.clock.advance(10_000)
        assert at.store.max_offset("mails", 0) == 1
        at.clock.advance(at.config.flush_delay_offset_interval)
        assert kept(at) is None


def test_a_timer_is_kept_until_it_is_delivered(tmp_path: Path) -> None:
    with scene(tmp_path, 1, **PROTECTED, services={"timer"}) as at:
        due_ms = at.clock.now_ms() + 2 * HOUR_MS
        at.store.put(Message("mails", b"in two hours", deliver_at_ms=due_ms)).check()
        fill(at)
        at.clock.advance(NEARLY_MS)
        assert kept(at) == f"a timer waits until {say(due_ms - 1000)}"
        reopen(at, services=frozenset())
        at.clock.set(due_ms + HOUR_MS)
        assert kept(at) == f"a timer waits until {say(due_ms - 1000)}"
        reopen(at, services={"timer"})
        at.clock.advance(10_000)
        assert at.store.max_offset("mails", 0) == 1
        assert kept(at) is None


def test_a_timer_that_was_put_but_not_entered_is_kept(tmp_path: Path) -> None:
    with scene(tmp_path, 1, **PROTECTED, services={"timer"}) as at:
        due_ms = at.clock.now_ms() + HOUR_MS // 2
        at.store.put(Message("mails", b"early", deliver_at_ms=due_ms)).check()
        at.clock.set(due_ms + 2000)
        at.store.run_due()
        reopen(at, services={"timer"}, timer_stop_enqueue=True)
        at.store.put(Message("mails", b"later", deliver_at_ms=due_ms + 10 * HOUR_MS)).check()
        fill(at)
        at.clock.advance(NEARLY_MS)
        assert kept(at) == f"a timer waits until {say(due_ms + 10 * HOUR_MS - 1000)}"


def test_a_rolled_timer_lets_its_older_self_go(tmp_path: Path) -> None:
    with scene(tmp_path, 1, **PROTECTED, services={"timer"}, timer_roll_window_slot=1800) as at:
        due_ms = at.clock.now_ms() + 2 * HOUR_MS
        at.store.put(Message("mails", b"in two hours", deliver_at_ms=due_ms)).check()
        at.clock.advance(2000)
        fill(at)
        at.clock.advance(HOUR_MS // 4)
        assert at.store.max_offset(TIMER_TOPIC, 0) == 1
        assert kept(at) == f"a timer waits until {say(due_ms - 1000)}"
        at.clock.advance(HOUR_MS // 2)
        assert at.store.max_offset(TIMER_TOPIC, 0) == 2, "it has rolled"
        at.clock.advance(HOUR_MS // 4 - 120_000)
        assert kept(at) is None
        at.clock.set(due_ms)
        at.rounds(1)
        assert at.store.max_offset("mails", 0) == 1, "and its newer self is delivered all the same"


@pytest.mark.parametrize("lost", ["config/timercheck", "timerlog"])
def test_without_the_timers_files_all_its_messages_are_kept(tmp_path: Path, lost: str) -> None:
    with scene(tmp_path, 1, **PROTECTED, services={"timer"}) as at:
        at.store.put(Message("mails", b"soon", deliver_at_ms=at.clock.now_ms() + 5000)).check()
        at.clock.advance(10_000)
        assert at.store.max_offset("mails", 0) == 1
        fill(at)
        at.clock.advance(NEARLY_MS)
        reopen(at, services=frozenset())
        for path in [tmp_path / lost, *(tmp_path / lost).glob("*")]:
            if path.is_file():
                path.unlink()
        assert kept(at) == "timers wait, and it is not known which were delivered"


def _begin(at: Scene) -> TransactionService:
    service = at.store.service("transaction")
    assert isinstance(service, TransactionService)
    return service


def test_an_undecided_transaction_is_kept_until_it_is_decided(tmp_path: Path) -> None:
    with scene(tmp_path, 1, **PROTECTED, services={"transaction"}) as at:
        _begin(at).begin(Message("payments", b"decided")).rollback()
        transaction = _begin(at).begin(Message("payments", b"42"))
        fill(at)
        reopen(at, services=frozenset())
        at.clock.advance(NEARLY_MS)
        assert kept(at) == "a transaction of payments is undecided"
        reopen(at, services={"transaction"})
        _begin(at).commit(transaction.id)
        reopen(at, services=frozenset())
        assert kept(at) is None


@pytest.mark.parametrize("is_noted", [True, False])
def test_a_decision_counts_though_no_progress_was_saved(tmp_path: Path, is_noted: bool) -> None:
    with scene(tmp_path, 1, **PROTECTED, services={"transaction"}) as at:
        first = _begin(at).begin(Message("payments", b"42"))
        if is_noted:
            first.rollback()
        fill(at)
        reopen(at, services=frozenset())
        at.store.consumer_offsets.reset("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC", 0, 0)
        at.store.consumer_offsets.reset("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_OP_HALF_TOPIC", 0, 0)
        at.store.consumer_offsets.save()
        at.clock.advance(NEARLY_MS)
        assert kept(at) == (None if is_noted else "a transaction of payments is undecided")


# What does not protect


@pytest.mark.parametrize("who", ["group", "timer"])
def test_messages_that_a_full_disk_deleted_hold_nothing_any_more(tmp_path: Path, who: str) -> None:
    with scene(tmp_path, 1, **PROTECTED, services={"timer"}) as at:
        if who == "group":
            at.store.put(Message("old", b"x")).check()
            at.store.consumer("billing", "old")
        else:
            at.store.put(Message("mails", b"lost", deliver_at_ms=at.clock.now_ms() + 9 * HOUR_MS)).check()
        at.clock.advance(2000)
        fill(at)
        at.disk.ratios["commitlog"] = 0.87
        rounds(at)
        assert at.segments == [3]
        del at.disk.ratios["commitlog"]
        if who == "timer":
            at.store.put(Message("mails", b"soon", deliver_at_ms=at.clock.now_ms() + 5000)).check()
            at.clock.advance(10_000)
            assert at.store.max_offset("mails", 0) == 1
        fill(at, 3)
        at.clock.advance(HOUR_MS)
        rounds(at)
        assert at.segments == [5]


@pytest.mark.parametrize("hold", ["group", "delay", "timer", "transaction"])
def test_a_full_disk_deletes_even_messages_that_are_needed(tmp_path: Path, hold: str) -> None:
    with scene(tmp_path, 1, **PROTECTED, services={"schedule", "timer", "transaction"}) as at:
        _HOLDS[hold](at)
        fill(at)
        at.disk.ratios["commitlog"] = 0.87
        rounds(at)
        assert at.segments[0] > 0


@pytest.mark.parametrize("hold", ["group", "delay", "timer", "transaction"])
def test_without_protection_everything_is_deleted(tmp_path: Path, hold: str) -> None:
    changes = {**PROTECTED, "protect_unconsumed": False}
    with scene(tmp_path, 1, **changes, services={"schedule", "timer", "transaction"}) as at:
        _HOLDS[hold](at)
        fill(at)
        reopen(at, services=frozenset())
        at.clock.advance(NEARLY_MS)
        report = report_retention(at.path, at.config, at.disk, at.clock.now_ms)
        assert report.files[0].holds, "it is said who needs it all the same"
        rounds(at)
        assert at.segments == [3]


_HOLDS: dict[str, Callable[[Scene], object]] = {
    "group": lambda at: at.store.consumer("billing", TOPIC),
    "delay": lambda at: at.store.put(Message("mails", b"", delay_level=18)).check(),
    "timer": lambda at: at.store.put(Message("mails", b"", deliver_at_ms=at.clock.now_ms() + 9 * HOUR_MS)).check(),
    "transaction": lambda at: _begin(at).begin(Message("payments", b"42")),
}


# What cannot be read


@pytest.mark.parametrize(
    "name", ["consumerOffset.json", "subscriptionGroup.json", "consumerFilter.json", "delayOffset.json"]
)
def test_a_file_that_cannot_be_read_keeps_everything_and_its_backup_does_not(tmp_path: Path, name: str) -> None:
    with scene(tmp_path, 1, **PROTECTED) as at:
        fill(at)
        config_file(at, name).parent.mkdir(exist_ok=True)
        config_file(at, name).write_text("{ torn")
        report = report_retention(at.path, at.config, at.disk, at.clock.now_ms)
        assert report.files[0].why == "it is not known who needs it" and name in str(report.damage)
        with pytest.raises(Exception, match="neither this file nor its backup"):
            at.clock.advance(HOUR_MS)
        assert len(at.segments) == 4
        config_file(at, f"{name}.bak").write_text("{}")
        assert kept(at) is None


def test_a_delay_level_before_its_first_message_is_damage_and_keeps_everything(tmp_path: Path) -> None:
    with scene(tmp_path, 1, **PROTECTED) as at:
        fill(at)
        config_file(at, "delayOffset.json").parent.mkdir(exist_ok=True)
        config_file(at, "delayOffset.json").write_text('{"offsetTable":{1:-1}}')
        report = report_retention(at.path, at.config, at.disk, at.clock.now_ms)
        assert report.files[0].why == "it is not known who needs it" and "-1" in str(report.damage)


def test_the_offset_where_a_file_is_kept_is_that_of_the_oldest_message(tmp_path: Path) -> None:
    with scene(tmp_path, 1, **PROTECTED) as at:
        fill(at, 2)
        receipt = at.store.put(Message("late", b"x")).check()
        fill(at)
        at.store.consumer_offsets.commit("billing", "late", 0, 0)
        at.store.consumer_offsets.save()
        at.clock.advance(NEARLY_MS)
        report = report_retention(at.path, at.config, at.disk, at.clock.now_ms)
        assert report.files[1].holds[0].physical_offset == receipt.physical_offset
        rounds(at)
        assert at.segments[0] == receipt.physical_offset // SEGMENT_BYTES == 1


def test_a_store_without_groups_is_asked_nothing_while_nothing_has_expired(tmp_path: Path) -> None:
    """A file that cannot be read is no trouble before its time."""
    with scene(tmp_path, 1, **PROTECTED) as at:
        fill(at)
        config_file(at, "consumerOffset.json").parent.mkdir(exist_ok=True)
        config_file(at, "consumerOffset.json").write_text(json.dumps([]))
        rounds(at)
        assert len(at.segments) == 4
        config_file(at, "consumerOffset.json").unlink()
    with open_store(tmp_path, at.config, clock=at.clock) as store:
        assert len(store.recovery) == 0
