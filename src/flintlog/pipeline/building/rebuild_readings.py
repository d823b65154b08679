"""The results of all splits together: where the log ends, what is damaged, which queues must be built serially.

    splits    [ records  gap )[  gap  records )[ records ... zeros )
    log       | records | damage  | records    | records |  end

Damage costs only itself: records beside it keep their places, and only queues whose offsets do not follow each other
are built entry by entry. A split that began with bytes that only look like a record is joined to the one before it, and
the log is read again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from flintlog.checks.range_check import REASONS
from flintlog.derive.chains import Span, find_log_end, join_gaps, join_spans
from flintlog.derive.splits import Gap
from flintlog.format.queue_entry import QueueKey
from flintlog.pipeline.building.rebuild_scan import SplitResult
from flintlog.pipeline.reading.partitions import LogSplit


@dataclass(frozen=True, slots=True)
class Readings:
    """The results up to the log's end."""

    results: list[SplitResult]
    end: int
    gaps: list[Gap]
    misfits: list[int]
    """The numbers of the splits that begin with something else than the record after the split before."""

    @classmethod
    def of(cls, planned: Sequence[LogSplit], results: Sequence[SplitResult], first: int) -> Readings:
        """Leave out everything after the last record: it is no damage."""
        splits = [each.split for each in planned]
        end = find_log_end(splits, [each.reach for each in results], [each.gaps for each in results]) or first
        kept = [(split, result) for split, result in zip(splits, results, strict=True) if split.start < end]
        splits = [replace(split, stop=min(split.stop, end)) for split, _ in kept]
        found = [result.up_to(end) for _, result in kept]
        gaps, misfits = join_gaps(splits, [each.reach for each in found], [each.gaps for each in found])
        return cls(found, end, gaps, misfits)

    def queues(self) -> tuple[dict[QueueKey, Span], frozenset[QueueKey]]:
        """The queues whose entries have places of their own, and those whose offsets do not follow each other."""
        spans, out_of_step = join_spans(result.spans for result in self.results)
        return {key: span for key, span in spans.items() if key not in out_of_step}, frozenset(out_of_step)

    def findings(self) -> list[str]:
        """The damage, in the log's order."""
        found = [
            (
                gap.start,
                f"{REASONS.get(gap.reason, gap.reason.name)}, and intact records follow; {gap.stop - gap.start} bytes",
            )
            for gap in self.gaps
        ]
        bodies = [place for result in self.results for place in result.damaged_bodies]
        found += [(place, "the body does not match its CRC; its lengths are right") for place in bodies]
        return [f"{text} (at {place})" for place, text in sorted(found)]

    @property
    def is_damaged(self) -> bool:
        return bool(self.gaps) or any(result.damaged_bodies for result in self.results)


def join_misfits(planned: Sequence[LogSplit], misfits: Sequence[int]) -> list[LogSplit]:
    """The splits again, each that did not fit joined to the one before it. The first of a file always fits."""
    joined: list[LogSplit] = []
    for number, each in enumerate(planned):
        if number in misfits:
            before = joined.pop()
            each = replace(before, split=replace(before.split, stop=each.split.stop))  # noqa: PLW2901
        joined.append(each)
    return joined
