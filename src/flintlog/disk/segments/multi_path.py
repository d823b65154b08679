"""Chooses one of several commit log paths for a new file.

Candidates are the configured paths except read-only and nearly full ones; if none is left, the full ones are candidates
too. With the candidates sorted by name, file number n goes to candidate n mod count, so any process with the same
configuration chooses the same path.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from flintlog.errors import InvalidConfig


def no_path_is_full() -> Collection[Path]:
    """The default for a store that does not watch its disks."""
    return ()


class PathChoice:
    """The paths of one log. `full_paths` is called for each new file."""

    def __init__(
        self,
        paths: Sequence[Path],
        read_only: Collection[Path] = (),
        full_paths: Callable[[], Collection[Path]] = no_path_is_full,
    ) -> None:
        if not paths:
            raise InvalidConfig("a log needs at least one path")
        self.paths = tuple(paths)
        self.read_only = frozenset(read_only)
        self._full_paths = full_paths

    @property
    def all_paths(self) -> list[Path]:
        """Every path that may hold files, each once, sorted."""
        if len(self.paths) == 1 and not self.read_only:  # as for every queue
            return [self.paths[0]]
        return sorted({*self.paths, *self.read_only})

    def choose(self, base: int, segment_size: int) -> Path:
        """The directory for the file that starts at `base`."""
        writable = sorted({*self.paths} - self.read_only)
        if not writable:
            raise InvalidConfig("every path of the log is read-only", path=self.paths[0])
        full = set(self._full_paths())
        candidates = [path for path in writable if path not in full] or writable
        return candidates[base // segment_size % len(candidates)]
