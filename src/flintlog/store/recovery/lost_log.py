"""What the log has lost since the last stop: all of it, files in its middle, or its end.

Nothing is rebuilt from this, but no offset is given twice either: the log goes on after the furthest place that a stop,
the note of the checkpoint or the queues know it reached. What it held there is damage, and an error among the findings.
A store whose log is gone as a whole, as when a disk is not mounted, is not opened at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from flintlog.checks.finding import ERROR
from flintlog.disk.segments.segment_queue import SegmentQueue
from flintlog.errors import DamagedStore
from flintlog.format.checkpoint import Checkpoint
from flintlog.store.log.damage import Damage, DamageMap
from flintlog.store.queues.queue_table import QueueTable
from flintlog.store.recovery.recovery_report import Finding

_NEAR_FILES = 4


@dataclass(frozen=True, slots=True)
class Reached:
    """How far the log is known to have reached, and by whose word."""

    end: int
    known_by: str


def reached_by_queues(ends: Sequence[int], log_end: int, segment_size: int) -> Reached | None:
    """How far the last entries of queues say that a log reached which ends at `log_end`; `ends` are theirs.

    A single entry with a wrong bit points anywhere. So the furthest one counts only if it is near another one, or near
    the log's end.
    """
    found = sorted({log_end, *(end for end in ends if end > log_end)}, reverse=True)
    while len(found) > 1 and found[0] - found[1] > _NEAR_FILES * segment_size:
        del found[0]
    return Reached(found[0], "the queues know") if found[0] > log_end else None


def refuse_without_log(checkpoint: Checkpoint, stopped_at: int | None, queues: QueueTable, *, clean: bool) -> None:
    """Raise when there is no log file and there was one: a stop, a sync or, after a clean stop, the queues say so.

    After a crash queues may be there without a log: names that were never synced are lost in any order.
    """
    was_synced = checkpoint.physic_msg_timestamp > 0 or checkpoint.logics_physical_offset > 0
    if not stopped_at and not was_synced and not (clean and queues.file_count):
        return
    raise DamagedStore(
        "the log is missing: there are traces of its messages, and no file of it",
        path=queues.root,
        advice="is its disk mounted? restore the files; who wants an empty store takes another directory",
    )


def note_missing_files(segments: SegmentQueue, before: int, damage: DamageMap) -> list[Finding]:
    """Findings for files that are missing below an offset from which on the log is read."""
    found: list[Finding] = []
    for start, end in segments.gaps():
        if start < end <= before:
            damage.add(Damage(start, end, "a file of the log is missing"))
            evidence = f"no file of the log holds the {end - start} bytes from here, and others follow"
            remedy = "what they held is lost, everything else is kept"
            found.append(Finding("missing-log-file", ERROR, evidence, remedy, None, None, start, end - start))
    return found


def note_short_log(end: int, known_end: int, known_by: str) -> Sequence[Finding]:
    """The finding of a log that ends before the place where it once ended, by the word of `known_by`."""
    if end >= known_end:
        return ()
    lost = known_end - end
    evidence = f"{known_by} the log at {known_end}, and {lost} bytes at its end are not there"
    remedy = "what they held is lost, and their offsets are not given again"
    return [Finding("short-log", ERROR, evidence, remedy, None, None, end, lost)]
