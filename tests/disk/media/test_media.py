"""What every disk does alike, and what only the real one can show."""

from __future__ import annotations

import gc
import itertools
import os
import shutil
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from flintlog.disk.load_medium import load_medium
from flintlog.disk.media import local
from flintlog.disk.media.libc import MemoryMap
from flintlog.disk.media.local import LocalMedium
from flintlog.disk.media.medium import PAGE_BYTES, Advice, Medium
from flintlog.errors import DiskError, DiskFull, InvalidConfig, SyncFailed

SIZE = 65536
_MAY_NOT_MOUNT = 77


def test_a_new_file_is_zeros_of_exactly_its_size(medium: Medium, folder: Path) -> None:
    file = medium.create(folder / "f", SIZE)
    assert bytes(file.buffer) == bytes(SIZE)
    file.buffer[10:13] = b"abc"
    assert medium.read(folder / "f")[8:15] == b"\0\0abc\0\0"


def test_a_file_in_the_way_is_not_overwritten(medium: Medium, folder: Path) -> None:
    medium.write(folder / "f", b"precious")
    with pytest.raises(DiskError, match="exists"):
        medium.create(folder / "f", SIZE)
    assert medium.read(folder / "f") == b"precious"


def test_a_link_in_the_way_that_leads_nowhere_is_kept(tmp_path: Path) -> None:
    (tmp_path / "f").symlink_to(tmp_path / "unplugged")
    with pytest.raises(DiskError, match="exists"):
        LocalMedium().create(tmp_path / "f", SIZE)
    assert (tmp_path / "f").is_symlink()


def test_a_file_that_another_process_makes_meanwhile_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f"
    allocate = local._allocate

    def allocate_slowly(descriptor: int, size: int, allocated: int) -> None:
        allocate(descriptor, size, allocated)
        path.write_bytes(b"precious")

    monkeypatch.setattr(local, "_allocate", allocate_slowly)
    with pytest.raises(DiskError, match="exists"):
        LocalMedium().create(path, SIZE)
    assert path.read_bytes() == b"precious"


def test_a_file_opened_for_reading_cannot_be_written(medium: Medium, folder: Path) -> None:
    medium.write(folder / "f", b"abc")
    file = medium.open(folder / "f")
    with pytest.raises(TypeError):
        file.buffer[0:1] = b"x"


def test_a_file_opened_for_reading_is_synced_by_descriptor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: synced.append(os.fstat(descriptor).st_ino))
    medium, path = LocalMedium(), tmp_path / "f"
    medium.create(path, SIZE).sync()
    assert synced == []
    medium.open(path).sync()
    medium.sync(path)
    assert synced == [path.stat().st_ino] * 2


def test_a_file_opened_for_reading_is_not_synced_when_another_lies_in_its_place(tmp_path: Path) -> None:
    medium, path = LocalMedium(), tmp_path / "f"
    medium.create(path, SIZE).sync()
    file = medium.open(path)
    medium.replace(path, bytes(SIZE))
    with pytest.raises(SyncFailed):
        file.sync()


