"""Checking that what was read apart belongs together: splits that meet, and queues without a gap."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from flintlog.derive.splits import Gap, Split


class Reach(NamedTuple):
    """What reading a split gave: where its first record began, where its last one ended, whether a blank ended it."""

    first: int
    end: int
    has_blank: bool


class Span(NamedTuple):
    """The queue offsets [first, next) that a split has of a queue; not `in_step` when they do not follow each other."""

    first: int
    next: int
    in_step: bool = True


def find_mismatch(splits: Sequence[Split], reaches: Sequence[Reach]) -> str | None:
    """Why the readings of neighbouring splits do not fit together; None when every split ends where the next begins."""
    expected = -1
    for split, reach in zip(splits, reaches, strict=True):
        if split.start == split.file.base:
            expected = split.start
        expected = max(expected, split.start)
        if reach.first != min(expected, split.stop):
            return f"the split at {split.start} begins with a record at {reach.first}, and {expected} was expected"
        expected = split.file.end if reach.has_blank else max(expected, reach.end)
        if expected < split.stop:
            return f"the split at {split.start} ends at {expected}, and {split.stop} was expected"
    return None


def join_reaches(read: Sequence[tuple[Split, Reach]], start: int) -> tuple[int, str | None]:
    """Where neighbouring readings end that go on from a record at `start`; and why they do not fit together, if so.

    Unlike `find_mismatch`, the first split may begin before `start`, or inside a record that begins before it.
    """
    expected = start
    for split, reach in read:
        expected = max(expected, split.start if split.start == split.file.base else 0)
        if reach.first != min(max(expected, split.start), split.stop):
            return expected, f"the split at {split.start} begins with a record at {reach.first}, not at {expected}"
        expected = split.file.end if reach.has_blank else max(expected, reach.end)
        if expected < split.stop:
            return expected, f"the split at {split.start} ends at {expected}, and {split.stop} was expected"
    return expected, None


def find_log_end(splits: Sequence[Split], reaches: Sequence[Reach], gaps: Sequence[Sequence[Gap]]) -> int:
    """Where the log ends that these splits cover, from the readings alone: behind the last record.

    A place without a record is damage if a record follows it, and the end of the log if none does.
    """
    for split, reach, found in zip(reversed(splits), reversed(reaches), reversed(gaps), strict=True):
        end = reach.end
        for gap in reversed(found):
            if gap.stop != end:
                break
            end = gap.start
        if end > reach.first:
            return split.file.end if reach.has_blank else end
    return splits[0].start if splits else 0


QueueKey = tuple[str, int]


def join_spans(spans: Iterable[Mapping[QueueKey, Span]]) -> tuple[dict[QueueKey, Span], set[QueueKey]]:
    """Every queue's span over all splits, in order; and the queues whose offsets do not follow each other."""
    whole: dict[QueueKey, Span] = {}
    out_of_step: set[QueueKey] = set()
    for found in spans:
        for key, span in found.items():
            before = whole.get(key)
            if not span.in_step or (before is not None and before.next != span.first):
                out_of_step.add(key)
            whole[key] = span if before is None else Span(before.first, span.next)
    return whole, out_of_step
