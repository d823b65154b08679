"""Broken files of the `config` folder: the `.bak` is used and reported, and two broken files are not overwritten.

The table has each file that the store and its services load, with a good content and what is then known from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from flintlog import DamagedStore, Message, Store, StoreConfig, open_store
from flintlog.services.timer.timer_service import TimerService
from flintlog.store.paths import CONFIG_FILES
from flintlog.testing import FakeClock
from tests.crash.test_kill import contents
from tests.store.small_store import SMALL

NOW_MS = 1_700_000_000_000


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    good: str
    known: Callable[[Store], bool]
    other_shape: str
    changes: dict[str, object] = field(default_factory=dict)
    only_figures: bool = False


def delay_offset(store: Store) -> bool:
    return store.stats()["scheduleMessageOffset_3"] == "0,0"


def waiting_mails(store: Store) -> bool:
    service = store.service("timer")
    assert isinstance(service, TimerService)
    return service.waiting_counts == {"mails": 7}


def counted_payments(store: Store) -> bool:
    return "payments" in store.service("transaction")._metrics._metrics


CASES = (
    Case(
        "topics.json",
        '{"topicConfigTable":{"orders":{"topicName":"orders","readQueueNums":4,"writeQueueNums":4}}}',
        lambda store: "orders" in store.topics,
        '{"topicConfigTable":{"orders":5}}',
    ),
    Case(
        "subscriptionGroup.json",
        '{"subscriptionGroupTable":{"billing":{"groupName":"billing"}}}',
        lambda store: "billing" in store.groups,
        '{"subscriptionGroupTable":[]}',
    ),
    Case(
        "consumerOffset.json",
        '{"offsetTable":{"orders@billing":{0:2}}}',
        lambda store: store.consumer_offsets.get("billing", "orders", 0) == 2,
        '{"offsetTable":{"orders@billing":{0:"two"}}}',
    ),
    Case(
        "lmqConsumerOffset.json",
        '{"offsetTable":{},"lmqOffsetTable":{"orders@%LMQ%g":2}}',
        lambda store: store.consumer_offsets.get("%LMQ%g", "orders", 0) == 2,
        '{"offsetTable":{},"lmqOffsetTable":{"orders@%LMQ%g":{}}}',
        {"enable_lmq": True},
    ),
    Case(
        "consumerFilter.json",
        "",  # made by a store: it holds places in a bitmap
        lambda store: store.subscriptions.get("billing", "orders") is not None,
        '{"filterDataByTopic":5}',
    ),
    Case(
        "delayOffset.json",
        '{"offsetTable":{3:0}}',
        delay_offset,
        '{"offsetTable":{3:"two"}}',
        {"services": {"schedule"}},
    ),
    Case(
        "timermetrics",
        '{"dataVersion":{"counter":9},"timingCount":{"mails":{"count":7,"timeStamp":1}}}',
        waiting_mails,
        '{"timingCount":[]}',
        {"services": {"timer"}},
        only_figures=True,
    ),
    Case(
        "transactionMetrics",
        '{"dataVersion":{"counter":9},"transactionCount":{"payments":{"count":7,"timeStamp":1}}}',
        counted_payments,
        '{"transactionCount":[]}',
        {"services": {"transaction"}},
        only_figures=True,
    ),
)
TRUTHS = [case for case in CASES if not case.only_figures]
FIGURES = [case for case in CASES if case.only_figures]
BREAKS = {"torn": "{ torn", "zeros": "\0" * 20, "no object": "[]", "another shape": None, "empty": ""}


@pytest.fixture(autouse=True)
def small_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TimerService, "wheel_slots", 600)


def name_of(case: Case) -> str:
    return case.name


def begin(root: Path, case: Case) -> tuple[StoreConfig, Path, str]:
    """A store with three messages; its configuration, the file, and a good content for it."""
    config = SMALL.with_changes(**case.changes)
    path = root / "config" / case.name
    with open_store(root, SMALL, clock=FakeClock(NOW_MS)) as store:
        for _ in range(3):
            store.put(Message("orders", b"x")).check()
        if not case.good:
            store.subscriptions.register("billing", "orders", "a > 5")
    good = case.good or path.read_text()
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    return config, path, good


def backup_of(path: Path) -> Path:
    return path.with_name(path.name + ".bak")


def test_the_table_has_every_file_that_has_a_backup() -> None:
    binary = {"timercheck"}  # RocketMQ keeps no backup of it, and the timer is rebuilt from its queue
    assert {case.name for case in CASES} == set(CONFIG_FILES) - binary


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_a_good_file_is_loaded_and_nothing_is_reported(tmp_path: Path, case: Case) -> None:
    config, path, good = begin(tmp_path, case)
    path.write_text(good)
    with open_store(tmp_path, config, clock=FakeClock(NOW_MS)) as store:
        assert case.known(store) and len(store.recovery) == 0


@pytest.mark.parametrize("case", CASES, ids=name_of)
@pytest.mark.parametrize("how", BREAKS)
def test_the_backup_is_used_and_that_is_reported_once(
    tmp_path: Path, case: Case, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    config, path, good = begin(tmp_path, case)
    path.write_text(broken_by(how, case))
    backup_of(path).write_text(good)
    (tmp_path / "lock").unlink()  # as in a broker's directory: loading is tried before anything is written
    with open_store(tmp_path, config, clock=FakeClock(NOW_MS)) as store:
        assert case.known(store)
        (finding,) = store.recovery
        assert (finding.id, finding.file) == ("config-restored", str(path))
        assert backup_of(path).name in finding.remedy
    assert sum("its backup" in record.message for record in caplog.records) == 1
    assert backup_of(path).read_text() == good, "what is broken never becomes the backup"


@pytest.mark.parametrize("case", TRUTHS, ids=name_of)
@pytest.mark.parametrize("how", [how for how in BREAKS if how != "empty"])
def test_without_either_a_store_does_not_open_for_writing(tmp_path: Path, case: Case, how: str) -> None:
    config, path, _ = begin(tmp_path, case)
    broken = broken_by(how, case)
    for each in (path, backup_of(path)):
        each.write_text(broken)
    before = contents(tmp_path)
    with pytest.raises(DamagedStore, match="nothing was changed") as caught:
        open_store(tmp_path, config, clock=FakeClock(NOW_MS))
    assert case.name in str(caught.value)
    assert contents(tmp_path) == before
    with open_store(tmp_path, config, read_only=True) as store:
        said = [finding.id for finding in store.recovery]
        assert said == (["damaged-config"] if "services" not in case.changes else [])
        assert store.max_offset("orders", 0) == 3
    for each in (path, backup_of(path)):
        each.unlink()
    with open_store(tmp_path, config, clock=FakeClock(NOW_MS)) as store:
        assert len(store.recovery) == 0


@pytest.mark.parametrize("case", TRUTHS, ids=name_of)
@pytest.mark.parametrize("has_lock", [True, False])
def test_nothing_is_recovered_before_the_files_are_right(tmp_path: Path, case: Case, has_lock: bool) -> None:
    """The loss of a record that was durable is reported by the opening that succeeds."""
    config, path, _ = begin(tmp_path, case)
    log = tmp_path / "commitlog" / f"{0:020d}"
    written = log.read_bytes().rstrip(b"\0")
    log.write_bytes(written[:-30].ljust(log.stat().st_size, b"\0"))
    (tmp_path / "abort").write_text("1")
    path.write_text("{ torn")
    if not has_lock:
        (tmp_path / "lock").unlink()
    before = contents(tmp_path)
    with pytest.raises(DamagedStore, match="nothing was changed"):
        open_store(tmp_path, config, clock=FakeClock(NOW_MS))
    assert contents(tmp_path) == before
    path.unlink()
    with open_store(tmp_path, config, clock=FakeClock(NOW_MS)) as store:
        assert [finding.id for finding in store.recovery] == ["damaged-range"]


@pytest.mark.parametrize("case", FIGURES, ids=name_of)
@pytest.mark.parametrize("how", [how for how in BREAKS if how != "empty"])
def test_figures_start_at_zero_and_do_not_overwrite_broken_files(tmp_path: Path, case: Case, how: str) -> None:
    config, path, _ = begin(tmp_path, case)
    broken = broken_by(how, case)
    for each in (path, backup_of(path)):
        each.write_text(broken)
    clock = FakeClock(NOW_MS)
    with open_store(tmp_path, config, clock=clock) as store:
        (finding,) = store.recovery
        assert (finding.id, finding.file) == ("damaged-config", str(path))
        if "timer" in config.services:
            store.put(Message("mails", b"x", deliver_at_ms=NOW_MS + 60_000)).check()
        else:
            store.service("transaction").begin(Message("payments", b"x"))
        clock.advance(31_000)
    assert path.read_text() == backup_of(path).read_text() == broken
    for each in (path, backup_of(path)):
        each.unlink()
    with open_store(tmp_path, config, clock=clock) as store:
        assert len(store.recovery) == 0
        clock.advance(1000)
    assert path.exists() or "timer" in config.services


def broken_by(how: str, case: Case) -> str:
    text = BREAKS[how]
    return case.other_shape if text is None else text
