"""`flintlog retention`: which files would be deleted, reported without opening the store."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import time
from datetime import datetime
from pathlib import Path

import pytest
from tests.conftest import Golden
from tests.store.small_store import SMALL, bytes_of

from flintlog import Message, Store, StoreConfig, open_store
from flintlog.cli.main import run
from flintlog.cli.mend.retention import describe_going, describe_growth
from flintlog.disk.media.medium import DiskUsage
from flintlog.maintenance.inspect.forecast import DAY_MS, Forecast, Reached
from flintlog.services.transaction.transaction_service import TransactionService
from flintlog.store.retention.retention_rules import LogFile, PlannedFile

HOUR_S = 3600
NOW_MS = int(datetime(2026, 3, 10, 12).timestamp() * 1000)


def fill_files(path: Path, config: StoreConfig = SMALL, files: int = 4) -> int:
    """A store with some log files; how many messages it has."""
    with open_store(path, config) as store:
        count = 0
        while _files(store) < files:
            store.put(Message("orders", bytes(4000))).check()
            count += 1
    return count


def _files(store: Store) -> int:
    return len(store._engine.parts.segments.segments)


def age(path: Path, hours: float) -> None:
    for file in (path / "commitlog").iterdir():
        moment = file.stat().st_mtime - hours * HOUR_S
        os.utime(file, (moment, moment))


def config_file(path: Path, **options: object) -> str:
    file = path.with_name("retention.json")
    file.write_text(json.dumps(options))
    return str(file)


def ask(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    assert run(["retention", *map(str, arguments)]) == code
    return capsys.readouterr().out


def rows(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> list[dict[str, object]]:
    found = json.loads(ask(capsys, *arguments, "-o", "json", code=code))
    assert isinstance(found, list)
    return found


def at_any_hour(path: Path, **options: object) -> tuple[str, str]:
    hours = ";".join(map(str, range(24)))
    return "--config", config_file(path, delete_when=hours, **options)


def test_expired_files_are_deleted_now_and_the_newest_never(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill_files(tmp_path / "store")
    age(tmp_path / "store", 80)
    before = bytes_of(tmp_path / "store")
    found = rows(capsys, tmp_path / "store", *at_any_hour(tmp_path / "store"))
    assert [row["goes"] for row in found] == ["now", "now", "now", "kept: the newest file is never deleted"]
    assert [row["physical_offset"] for row in found] == [0, 65536, 131072, 196608]
    assert {row["bytes"] for row in found} == {65536}
    assert all(row["why"] == "expired" for row in found[:3])
    assert bytes_of(tmp_path / "store") == before, "nothing is written"


def test_young_files_are_deleted_when_they_will_have_expired(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill_files(tmp_path / "store")
    found = rows(capsys, tmp_path / "store", *at_any_hour(tmp_path / "store", file_reserved_time=2))
    assert [isinstance(row["goes_at_ms"], int) for row in found] == [True, True, True, False]
    assert found[0]["goes_at_ms"] == found[0]["expires_at_ms"]
    assert str(found[0]["goes"]).startswith("at ")


def test_without_a_config_the_answer_is_for_rocketmq(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill_files(tmp_path / "store")
    assert run(["retention", str(tmp_path / "store"), "--dry-run", "-o", "json"]) == 0
    captured = capsys.readouterr()
    assert "72 hours" in captured.err
    assert [row["goes_at_ms"] is not None for row in json.loads(captured.out)] == [True, True, True, False]


def test_a_config_that_keeps_everything_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill_files(tmp_path / "store")
    age(tmp_path / "store", 1000)
    found = rows(capsys, tmp_path / "store", "--config", config_file(tmp_path / "store", flush="async"))
    assert {row["goes"] for row in found} == {"kept: this configuration keeps everything"}


def test_groups_that_have_not_consumed_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "store"
    count = fill_files(store)
    age(store, 80)
    (store / "config").mkdir()
    offsets = {"orders@done": {0: count}, "orders@behind": {0: count // 2}}
    (store / "config/consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    found = rows(capsys, store, *at_any_hour(store))
    assert [row["unconsumed_by"] for row in found] == [[], ["behind"], ["behind"], ["behind"]]
    assert [row["goes"] for row in found[:3]] == ["now", "now", "now"]
    found = rows(capsys, store, *at_any_hour(store, protect_unconsumed=True))
    assert [row["goes"] for row in found[:3]] == ["now", *["kept: group behind has not consumed"] * 2]


def test_everything_that_still_needs_a_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "store"
    config = SMALL.with_changes(services={"schedule", "timer", "transaction"})
    with open_store(store, config) as opened:
        opened.put(Message("mails", b"x", delay_level=18)).check()
        opened.put(Message("mails", b"x", deliver_at_ms=opened._host.now_ms() + 3_600_000)).check()
        transactions = opened.service("transaction")
        assert isinstance(transactions, TransactionService)
        transactions.begin(Message("payments", b"x"))
    fill_files(store)
    with open_store(store, SMALL) as opened:
        opened.consumer("behind", "orders").close()
        opened.groups.create("newcomer")
    age(store, 80)
    found = rows(capsys, store, *at_any_hour(store))
    needed = found[0]["needed_by"]
    assert isinstance(needed, list)
    assert [re.sub(r"\d{4}-.*", "...", reason) for reason in needed] == [
        "delay level 18 waits until ...",
        "group newcomer has consumed nothing yet, and may read any topic",
        "a timer waits until ...",
        "a transaction of payments is undecided",
        "group behind has not consumed",
    ]
    assert found[0]["unconsumed_by"] == ["behind", "newcomer"]
    assert found[0]["goes"] == "now"
    kept = rows(capsys, store, *at_any_hour(store, protect_unconsumed=True))
    assert re.fullmatch(r"kept: delay level 18 waits until .* \(and 4 more\)", str(kept[0]["goes"]))
    assert "behind" in ask(capsys, store, *at_any_hour(store), "-o", "csv")


def test_offsets_that_do_not_parse_make_the_answer_partial(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "store"
    fill_files(store)
    (store / "config").mkdir()
    (store / "config/consumerOffset.json").write_text("{")
    assert len(rows(capsys, store, code=5)) == 4
    kept = rows(capsys, store, *at_any_hour(store, protect_unconsumed=True), code=5)
    assert {row["goes"] for row in kept} == {"kept: it is not known who needs it"}


def test_beside_a_running_store_the_file_made_ahead_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open_store(tmp_path / "store", SMALL) as store:
        while _files(store) < 3:
            store.put(Message("orders", bytes(4000))).check()
        assert len(rows(capsys, tmp_path / "store")) == 3


def test_other_forms(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill_files(tmp_path / "store", files=2)
    assert "never deleted" in ask(capsys, tmp_path / "store")
    assert len(ask(capsys, tmp_path / "store", "-o", "jsonl").splitlines()) == 2
    table = list(csv.DictReader(io.StringIO(ask(capsys, tmp_path / "store", "-o", "csv"))))
    assert [row["bytes"] for row in table] == ["65536", "65536"]


def test_a_directory_without_a_store_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ask(capsys, tmp_path / "missing", code=3)
    ask(capsys, tmp_path, code=3)
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / "letter.txt").write_text("dear")
    ask(capsys, tmp_path, code=3)


@pytest.mark.parametrize(
    ("hours", "text"),
    [(-1, "now"), (0, "now"), (4, "at 16:00 today"), (16, "at 04:00 tomorrow"), (64, "at 04:00 on 2026-03-13")],
)
def test_moments_are_shown_relative_to_now(hours: int, text: str) -> None:
    file = LogFile(Path("/log/0"), 0, 10, 0)
    assert describe_going(PlannedFile(file, 0, NOW_MS + hours * 3_600_000, "expired", ()), NOW_MS) == text


def foreseen(bytes_a_day: float, kept: float | None, full_ms: int | None) -> Forecast:
    limits = tuple(Reached(percent, "", at_ms, at_ms, None) for percent, at_ms in ((75, NOW_MS), (90, full_ms)))
    return Forecast(NOW_MS - 7 * DAY_MS, NOW_MS, (), bytes_a_day, bytes_a_day, 0, 0.0, kept, limits)


def test_growth_is_reported_with_its_consequence() -> None:
    disk = DiskUsage(3 << 30, 1 << 30, 0.639)
    text = describe_growth(foreseen(3 * 1024**3, None, NOW_MS + int(12.34 * DAY_MS)), disk)
    assert text == (
        "The log grows by about 3.0 GiB a day, as in the last 7 days. Its disk is 63 % full: "
        "in about 12.3 days it is nearly full."
    )
    assert describe_growth(foreseen(100, 400, None), disk).endswith("63 % full, and that is enough.")


@pytest.mark.parametrize("after_ms", [0, 3 * 3_600_000, 30 * DAY_MS])
def test_growth_is_that_of_the_forecast(
    after_ms: int, golden: Golden, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A log that has rested for a month grows by nothing, in both commands."""
    last_stored_ms = 1_700_005_419_993
    monkeypatch.setattr(time, "time_ns", lambda: (last_stored_ms + after_ms) * 1_000_000)
    store = str(golden("plain") / "store")
    assert run(["forecast", store, "-o", "json"]) == 0
    rate = json.loads(capsys.readouterr().out)["bytes_a_day"]
    assert (rate > 0) == (after_ms < 7 * DAY_MS)
    assert run(["retention", store, "--dry-run", "-o", "json"]) == 0
    said = "0 B" if not rate else f"{rate / 2**20:.1f} MiB"
    assert f"grows by about {said} a day" in capsys.readouterr().err


def test_a_store_of_javas_with_batch_queues_needs_no_configuration(
    golden: Golden, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rows(capsys, golden("multi") / "store")
