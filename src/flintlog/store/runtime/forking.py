"""Closes the parent's stores in a forked child.

A child shares the parent's maps, but not its threads, its positions and its put lock. Both would append at the same
place, and a `with` block that ends in the child would mark the parent's running store as cleanly stopped. So every
store that was opened for writing is closed in the child, at once and without touching its files. The child may open
its own store, read-only while the parent's is open.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Inherited(Protocol):
    """A store, or another object that a child must not use."""

    def leave_to_parent(self) -> None:
        """Called in the child, which has no other thread, and where any lock may be held forever."""


# A global, because a function that was registered with `os.register_at_fork` cannot be removed.
_open: WeakSet[Inherited] = WeakSet()


def close_in_children(inherited: Inherited) -> None:
    """Call its `leave_to_parent` in each forked child, until it is garbage collected."""
    _open.add(inherited)


def _in_child() -> None:
    for inherited in tuple(_open):
        inherited.leave_to_parent()


os.register_at_fork(after_in_child=_in_child)
