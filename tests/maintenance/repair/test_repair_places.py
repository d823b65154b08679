"""A repair leaves every intact message at its queue offset, or takes itself back."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.maintenance.random_damage import Truth, places_in
from tests.store.golden_cases import config_of

from flintlog import DamagedStore
from flintlog.cli import main
from flintlog.cli.exit_codes import ExitCode
from flintlog.maintenance.repair import repair as repairing
from flintlog.maintenance.repair.lost_records import LOST_PROPERTY
from flintlog.maintenance.repair.repair import plan_repair, repair
from flintlog.maintenance.verify.verify import verify
from flintlog.store.dispatch import gap_filling
from flintlog.store.open_store import open_store

Golden = Callable[[str], Path]
TOPIC, QUEUE = "TopicTest", 1


@pytest.fixture
def store(golden: Golden, tmp_path: Path) -> Path:
    shutil.copytree(golden("plain") / "store", tmp_path / "store")
    return tmp_path / "store"


def overwrite(store: Path, physical_offset: int, data: bytes) -> None:
    size = 1048576
    with (store / "commitlog" / f"{physical_offset // size * size:020d}").open("r+b") as file:
        file.seek(physical_offset % size)
        file.write(data)


def places_of_queue(store: Path) -> dict[int, tuple[int, int]]:
    return {place[2]: at for place, at in places_in(store).items() if place[:2] == (TOPIC, QUEUE)}


def files_of(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_messages_after_lost_ones_keep_their_offsets_without_the_old_queues(store: Path) -> None:
    before = places_of_queue(store)
    for offset in (20, 21, 22, 40):
        at, size = before[offset]
        overwrite(store, at, bytes(size))
    shutil.rmtree(store / "consumequeue")
    report = repair(store)
    after = places_of_queue(store)
    assert {offset: after[offset] for offset in before if offset not in (20, 21, 22, 40)} == {
        offset: at for offset, at in before.items() if offset not in (20, 21, 22, 40)
    }
    assert report.left == []
    assert plan_repair(store).steps == ()


def test_a_lost_place_has_a_stand_in_in_the_log(store: Path, golden: Golden) -> None:
    at, size = places_of_queue(store)[20]
    overwrite(store, at, bytes(size))
    shutil.rmtree(store / "consumequeue")
    repair(store, config_of(golden("plain")))
    with open_store(store, config_of(golden("plain")), read_only=True) as opened:
        (message,) = opened.get(TOPIC, QUEUE, 20, 1).messages
        assert LOST_PROPERTY in message.properties


@pytest.mark.parametrize("field", [12, 20], ids=["queue id", "queue offset"])
@pytest.mark.parametrize("flipped", [1, 4, 64])
def test_a_record_that_names_another_place_moves_no_other(store: Path, field: int, flipped: int) -> None:
    truth = Truth.of(store)
    before = places_of_queue(store)
    at, _ = before[30]
    width = 4 if field == 12 else 8
    number = int.from_bytes(truth.records[at].data[field : field + width], "big") ^ flipped
    overwrite(store, at + field, number.to_bytes(width, "big"))
    found = len(verify(store).findings)
    repair(store)
    after = places_in(store)
    moved = [place for place, where in truth.places.items() if where[0] != at and after.get(place) != where]
    assert moved == []
    assert len(verify(store).findings) <= found
    assert plan_repair(store).steps == ()


def test_an_opening_that_builds_queues_moves_no_message_either(store: Path, golden: Golden) -> None:
    truth = Truth.of(store)
    at, _ = places_of_queue(store)[30]
    overwrite(store, at + 12, (77).to_bytes(4, "big"))
    shutil.rmtree(store / "consumequeue")
    with open_store(store, config_of(golden("plain"))):
        pass
    after = places_in(store)
    assert [place for place, where in truth.places.items() if where[0] != at and after.get(place) != where] == []


def test_a_repair_that_hides_a_message_takes_itself_back(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    at, _ = places_of_queue(store)[30]
    overwrite(store, at + 12, (77).to_bytes(4, "big"))
    before = files_of(store)
    monkeypatch.setattr(gap_filling.GapFiller, "make_way", lambda *_: True)  # as RocketMQ: put where the queue ends
    assert main.run(["repair", str(store), "--apply"]) == ExitCode.CANNOT_READ
    assert "was undone" in capsys.readouterr().err
    after = files_of(store)
    changed = {name for name in before | after if before.get(name) != after.get(name)}
    assert changed <= {"lock"}


def test_everything_that_a_repair_changed_is_put_back(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = places_of_queue(store)
    overwrite(store, before[5][0], bytes(before[5][1]))  # filled
    overwrite(store, before[50][0] + 100, b"\xff")  # a stand-in
    with (store / "commitlog" / "00000000000001048576").open("r+b") as file:
        file.truncate(500_000)  # resized
    (store / "commitlog" / "notes.txt").write_bytes(b"moved away")
    (store / "checkpoint").unlink()
    files = files_of(store)
    monkeypatch.setattr(repairing, "find_harm", lambda *_: "it is only a test")
    with pytest.raises(DamagedStore, match="was undone"):
        repair(store)
    after = files_of(store)
    assert {name for name in files | after if files.get(name) != after.get(name)} <= {"lock"}
