"""A bound on the number of mapped segments.

A process may have 65,530 maps, a store a hundred thousand segments. Segments are mapped on use. When there are more
than `max_maps`, segments without a holder that were not used lately are unmapped (the clock algorithm: a use only sets
a flag and takes no lock). They are mapped again when needed.

The bound is soft: a segment that is held, or whose tail is in use, stays mapped. Each new map checks a fixed number of
others, so its cost does not grow with their number. If most of them refuse, the hand reaches the idle ones some maps
later; until then there are more than `max_maps`, by about a seventh of those that refuse. The cache holds only weak
references, so the maps of a dropped queue are freed.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from typing import Final, Protocol

DEFAULT_MAX_MAPS = 4096
LOOKS_PER_MAP: Final = 16
"""How many maps are checked when one is added to a full cache."""


class Mapped(Protocol):
    """An object that can be unmapped and mapped again."""

    recently_used: bool

    def try_unmap(self) -> bool:
        """Unmap unless the map is in use; may wait only for a lock under which no thread waits for the cache."""


class MapCache:
    """The mapped segments of one medium. Any thread may call; the lock is held only for the sweep."""

    def __init__(self, max_maps: int = DEFAULT_MAX_MAPS) -> None:
        if max_maps < 1:
            raise ValueError("max_maps must be at least 1")
        self.max_maps = max_maps
        self._lock = threading.Lock()
        # By id(); the hand of the clock is at the start.
        self._ring: OrderedDict[int, weakref.ref[Mapped]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._ring)

    def add(self, mapped: Mapped) -> None:
        """Add a segment that was just mapped, and unmap idle ones if there are too many."""
        mapped.recently_used = True
        with self._lock:
            self._ring[id(mapped)] = weakref.ref(mapped)
            excess = len(self._ring) - self.max_maps
            if excess > 0:
                self._sweep(excess)

    def discard(self, mapped: Mapped) -> None:
        """Forget a segment that was destroyed."""
        with self._lock:
            self._ring.pop(id(mapped), None)

    def _sweep(self, excess: int) -> None:
        # At most twice around: the first pass clears the flags; the newest map is not unmapped.
        for _ in range(min(LOOKS_PER_MAP, 2 * (len(self._ring) - 1))):
            key, reference = self._ring.popitem(last=False)
            mapped = reference()
            if mapped is None or (not mapped.recently_used and mapped.try_unmap()):
                excess -= 1
                if excess == 0:
                    return
            else:
                mapped.recently_used = False
                self._ring[key] = reference
