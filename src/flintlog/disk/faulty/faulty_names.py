"""The names on a faulty disk: which files and directories exist, and which of them would survive a crash.

A change of names is visible at once and pending until its directory is synced. At a crash each directory keeps some
first part of its pending changes. `faulty_disk.py` describes the fault model.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from errno import EISDIR, ENOENT, ENOTDIR
from os import strerror
from pathlib import Path

from flintlog.disk.faulty.faulty_state import FaultyDirectory, FaultyNode, NameChange, Twins
from flintlog.disk.media.medium import disk_error
from flintlog.errors import DiskError, DiskFull


class FaultyNames:
    """The tree of names. Its owner holds a lock while using it."""

    def __init__(self) -> None:
        self.fresh: set[Path] = set()  # names that this process created and has not synced yet, as in `local`
        self._root = FaultyDirectory()
        self._pending: list[NameChange] = []

    def after_crash(self, chance: random.Random, *, torn_creates: bool) -> FaultyNames:
        """The names that survive a power loss; files are copies."""
        after = FaultyNames()
        after._root = self._rebuild(self._root, self._surviving_names(chance), {}, chance, torn_creates)
        return after

    def copy(self) -> FaultyNames:
        """A copy for another process: all names, durable or not, none of which that process created."""
        after, twins = FaultyNames(), Twins()
        after._root = twins.of_directory(self._root)
        after._pending = [twins.of_change(change) for change in self._pending]
        return after

    def change(self, *changes: tuple[FaultyDirectory, str, FaultyNode | FaultyDirectory | None]) -> None:
        """Change names at once; the change survives as a whole or not at all."""
        operation = NameChange(*changes)
        operation.apply(lambda directory: directory.live)
        self._pending.append(operation)

    def make_durable(self, directory: FaultyDirectory) -> None:
        """Apply the pending changes of a directory, and those of other directories that they depend on."""
        needed = {directory}
        chosen: set[int] = set()
        for index in reversed(range(len(self._pending))):
            if self._pending[index].directories & needed:
                needed |= self._pending[index].directories
                chosen.add(index)
        for index in sorted(chosen):
            self._pending[index].apply(lambda each: each.durable)
        self._pending = [operation for index, operation in enumerate(self._pending) if index not in chosen]

    def sync_names(self, path: Path) -> None:
        """Make a file's name durable if this process created it, and those of directories above that it created."""
        while path in self.fresh:
            self.fresh.discard(path)
            directory = self.look_up(path.parent)
            if isinstance(directory, FaultyDirectory):
                self.make_durable(directory)
            path = path.parent

    def look_up(self, path: Path) -> FaultyNode | FaultyDirectory | None:
        current: FaultyNode | FaultyDirectory | None = self._root
        for name in _parts(path):
            if not isinstance(current, FaultyDirectory):
                return None
            current = current.live.get(name)
        return current

    def file(self, path: Path) -> FaultyNode:
        found = self.look_up(path)
        if not isinstance(found, FaultyNode):
            raise name_error(ENOENT if found is None else EISDIR, "open", path)
        return found

    def directory(self, path: Path) -> FaultyDirectory:
        found = self.look_up(path)
        if not isinstance(found, FaultyDirectory):
            raise name_error(ENOENT if found is None else ENOTDIR, "use the directory", path)
        return found

    def nodes(self, directory: FaultyDirectory | None = None) -> Iterator[FaultyNode]:
        """All files below a directory, or all files, in the order of their names."""
        for _, node in sorted((self._root if directory is None else directory).live.items()):
            if isinstance(node, FaultyDirectory):
                yield from self.nodes(node)
            else:
                yield node

    def _surviving_names(self, chance: random.Random) -> dict[FaultyDirectory, dict[str, FaultyNode | FaultyDirectory]]:
        survived: dict[FaultyDirectory, dict[str, FaultyNode | FaultyDirectory]] = {}

        def names_of(directory: FaultyDirectory) -> dict[str, FaultyNode | FaultyDirectory]:
            return survived.setdefault(directory, dict(directory.durable))

        cut: set[FaultyDirectory] = set()
        for operation in self._pending:
            if operation.directories & cut or chance.random() < 0.5:
                cut |= operation.directories
            else:
                operation.apply(names_of)
        return survived

    def _rebuild(
        self,
        directory: FaultyDirectory,
        survived: dict[FaultyDirectory, dict[str, FaultyNode | FaultyDirectory]],
        copies: dict[FaultyNode, FaultyNode],
        chance: random.Random,
        torn_creates: bool,
    ) -> FaultyDirectory:
        rebuilt = FaultyDirectory()
        for name, node in sorted(survived.get(directory, directory.durable).items()):
            if isinstance(node, FaultyDirectory):
                rebuilt.live[name] = self._rebuild(node, survived, copies, chance, torn_creates)
                continue
            if node not in copies:
                data = node.after_crash(chance, torn_creates)
                copies[node] = FaultyNode(bytearray(data), data, node.modified_ms)
                copies[node].was_synced = True
                copies[node].allocated &= node.allocated
            rebuilt.live[name] = copies[node]
        rebuilt.durable = dict(rebuilt.live)
        return rebuilt

    def make_directories(self, path: Path) -> None:
        current, at = self._root, Path(path.anchor)
        for name in _parts(path):
            found = current.live.get(name)
            at = at / name
            if found is None:
                found = FaultyDirectory()
                self.change((current, name, found))
                self.fresh.add(at)
            if not isinstance(found, FaultyDirectory):
                raise name_error(ENOTDIR, "make the directory", path)
            current = found


def _parts(path: Path) -> tuple[str, ...]:
    return path.parts[1:] if path.is_absolute() else path.parts


def name_error(code: int, action: str, path: Path) -> DiskFull | DiskError:
    """The error that a real disk would raise for a name."""
    return disk_error(OSError(code, strerror(code)), action, path)
