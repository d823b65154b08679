"""What the log has lost since the last stop: all of it, files in its middle, or its end.

Lost records cannot be rebuilt, but their offsets are not reused: the log continues after the furthest place that a
stop, the note of the checkpoint or the queues know it reached. The lost range is damage, and an error among the
findings. A store that lost every file of its log, as when a disk is not mounted, is not opened at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace as replace_claim

from flintlog.checks.finding import ERROR
from flintlog.disk.segments.segment_queue import SegmentQueue
from flintlog.format.checkpoint import Checkpoint
from flintlog.format.names import FAR
from flintlog.store.log.damage import Damage, DamageMap
from flintlog.store.model.recovery_report import Finding
from flintlog.store.queues.covered_queues import CoveredNote, QueueClaim, before_rebuild
from flintlog.store.queues.queue_table import QueueTable
from flintlog.store.recovery.opening import Opening

_NEAR_FILES = 4


@dataclass(frozen=True, slots=True)
class Reached:
    """How far the log is known to have reached, and what knows it."""

    end: int
    known_by: str


def reached_by_queues(ends: Sequence[int], log_end: int, segment_size: int) -> Reached | None:
    """How far a log that ends at `log_end` has reached by the last entries of its queues, which end at `ends`.

    A single entry with a wrong bit points anywhere. So the furthest one counts only if it is near another one, or near
    the log's end.
    """
    found = sorted({log_end, *(end for end in ends if end > log_end)}, reverse=True)
    while len(found) > 1 and found[0] - found[1] > _NEAR_FILES * segment_size:
        del found[0]
    return Reached(found[0], "the queues know") if found[0] > log_end else None


class LogReach:
    """How far the log of one opening is known to have reached: by its stop, its notes and its queues."""

    def __init__(self, opening: Opening) -> None:
        self._open = opening
        self._queues = opening.parts.queues
        self._stop_end = opening.marker.log_end if opening.clean else None
        self.vouched = opening.parts.checkpoint.values.logics_physical_offset
        """The last record whose queue entry is durable, by the checkpoint."""
        self.before = self._queues.covered.before_rebuild
        """What an earlier opening noted before it deleted the queues to build them again."""
        self.queue_ends: list[int] = []
        """Where the last records of queues end: of those that were found, and of those that an opening deleted."""
        self._found_ends: list[int] = []

    # ------------------------------------------------------------------ by notes and queues

    def note_in_force(self) -> CoveredNote | None:
        """Where the queues ended at the checkpoint, if that was noted.

        A checkpoint before the noted record was set back since, because the log was cut. One after it vouches for
        more than is noted: it is another program's, or damaged. The note still holds, and less is believed.
        """
        note = self._queues.covered.note
        return note if note is not None and note.covered <= self.vouched else None

    def noted_claims(self) -> list[QueueClaim]:
        """Where queues ended, by the note. Of the checkpoint's those are left out that may have expired since."""
        if self.before is not None:
            return self.before.queues
        note = self.note_in_force()
        return [] if note is None else [claim for claim in note.queues if claim.log_end > self._open.log_min]

    def add_queue_ends(self) -> None:
        """Believe the ends that were found in the queues' files."""
        self._set_queue_ends([queue.found_log_end for queue in self._queues.all()])

    def drop_queue_ends(self) -> None:
        """Believe no queue of this opening: they are damaged."""
        self._set_queue_ends([])

    def use_ends_of(self, note: CoveredNote) -> None:
        """Judge the log's end by the queues' ends at the checkpoint: after it a crash may have left anything."""
        self._found_ends = [claim.log_end for claim in note.queues]

    def _set_queue_ends(self, ends: list[int]) -> None:
        self._found_ends = ends
        self.queue_ends = ends + self._ends_before()

    def _ends_before(self) -> list[int]:
        """How far into the log the queues went that an earlier opening deleted."""
        return [] if self.before is None else [claim.log_end for claim in self.before.queues]

    def known_before_rebuild(self) -> CoveredNote:
        """What a later opening needs to know that finds neither the queues nor this stop."""
        believed = set(self.queue_ends)
        claims = [
            replace_claim(claim, log_end=claim.log_end if claim.log_end in believed else 0)
            for claim in self._queues.recalled
        ]
        reached = max(self._stop_end or 0, self._noted_log_end())
        vouched = max(self.vouched, (self.before and self.before.vouched) or 0)
        return before_rebuild(claims, reached, FAR if self._open.clean else vouched)

    def _noted_log_end(self) -> int:
        """How far the log reached by the note of the checkpoint, or by that from before a rebuild."""
        note = self.before
        if note is None and not self._open.clean:  # after a clean stop of another program it may be too old
            note = self.note_in_force()
        return 0 if note is None else note.log_end

    # ------------------------------------------------------------------ for reading the log

    def known_end(self) -> int | None:
        """Where our own clean stop left the log."""
        return self._stop_end

    def clean_end(self) -> int | None:
        """How far the log is known to have been whole at a clean stop: by our marker, or by its queues."""
        if not self._open.clean:
            return None
        return max(0, self._queues.max_physical_offset(), self._stop_end or 0)

    def expected_end(self) -> int:
        """Where the log ended at a clean stop; zeros before it are damage, whatever follows them."""
        clean_end = self.clean_end()
        return FAR if clean_end is None or self._queues.max_physical_offset() < 0 else clean_end

    def earlier_cut(self) -> int | None:
        """Where Java's last recovery ended the log: it leaves the bytes after that, intact records among them."""
        confirmed = self._open.parts.checkpoint.values.earlier_cut if self._open.clean else None
        record = None if confirmed is None else self._open.parts.commit_log.record_at(confirmed)
        return None if confirmed is None or record is None else confirmed + len(record)

    def reached(self, end: int) -> Reached | None:
        """How far a log that ends here is known to have reached."""
        if self.earlier_cut() == end:
            return None
        if self._stop_end is not None:
            return Reached(self._stop_end, "the last stop left")
        note = self.note_in_force()
        if not self._open.clean and note is not None:
            by_queues = self._reached_by(self.queue_ends, end)
            noted = max((note.covered + 1, note.log_end, *(claim.log_end for claim in note.queues)))
            if noted <= end:
                return None  # a crash may take any record after those that were noted
            return Reached(max(noted, by_queues.end if by_queues else 0), "the checkpoint knows")
        by_queues = self._reached_by(self._believed_ends(end), end)
        if self._noted_log_end() > end:
            return Reached(max(self._noted_log_end(), by_queues.end if by_queues else 0), "an earlier opening found")
        return by_queues

    def _reached_by(self, ends: Sequence[int], end: int) -> Reached | None:
        return reached_by_queues(ends, end, self._open.parts.segments.segment_size)

    def _believed_ends(self, end: int) -> list[int]:
        """The ends of queues that show how far a log reached which ends here.

        After the checkpoint's record a crash may have left more of the queues than of the log. The queues that an
        earlier opening deleted are judged by the stop that it found: a clean stop since then says nothing of them.
        """
        least, before = max(1, end), self.before
        found = self._found_ends if self._open.clean or self.vouched >= least else []
        return found + (self._ends_before() if before is not None and (before.vouched or 0) >= least else [])

    def find_short_log(self, end: int) -> Sequence[Finding]:
        """Compare the end that was found with what the stop, the queues or the checkpoint know of it."""
        if self._open.log_end is not None or self.earlier_cut() == end:
            return ()
        if (self._stop_end or 0) > end:
            return note_short_log(end, self._stop_end or 0, "the last stop left")
        if self._noted_log_end() > end:
            return note_short_log(end, self._noted_log_end(), "an earlier opening found")
        return note_short_log(end, max(self._believed_ends(end), default=-1), "the queues know")


def had_log(checkpoint: Checkpoint, stopped_at: int | None, queues: QueueTable, *, clean: bool) -> bool:
    """Whether there was a log file: a stop, a sync or, after a clean stop, the queues say so.

    After a crash queues may be there without a log: names that were never synced are lost in any order.
    """
    was_synced = checkpoint.physic_msg_timestamp > 0 or checkpoint.logics_physical_offset > 0
    return bool(stopped_at or was_synced or (clean and queues.file_count))


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
    """The finding of a log that ends before `known_end`, where it once ended; `known_by` says what knows that."""
    if end >= known_end:
        return ()
    lost = known_end - end
    evidence = f"{known_by} the log at {known_end}, and {lost} bytes at its end are not there"
    remedy = "what they held is lost, and their offsets are not given again"
    return [Finding("short-log", ERROR, evidence, remedy, None, None, end, lost)]
