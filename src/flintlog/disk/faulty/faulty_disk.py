"""A disk in memory that fails the way real ones do, on command and by seed.

The fault model
---------------

*Data.* A file has live bytes, which the process sees, and durable bytes, which survive a crash. `sync` makes the pages
of its range durable, also those that a killed process wrote, through any handle and without one. At a crash each
512-byte sector that differs becomes old or new, independently of the others. So a record may be torn in any way, but a
sector is never mixed. `drift` writes some dirty pages early, as the system may at any time.

*Names.* Creating, renaming and removing are operations on directories. They are durable only after `sync_directory`, or
after a `sync` of the file itself, which covers its name and the directories above if this process created them. At a
crash each directory keeps some first part of its operations and loses the rest. A rename survives as a whole or not at
all. A file that survives has its full size; if `torn_creates` is set and it was never synced, it may be empty, as on a
file system without nameless files.

*Sync errors.* A failed `sync` leaves the pages clean in memory and lost on the disk. The handle then always fails, but
a new handle of the same file reports success without writing them, unless they were touched or changed since. Code that
trusts that success loses data, and a test with this disk shows it.

*Space.* With `capacity`, pages beyond it cannot be allocated: `DiskFull`. A page that was written without space is
found at the next crash or kill: `AssertionError`.

*Decay.* `flip_bit` changes a bit of both images.

A crash returns a new disk. Threads of the old process may continue on the old disk and cannot change the new one.
`kill` is the crash of a process alone: the next process finds everything that was written, durable or not. The same
seed on the same history gives the same disk.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from errno import EEXIST, EISDIR, ENOENT, ENOTDIR, ENOTEMPTY
from pathlib import Path

from flintlog.disk.faulty.faulty_file import FaultyFile, FaultyLock
from flintlog.disk.faulty.faulty_names import FaultyNames, name_error
from flintlog.disk.faulty.faulty_state import FaultyDirectory, FaultyNode, pages
from flintlog.disk.media.map_cache import DEFAULT_MAX_MAPS, MapCache
from flintlog.disk.media.medium import MAX_SMALL_FILE_BYTES, PAGE_BYTES, DiskUsage, FileInfo
from flintlog.errors import DiskError, DiskFull, StoreInUse, SyncFailed

_UNBOUNDED_BYTES = 1 << 50


class FaultyMedium:
    """A disk in memory. All methods may be called from any thread; one lock guards the names."""

    def __init__(
        self,
        *,
        capacity: int | None = None,
        torn_creates: bool = False,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        max_maps: int = DEFAULT_MAX_MAPS,
    ) -> None:
        self.maps = MapCache(max_maps)
        self.capacity = capacity
        self.torn_creates = torn_creates
        self.clock_ms = clock_ms
        self.before_sync: Callable[[Path], None] | None = None  # runs without the lock: may sleep or raise
        self.sync_count = 0
        self.failed_syncs: list[Path] = []  # the files whose syncs were made to fail
        self._failing_syncs = 0
        self._is_failing: Callable[[Path], bool] = _any_file
        self._names = FaultyNames()
        self._locked: set[Path] = set()
        self._lock = threading.RLock()

    # Faults

    def fail_next_syncs(self, count: int, of: Callable[[Path], bool] | None = None) -> None:
        """Let the next syncs of files fail; with `of`, only those of files for which it is true."""
        self._failing_syncs = count
        self._is_failing = _any_file if of is None else of

    def flip_bit(self, path: Path, offset: int, bit: int) -> None:
        """Change one bit in memory and on the disk."""
        node = self._file(path)
        node.live[offset] ^= 1 << bit
        if offset < len(node.durable):
            node.durable[offset] ^= 1 << bit

    def drift(self, seed: int, share: float = 0.5) -> None:
        """Write about this share of the dirty pages early, without a sync."""
        chance = random.Random(seed)
        with self._lock:
            for node in self._names.nodes():
                for position in range(0, len(node.live), PAGE_BYTES):
                    if chance.random() < share and len(node.durable) == len(node.live):
                        node.durable[position : position + PAGE_BYTES] = node.live[position : position + PAGE_BYTES]

    def set_modified(self, path: Path, modified_ms: int) -> None:
        """Set a file's time of last change."""
        self._file(path).modified_ms = modified_ms

    def crash(self, seed: int) -> FaultyMedium:
        """The disk that the next process finds if power is lost now."""
        after = self._empty()
        with self._lock:
            self._check_allocated()
            after._names = self._names.after_crash(random.Random(seed), torn_creates=self.torn_creates)
        return after

    def kill(self) -> FaultyMedium:
        """The disk that the next process finds if this one is killed now: all writes, durable or not."""
        after = self._empty()
        with self._lock:
            self._check_allocated()
            after._names = self._names.copy()
        return after

    def _check_allocated(self) -> None:
        for node in self._names.nodes():
            node.check_allocated()

    def _empty(self) -> FaultyMedium:
        return FaultyMedium(
            capacity=self.capacity,
            torn_creates=self.torn_creates,
            clock_ms=self.clock_ms,
            max_maps=self.maps.max_maps,
        )

    # Files

    def create(self, path: Path, size: int, allocated: int | None = None) -> FaultyFile:
        with self._lock:
            directory = self._names.directory(path.parent)
            if path.name in directory.live:
                raise name_error(EEXIST, f"make a file of {size} bytes", path)
            first = size if allocated is None else min(allocated, size)
            self._check_space(first, path)
            node = FaultyNode(bytearray(size), bytes(size), self.clock_ms())
            node.allocated = set(pages(0, first))
            self._names.change((directory, path.name, node))
            self._names.fresh.add(path)
        return FaultyFile(path, node, self.sync_node, self.allocate_node, writable=True)

    def open(self, path: Path, writable: bool = False, *, in_steps: bool = False) -> FaultyFile:
        node = self._file(path)
        if writable and not in_steps:
            self.allocate_node(node, path, 0, len(node.live))
        return FaultyFile(path, node, self.sync_node, self.allocate_node, writable=writable)

    def allocate_node(self, node: FaultyNode, path: Path, start: int, stop: int) -> None:
        """Carries out `FaultyFile.allocate`."""
        with self._lock:
            more = set(pages(start, stop)) - node.allocated
            self._check_space(len(more) * PAGE_BYTES, path)
            node.allocated |= more

    def sync_node(self, node: FaultyNode, path: Path, start: int, stop: int) -> None:
        """Carries out `FaultyFile.sync`."""
        if self.before_sync is not None:
            self.before_sync(path)
        with self._lock:
            self.sync_count += 1
            if self._failing_syncs > 0 and self._is_failing(path):
                self._failing_syncs -= 1
                self.failed_syncs.append(path)
                node.lose(start, stop)
                raise SyncFailed("the disk did not take the data", path=path, offset=start)
            node.sync(start, stop)
            node.modified_ms = self.clock_ms()
            self._names.sync_names(path)

    def sync(self, path: Path) -> None:
        """Make all bytes of a file durable, also those that a killed process wrote."""
        node = self._file(path)
        self.sync_node(node, path, 0, len(node.live))

    def listing(self, directory: Path) -> list[FileInfo]:
        with self._lock:
            found = self._names.look_up(directory)
            if found is None:
                return []
            if not isinstance(found, FaultyDirectory):
                raise name_error(ENOTDIR, "list", directory)
            return [_info(name, node) for name, node in sorted(found.live.items())]

    def stat(self, path: Path) -> FileInfo | None:
        with self._lock:
            found = self._names.look_up(path)
            return None if found is None else _info(path.name, found)

    def exists(self, path: Path) -> bool:
        return self.stat(path) is not None

    def read(self, path: Path, limit: int = MAX_SMALL_FILE_BYTES) -> bytes:
        data = bytes(self._file(path).live)
        if len(data) > limit:
            raise DiskError(f"the file is longer than {limit} bytes", path=path)
        return data

    def head(self, path: Path, size: int) -> bytes:
        return bytes(self._file(path).live[:size])

    def write(self, path: Path, data: bytes) -> None:
        with self._lock:
            node = self._names.look_up(path)
            if node is None:
                self._check_space(len(data), path)
                node = FaultyNode(bytearray(), b"", self.clock_ms())
                self._names.change((self._names.directory(path.parent), path.name, node))
                self._names.fresh.add(path)
            if isinstance(node, FaultyDirectory):
                raise name_error(EISDIR, "write", path)
            self._check_space(len(data) - len(node.live), path)
            node.live = bytearray(data)
            node.allocated = set(pages(0, len(data)))
            node.lost_pages.clear()
        self.sync_node(node, path, 0, len(data))

    def replace(self, path: Path, data: bytes) -> None:
        temporary = path.with_name(f".{path.name}.flintlog-new")
        self.remove(temporary)
        self.write(temporary, data)
        self.rename(temporary, path)
        self.sync_directory(path.parent)

    def rename(self, source: Path, target: Path) -> None:
        with self._lock:
            node = self._names.look_up(source)
            if node is None:
                raise name_error(ENOENT, f"rename to {target}", source)
            there = self._names.look_up(target)
            if isinstance(there, FaultyDirectory) and (there.live or not isinstance(node, FaultyDirectory)):
                raise name_error(ENOTEMPTY, f"rename to {target}", source)
            self._names.change(
                (self._names.directory(source.parent), source.name, None),
                (self._names.directory(target.parent), target.name, node),
            )
            if source in self._names.fresh:
                self._names.fresh.discard(source)
                self._names.fresh.add(target)

    def remove(self, path: Path) -> None:
        with self._lock:
            node = self._names.look_up(path)
            if isinstance(node, FaultyDirectory):
                raise name_error(EISDIR, "remove", path)
            if node is not None:
                self._names.change((self._names.directory(path.parent), path.name, None))

    def remove_tree(self, path: Path) -> None:
        with self._lock:
            node = self._names.look_up(path)
            if isinstance(node, FaultyDirectory):
                for name in list(node.live):
                    self.remove_tree(path / name)
            if node is not None:
                self._names.change((self._names.directory(path.parent), path.name, None))

    # Directories

    def make_directories(self, path: Path) -> None:
        with self._lock:
            self._names.make_directories(path)

    def sync_directory(self, path: Path) -> None:
        with self._lock:
            self._names.make_durable(self._names.directory(path))

    def usage(self, path: Path) -> DiskUsage:
        total = _UNBOUNDED_BYTES if self.capacity is None else self.capacity
        used = self._used()
        return DiskUsage(total, total - used, used / total if total else -1.0)

    def lock(self, path: Path) -> FaultyLock:
        with self._lock:
            if path in self._locked:
                raise StoreInUse("the store is in use", path=path)
            if not self.exists(path):
                self.write(path, b"lock")
            self._locked.add(path)
        return FaultyLock(path, self._locked)

    def _file(self, path: Path) -> FaultyNode:
        with self._lock:
            return self._names.file(path)

    def _used(self) -> int:
        with self._lock:
            return sum(node.space for node in self._names.nodes())

    def _check_space(self, more: int, path: Path) -> None:
        if self.capacity is not None and self._used() + more > self.capacity:
            raise DiskFull(f"no space left for {more} more bytes", path=path)


def _any_file(path: Path) -> bool:
    return True


def _info(name: str, node: FaultyNode | FaultyDirectory) -> FileInfo:
    if isinstance(node, FaultyDirectory):
        return FileInfo(name, 0, 0, is_directory=True)
    return FileInfo(name, len(node.live), node.modified_ms, is_directory=False)
