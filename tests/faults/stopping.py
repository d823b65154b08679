"""A disk that loses its power before its n-th change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.disk.faulty.faulty_file import FaultyFile
from flintlog.disk.faulty.faulty_state import FaultyNode


class PowerLost(Exception):
    """The disk is gone; nothing that catches flintlog's own errors may catch this."""


class StoppingMedium(FaultyMedium):
    """Counts what changes names or makes bytes durable; from the n-th on there is no disk any more."""

    def __init__(self, after: int, clock_ms: Callable[[], int]) -> None:
        super().__init__(clock_ms=clock_ms)
        self.left = after

    @classmethod
    def over(cls, medium: FaultyMedium, after: int) -> StoppingMedium:
        found = medium.kill()
        stopping = cls(after, medium.clock_ms)
        stopping._names = found._names
        return stopping

    @property
    def is_off(self) -> bool:
        return self.left <= 0

    def _step(self) -> None:
        if self.left <= 0:
            raise PowerLost
        self.left -= 1

    def create(self, path: Path, size: int, allocated: int | None = None) -> FaultyFile:
        self._step()
        return super().create(path, size, allocated)

    def sync_node(self, node: FaultyNode, path: Path, start: int, stop: int) -> None:
        self._step()
        super().sync_node(node, path, start, stop)

    def write(self, path: Path, data: bytes) -> None:
        self._step()
        super().write(path, data)

    def rename(self, source: Path, target: Path) -> None:
        self._step()
        super().rename(source, target)

    def remove(self, path: Path) -> None:
        self._step()
        super().remove(path)

    def remove_tree(self, path: Path) -> None:
        self._step()
        super().remove_tree(path)

    def sync_directory(self, path: Path) -> None:
        self._step()
        super().sync_directory(path)
