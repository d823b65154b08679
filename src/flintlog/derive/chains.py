"""Checks that separately read splits fit together: each ends where the next begins, and no queue has a gap."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from flintlog.derive.splits import Gap, Split
from flintlog.format.queue_entry import QueueKey
from flintlog.kernel import ScanStop


class Reach(NamedTuple):
    """How far a split was read: where its first record begins, where its last one ends, whether a blank ended it."""

    first: int
    end: int
    has_blank: bool


class Span(NamedTuple):
    """The queue offsets [first, next) that a split holds of a queue; `in_step` if they are consecutive."""

    first: int
    next: int
    in_step: bool = True


def join_reaches(read: Sequence[tuple[Split, Reach]], start: int) -> tuple[int, str | None]:
    """Where neighbouring splits end, read from a record at `start`; and why they do not fit together, or None.

    The first split may begin before `start`, or inside a record that begins before it.
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


def join_gaps(
    splits: Sequence[Split], reaches: Sequence[Reach], gaps: Sequence[Sequence[Gap]]
) -> tuple[list[Gap], list[int]]:
    """The gaps of all splits, joined where they touch; and the numbers of the splits that do not fit the one before.

    After a gap that reaches its split's end, the next split may begin with any record: the gap ends there.
    """
    joined: list[Gap] = []
    misfits: list[int] = []
    expected, is_open = splits[0].start if splits else 0, False
    for number, (split, reach, found) in enumerate(zip(splits, reaches, gaps, strict=True)):
        if split.start == split.file.base:
            expected = max(expected, split.start)
        first = min(max(expected, split.start), split.stop)
        if reach.first < first or (reach.first > first and not is_open):
            misfits.append(number)
        passed = [Gap(first, reach.first, ScanStop.NO_RECORD)] if is_open and reach.first > first else []
        for gap in [*passed, *found]:
            if joined and joined[-1].stop == gap.start:
                gap = replace(joined.pop(), stop=gap.stop)  # noqa: PLW2901 - the same gap, longer
            joined.append(gap)
        ends_in_gap = bool(found) and found[-1].stop >= split.stop
        is_open = ends_in_gap or (is_open and reach.first >= split.stop)
        expected = split.file.end if reach.has_blank else max(expected, reach.end)
    return joined, misfits


def find_log_end(splits: Sequence[Split], reaches: Sequence[Reach], gaps: Sequence[Sequence[Gap]]) -> int:
    """The end of the log that these splits cover: the place after the last record that was read.

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


def join_spans(spans: Iterable[Mapping[QueueKey, Span]]) -> tuple[dict[QueueKey, Span], set[QueueKey]]:
    """Every queue's span over all splits, in order; and the queues whose offsets are not consecutive."""
    whole: dict[QueueKey, Span] = {}
    out_of_step: set[QueueKey] = set()
    for found in spans:
        for key, span in found.items():
            before = whole.get(key)
            if not span.in_step or (before is not None and before.next != span.first):
                out_of_step.add(key)
            whole[key] = span if before is None else Span(before.first, span.next)
    return whole, out_of_step
