"""A log file under a wrong name, for those who look at a directory and mend it: nothing but its name is wrong."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.store.misnamed_scenes import (
    COUNT,
    FEW,
    ONLY_FILE,
    SCENES,
    SIZE,
    Change,
    disturbed,
    log_by_content,
    log_of,
    make,
    name_of,
    renamed,
    swapped,
)
from tests.store.small_store import ASYNC, bytes_of, read_all

from flintlog import DamagedStore, open_store
from flintlog.cli import main
from flintlog.cli.exit_codes import ExitCode
from flintlog.disk.media.local import LocalMedium
from flintlog.maintenance.backup.backup import backup
from flintlog.maintenance.backup.restore import restore
from flintlog.maintenance.repair.repair import plan_repair, repair
from flintlog.maintenance.verify.verify import Mode, verify

ALL = {**SCENES, "two exchanged in the middle": swapped(SIZE, 2 * SIZE)}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made") / "store"
    make(root)
    return root


@pytest.mark.parametrize("mode", ["full", "quick"])
@pytest.mark.parametrize("scene", ALL)
def test_verify_finds_the_name_and_nothing_else(made: Path, tmp_path: Path, scene: str, mode: Mode) -> None:
    root = disturbed(made, tmp_path / "store", ALL[scene])
    seen = verify(root, mode=mode)
    assert {finding.id for finding in seen.findings} == {"misnamed-log-file"}
    for found in seen.findings:
        assert found.file is not None and found.physical_offset is not None
        assert found.remedy.startswith(f"rename {Path(found.file).name} to {name_of(found.physical_offset)}")
        assert Path(found.file).read_bytes() == log_of(made)[name_of(found.physical_offset)]
    assert seen.byte_count == len(log_of(root)) * SIZE


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "unclean"])
@pytest.mark.parametrize("scene", ALL)
def test_repair_gives_the_names_back_and_changes_nothing_else(
    made: Path, tmp_path: Path, scene: str, is_clean: bool
) -> None:
    root = disturbed(made, tmp_path / "store", ALL[scene], is_clean=is_clean)
    before, wanted = bytes_of(root), log_by_content(made, root)
    plan = plan_repair(root)
    assert bytes_of(root) == before
    assert {step.action for step in plan.steps} == {"rename", "settle"}
    assert not plan.lost and not plan.left
    report = repair(root)
    assert report.steps == list(plan.steps)
    assert (report.lost, report.left, report.kept_in) == ([], [], None)
    assert {name: content for name, content in log_of(root).items() if any(content)} == wanted
    assert verify(root).findings == []
    assert repair(root).steps == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]
    with open_store(root, ASYNC) as store:
        assert list(store.recovery) == []
        assert len(read_all(store, "orders")) in (COUNT, COUNT - min(COUNT, 107))


@pytest.mark.parametrize("scene", ONLY_FILE)
def test_the_only_file(tmp_path: Path, scene: str) -> None:
    make(tmp_path / "made", FEW)
    root = disturbed(tmp_path / "made", tmp_path / "store", ONLY_FILE[scene])
    (found,) = verify(root).findings
    assert (found.id, found.physical_offset) == ("misnamed-log-file", 0)
    assert repair(root).left == []
    assert log_of(root) == log_of(tmp_path / "made")


class Killed(Exception):
    pass


@pytest.mark.parametrize("scene", ["one digit off", "all moved on by one", "two exchanged, the last among them"])
def test_a_repair_that_was_killed_is_planned_afresh(made: Path, tmp_path: Path, scene: str) -> None:
    tries = 0
    while True:
        root = tmp_path / f"store{tries}"
        disturbed(made, root, ALL[scene])
        left = tries

        def step(reported: str) -> None:
            nonlocal left
            if left == 0:
                raise Killed(reported)
            left -= 1

        tries += 1
        try:
            repair(root, on_step=step)
        except Killed:
            assert sorted(log_of(root).values()) == sorted(log_of(made).values())
            assert repair(root).left == []
        else:
            assert left == 0 or tries > 1
            break
        assert log_of(root) == log_of(made)
        assert verify(root).findings == []
    assert tries > 4


class WritingDown(LocalMedium):
    """Notes what happens to names in one directory."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.reported: list[str] = []
        self._directory = directory

    def rename(self, source: Path, target: Path) -> None:
        super().rename(source, target)
        if target.parent == self._directory:
            self.reported.append("rename")

    def sync_directory(self, path: Path) -> None:
        super().sync_directory(path)
        if path == self._directory and self.reported and self.reported[-1] == "rename":
            self.reported.append("sync")


