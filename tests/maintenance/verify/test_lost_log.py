"""A log that lost its end, or all of it: what is gone is named by message, and nothing is mended in silence."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.maintenance.verify.test_verify import ids, snapshot
from tests.store.golden_cases import config_of, lines

from flintlog import DamagedStore, Message, open_store
from flintlog.cli import main
from flintlog.cli.exit_codes import ExitCode
from flintlog.maintenance.repair.repair import plan_repair, repair
from flintlog.maintenance.verify.verify import verify

Golden = Callable[[str], Path]
FILE_SIZE = 1048576
LAST = 4 * FILE_SIZE


def last_file(root: Path) -> Path:
    return root / "commitlog" / f"{LAST:020d}"


LOSSES: dict[str, Callable[[Path], object]] = {
    "deleted": lambda root: last_file(root).unlink(),
    "zeroed": lambda root: last_file(root).write_bytes(bytes(FILE_SIZE)),
    "truncated to nothing": lambda root: last_file(root).write_bytes(b""),
}


@pytest.fixture
def plain(golden: Golden, tmp_path: Path) -> Path:
    shutil.copytree(golden("plain") / "store", tmp_path / "store")
    return tmp_path / "store"


@pytest.mark.parametrize("loss", LOSSES)
def test_the_messages_of_a_lost_last_file_are_named(loss: str, plain: Path, golden: Golden) -> None:
    LOSSES[loss](plain)
    manifest = lines(golden("plain") / "manifest.jsonl")
    gone = {
        (line["physicalOffset"], line["size"], line["topic"], line["queueId"], line["queueOffset"])
        for line in manifest
        if line["physicalOffset"] >= LAST
    }
    seen = verify(plain)
    (short,) = [finding for finding in seen.findings if finding.id == "short-log"]
    assert (short.severity, short.physical_offset) == ("error", LAST)
    assert LAST + short.size == max(offset + size for offset, size, *_ in gone)
    assert "dangling-queue-entries" not in ids(seen)
    plan = plan_repair(plain)
    rows = {(lost.physical_offset, lost.size, lost.topic, lost.queue_id, lost.queue_offset) for lost in plan.lost}
    assert rows == gone
    assert len(plan.lost) == len(gone)
    assert all(lost.message_id is None for lost in plan.lost)
    report = repair(plain)
    assert report.lost == list(plan.lost)
    assert report.left == []
    assert verify(plain).findings == []
    with open_store(plain, config_of(golden("plain")), read_only=True) as store:
        kept = [line for line in manifest if line["physicalOffset"] < LAST]
        assert all(store.message_at(line["physicalOffset"]) is not None for line in kept[::50])


@pytest.mark.parametrize("way", ["removed", "emptied", "removed after a crash"])
def test_a_store_without_its_log_is_not_repaired(
    way: str, plain: Path, golden: Golden, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(plain / "commitlog")
    if way == "emptied":
        (plain / "commitlog").mkdir()
    if way == "removed after a crash":
        (plain / "abort").write_text("1")
        (plain / "checkpoint").unlink()
    before = snapshot(plain)
    plan = plan_repair(plain)
    assert plan.steps == ()
    (short,) = [finding for finding in plan.left if finding.id == "short-log"]
    assert short.evidence.startswith("3000 queue entries")
    assert len(plan.lost) == len(lines(golden("plain") / "manifest.jsonl"))
    with pytest.raises(DamagedStore, match="the log is missing: is its disk mounted"):
        repair(plain)
    assert main.run(["repair", str(plain), "--plan"]) == ExitCode.FINDINGS
    assert main.run(["repair", str(plain), "--apply"]) == ExitCode.CANNOT_READ
    assert "is its disk mounted" in capsys.readouterr().err
    assert snapshot(plain) == before
    assert [path.name for path in plain.parent.iterdir()] == ["store"]


def test_a_store_that_never_had_a_message_is_not_taken_for_one_without_its_log(tmp_path: Path) -> None:
    with open_store(tmp_path / "store"):
        pass
    shutil.rmtree(tmp_path / "store" / "commitlog", ignore_errors=True)
    assert repair(tmp_path / "store").left == []


def crash(root: Path, vouched: int) -> None:
    """As if the process had been killed, with a checkpoint that vouches for the queues up to an offset."""
    (root / "abort").write_text("1")
    checkpoint = bytearray((root / "checkpoint").read_bytes())
    struct.pack_into("!q", checkpoint, 40, vouched)
    (root / "checkpoint").write_bytes(checkpoint)


def test_after_a_crash_queues_may_run_ahead_of_the_log_but_not_of_its_files(plain: Path, golden: Golden) -> None:
    path = last_file(plain)
    path.write_bytes(bytes(FILE_SIZE))
    crash(plain, 0)
    assert "short-log" not in ids(verify(plain))
    assert plan_repair(plain).lost == ()
    path.unlink()
    assert "short-log" in ids(verify(plain))
    assert len(plan_repair(plain).lost) == 201


def test_a_crash_may_cost_a_young_log_everything(plain: Path) -> None:
    for path in (plain / "commitlog").iterdir():
        path.write_bytes(bytes(FILE_SIZE))
    crash(plain, 0)
    assert "short-log" not in ids(verify(plain))


def test_after_a_crash_the_checkpoint_says_what_the_log_had(plain: Path, golden: Golden) -> None:
    last_file(plain).unlink()
    crash(plain, max(line["physicalOffset"] for line in lines(golden("plain") / "manifest.jsonl")))
    (short,) = [finding for finding in verify(plain).findings if finding.id == "short-log"]
    assert "checkpoint" in short.evidence
    assert len(plan_repair(plain).lost) == 201


def test_a_store_of_ours_whose_log_lost_its_end_is_repaired(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(root) as store:
        places = [store.put(Message("orders", b"x" * 100, keys=("k",))) for _ in range(10)]
    start = places[7].physical_offset
    (log,) = (root / "commitlog").glob("0" * 20)
    with log.open("r+b") as file:
        file.seek(start)
        file.write(bytes(4096))
    assert "short-log" in ids(verify(root))
    plan = plan_repair(root)
    assert [lost.physical_offset for lost in plan.lost] == [place.physical_offset for place in places[7:]]
    assert repair(root).left == []
    assert verify(root).findings == []
    with open_store(root) as store:
        assert store.put(Message("orders", b"new")).queue_offset == places[-1].queue_offset + 1, "no offset twice"


def test_a_torn_message_that_no_queue_knows_is_named_by_its_head(golden: Golden, tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(golden("torn") / "truncated" / "before" / "store", root)
    (known,) = plan_repair(root).lost
    shutil.rmtree(root / "consumequeue")
    (lost,) = plan_repair(root).lost
    assert (lost.physical_offset, lost.size) == (known.physical_offset, known.size)
    assert (lost.queue_id, lost.queue_offset) == (known.queue_id, known.queue_offset)
