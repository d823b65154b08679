"""Stretches of a queue: queue offsets [first, stop) whose records lie in [first physical, last physical] of the log.

Threads or other machines check separate ranges of the log, and their findings on a queue are merged afterwards. A
healthy queue is one stretch, however many ranges hold a part of it, so memory grows with the damage and not with the
log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace


@dataclass(slots=True)
class Stretch:
    """Consecutive queue offsets, and the records that have them.

    The next record may have the offset `stop` or `also_next`.
    """

    first: int
    stop: int
    first_physical_offset: int
    last_physical_offset: int
    evidence: str = ""
    file: str | None = None
    offset: int | None = None
    also_next: int = -1

    def goes_on_with(self, first: int) -> bool:
        """Whether the next record may have this offset."""
        return first in (self.stop, self.also_next)

    @property
    def count(self) -> int:
        return self.stop - self.first


@dataclass(slots=True)
class Stretches:
    """Stretches in the order of the log; neighbours are joined."""

    items: list[Stretch] = field(default_factory=list)

    def add(self, stretch: Stretch) -> None:
        """Append one that lies after all others in the log."""
        last = self.items[-1] if self.items else None
        if last is not None and last.goes_on_with(stretch.first):
            last.stop, last.also_next = stretch.stop, stretch.also_next
            last.last_physical_offset = stretch.last_physical_offset
        else:
            self.items.append(stretch)

    def extend(self, stretches: Iterable[Stretch]) -> None:
        for stretch in stretches:
            self.add(stretch)

    def __iter__(self) -> Iterator[Stretch]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def in_log_order(self) -> list[Stretch]:
        """Sorted and joined. `add` alone is not enough: records with several entries are added last in their range."""
        ordered = Stretches()
        for stretch in sorted(self.items, key=lambda stretch: stretch.first_physical_offset):
            ordered.add(replace(stretch))
        return ordered.items

    @property
    def count(self) -> int:
        """All their queue offsets together."""
        return sum(stretch.count for stretch in self.items)


@dataclass(slots=True)
class QueueTally:
    """The records of one queue in the log, compared with the entries in the queue's files.

    `records`: every record that belongs in the queue. `absent`: those without an entry. `wrong`: those whose entry is
    another one. `retagged`: those whose entry has another tags code, by more than one bit. `matched_to` is where the
    last record with a right entry begins.
    """

    records: Stretches = field(default_factory=Stretches)
    absent: Stretches = field(default_factory=Stretches)
    wrong: Stretches = field(default_factory=Stretches)
    retagged: Stretches = field(default_factory=Stretches)
    matched_to: int = -1
    entry_count: int = 0

    def merge(self, later: QueueTally) -> None:
        """Add the findings of a later range of the log."""
        self.records.extend(later.records)
        self.absent.extend(later.absent)
        self.wrong.extend(later.wrong)
        self.retagged.extend(later.retagged)
        self.matched_to = max(self.matched_to, later.matched_to)
        self.entry_count += later.entry_count
