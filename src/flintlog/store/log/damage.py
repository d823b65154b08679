"""Places in the log that are damaged.

A bad place is a torn tail only if no intact record follows it anywhere in the log. Otherwise it is damage: it costs
the records it covers and nothing else. This map holds such places for as long as the store is open, so that
dispatch steps over them and reading one names it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Damage:
    """One damaged stretch: physical offsets [start, end), and what was seen there.

    `readable`: its header and lengths are right, so it has its place in a queue; only its body is lost.
    """

    start: int
    end: int
    evidence: str
    readable: bool = False

    @property
    def size(self) -> int:
        return self.end - self.start


class DamageMap:
    """The damaged stretches of a log, in order."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._places: list[Damage] = []

    def add(self, damage: Damage) -> None:
        place = bisect_right(self._starts, damage.start)
        if place and self._places[place - 1].end > damage.start:
            return
        self._starts.insert(place, damage.start)
        self._places.insert(place, damage)

    def at(self, physical_offset: int) -> Damage | None:
        place = bisect_right(self._starts, physical_offset)
        if place and self._places[place - 1].end > physical_offset:
            return self._places[place - 1]
        return None

    def end_of(self, physical_offset: int) -> int | None:
        """Where the log continues after the damage at an offset."""
        damage = self.at(physical_offset)
        return None if damage is None else damage.end

    def between(self, start: int, end: int) -> Damage | None:
        """The first damage in [start, end) whose records are unknown."""
        return next(self._lost_between(start, end), None)

    def bytes_between(self, start: int, end: int) -> int:
        """How many bytes of [start, end) held records that are not known."""
        return sum(damage.size for damage in self._lost_between(start, end))

    def _lost_between(self, start: int, end: int) -> Iterator[Damage]:
        for damage in self._places[bisect_right(self._starts, start - 1) :]:
            if damage.start >= end:
                return
            if not damage.readable:
                yield damage

    def __iter__(self) -> Iterator[Damage]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
