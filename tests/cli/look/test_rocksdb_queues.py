"""A store whose queues are in RocksDB: looking commands say so by name, and so does an opening."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from flintlog import open_store
from flintlog.cli import main
from flintlog.errors import DamagedStore
from flintlog.maintenance.inspect.store_files import look_at
from flintlog.maintenance.verify.verify import verify

Golden = Callable[[str], Path]


@pytest.fixture(params=["consumequeue", "consumequeue_rocksdb"])
def store(request: pytest.FixtureRequest, golden: Golden, tmp_path: Path) -> Path:
    """The log of a golden store with the files that RocksDB leaves in the place of its queues."""
    root = tmp_path / "store"
    shutil.copytree(golden("plain") / "store", root, ignore=shutil.ignore_patterns("consumequeue"))
    queues = root / str(request.param)
    queues.mkdir()
    for name, content in {"CURRENT": b"MANIFEST-000005\n", "MANIFEST-000005": b"\x01", "000009.sst": b"\x02"}.items():
        (queues / name).write_bytes(content)
    return root


@pytest.mark.parametrize("command", [["info"], ["ls", "queues"], ["ls", "topics"], ["ls", "groups"], ["ls", "files"]])
def test_looking_names_it(command: list[str], store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run([*command, str(store)]) == 0
    assert "the queues are kept in RocksDB" in capsys.readouterr().err


@pytest.mark.parametrize("mode", ["quick", "full"])
def test_verify_finds_it(mode: str, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["verify", str(store), f"--{mode}", "-o", "json"]) == 1
    reported = json.loads(capsys.readouterr().out)
    (found,) = [finding for finding in reported["findings"] if finding["id"] == "queues-in-rocksdb"]
    assert "built from the log" in found["remedy"]
    assert str(found["file"]).startswith("consumequeue")


def test_an_opening_refuses_it_and_the_advice_helps(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DamagedStore, match="RocksDB"):
        open_store(store)
    (place,) = (path.parent for path in store.rglob("CURRENT"))
    shutil.move(place, store.parent / "away")
    open_store(store, look_at(store).config).shutdown()
    assert {"queues-in-rocksdb", "missing-queues"}.isdisjoint(finding.id for finding in verify(store).findings)
    assert main.run(["info", str(store), "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["messages"] == 3000


def test_a_store_with_files_is_not_taken_for_one(golden: Golden, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["info", str(golden("plain") / "store")]) == 0
    assert "RocksDB" not in capsys.readouterr().err
