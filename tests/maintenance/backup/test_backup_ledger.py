"""The backup of a store whose log is a ledger: the member's log, term, vote and checkpoint, as a whole."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from tests.maintenance.verify.test_verify import snapshot
from tests.store.golden_cases import config_of, lines
from tests.store.ledger.test_golden_ledger import check_answers, copied

from flintlog import InvalidConfig, StoreInUse, open_store
from flintlog.cli import main
from flintlog.cli.exit_codes import ExitCode
from flintlog.disk.media.local import LocalMedium
from flintlog.format.ledger import parse_ledger_checkpoint, parse_term_vote
from flintlog.maintenance.backup.backup import backup, verify_backup
from flintlog.maintenance.backup.backup_files import load_manifest, save_manifest
from flintlog.maintenance.backup.restore import restore
from flintlog.maintenance.verify.verify import verify

Golden = Callable[[str], Path]


@pytest.fixture(params=["broker", "mixed"])
def case(request: pytest.FixtureRequest, golden: Golden) -> Path:
    folder: Path = golden("ledger") / request.param
    return folder


@pytest.fixture(autouse=True)
def _swept(tmp_path: Path) -> Iterator[None]:
    """A member's index has 160 MiB, which nobody should have to keep."""
    yield
    shutil.rmtree(tmp_path / "new", ignore_errors=True)


@pytest.fixture
def store(case: Path, tmp_path: Path) -> Path:
    return copied(case, tmp_path / "store")


def test_a_stopped_member_is_restored_whole(case: Path, store: Path, tmp_path: Path) -> None:
    before = snapshot(store)
    report = backup(store, tmp_path / "copy")
    assert snapshot(store) == before
    reported = lines(case / "manifest.jsonl")
    assert verify_backup(tmp_path / "copy")[1] == []
    restored = restore(tmp_path / "copy", tmp_path / "new")
    assert restored.end_offset == reported[-1]["physicalOffset"] + reported[-1]["size"] >= report.end_offset
    for path in (store / "dledger-n0" / "data").iterdir():
        assert (tmp_path / "new/dledger-n0/data" / path.name).read_bytes() == path.read_bytes()
    for name, parse in (("currterm", parse_term_vote), ("checkpoint", parse_ledger_checkpoint)):
        assert parse((tmp_path / "new/dledger-n0" / name).read_bytes()) == parse(
            (store / "dledger-n0" / name).read_bytes()
        )
    assert verify(tmp_path / "new").findings == []
    check_answers(tmp_path / "new", case, is_derived=True)


def test_a_backup_that_names_its_options_as_earlier_builds_did_is_restored(golden: Golden, tmp_path: Path) -> None:
    store = copied(golden("ledger") / "broker", tmp_path / "store")
    backup(store, tmp_path / "copy")
    medium = LocalMedium()
    manifest = load_manifest(tmp_path / "copy", medium)
    options = {
        name.replace("dledger", "dleger").replace("mapped_file_size_batch", "mapper_file_size_batch"): value
        for name, value in manifest.options.items()
    }
    assert len(options.keys() - manifest.options.keys()) == 3
    save_manifest(tmp_path / "copy", msgspec.structs.replace(manifest, options=options), medium)
    restore(tmp_path / "copy", tmp_path / "new")
    assert verify(tmp_path / "new").findings == []


def test_a_second_backup_copies_only_what_is_new(store: Path, tmp_path: Path) -> None:
    first = backup(store, tmp_path / "copy")
    again = backup(store, tmp_path / "copy")
    assert (again.file_count, again.byte_count) == (first.file_count, first.byte_count)
    assert again.copied_files < first.copied_files


def test_a_flipped_byte_is_found(store: Path, tmp_path: Path) -> None:
    backup(store, tmp_path / "copy")
    path = next(path for path in (tmp_path / "copy/files").iterdir() if path.name.startswith("currterm"))
    data = bytearray(path.read_bytes())
    data[3] ^= 1
    path.write_bytes(data)
    assert [damage.file for damage in verify_backup(tmp_path / "copy")[1]] == ["dledger-n0/currterm"]
    with pytest.raises(Exception, match="does not match its digest"):
        restore(tmp_path / "copy", tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("cut", [["--to", "70000"], ["--at", "2026-01-01T00:00:00Z"]])
def test_a_ledger_is_not_cut(cut: list[str], store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    backup(store, tmp_path / "copy")
    assert main.run(["restore", str(tmp_path / "copy"), str(tmp_path / "new"), *cut]) == ExitCode.USAGE
    assert "restored as a whole" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
    with pytest.raises(InvalidConfig):
        restore(tmp_path / "copy", tmp_path / "new", to_offset=70_000)


def test_a_running_member_is_not_backed_up(case: Path, store: Path, tmp_path: Path) -> None:
    with open_store(store, config_of(case)), pytest.raises(StoreInUse, match="when it is stopped"):
        backup(store, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_what_was_not_committed_is_kept_too(case: Path, store: Path, tmp_path: Path) -> None:
    reported = parse_ledger_checkpoint((store / "dledger-n0/checkpoint").read_bytes())
    lower = f"committedIndex={reported.committed_index - 5}\nendIndex={reported.end_index}\n"
    (store / "dledger-n0/checkpoint").write_text(lower)
    shutil.rmtree(store / "consumequeue")
    backup(store, tmp_path / "copy")
    restored = restore(tmp_path / "copy", tmp_path / "new")
    manifest = lines(case / "manifest.jsonl")
    assert restored.end_offset == manifest[-6]["physicalOffset"] + manifest[-6]["size"]
    last = max((store / "dledger-n0/data").iterdir())
    assert (tmp_path / "new/dledger-n0/data" / last.name).read_bytes() == last.read_bytes()
