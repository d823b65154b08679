"""Properties of this machine that matter to a store: file system, speed of a sync, limits, Java.

Nothing here changes anything: the sync probe uses a file without a name, which the system deletes when it is closed.
"""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

_PROBE_BYTES = 4096
_PROBE_TIMES = 20
_PROBE_BUDGET_S = 0.5
_MEMORY_FILE_SYSTEMS = frozenset({"tmpfs", "ramfs", "devtmpfs"})
_NETWORK_FILE_SYSTEMS = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "glusterfs"})


@dataclass(frozen=True, slots=True)
class Mount:
    """The file system that holds a path."""

    point: str
    type: str
    source: str
    is_read_only: bool

    @property
    def is_memory(self) -> bool:
        """Whether its contents are lost with the power."""
        return self.type in _MEMORY_FILE_SYSTEMS

    @property
    def is_network(self) -> bool:
        """Whether another machine keeps it."""
        return self.type in _NETWORK_FILE_SYSTEMS


def find_mount(path: Path, table: str | None = None) -> Mount | None:
    """The mount that holds `path`, from the system's table; None where there is no such table."""
    if table is None:
        try:
            table = Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape")
        except OSError:
            return None
    real = path.resolve()
    best: Mount | None = None
    for line in table.splitlines():
        mount = _parse_mount(line)
        if mount is None or not real.is_relative_to(mount.point):
            continue
        # Of two mounts on one point the later one is on top.
        if best is None or len(mount.point) >= len(best.point):
            best = mount
    return best


def _parse_mount(line: str) -> Mount | None:
    fields = line.split(" ")
    if "-" not in fields[6:]:
        return None
    dash = fields.index("-", 6)
    if len(fields) < dash + 3:
        return None
    return Mount(_unescape(fields[4]), fields[dash + 1], _unescape(fields[dash + 2]), "ro" in fields[5].split(","))


def _unescape(text: str) -> str:
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, char)
    return text


def measure_sync_us(directory: Path) -> float:
    """Median time of writing one page and syncing it, in microseconds."""
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        descriptor = file.fileno()
        os.posix_fallocate(descriptor, 0, _PROBE_BYTES * _PROBE_TIMES)
        os.fsync(descriptor)
        taken = []
        deadline = time.perf_counter() + _PROBE_BUDGET_S
        for turn in range(_PROBE_TIMES):
            begin = time.perf_counter()
            os.pwrite(descriptor, b"\xa5" * _PROBE_BYTES, turn * _PROBE_BYTES)
            os.fdatasync(descriptor)
            taken.append((time.perf_counter() - begin) * 1e6)
            if time.perf_counter() > deadline:
                break
    return statistics.median(taken)


def lockable_bytes() -> int | None:
    """Memory that this process may lock; None when there is no limit."""
    return _soft_limit(resource.RLIMIT_MEMLOCK)


def open_file_limit() -> int | None:
    """Files that this process may have open; None when there is no limit."""
    return _soft_limit(resource.RLIMIT_NOFILE)


def _soft_limit(which: int) -> int | None:
    soft = resource.getrlimit(which)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def map_limit() -> int | None:
    """Mappings that a process may have; None where the system does not say."""
    try:
        return int(Path("/proc/sys/vm/max_map_count").read_text("ascii"))
    except (OSError, ValueError):
        return None


def find_java() -> tuple[str, str | None] | None:
    """Path and version of the Java that would run, without starting it; None when there is none."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=os.path.join(home, "bin")) if home else None
    found = found or shutil.which("java")
    if found is None:
        return None
    release = Path(found).resolve().parent.parent / "release"
    try:
        lines = release.read_text("utf-8", "replace").splitlines()
    except OSError:
        return found, None
    versions = [line.split("=", 1)[1].strip().strip('"') for line in lines if line.startswith("JAVA_VERSION=")]
    return found, versions[0] if versions else None