def test_a_read_only_map_never_reports_a_sync(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(bytes(SIZE))
    with open(path, "rb") as file:
        mapping = MemoryMap(SIZE, file.fileno(), writable=False)
    with pytest.raises(OSError, match="read-only map"):
        mapping.sync(0, SIZE)


def test_a_missing_file_is_not_synced(medium: Medium, folder: Path) -> None:
    with pytest.raises(DiskError) as caught:
        medium.sync(folder / "f")
    assert caught.value.path == str(folder / "f")


def test_an_empty_file_can_be_opened(medium: Medium, folder: Path) -> None:
    medium.write(folder / "f", b"")
    assert len(medium.open(folder / "f").buffer) == 0


def test_closing_spares_the_views_that_are_held(medium: Medium, folder: Path) -> None:
    file = medium.create(folder / "f", SIZE)
    view = file.buffer[0:100]
    file.close()
    file.close()
    medium.remove(folder / "f")
    gc.collect()
    view[0:3] = b"abc"
    assert bytes(view[0:4]) == b"abc\0"
    with pytest.raises(DiskError, match="closed"):
        file.buffer  # noqa: B018


def test_writing_around_the_map_is_seen_in_it(medium: Medium, folder: Path) -> None:
    file = medium.create(folder / "f", SIZE)
    file.write_at(5000, memoryview(b"hello"))
    assert bytes(file.buffer[4999:5006]) == b"\0hello\0"
    for position in (-1, SIZE - 4):
        with pytest.raises(DiskError):
            file.write_at(position, memoryview(b"hello"))


def test_clearing_sets_exactly_the_range_to_zero(medium: Medium, folder: Path) -> None:
    file = medium.create(folder / "f", SIZE)
    file.buffer[:] = b"\xff" * SIZE
    file.clear(4000, 9001)
    assert bytes(file.buffer) == b"\xff" * 4000 + bytes(5001) + b"\xff" * (SIZE - 9001)
    file.clear(100, 100)
    assert file.buffer[100] == 255


def test_listing_is_sorted_and_tells_what_is_there(medium: Medium, folder: Path) -> None:
    medium.write(folder / "b", b"12345")
    medium.make_directories(folder / "a" / "deep")
    entries = medium.listing(folder)
    assert [(entry.name, entry.is_directory) for entry in entries] == [("a", True), ("b", False)]
    assert entries[1].size == 5
    assert abs(entries[1].mtime_ms - time.time() * 1000) < 60_000
    assert medium.listing(folder / "missing") == []
    with pytest.raises(DiskError):
        medium.listing(folder / "b")


def test_small_files_are_written_read_and_replaced(medium: Medium, folder: Path) -> None:
    path = folder / "config.json"
    medium.write(path, b"old and longer")
    medium.write(path, b"new")
    assert medium.read(path) == b"new"
    medium.replace(path, b"replaced")
    assert medium.read(path) == b"replaced"
    assert [entry.name for entry in medium.listing(folder)] == ["config.json"]


def test_a_file_longer_than_the_limit_is_refused(medium: Medium, folder: Path) -> None:
    medium.write(folder / "f", b"12345")
    assert medium.read(folder / "f", limit=5) == b"12345"
    with pytest.raises(DiskError, match="longer"):
        medium.read(folder / "f", limit=4)


def test_the_head_of_a_file_is_read_without_mapping_it(medium: Medium, folder: Path) -> None:
    medium.write(folder / "f", b"12345")
    assert [medium.head(folder / "f", size) for size in (0, 3, 5, 9)] == [b"", b"123", b"12345", b"12345"]
    file = medium.open(folder / "f", writable=True)
    file.buffer[1] = 0x78
    assert medium.head(folder / "f", 3) == b"1x3"
    with pytest.raises(DiskError):
        medium.head(folder / "missing", 3)
    assert len(medium.maps) == 0


def test_what_is_missing_is_an_error_with_its_path(medium: Medium, folder: Path) -> None:
    missing = folder / "missing"
    for action in (lambda: medium.read(missing), lambda: medium.open(missing), lambda: medium.rename(missing, folder)):
        with pytest.raises(DiskError) as caught:
            action()
        assert caught.value.path == str(missing)
    medium.remove(missing)
    medium.remove_tree(missing)
    assert medium.stat(missing) is None
    with pytest.raises(DiskError):
        medium.create(missing / "f", SIZE)


def test_rename_takes_the_place_of_the_target(medium: Medium, folder: Path) -> None:
    medium.write(folder / "a", b"a")
    medium.write(folder / "b", b"b")
    medium.rename(folder / "a", folder / "b")
    assert medium.read(folder / "b") == b"a"
    assert not medium.exists(folder / "a")


def test_a_tree_is_removed_with_all_that_is_in_it(medium: Medium, folder: Path) -> None:
    medium.make_directories(folder / "t" / "u")
    medium.write(folder / "t" / "u" / "f", b"x")
    medium.remove_tree(folder / "t")
    assert not medium.exists(folder / "t")


def test_help_with_memory_is_a_value_not_an_error(medium: Medium, folder: Path) -> None:
    file = medium.create(folder / "f", SIZE)
    for advice in Advice:
        assert file.advise(advice) in (True, False)
    assert file.touch(0, SIZE) in (True, False)
    assert file.prepare(0, SIZE) in (True, False)
    assert file.lock_memory() in (True, False)
    assert file.unlock_memory() in (True, False)
    file.close()
    assert not file.touch(0, SIZE) or medium.__class__ is not LocalMedium
    assert not file.prepare(0, SIZE) or medium.__class__ is not LocalMedium


def test_usage_is_a_ratio(medium: Medium, folder: Path) -> None:
    usage = medium.usage(folder)
    assert 0 <= usage.used_ratio <= 1
    assert 0 < usage.free <= usage.total


# The real disk


def test_a_new_file_is_allocated_not_sparse(tmp_path: Path) -> None:
    LocalMedium().create(tmp_path / "f", 1 << 20)
    assert (tmp_path / "f").stat().st_blocks * 512 >= 1 << 20


def test_the_holes_of_a_sparse_file_are_allocated_before_it_is_written(tmp_path: Path) -> None:
    with open(tmp_path / "f", "wb") as file:
        file.truncate(1 << 20)
    LocalMedium().open(tmp_path / "f")
    assert (tmp_path / "f").stat().st_blocks == 0, "reading allocates nothing"
    LocalMedium().open(tmp_path / "f", writable=True)
    assert (tmp_path / "f").stat().st_blocks * 512 >= 1 << 20


def test_a_map_needs_no_descriptor(tmp_path: Path) -> None:
    medium = LocalMedium()
    before = len(os.listdir("/proc/self/fd"))
    files = [medium.create(tmp_path / str(number), 4096) for number in range(50)]
    for file in files:
        file.sync()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_map_is_freed_with_its_last_view(tmp_path: Path) -> None:
    file = LocalMedium().create(tmp_path / "unique-name", SIZE)
    view = file.buffer[7:9]
    file.close()
    assert "unique-name" in Path("/proc/self/maps").read_text()
    del view
    assert "unique-name" not in Path("/proc/self/maps").read_text()


@pytest.fixture
def without_nameless_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "O_TMPFILE")


