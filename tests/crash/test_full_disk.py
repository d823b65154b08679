"""A disk that is really full (a small tmpfs, mounted for the test): no signal, a status a put, all reads served."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash import full_disk_writer

DISK_KIB = 6 * 1024


def in_own_namespace(place: Path) -> list[str]:
    """A command that mounts a small file system for the command behind it alone; the mount ends with the process."""
    rights = [] if os.geteuid() == 0 else ["--map-root-user"]
    mount = f'mount -t tmpfs -o size={DISK_KIB}k tmpfs "$0" && exec "$@"'
    return ["unshare", "--mount", *rights, "sh", "-c", mount, str(place)]


@pytest.fixture
def on_small_disk(tmp_path: Path) -> list[str]:
    """Runs the command behind it with a disk of a few MiB at `tmp_path`."""
    tried = subprocess.run([*in_own_namespace(tmp_path), "true"], check=False, capture_output=True, text=True)
    if tried.returncode:
        reason = f"a tmpfs cannot be mounted here: {tried.stderr.strip()}"
        assert not os.environ.get("CI"), reason
        pytest.xfail(reason)  # the disk in memory of tests/faults covers all but the signal
    return in_own_namespace(tmp_path)


@pytest.mark.parametrize("kind", full_disk_writer.KINDS)
def test_full_disk_refuses_puts_serves_reads_and_recovers(on_small_disk: list[str], tmp_path: Path, kind: str) -> None:
    root = Path(full_disk_writer.__file__).parents[2]
    done = subprocess.run(
        [*on_small_disk, sys.executable, full_disk_writer.__file__, str(tmp_path / "store"), kind],
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"},
    )
    assert done.returncode == 0, f"ended with {done.returncode}: {done.stderr[-2000:]}"
    seen = json.loads(done.stdout)
    stalled = seen["stalled"]
    assert (stalled["visible"], stalled["failure"]) == (0, "DiskFull")
    assert stalled["visible_with_room"] == stalled["acknowledged"] > 0
    assert seen["kept"] > 1000
    assert set(seen["refused"]) <= {"CREATE_MAPPED_FILE_FAILED", "SERVICE_NOT_AVAILABLE"} and seen["refused"]
    assert seen["readable_when_full"]
    assert seen["works_with_room"] == "PUT_OK"
    assert seen["in_queues_with_room"]
    assert seen["after_reopening"] and seen["clean"]
