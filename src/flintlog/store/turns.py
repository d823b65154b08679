"""Producers that take turns with the disk: one half puts while the other half's records are being synced.

    in step     loop  |puts of all|           |puts of all|
                disk               |  sync   |             |  sync   |

    in turns    loop  |puts of A|puts of B|puts of A|puts of B|
                disk            | sync A  | sync B  | sync A  |

All producers of an event loop that were completed together put again together, so the disk waits for the loop and the
loop for the disk, for ever. Here such a group is told by halves: the second half only when the first has put again and
is on its way to the disk. From then on a group that is synced is told when the next one is there, so that they stay
apart. That costs nobody anything: until then the loop is busy with the others.

Invariant: who is held back is synced already, and waits for the next group or for a moment at most. Only the flush
thread calls this.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

HOLD_S: Final = 0.002
"""How long a group is held back when no other comes."""
LEAST_GROUP: Final = 16
"""The puts of a smaller one take no time beside its sync."""
_SOON_S: Final = 0.005
_STEPS: Final = 4
_STEPS_AFTER_A_VAIN_HOLD: Final = 64

_T = TypeVar("_T")


class Turns:
    """Notices producers that go in step, lets them take turns, and notices when they no longer do."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._told_at = float("-inf")
        self._steps = 0
        self._steps_needed = _STEPS
        self._are_taken = False

    def arrived(self, count: int, *, has_waited: bool, has_held: bool) -> None:
        """A group of so many came; whether the disk stood idle until then, and whether others were held back."""
        if count < LEAST_GROUP or (has_waited and not has_held):
            self._are_taken = False
        is_in_step = has_waited and count >= LEAST_GROUP and self._clock() - self._told_at < _SOON_S
        self._steps = self._steps + 1 if is_in_step else 0

    def split(self, group: list[_T], *, is_next_here: bool) -> tuple[list[_T], list[_T]]:
        """Of a group that is synced, whom to tell now and whom to hold back."""
        self._told_at = self._clock()
        if self._are_taken:
            return (group, []) if is_next_here else ([], group)
        if self._steps < self._steps_needed:
            return group, []
        self._are_taken = True
        self._steps, self._steps_needed = 0, _STEPS
        half = len(group) // 2
        return group[:half], group[half:]

    def held_in_vain(self) -> None:
        """Nobody came while others were held back: these producers do not wait for each other."""
        self._are_taken = False
        self._steps, self._steps_needed = 0, _STEPS_AFTER_A_VAIN_HOLD
