"""Handles of a faulty disk: of one file, and of a lock. `faulty_disk.py` describes the fault model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from flintlog.disk.faulty.faulty_state import FaultyNode
from flintlog.disk.media.medium import Advice, check_range
from flintlog.errors import DiskError, SyncFailed

OnNode = Callable[[FaultyNode, Path, int, int], None]


class FaultyFile:
    """A handle of a file on a faulty disk."""

    def __init__(
        self, path: Path, node: FaultyNode, sync_node: OnNode, allocate_node: OnNode, *, writable: bool
    ) -> None:
        self.path = path
        self.size = len(node.live)
        view = memoryview(node.live)
        self._view: memoryview | None = view if writable else view.toreadonly()
        self._node = node
        self._sync_node = sync_node
        self._allocate_node = allocate_node
        self._sync_failure: SyncFailed | None = None

    @property
    def buffer(self) -> memoryview:
        if self._view is None:
            raise DiskError("the file was closed", path=self.path)
        return self._view

    def sync(self, start: int = 0, stop: int | None = None) -> None:
        if self._sync_failure is not None:
            raise self._sync_failure
        try:
            self._sync_node(self._node, self.path, start, self.size if stop is None else stop)
        except SyncFailed as error:
            self._sync_failure = error
            raise

    def write_at(self, position: int, data: memoryview) -> None:
        check_range(self.path, self.size, position, position + len(data))
        self._node.live[position : position + len(data)] = data

    def allocate(self, start: int, stop: int) -> None:
        check_range(self.path, self.size, start, stop)
        self._allocate_node(self._node, self.path, start, stop)

    def clear(self, start: int, stop: int) -> None:
        check_range(self.path, self.size, start, stop)
        self._allocate_node(self._node, self.path, start, stop)
        self._node.live[start:stop] = bytes(stop - start)

    def data_end(self, start: int) -> int:
        return self.size

    def touch(self, start: int, stop: int) -> bool:
        self._node.touch(start, stop)
        return True

    def prepare(self, start: int, stop: int) -> bool:
        return True

    def advise(self, advice: Advice, start: int = 0, stop: int | None = None) -> bool:
        return True

    def lock_memory(self) -> bool:
        return True

    def unlock_memory(self) -> bool:
        return True

    def close(self) -> None:
        self._view = None


class FaultyLock:
    """A lock on a faulty disk; a crash frees it."""

    def __init__(self, path: Path, locked: set[Path]) -> None:
        self.path = path
        self._locked = locked
        self._is_held = True

    def release(self) -> None:
        if self._is_held:
            self._is_held = False
            self._locked.discard(self.path)
