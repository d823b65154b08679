"""Moving groups in a store that RocketMQ wrote: its own text stays, a copy is kept, a running store is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.store.golden_cases import config_of

from flintlog import Message, open_store
from flintlog.cli import main
from flintlog.cli.exit_codes import ExitCode

Golden = Callable[[str], Path]


@pytest.fixture
def store(golden: Golden, tmp_path: Path) -> Path:
    shutil.copytree(golden("delay") / "store", tmp_path / "store")
    return tmp_path / "store"


def run(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> Any:  # noqa: ANN401
    assert main.run([*map(str, arguments), "-o", "json"]) == code
    out = capsys.readouterr().out
    return json.loads(out) if out else None


def offsets_of(capsys: pytest.CaptureFixture[str], store: Path, group: str) -> dict[tuple[str, int], int]:
    shown = run(capsys, "offsets", "show", store, "--group", group)
    return {(row["topic"], row["queue_id"]): row["offset"] for row in shown}


def test_set_changes_one_number_and_keeps_the_file_as_it_was(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = store / "config" / "consumerOffset.json"
    before = path.read_bytes()
    moved = run(capsys, "offsets", "set", store, "7", "--group", "CG_delay", "--topic", "DelayTopic", "--queue", "2")
    assert moved == [{"group": "CG_delay", "topic": "DelayTopic", "queue_id": 2, "before": 15, "after": 7}]
    now = path.read_bytes()
    changed = [(old, new) for old, new in zip(before.splitlines(), now.splitlines(), strict=True) if old != new]
    assert [(old.replace(b"2:15", b"2:7"), new) for old, new in changed] == [(new, new) for _, new in changed]
    assert len(changed) == 1
    (kept,) = path.parent.glob("consumerOffset.json.before-*")
    assert kept.read_bytes() == before
    assert (path.parent / "consumerOffset.json.bak").read_bytes() == before


def test_all_queues_go_to_their_begin_or_end(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "offsets", "set", store, "earliest", "--group", "CG_timer", "--topic", "TimerTopic")
    assert set(offsets_of(capsys, store, "CG_timer").values()) == {0}
    run(capsys, "offsets", "set", store, "latest", "--group", "CG_timer", "--topic", "TimerTopic")
    assert set(offsets_of(capsys, store, "CG_timer").values()) == {10}


def test_reset_goes_to_the_first_message_of_a_time(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored = [row for row in run(capsys, "cat", store, "--topic", "DelayTopic") if row["queue_id"] == 1]
    moment = stored[6]["store_timestamp"]
    run(capsys, "offsets", "reset", store, "--group", "CG_delay", "--topic", "DelayTopic", "--time", moment)
    first = next(row["queue_offset"] for row in stored if row["store_timestamp"] >= moment)
    now = offsets_of(capsys, store, "CG_delay")
    assert now["DelayTopic", 1] == first
    assert now["%RETRY%CG_delay", 0] == 3


def test_clone_gives_a_new_group_the_places_of_another(
    store: Path, golden: Golden, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capsys, "offsets", "clone", store, "--from", "CG_delay", "--to", "audit", "--topic", "DelayTopic")
    assert offsets_of(capsys, store, "audit") == {("DelayTopic", queue_id): 15 for queue_id in range(4)}
    with open_store(store, config_of(golden("delay")), read_only=True) as opened:
        assert opened.consumer_offsets.offsets("audit", "DelayTopic") == dict.fromkeys(range(4), 15)


def test_what_is_not_there_is_refused_and_nothing_written(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}
    group = ("--group", "CG_delay")
    run(capsys, "offsets", "set", store, "16", *group, "--topic", "DelayTopic", code=ExitCode.USAGE)
    run(capsys, "offsets", "set", store, "1", *group, "--topic", "Other", code=ExitCode.USAGE)
    run(capsys, "offsets", "clone", store, "--from", "nobody", "--to", "audit", code=ExitCode.USAGE)
    run(capsys, "offsets", "set", store, "1", "--group", "CG_dleay", "--topic", "DelayTopic", code=ExitCode.USAGE)
    run(capsys, "offsets", "set", store, "soon", *group, "--topic", "DelayTopic", code=ExitCode.USAGE)
    run(capsys, "offsets", "set", store, "1", *group, "--topic", "DelayTopic", "--dry-run")
    assert {path: path.read_bytes() for path in store.rglob("*") if path.is_file()} == before


def test_a_running_store_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open_store(tmp_path / "store") as opened:
        opened.put(Message("orders", b"x"))
        opened.wait_dispatched()
        place = ("set", tmp_path / "store", "latest", "--group", "billing", "--topic", "orders", "--create")
        run(capsys, "offsets", *place, code=ExitCode.STORE_IN_USE)
    run(capsys, "offsets", *place)
    assert offsets_of(capsys, tmp_path / "store", "billing") == {("orders", 0): 1}