def test_each_rename_is_durable_before_the_next(made: Path, tmp_path: Path) -> None:
    root = disturbed(made, tmp_path / "store", SCENES["two exchanged, the last among them"])
    medium = WritingDown(root / "commitlog")
    repair(root, medium=medium)
    assert medium.reported == ["rename", "sync"] * 3


# What no repair decides


def _other_bytes(log: Path) -> None:
    """A file of the same place with other messages."""
    data = bytearray((log / name_of(SIZE)).read_bytes())
    data[-1000:-900] = b"y" * 100
    (log / (name_of(SIZE) + ".bak")).write_bytes(data)


def _under_a_number(log: Path) -> None:
    _other_bytes(log)
    (log / (name_of(SIZE) + ".bak")).rename(log / name_of(9 * SIZE))


@pytest.mark.parametrize("change", [_other_bytes, _under_a_number])
def test_a_name_that_is_taken_is_not_given(made: Path, tmp_path: Path, change: Change) -> None:
    root = disturbed(made, tmp_path / "store", change)
    before = bytes_of(root)
    plan = plan_repair(root)
    assert plan.steps == () and [finding.id for finding in plan.left] == ["misnamed-log-file"]
    with pytest.raises(DamagedStore, match=f"right name is {name_of(SIZE)}, but that file is there: compare"):
        repair(root)
    assert bytes_of(root) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]


@pytest.mark.parametrize("number", [0, SIZE, 3 * SIZE])
@pytest.mark.parametrize("to", ["a copy", name_of(9 * SIZE), name_of(SIZE + 5)])
def test_a_copy_goes_beside_the_store(made: Path, tmp_path: Path, number: int, to: str) -> None:
    root = disturbed(made, tmp_path / "store", lambda log: shutil.copy(log / name_of(number), log / to))
    (found,) = verify(root).findings
    assert found.id == "misnamed-log-file" and "that file is there" in found.remedy
    assert [step.action for step in plan_repair(root).steps] == ["move-away", "settle"]
    report = repair(root)
    assert report.left == [] and report.kept_in is not None
    assert (report.kept_in / "commitlog" / to).read_bytes() == log_of(made)[name_of(number)]
    assert log_of(root) == log_of(made)


def test_a_copy_of_an_earlier_time_goes_beside_the_store(made: Path, tmp_path: Path) -> None:
    def change(log: Path) -> None:
        data = (log / name_of(3 * SIZE)).read_bytes()
        (log / "earlier").write_bytes(data[:20_000].ljust(SIZE, b"\0"))

    root = disturbed(made, tmp_path / "store", change)
    assert repair(root).left == []
    assert log_of(root) == log_of(made)


def test_an_empty_file_in_its_place_is_none(made: Path, tmp_path: Path) -> None:
    def change(log: Path) -> None:
        renamed(SIZE, SIZE + 1)(log)
        (log / name_of(SIZE)).write_bytes(b"")

    root = disturbed(made, tmp_path / "store", change)
    assert [step.action for step in plan_repair(root).steps] == ["move-away", "rename", "settle"]
    assert repair(root).left == []
    assert log_of(root) == log_of(made)


