"""Which records of a queue are believed to have the queue offset that they name.

The offsets of a queue count up along the log. Where a record breaks the order, either others are lost or it is wrong:

    5 6 7 | 10 11 12        7 is followed by 10, and others go on from there: 8 and 9 are lost, the rest is believed
    5 6 7 | 42 | 8 9 10     those that follow 42 contradict it: its own offset, or its queue, is wrong
    5 6 7 | 3 | 8 9 10      an offset that was given before: the first record that has it keeps it

A record that is not believed gets no entry in the queue. Building a queue and checking one use this same rule.

Reasons and costs: docs/decisions/0009.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

from flintlog.derive.stretches import Stretch
from flintlog.format.names import FAR

FOLLOWING: Final = 5
"""How many later records of the same queue decide about one that skips offsets."""
MAX_UNSEEN_GAP: Final = 1 << 16
"""The last record of a queue is believed if it skips no more offsets than this."""


def is_believed(expected: int | None, queue_offset: int, following: Iterable[int]) -> bool:
    """Whether a record has the queue offset that it names.

    `expected` is the queue's next offset, None before its first entry; `following` are the offsets of the queue's next
    records in the log.
    """
    low = 0 if expected is None else expected
    if queue_offset <= low:
        return queue_offset == low
    after = list(islice(following, FOLLOWING))
    if not after:
        return expected is None or queue_offset - low <= MAX_UNSEEN_GAP
    # Believing it would take their entries from all records with offsets up to its own; doubting it costs one entry.
    return not any(low <= offset <= queue_offset for offset in after)


@dataclass(frozen=True, slots=True)
class OffsetGap:
    """Queue offsets [first, stop) that no record has; the records beside them lie at `after` and `before`.

    One that `is_open` lies before the queue's first record or after its last: perhaps nothing is lost there.
    """

    first: int
    stop: int
    after: int
    before: int
    is_open: bool = False


def find_doubtful(records: Sequence[Stretch]) -> list[tuple[Stretch, int]]:
    """The stretches with records that are not believed, each with the offset below which they are not.

    The stretches are in the order of the log.
    """
    return [(part.stretch, part.believed_from) for part in _walk(records) if part.believed_from > part.stretch.first]


def find_gaps(records: Sequence[Stretch]) -> list[OffsetGap]:
    """The offsets that the believed records skip, and the open gaps before the first and after the last."""
    gaps: list[OffsetGap] = []
    next_offset, after, is_open = 0, -1, True
    for part in _walk(records):
        stretch, first = part.stretch, part.believed_from
        if first < stretch.stop:
            if first > next_offset:
                gaps.append(OffsetGap(next_offset, first, after, stretch.first_physical_offset, is_open))
            next_offset, after, is_open = stretch.stop, stretch.last_physical_offset, False
    return [*gaps, OffsetGap(next_offset, FAR, after, FAR, True)]


class _Part(NamedTuple):
    """A stretch, and the offset from which on its records are believed; its `stop` if none is."""

    stretch: Stretch
    believed_from: int


def _walk(records: Sequence[Stretch]) -> Iterator[_Part]:
    expected: int | None = None
    for number, stretch in enumerate(records):
        offset = stretch.first
        while offset < stretch.stop:
            if expected is not None and offset < expected:
                offset = min(expected, stretch.stop)
            elif is_believed(expected, offset, _following(records, number, offset + 1)):
                break
            else:
                offset += 1
        if offset < stretch.stop:
            expected = stretch.stop
        yield _Part(stretch, offset)


def _following(records: Sequence[Stretch], number: int, first: int) -> Iterator[int]:
    yield from range(first, records[number].stop)
    for later in range(number + 1, len(records)):  # a slice by `islice` would walk all records before it
        yield from range(records[later].first, records[later].stop)
