"""Names of files: which are durable, and by which sync."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from tests.store.small_store import SMALL, bodies, read_all

from flintlog import Message, open_store
from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.disk.media import local
from flintlog.disk.media.local import LocalMedium

ROOT = Path("/data/store")
LOG_FILE = ROOT / "commitlog" / "00000000000000000000"


def test_a_sync_covers_the_names_that_this_process_made() -> None:
    disk = FaultyMedium()
    disk.make_directories(LOG_FILE.parent)
    disk.create(LOG_FILE, 4096).sync()
    assert all(disk.crash(seed).exists(LOG_FILE) for seed in range(20))


def test_a_sync_does_not_cover_the_names_of_a_process_that_was_killed() -> None:
    disk = FaultyMedium()
    disk.make_directories(LOG_FILE.parent)
    disk.create(LOG_FILE, 4096)
    after = disk.kill()
    after.open(LOG_FILE, writable=True).sync()
    assert not all(after.crash(seed).exists(LOG_FILE) for seed in range(20))
    for folder in (Path("/"), Path("/data"), ROOT, LOG_FILE.parent):
        after.sync_directory(folder)
    assert all(after.crash(seed).exists(LOG_FILE) for seed in range(20))


@pytest.mark.parametrize("left", ["the directory", "the file", "the directory of the log"])
def test_what_is_acknowledged_in_a_file_of_a_killed_process_survives(left: str) -> None:
    disk = FaultyMedium()
    disk.make_directories(Path("/data"))
    disk.sync_directory(Path("/"))
    disk.make_directories(ROOT if left == "the directory" else LOG_FILE.parent)
    if left == "the file":
        disk.create(LOG_FILE, SMALL.mapped_file_size_commit_log)
    after = disk.kill()
    store = open_store(ROOT, SMALL, medium=after)
    store.put(Message("orders", b"acknowledged")).check()
    for seed in range(20):
        with open_store(ROOT, SMALL, medium=after.crash(seed)) as found:
            assert bodies(read_all(found, "orders")) == [b"acknowledged"], seed
    store.shutdown()


def test_an_opening_syncs_the_names_of_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    root = tmp_path / "store"
    (root / "commitlog").mkdir(parents=True)
    (root / "commitlog" / LOG_FILE.name).write_bytes(bytes(SMALL.mapped_file_size_commit_log))
    sync = local._sync_directory

    def note(path: Path) -> None:
        synced.append(path)
        sync(path)

    monkeypatch.setattr(local, "_sync_directory", note)
    with open_store(root, SMALL) as store:
        store.put(Message("orders", b"x")).check()
        assert [path for path in dict.fromkeys(synced) if path in (tmp_path, root, root / "commitlog")] == [
            tmp_path,
            root,
            root / "commitlog",
        ]


def test_a_tree_is_removed_while_others_make_files(tmp_path: Path) -> None:
    medium = LocalMedium()
    threads: list[threading.Thread] = []

    class SlowPath(type(tmp_path)):  # type: ignore[misc]
        def is_relative_to(self, *other: object) -> bool:
            thread = threading.Thread(target=medium.create, args=(tmp_path / f"new{len(threads)}", 1))
            threads.append(thread)
            thread.start()
            thread.join(0.1)
            return bool(super().is_relative_to(*other))

    for name in ("a", "b"):
        medium.create(SlowPath(tmp_path / name), 1)
    medium.remove_tree(tmp_path / "nothing")
    for thread in threads:
        thread.join(10)
    assert len(threads) == 2 and {path.name for path in medium._fresh} == {"a", "b", "new0", "new1"}