def test_a_file_is_never_renamed_over_another(made: Path, tmp_path: Path) -> None:
    """Somebody puts the file back by hand between the look and the step."""
    root = disturbed(made, tmp_path / "store", SCENES["one digit off"])

    def step(reported: str) -> None:
        if reported == "rename":
            (root / "commitlog" / name_of(SIZE)).write_bytes(b"mine")

    with pytest.raises(DamagedStore, match="and there is one"):
        repair(root, on_step=step)
    assert (root / "commitlog" / name_of(SIZE)).read_bytes() == b"mine"
    assert (root / "commitlog" / name_of(SIZE + 1)).read_bytes() == log_of(made)[name_of(SIZE)]


def test_what_else_is_wrong_is_mended_with_it(made: Path, tmp_path: Path) -> None:
    def change(log: Path) -> None:
        with (log / name_of(SIZE)).open("r+b") as file:
            file.seek(30_000)
            file.write(b"\xff" * 10)
        renamed(SIZE, SIZE + 1)(log)
        shutil.rmtree(log.parent / "consumequeue")

    root = disturbed(made, tmp_path / "store", change)
    plan = plan_repair(root)
    assert [step.action for step in plan.steps] in (
        ["stand-in", "queues", "rename", "settle"],
        ["fill", "queues", "rename", "settle"],
    )
    assert repair(root).left == []
    assert verify(root).findings == []
    assert sorted(log_of(root))[:4] == sorted(log_of(made))


def test_the_sizes_are_known_whatever_a_file_is_called(made: Path, tmp_path: Path) -> None:
    """With one of two files misnamed, their distance says nothing about their size."""
    make(tmp_path / "two", 150)
    root = disturbed(tmp_path / "two", tmp_path / "store", renamed(SIZE, SIZE + 17))
    assert f"mapped_file_size_commit_log = {SIZE}" in " ".join(verify(root).inferred)


def test_two_files_that_are_left_of_three_keep_their_size(tmp_path: Path) -> None:
    """The one between them is really gone. Their distance is not their size, and none of them is to be filled up."""
    make(tmp_path / "three", 300)
    root = disturbed(tmp_path / "three", tmp_path / "store", lambda log: (log / name_of(SIZE)).unlink())
    seen = verify(root)
    assert f"mapped_file_size_commit_log = {SIZE}" in " ".join(seen.inferred)
    assert "wrong-file-size" not in {finding.id for finding in seen.findings}


def test_what_is_made_anew_takes_after_the_first_file_under_its_new_name(made: Path, tmp_path: Path) -> None:
    root = disturbed(made, tmp_path / "store", SCENES["the first, one off"])
    shutil.rmtree(root / "consumequeue")
    for path in (root / "commitlog").iterdir():
        path.chmod(0o640)
    repair(root)
    built = [path for path in (root / "consumequeue").rglob("*") if path.is_file()]
    assert built and {path.stat().st_mode & 0o777 for path in built} == {0o640}


def test_a_backup_has_the_right_names(made: Path, tmp_path: Path) -> None:
    root = disturbed(made, tmp_path / "store", SCENES["a suffix in the middle"])
    backup(root, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "new")
    with open_store(tmp_path / "new", ASYNC) as store:
        assert len(read_all(store, "orders")) == COUNT


# Commands


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    code = main.run([str(argument) for argument in arguments])
    return code, capsys.readouterr().out


def test_commands_say_it_and_do_it(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = disturbed(made, tmp_path / "store", SCENES["one digit off"])
    code, out = run(capsys, "verify", root, "-o", "json")
    assert code == ExitCode.FINDINGS
    assert [found["id"] for found in json.loads(out)["findings"]] == ["misnamed-log-file"]
    code, out = run(capsys, "cat", root, "-o", "jsonl", "--body", "none")
    assert len(out.splitlines()) == COUNT
    code, out = run(capsys, "repair", root, "--plan")
    assert code == ExitCode.FINDINGS and f"rename the file to {name_of(SIZE)}" in " ".join(out.split())
    code, out = run(capsys, "repair", root, "--apply")
    assert code == ExitCode.FINE
    assert run(capsys, "verify", root)[0] == ExitCode.FINE
