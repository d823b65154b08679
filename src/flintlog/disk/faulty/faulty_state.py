"""What a faulty disk knows of its files: each byte and each name twice, as seen and as it would survive.

The fault model is told in `faulty`.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from flintlog.disk.media.medium import PAGE_BYTES

SECTOR_BYTES = 512


class FaultyNode:
    """The bytes of one file, whatever its names."""

    def __init__(self, live: bytearray, durable: bytes | bytearray, modified_ms: int) -> None:
        self.live = live
        self.durable = bytearray(durable)
        self.modified_ms = modified_ms
        self.was_synced = False
        self.lost_pages: dict[int, bytes] = {}  # content at a failed sync: taken for clean while it stays so

    def copy(self) -> FaultyNode:
        twin = FaultyNode(bytearray(self.live), self.durable, self.modified_ms)
        twin.was_synced = self.was_synced
        twin.lost_pages = dict(self.lost_pages)
        return twin

    def sync(self, start: int, stop: int) -> None:
        if len(self.durable) != len(self.live):
            self.durable = self.durable[: len(self.live)].ljust(len(self.live), b"\0")
        for position in pages(start, min(stop, len(self.live))):
            page = bytes(self.live[position : position + PAGE_BYTES])
            if self.lost_pages.get(position) != page:
                self.durable[position : position + PAGE_BYTES] = page
                self.lost_pages.pop(position, None)
        self.was_synced = True

    def lose(self, start: int, stop: int) -> None:
        """What a failed sync does: the dirty pages of the range are dropped from the list of what to write."""
        for position in pages(start, min(stop, len(self.live))):
            page = bytes(self.live[position : position + PAGE_BYTES])
            if page != self.durable[position : position + PAGE_BYTES]:
                self.lost_pages[position] = page

    def touch(self, start: int, stop: int) -> None:
        """The pages of the range are to be written again, whatever became of them before."""
        for position in pages(start, stop):
            self.lost_pages.pop(position, None)

    def after_crash(self, chance: random.Random, torn_creates: bool) -> bytes:
        if torn_creates and not self.was_synced and chance.random() < 0.5:
            return b""
        old, new = bytes(self.durable), bytes(self.live)
        if len(old) != len(new):
            size = chance.choice((len(old), len(new)))
            old, new = old.ljust(size, b"\0")[:size], new.ljust(size, b"\0")[:size]
        if old == new:
            return new
        sectors = (
            (old[at : at + SECTOR_BYTES], new[at : at + SECTOR_BYTES]) for at in range(0, len(new), SECTOR_BYTES)
        )
        return b"".join(chance.choice(pair) if pair[0] != pair[1] else pair[0] for pair in sectors)


class FaultyDirectory:
    """The names in one directory: as the process sees them, and as they would survive."""

    def __init__(self) -> None:
        self.live: dict[str, FaultyNode | FaultyDirectory] = {}
        self.durable: dict[str, FaultyNode | FaultyDirectory] = {}


class NameChange:
    """One change of names that survives as a whole."""

    def __init__(self, *changes: tuple[FaultyDirectory, str, FaultyNode | FaultyDirectory | None]) -> None:
        self.changes = changes
        self.directories = {directory for directory, _, _ in changes}

    def apply(self, names_of: Callable[[FaultyDirectory], dict[str, FaultyNode | FaultyDirectory]]) -> None:
        for directory, name, node in self.changes:
            if node is None:
                names_of(directory).pop(name, None)
            else:
                names_of(directory)[name] = node


class Twins:
    """Copies of nodes and directories, each made once: what has two names still has two."""

    def __init__(self) -> None:
        self._made: dict[FaultyNode | FaultyDirectory, FaultyNode | FaultyDirectory] = {}

    def of_directory(self, directory: FaultyDirectory) -> FaultyDirectory:
        found = self._made.get(directory)
        if isinstance(found, FaultyDirectory):
            return found
        twin = self._made[directory] = FaultyDirectory()
        twin.live = {name: self._of(node) for name, node in directory.live.items()}
        twin.durable = {name: self._of(node) for name, node in directory.durable.items()}
        return twin

    def _of(self, node: FaultyNode | FaultyDirectory) -> FaultyNode | FaultyDirectory:
        if isinstance(node, FaultyDirectory):
            return self.of_directory(node)
        found = self._made.get(node)
        if found is None:
            found = self._made[node] = node.copy()
        return found

    def of_change(self, change: NameChange) -> NameChange:
        return NameChange(
            *(
                (self.of_directory(directory), name, None if node is None else self._of(node))
                for directory, name, node in change.changes
            )
        )


def pages(start: int, stop: int) -> range:
    return range(start // PAGE_BYTES * PAGE_BYTES, stop, PAGE_BYTES)