@pytest.mark.usefixtures("without_nameless_files")
def test_files_are_made_in_place_where_nameless_ones_are_not_supported(tmp_path: Path) -> None:
    file = LocalMedium().create(tmp_path / "f", SIZE)
    assert bytes(file.buffer) == bytes(SIZE)
    with pytest.raises(DiskError, match="exists"):
        LocalMedium().create(tmp_path / "f", SIZE)


@pytest.mark.usefixtures("without_nameless_files")
def test_a_file_made_in_place_is_removed_when_there_is_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(descriptor: int, start: int, length: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", no_room)
    with pytest.raises(DiskFull):
        LocalMedium().create(tmp_path / "f", SIZE)
    assert os.listdir(tmp_path) == []


def test_the_first_sync_makes_the_names_durable_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(local, "_sync_directory", synced.append)
    medium = LocalMedium()
    medium.make_directories(tmp_path / "topic" / "0")
    file = medium.create(tmp_path / "topic" / "0" / "f", 4096)
    assert synced == []
    file.close()
    again = medium.open(tmp_path / "topic" / "0" / "f", writable=True)
    again.sync()
    assert synced == [tmp_path / "topic" / "0", tmp_path / "topic", tmp_path]
    again.sync()
    assert len(synced) == 3


def test_after_a_failed_sync_a_file_never_reports_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = LocalMedium().create(tmp_path / "f", 4096)

    def broken(self: MemoryMap, start: int, stop: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(MemoryMap, "sync", broken)
        with pytest.raises(SyncFailed, match="Input/output error"):
            file.sync()
    with pytest.raises(SyncFailed):
        file.sync()


def test_replace_keeps_owner_and_mode(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")
    path.chmod(0o640)
    if os.getuid() == 0:
        os.chown(path, 12, 34)
    before = path.stat()
    LocalMedium().replace(path, b"new")
    after = path.stat()
    assert (stat.S_IMODE(after.st_mode), after.st_uid, after.st_gid) == (0o640, before.st_uid, before.st_gid)
    assert after.st_ino != before.st_ino


def test_replace_of_a_link_replaces_what_it_points_to(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    LocalMedium().replace(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_a_failed_replace_leaves_the_old_content_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")

    def broken(source: Path, target: Path) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "rename", broken)
    with pytest.raises(DiskError):
        LocalMedium().replace(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["f"]


def test_touching_and_syncing_leave_the_interpreter_to_others(tmp_path: Path) -> None:
    file = LocalMedium().create(tmp_path / "f", 128 << 20)
    beats, stop = [0], threading.Event()

    def beat() -> None:
        while not stop.is_set():
            beats[0] += 1

    thread = threading.Thread(target=beat)
    thread.start()
    before = beats[0]
    file.touch(0, file.size)
    file.sync()
    during = beats[0] - before
    stop.set()
    thread.join()
    assert during > 1000


_FILL_A_SMALL_DISK = """
import subprocess, sys
from pathlib import Path
from flintlog.disk.media.local import LocalMedium
from flintlog.disk.segments.segment_queue import SegmentQueue
from flintlog.errors import DiskFull

folder = Path(sys.argv[1])
if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True).returncode:
    sys.exit(77)
try:
    queue = SegmentQueue([folder / "log"], 256 * 1024, LocalMedium())
    count = 0
    while (segment := queue.last_or_new()) is not None:
        segment.append(b"x" * segment.size)
        count += 1
        assert count < 10
    assert isinstance(queue.create_failure, DiskFull), queue.create_failure
    queue.flush_all()
    assert queue.flushed_where == count * 256 * 1024
    assert len(list((folder / "log").iterdir())) == count >= 3
    assert queue.delete_expired(0, now_ms=0, at_once=True, batch_max=1) == 1
    assert queue.last_or_new() is not None
finally:
    subprocess.run(["umount", "-l", folder])
"""


_LIMITED = """
import sys
from pathlib import Path
from flintlog.disk.media.local import LocalMedium
from flintlog.errors import DiskError
folder = Path(sys.argv[1])
try:
    LocalMedium().create(folder / "f", 1 << 20)
except DiskError:
    sys.exit(0 if not list(folder.iterdir()) else 1)
sys.exit(2)
"""


def test_a_disk_that_is_really_full_is_a_status_and_nothing_worse(tmp_path: Path) -> None:
    """In a child with a mount namespace of its own: writing a hole on a full disk kills by signal."""
    result = _run(["unshare", "-m", sys.executable, "-c", _FILL_A_SMALL_DISK, str(tmp_path)])
    if result is None or result.returncode == _MAY_NOT_MOUNT or "unshare" in result.stderr:
        # Without the right to mount, a limit on the size of files takes the same way with another error code.
        limited = 'ulimit -f 512; exec "$0" -c "$1" "$2"'
        result = _run(["bash", "-c", limited, sys.executable, _LIMITED, str(tmp_path)])
    assert result is not None
    assert result.returncode == 0, result.stderr


def _run(command: list[str]) -> subprocess.CompletedProcess[str] | None:
    if shutil.which(command[0]) is None:
        return None
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


# The door


def test_media_are_found_by_name() -> None:
    assert type(load_medium("local")).__name__ == "LocalMedium"
    assert type(load_medium("faulty")).__name__ == "FaultyMedium"
    with pytest.raises(InvalidConfig, match="nowhere"):
        load_medium("nowhere")


def test_a_medium_from_another_package_is_loaded_by_its_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "elsewhere-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text(
        "[flintlog.media]\nelsewhere = flintlog.disk.faulty.faulty_disk:FaultyMedium\nbroken = no_such_module:Thing\n"
        "number = flintlog.disk.media.medium:PAGE_BYTES\nother = pathlib:Path\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert type(load_medium("elsewhere")).__name__ == "FaultyMedium"
    for name in ("number", "other"):
        with pytest.raises(InvalidConfig, match=r"must be callable|not a medium"):
            load_medium(name)
    with pytest.raises(InvalidConfig, match="cannot be loaded"):
        load_medium("broken")


def dirty_bytes(path: Path) -> int:
    """How much of a file this process has mapped and changed, by the system's own account."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    for line in lines:
        if line.endswith(str(path)):
            kilobytes = (
                each.split()[1]
                for each in itertools.islice(lines, 20)
                if each.startswith(("Shared_Dirty", "Private_Dirty"))
            )
            return sum(map(int, kilobytes)) * 1024
    raise AssertionError(f"{path} is not mapped")


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="the system tells nothing of its maps")
def test_touched_pages_of_a_real_disk_are_written_again(tmp_path: Path) -> None:
    file = LocalMedium().create(tmp_path / "file", 8 * PAGE_BYTES)
    file.buffer[: 8 * PAGE_BYTES] = b"x" * (8 * PAGE_BYTES)
    assert dirty_bytes(file.path) == 8 * PAGE_BYTES
    file.sync()
    assert dirty_bytes(file.path) == 0
    if not file.touch(2 * PAGE_BYTES, 5 * PAGE_BYTES):
        pytest.skip("this system cannot touch pages")
    assert dirty_bytes(file.path) == 3 * PAGE_BYTES
    file.close()


def test_a_listing_beside_a_writer_has_every_file_before_its_last_one(tmp_path: Path) -> None:
    for number in range(1000):
        (tmp_path / f"{number:020}").touch()
    make = "import os, sys\nfor n in range(1000, 6000): os.close(os.open(sys.argv[1] % n, os.O_CREAT))"
    count = 0
    with subprocess.Popen([sys.executable, "-c", make, f"{tmp_path}/%020d"]) as writer:
        while writer.poll() is None or count < 3:
            names = [int(entry.name) for entry in LocalMedium().listing(tmp_path)]
            assert names == list(range(len(names)))
            count += 1
