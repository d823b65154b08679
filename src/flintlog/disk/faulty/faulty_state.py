"""The state of a faulty disk: each byte and each name twice, as visible and as it would survive a crash.

`faulty_disk.py` describes the fault model.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from flintlog.disk.media.medium import PAGE_BYTES

SECTOR_BYTES = 512


class FaultyNode:
    """The bytes of one file."""

    def __init__(self, live: bytearray, durable: bytes | bytearray, modified_ms: int) -> None:
        self.live = live
        self.durable = bytearray(durable)
        self.modified_ms = modified_ms
        self.was_synced = False
        self.allocated: set[int] = set(pages(0, len(live)))
        """The pages that have space on the disk."""
        self.lost_pages: dict[int, bytes] = {}  # content at a failed sync; the page counts as clean until it changes

    def copy(self) -> FaultyNode:
        twin = FaultyNode(bytearray(self.live), self.durable, self.modified_ms)
        twin.was_synced = self.was_synced
        twin.allocated = set(self.allocated)
        twin.lost_pages = dict(self.lost_pages)
        return twin

    @property
    def space(self) -> int:
        """How many bytes the file takes of the disk."""
        return min(len(self.live), len(self.allocated) * PAGE_BYTES)

    def check_allocated(self) -> None:
        """Fail if a byte was written where the file has no space: a real disk that is full ends the process then."""
        size = len(self.live)
        if self.space < size:
            for position in pages(0, size):
                stop = min(size, position + PAGE_BYTES)
                if position not in self.allocated and self.live.count(0, position, stop) < stop - position:
                    raise AssertionError(f"page {position} was written without space on the disk")

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
        """A sync failed: the dirty pages of the range count as clean, but were not written."""
        for position in pages(start, min(stop, len(self.live))):
            page = bytes(self.live[position : position + PAGE_BYTES])
            if page != self.durable[position : position + PAGE_BYTES]:
                self.lost_pages[position] = page

    def touch(self, start: int, stop: int) -> None:
        """Make the pages of the range dirty again."""
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
    """The names in one directory: as visible, and as they would survive a crash."""

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
    """Copies of nodes and directories, one of each, so that a file with two names keeps both."""

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
