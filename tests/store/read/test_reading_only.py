"""Opening a store only to read it: what it holds on to, and what it makes of files that go meanwhile."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from tests.store.small_store import SMALL, bytes_of, read_all

from flintlog import Message, open_store
from flintlog.disk.media.local import LocalMedium
from flintlog.disk.media.local_file import LocalFile
from flintlog.disk.media.medium import MAX_SMALL_FILE_BYTES
from flintlog.errors import DiskError

COUNT = 200
TINY = SMALL.with_changes(
    mapped_file_size_commit_log=16 * 1024, mapped_file_size_consume_queue=800, max_hash_slot_num=20, max_index_num=60
)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of several files of each kind, stopped cleanly."""
    path = tmp_path_factory.mktemp("filled") / "store"
    with open_store(path, TINY) as store:
        for number in range(COUNT):
            store.put(Message("orders", b"%d" % number + bytes(200), keys=[f"k{number}"])).check()
    return path


def descriptors_into(path: Path) -> list[str]:
    links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    targets = [os.readlink(link) for link in links if os.path.lexists(link)]
    return [target for target in targets if target.startswith(str(path))]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the system does not tell what is open")
@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "killed"])
def test_nothing_is_left_open(filled: Path, tmp_path: Path, is_clean: bool) -> None:
    path = shutil.copytree(filled, tmp_path / "store")
    if not is_clean:
        (path / "abort").write_bytes(b"1")  # then queues and index are cut and built again, in memory
    with open_store(path, TINY, read_only=True) as store:
        assert len(read_all(store, "orders")) == COUNT
        assert descriptors_into(path) == []
    assert descriptors_into(path) == []


class VanishingMedium(LocalMedium):
    """A disk on which one file is deleted just before it is read."""

    def __init__(self, victim: Path) -> None:
        super().__init__()
        self.victim = victim

    def _before(self, path: Path) -> None:
        if path == self.victim:
            path.unlink(missing_ok=True)

    def open(self, path: Path, writable: bool = False, *, in_steps: bool = False) -> LocalFile:
        self._before(path)
        return super().open(path, writable, in_steps=in_steps)

    def head(self, path: Path, size: int) -> bytes:
        self._before(path)
        return super().head(path, size)

    def read(self, path: Path, limit: int = MAX_SMALL_FILE_BYTES) -> bytes:
        self._before(path)
        return super().read(path, limit)


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize("which", [0, -1], ids=["first", "last"])
@pytest.mark.parametrize("folder", ["commitlog", "consumequeue/orders/0", "index", "flintlog", "."])
def test_a_file_that_is_deleted_during_an_opening_is_named_or_not_missed(
    filled: Path, tmp_path: Path, folder: str, which: int, is_clean: bool
) -> None:
    path = shutil.copytree(filled, tmp_path / "store")
    if not is_clean:
        (path / "abort").write_bytes(b"1")
    victim = sorted(file for file in (path / folder).iterdir() if file.is_file())[which]
    before = {name: content for name, content in bytes_of(path).items() if path / name != victim}
    found = 0
    missed: str | None = None
    try:
        with open_store(path, TINY, medium=VanishingMedium(victim), read_only=True) as store:
            found = len(read_all(store, "orders"))
    except DiskError as error:
        missed = error.path
    assert (found, missed) in ((COUNT, None), (0, str(victim)))
    assert {name: content for name, content in bytes_of(path).items() if path / name != victim} == before
