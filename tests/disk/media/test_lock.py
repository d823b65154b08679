"""One store, one owner: between processes, and inside of one."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path
from threading import Timer

import pytest

from flintlog.disk.media.local import LocalMedium
from flintlog.disk.media.lock import LocalLock, is_locked
from flintlog.disk.media.medium import Medium
from flintlog.errors import StoreInUse

_TRY = """
import sys
from pathlib import Path
from flintlog.disk.media.local import LocalMedium
from flintlog.errors import StoreInUse
try:
    LocalMedium().lock(Path(sys.argv[1]))
except StoreInUse:
    sys.exit(4)
"""

# Java's FileChannel.tryLock(0, 1, false) is a classic fcntl lock of one byte.
_TRY_LIKE_JAVA = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
    except OSError:
        sys.exit(4)
"""

_HOLD = """
import sys
from pathlib import Path
from flintlog.disk.media.local import LocalMedium
lock = LocalMedium().lock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def run(code: str, path: Path) -> int:
    return subprocess.run([sys.executable, "-c", code, str(path)], timeout=60, check=False).returncode


def test_a_lock_is_exclusive_until_it_is_released(medium: Medium, folder: Path) -> None:
    lock = medium.lock(folder / "lock")
    assert medium.read(folder / "lock") == b"lock"
    with pytest.raises(StoreInUse):
        medium.lock(folder / "lock")
    lock.release()
    lock.release()
    medium.lock(folder / "lock").release()


def test_a_failed_second_try_in_the_same_process_does_not_drop_the_lock(tmp_path: Path) -> None:
    lock = LocalMedium().lock(tmp_path / "lock")
    with pytest.raises(StoreInUse):
        LocalMedium().lock(tmp_path / "lock")
    (tmp_path / "lock").read_bytes()
    assert run(_TRY, tmp_path / "lock") == 4
    assert run(_TRY_LIKE_JAVA, tmp_path / "lock") == 4
    lock.release()
    assert run(_TRY, tmp_path / "lock") == 0
    assert run(_TRY_LIKE_JAVA, tmp_path / "lock") == 0


def test_a_lock_held_as_java_holds_it_is_respected(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_bytes(b"lock")
    descriptor = os.open(path, os.O_RDWR)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        assert run(_TRY, path) == 4
    finally:
        os.close(descriptor)


def test_the_lock_is_released_when_its_process_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    command = [sys.executable, "-c", _HOLD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(StoreInUse):
            LocalMedium().lock(path)
        holder.kill()
    LocalMedium().lock(path).release()


def test_a_lock_on_a_file_that_was_removed_meanwhile_is_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lock"
    take = LocalLock._take
    removed: list[Path] = []

    def remove_first(lock: LocalLock) -> None:
        if not removed:
            path.unlink()
            removed.append(path)
        take(lock)

    monkeypatch.setattr(LocalLock, "_take", remove_first)
    held = LocalLock(path)
    with pytest.raises(StoreInUse):
        LocalLock(path)
    held.release()


def test_a_lock_file_that_is_removed_whenever_it_is_made_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lock"
    monkeypatch.setattr(LocalLock, "_take", lambda lock: path.unlink())
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(StoreInUse, match="as fast as it is created"):
        LocalLock(path)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_second_writer_is_refused_after_the_lock_file_was_deleted(tmp_path: Path, is_replaced: bool) -> None:
    path = tmp_path / "lock"
    lock = LocalMedium().lock(path)
    path.unlink()
    if is_replaced:
        path.write_bytes(b"lock")
    assert is_locked(path)
    with pytest.raises(StoreInUse):
        LocalMedium().lock(path)
    assert run(_TRY, path) == 4
    lock.release()
    assert not is_locked(path)
    assert run(_TRY, path) == 0


def test_a_look_at_the_lock_does_not_refuse_a_writer_that_starts(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    looking = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    later = Timer(0.01, os.close, [looking])
    later.start()
    LocalMedium().lock(path).release()
    later.join()


def test_other_locks_of_one_directory_do_not_exclude_each_other(tmp_path: Path) -> None:
    locks = [LocalMedium().lock(tmp_path / name) for name in ("owner", "wanted")]
    for lock in locks:
        lock.release()
