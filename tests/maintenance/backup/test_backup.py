"""Backups: consistent beside a writer, cheap to repeat, proven without restoring, restored whole or to a point."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.maintenance.verify.test_verify import snapshot
from tests.store.golden_cases import config_of, lines
from tests.store.small_store import SMALL

from flintlog import Message, open_store
from flintlog.cli import main
from flintlog.cli.exit_codes import ExitCode
from flintlog.errors import DamagedStore, FlintlogError
from flintlog.maintenance.backup.backup import backup, verify_backup
from flintlog.maintenance.backup.restore import restore
from flintlog.maintenance.verify.verify import verify

Golden = Callable[[str], Path]

WRITER = """
import sys
from flintlog import Message, StoreConfig, open_store
config = StoreConfig(mapped_file_size_commit_log=65536, mapped_file_size_consume_queue=2000, max_hash_slot_num=100,
                     max_index_num=400, flush="async")
with open_store(sys.argv[1], config) as store:
    for number in range(1_000_000):
        receipt = store.put(Message("orders", bytes(number % 500), keys=[f"k{number}"], queue_id=number % 3)).check()
        if number % 100 == 0:
            print(receipt.physical_offset + receipt.size, flush=True)
"""


@pytest.mark.parametrize("case", ["batch", "delay", "multi", "plain"])
def test_what_is_restored_is_the_store_that_was_backed_up(case: str, golden: Golden, tmp_path: Path) -> None:
    root = golden(case) / "store"
    before = snapshot(root)
    report = backup(root, tmp_path / "backup")
    assert snapshot(root) == before
    made = restore(tmp_path / "backup", tmp_path / "new")
    assert (made.min_offset, made.end_offset) == (report.min_offset, report.end_offset)
    assert verify(tmp_path / "new").findings == []
    log = {path.name: path.read_bytes() for path in (root / "commitlog").iterdir() if any(path.read_bytes()[:8])}
    assert {path.name: path.read_bytes() for path in (tmp_path / "new" / "commitlog").iterdir()} == log
    config = config_of(golden(case))
    with open_store(tmp_path / "new", config, read_only=True) as new, open_store(root, config, read_only=True) as old:
        assert new.queues() == old.queues()
        assert new.recovery.clean
    for path in (root / "config").glob("*.json"):
        assert (tmp_path / "new" / "config" / path.name).read_bytes() == path.read_bytes(), path


def test_a_second_backup_copies_only_what_is_new(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", SMALL) as store:
        for number in range(300):
            store.put(Message("orders", bytes(900), queue_id=number % 2))
        first = backup(tmp_path / "store", tmp_path / "backup")
        assert first.copied_files == first.file_count > 4
        end = store.put(Message("orders", b"one more")).check()
        second = backup(tmp_path / "store", tmp_path / "backup")
        assert second.end_offset == end.physical_offset + end.size
        assert second.copied_bytes <= SMALL.mapped_file_size_commit_log
    assert verify_backup(tmp_path / "backup")[1] == []
    assert len(list((tmp_path / "backup" / "files").iterdir())) == second.file_count, "what is old was removed"
    restore(tmp_path / "backup", tmp_path / "new")
    with open_store(tmp_path / "new", SMALL) as store:
        assert [queue.max_offset for queue in store.queues()] == [151, 150]


def test_a_file_that_was_mended_meanwhile_is_copied_again(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", SMALL) as store:
        for _ in range(200):
            store.put(Message("orders", bytes(900)))
    backup(tmp_path / "store", tmp_path / "backup")
    first = tmp_path / "store" / "commitlog" / f"{0:020d}"
    data = bytearray(first.read_bytes())
    data[300] ^= 1
    first.write_bytes(data)
    assert backup(tmp_path / "store", tmp_path / "backup").copied_files >= 2


@pytest.mark.parametrize("harm", ["flip", "shorten", "remove"])
def test_a_copy_that_has_rotted_is_healed_by_the_next_backup(tmp_path: Path, harm: str) -> None:
    with open_store(tmp_path / "store", SMALL) as store:
        for _ in range(200):
            store.put(Message("orders", bytes(900)))
    first = backup(tmp_path / "store", tmp_path / "backup")
    copy = min((tmp_path / "backup" / "files").glob(f"{0:020d}*"))
    data = copy.read_bytes()
    if harm == "remove":
        copy.unlink()
    else:
        copy.write_bytes(data[:300] + bytes([data[300] ^ 1]) + data[301:] if harm == "flip" else data[:-1])
    assert len(verify_backup(tmp_path / "backup")[1]) == 1
    healed = backup(tmp_path / "store", tmp_path / "backup")
    assert (first.healed_files, healed.healed_files) == (0, 1)
    assert verify_backup(tmp_path / "backup")[1] == []
    assert copy.read_bytes() == data


def test_a_backup_beside_a_writer_holds_all_that_was_acknowledged_before(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path / "store")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as writer:
        assert writer.stdout is not None
        for number in range(3):
            for _ in range(5):
                acknowledged = int(writer.stdout.readline())
            report = backup(tmp_path / "store", tmp_path / "backup")
            assert report.end_offset >= acknowledged, number
            restore(tmp_path / "backup", tmp_path / f"new-{number}")
            assert verify(tmp_path / f"new-{number}").findings == []
        writer.kill()
    with open_store(tmp_path / "new-2", SMALL) as store:
        assert store.recovery.clean
        assert store.put(Message("orders", b"it goes on")).check().physical_offset == report.end_offset


def test_a_flipped_byte_in_a_backup_is_found_and_not_restored(golden: Golden, tmp_path: Path) -> None:
    backup(golden("delay") / "store", tmp_path / "backup")
    chance = random.Random(3)
    paths = [path for path in sorted((tmp_path / "backup").rglob("*")) if path.is_file() and path.name != "lock"]
    for path in paths:
        data = path.read_bytes()
        if not data:
            continue
        place = chance.randrange(len(data))
        path.write_bytes(data[:place] + bytes([data[place] ^ 1 << chance.randrange(8)]) + data[place + 1 :])
        try:
            damages = verify_backup(tmp_path / "backup")[1]
        except DamagedStore:
            assert path.name == "manifest.json"
        else:
            assert len(damages) == 1 or (path.name == "manifest.json" and not data[place : place + 1].strip()), path
        path.write_bytes(data)
    broken = next(path for path in paths if path.name.startswith("0000"))
    broken.write_bytes(broken.read_bytes()[:-1] + b"\xee")
    assert main.run(["backup", "verify", str(tmp_path / "backup")]) == ExitCode.FINDINGS
    with pytest.raises(DamagedStore, match="digest"):
        restore(tmp_path / "backup", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_restore_to_an_offset_or_a_time_is_a_consistent_store(golden: Golden, tmp_path: Path) -> None:
    backup(golden("plain") / "store", tmp_path / "backup")
    reported = lines(golden("plain") / "manifest.jsonl")
    config = config_of(golden("plain"))
    offset = reported[1700]["physicalOffset"]
    moment = reported[900]["storeTimestamp"]
    wanted = {
        "offset": [line for line in reported if line["physicalOffset"] < offset],
        "time": [line for line in reported if line["storeTimestamp"] <= moment],
    }
    restore(tmp_path / "backup", tmp_path / "offset", to_offset=offset)
    assert main.run(["restore", str(tmp_path / "backup"), str(tmp_path / "time"), "--at", str(moment)]) == 0
    for name, kept in wanted.items():
        assert verify(tmp_path / name).findings == []
        with open_store(tmp_path / name, config) as store:
            assert store.recovery.clean
            assert store.recovery.log_end == kept[-1]["physicalOffset"] + kept[-1]["size"]
            for line in (kept[0], kept[-1]):
                (message,) = store.get(line["topic"], line["queueId"], line["queueOffset"], 1).messages
                assert hashlib.sha256(message.record).hexdigest() == line["recordSha256"]
            assert sum(queue.max_offset for queue in store.queues()) == len(kept)


def test_offsets_of_groups_are_brought_back_to_the_cut(golden: Golden, tmp_path: Path) -> None:
    backup(golden("delay") / "store", tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "new", to_offset=30_000)
    assert verify(tmp_path / "new").findings == [], "no group and no delay level is beyond its queue"


def test_an_interrupted_backup_leaves_the_one_before(
    golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import flintlog.maintenance.backup.backup as module

    shutil.copytree(golden("delay") / "store", tmp_path / "store")
    first = backup(tmp_path / "store", tmp_path / "backup")
    with open_store(tmp_path / "store", config_of(golden("delay"))) as store:
        store.put(Message("orders", b"new"))

    def fail(*_: object) -> None:
        raise DamagedStore("the power is gone")

    monkeypatch.setattr(module, "save_manifest", fail)
    with pytest.raises(DamagedStore, match="power"):
        backup(tmp_path / "store", tmp_path / "backup")
    monkeypatch.undo()
    manifest, damages = verify_backup(tmp_path / "backup")
    assert damages == [] and manifest.end_offset == first.end_offset
    assert backup(tmp_path / "store", tmp_path / "backup").end_offset > first.end_offset


def test_places_that_hold_something_else_are_refused(golden: Golden, tmp_path: Path) -> None:
    root = golden("transaction") / "store"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    for target in (tmp_path / "mine", root / "backup"):
        with pytest.raises(FlintlogError):
            backup(root, target)
    backup(root, tmp_path / "backup")
    with pytest.raises(FlintlogError, match="already"):
        restore(tmp_path / "backup", tmp_path / "mine")
    with pytest.raises(FlintlogError, match="no backup"):
        restore(tmp_path / "mine", tmp_path / "new")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["letter.txt"]
    assert not (root / "backup").exists()


@pytest.mark.parametrize(
    "data",
    [b"", b"\xff", b"{", b"[" * 100_000, b'{"format":' * 10_000, b'{"format":' + b"9" * 5000 + b"}", b"[]"],
    ids=range(7),
)
def test_a_manifest_that_is_none_has_one_error(tmp_path: Path, data: bytes) -> None:
    with open_store(tmp_path / "store", SMALL) as store:
        store.put(Message("orders", b"x")).check()
    backup(tmp_path / "store", tmp_path / "backup")
    (tmp_path / "backup" / "manifest.json").write_bytes(data)
    with pytest.raises(DamagedStore, match="manifest"):
        verify_backup(tmp_path / "backup")
    with pytest.raises(DamagedStore, match="manifest"):
        restore(tmp_path / "backup", tmp_path / "new")
