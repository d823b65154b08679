"""What a forked child has of its parent's stores: nothing.

A child shares the parent's maps, but not its threads, its positions and its put lock. Both would append at the same
place, and a `with` block that ends in the child would mark the parent's running store as cleanly stopped. So every
store that was opened for writing is closed in the child, at once and without touching its files; the child opens
its own, read-only if the parent goes on.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Inherited(Protocol):
    """Something that a child must not go on with."""

    def leave_to_parent(self) -> None:
        """Called in the child, where no other thread is and any lock may be held for ever."""


# The only state of this module, for the interpreter takes a function once and never gives it back.
_open: WeakSet[Inherited] = WeakSet()


def close_in_children(inherited: Inherited) -> None:
    """From now on, until it is collected."""
    _open.add(inherited)


def _in_child() -> None:
    for inherited in tuple(_open):
        inherited.leave_to_parent()


os.register_at_fork(after_in_child=_in_child)
