"""What a repair tells of messages: those of batch queues by entry, and in every output kept and lost ones."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.store.golden_cases import config_of, lines

from flintlog import open_store
from flintlog.cli import main
from flintlog.cli.exit_codes import ExitCode
from flintlog.maintenance.repair.repair import plan_repair, repair
from flintlog.maintenance.verify.verify import verify

Golden = Callable[[str], Path]


@pytest.fixture
def multi(golden: Golden, tmp_path: Path) -> Path:
    shutil.copytree(golden("multi") / "store", tmp_path / "store")
    return tmp_path / "store"


def batches(golden: Golden) -> list[dict[str, Any]]:
    all_lines = lines(golden("multi") / "manifest.jsonl")
    return [
        line for line in all_lines if "INNER_BASE" in line["properties"] and int(line["properties"]["INNER_NUM"]) > 1
    ]


def damage(root: Path, line: dict[str, Any], place: int, content: bytes) -> None:
    for path in sorted((root / "commitlog").iterdir(), reverse=True):
        if int(path.name) <= line["physicalOffset"]:
            with path.open("r+b") as file:
                file.seek(line["physicalOffset"] - int(path.name) + place)
                file.write(content)
            return


@pytest.mark.parametrize("what", ["head", "body"])
def test_messages_of_a_batch_queue_are_lost_by_entry_and_keep_their_offsets(
    what: str, multi: Path, golden: Golden
) -> None:
    victim = batches(golden)[7]
    damage(multi, victim, 4 if what == "head" else 88 + 30, b"\xff\x0f\xff\x0f")
    plan = plan_repair(multi)
    (lost,) = plan.lost
    count = int(victim["properties"]["INNER_NUM"])
    assert (lost.physical_offset, lost.size, lost.topic) == (victim["physicalOffset"], victim["size"], victim["topic"])
    assert (lost.queue_id, lost.queue_offset, lost.message_count) == (victim["queueId"], victim["queueOffset"], count)
    assert lost.why == ("damaged-range" if what == "head" else "damaged-record")
    assert plan.kept_count == len({line["physicalOffset"] for line in lines(golden("multi") / "manifest.jsonl")}) - 1
    report = repair(multi)
    assert (report.left, report.kept_count) == ([], plan.kept_count)
    assert verify(multi).findings == []
    queues = [line for line in lines(golden("multi") / "queues.jsonl") if line["kind"] == "queue"]
    with open_store(multi, config_of(golden("multi")), read_only=True) as store:
        for queue in queues:
            assert store.max_offset(queue["topic"], queue["queueId"]) == queue["max"]


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_rows_have_steps_and_messages(
    form: str, golden: Golden, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(golden("torn") / "flip" / "before" / "store", tmp_path / "store")
    assert main.run(["repair", str(tmp_path / "store"), "--plan", "-o", form]) == ExitCode.FINDINGS
    out = capsys.readouterr().out
    rows = list(csv.DictReader(out.splitlines())) if form == "csv" else list(map(json.loads, out.splitlines()))
    assert [row["kind"] for row in rows] == ["step", "step", "kept", "lost"]
    reported = json.loads((golden("torn") / "flip" / "damage.json").read_text())
    seen = verify(tmp_path / "store")
    step, settle, kept, lost = rows
    assert (step["action"], settle["action"]) == ("stand-in", "settle")
    assert int(kept["message_count"]) == seen.record_count - 1 > 100
    assert (int(lost["physical_offset"]), lost["why"]) == (reported["record"], "damaged-record")
    assert {tuple(row) for row in rows} == {tuple(rows[0])}


def test_what_no_step_helps_against_is_a_row_too(
    multi: Path, golden: Golden, capsys: pytest.CaptureFixture[str]
) -> None:
    (multi / "config").mkdir(exist_ok=True)
    (multi / "config" / "topics.json").write_bytes(b"{")
    assert main.run(["repair", str(multi), "--plan", "-o", "jsonl"]) == ExitCode.FINDINGS
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (left,) = [row for row in rows if row["kind"] == "left"]
    assert (left["why"], left["file"]) == ("damaged-config", "config/topics.json")
    assert left["what"] and left["remedy"]
