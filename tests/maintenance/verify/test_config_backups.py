"""A config file that is empty or missing, and whose `.bak` is good: an opening uses the backup, and so does a look."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flintlog import Message, StoreConfig, open_store
from flintlog.maintenance.repair.repair import repair
from flintlog.maintenance.verify.verify import verify
from flintlog.cli import main
from flintlog.cli.exit_codes import ExitCode

SMALL = StoreConfig(mapped_file_size_commit_log=65536, max_hash_slot_num=100, max_index_num=400)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A group that has consumed something, in a store that has saved its offsets twice."""
    root = tmp_path / "store"
    for _ in range(2):
        with open_store(root, SMALL) as opened:
            opened.put(Message("orders", b"x"))
            consumer = opened.consumer("billing", "orders", start="earliest", timeout_s=0)
            for message in consumer:
                consumer.acknowledge(message)
    assert (root / "config" / "consumerOffset.json.bak").stat().st_size
    return root


@pytest.mark.parametrize("harm", ["empty", "blank", "missing"])
def test_offsets_of_the_backup_are_used_and_the_loss_is_found(
    store: Path, harm: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = store / "config" / "consumerOffset.json"
    path.unlink()
    if harm != "missing":
        path.write_bytes(b"" if harm == "empty" else b" \n")
    (finding,) = verify(store).findings
    assert (finding.id, finding.file) == ("damaged-config", str(path))
    for command in (["ls", "groups"], ["offsets", "show"]):
        assert main.run([*command, str(store), "-o", "json"]) == ExitCode.FINE
        said = capsys.readouterr()
        assert [row["offset"] for row in json.loads(said.out)] == [1]
        assert ".bak is shown" in said.err
    with open_store(store, SMALL, read_only=True) as opened:
        assert opened.consumer_offsets.get("billing", "orders", 0) == 1
    repair(store)
    assert verify(store).findings == []
    with open_store(store, SMALL, read_only=True) as opened:
        assert opened.consumer_offsets.get("billing", "orders", 0) == 1


def test_an_empty_file_without_a_backup_is_one_that_was_never_finished(store: Path) -> None:
    for path in (store / "config").glob("consumerOffset.json*"):
        path.write_bytes(b"")
    assert verify(store).findings == []
