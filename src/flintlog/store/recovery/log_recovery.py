"""Reading the log to its end after a stop: what is intact, what is damaged, what is torn.

    records … [bad place] … intact record …   → damage: these bytes are lost, all records after them are kept
    records … [bad place] … nothing intact    → torn tail: the log ends here, the bytes are set aside
    the same below the end of a clean stop    → damage, too: the records there were whole when the store stopped
    the same where all sectors have arrived   → damage, too, if the record's head or a queue's entry says where it ends

A place is bad when neither an intact record nor a blank begins there. A record whose body alone is damaged (its CRC is
wrong, its lengths and its offset are right, and the log continues after it) keeps its place in its queue; reading it
is an error that names it. After an unclean stop a record that ends in zeros, with nothing intact after it, is bad too:
an interrupted write leaves the lengths and the body right, and the end missing.

A crash tears a record by sectors: the log is written only where there are zeros, so a sector of zeros has not arrived.
A last record without such a sector was once whole, and has changed since.

Reasons and costs: docs/decisions/0006.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import closing

from flintlog import kernel
from flintlog.checks.range_check import REASONS
from flintlog.derive.file_home import find_home
from flintlog.derive.parallel_scan import Batch, scan_in_order
from flintlog.derive.ranges import cut_batches
from flintlog.derive.wholeness import begins_something, has_arrived, keeps_its_place
from flintlog.disk.segments.segment import Segment
from flintlog.disk.segments.segment_queue import SegmentQueue
from flintlog.format.ledger import blank_at, size_at
from flintlog.format.record import parse_record
from flintlog.kernel import Scan, ScanStop
from flintlog.store.log.damage import Damage, DamageMap
from flintlog.store.log.misnamed import Misnamed
from flintlog.store.log.record_crc import WRONG, RecordCrc
from flintlog.store.log.segment_bytes import find_intact, held, written_end
from flintlog.store.model.recovery_report import Finding
from flintlog.store.recovery.lost_log import Reached, note_short_log
from flintlog.store.runtime.jobs import Progress

log = logging.getLogger(__name__)

SCAN_BYTES = 16 * 1024 * 1024
_HEAD_BYTES = 8
"""The size and the magic of a record."""
_LACKS_ITS_END = "a record lacks its end"
Reason = ScanStop | str
Consume = Callable[[Batch, Scan], None]


class LogRecovery:
    """One reading of the log from a segment's start to the log's end."""

    def __init__(
        self,
        segments: SegmentQueue,
        *,
        damage: DamageMap,
        consume: Consume,
        threads: int,
        delay_levels_ms: Sequence[int],
        expected_end: int,
        queue_ends: Sequence[int] = (),
        cut_at: int | None = None,
        known_end: int | None = None,
        clean_end: int | None = None,
        limit: int | None = None,
        reached: Callable[[int], Reached | None] | None = None,
        record_crc: RecordCrc | None = None,
        progress: Progress | None = None,
    ) -> None:
        """`expected_end`: zeros at or after this offset are the plain end, and are not searched.

        `queue_ends`: where records end that have the last entry of a queue.
        `cut_at`: where an earlier recovery of Java's ended the log. Java leaves the bytes after its cut, intact records
        among them; they must not reappear.
        `known_end`: where a clean stop of ours left the log; nothing was written after it.
        `clean_end`: how far the log is known to have been whole at a clean stop; None after any other.
        `limit`: where the log ends, whatever is written there.
        `reached`: called with the end that was found; how far the log is known to have reached, if that is further.
        """
        self.findings: list[Finding] = []
        self._segments = segments
        self._damage = damage
        self._consume = consume
        self._threads = threads
        self._delay_levels_ms = delay_levels_ms
        self._expected_end = expected_end
        self._queue_ends = queue_ends
        self._cut_at = cut_at
        self._known_end = known_end
        self._clean_end = clean_end
        self._limit = limit
        self._reached = reached
        self._record_crc = record_crc if record_crc is not None and record_crc.is_on else None
        self._progress = progress

    def run(self, start: int) -> int:
        """Read from `start` (where a record begins) and return the end of the log."""
        position = start
        while self._limit is None or position < self._limit:
            segment = self._segments.find(position)
            if segment is None:
                following = self._within(self._first_intact(position))
                if following is None:
                    return self._end_at(position)
                self._note_damage(position, following, "a file of the log is missing, and intact records follow")
            else:
                position, reason = self._read(segment, position)
                if reason is None:
                    continue
                following = self._within(self._next_intact(segment, position, reason))
                if following is None and self._was_whole(segment, position):
                    following = min(segment.end, self._clean_end or 0)
                    self._note_damage(
                        position, following, f"{_describe(reason)}, below where a clean stop left the log"
                    )
                    position = following
                    continue
                if following is None and (dispatched := self._dispatched_end(segment, position)) is not None:
                    self._note_damage(position, dispatched, f"{_describe(reason)}, and a queue has its entry")
                    position = dispatched
                    continue
                if following is None:
                    end = self._end_at(position)
                    if end == position:
                        self._note_tail(segment, position, reason)
                    return end
                if _begins_something(segment, position):
                    return position  # a running writer has written it meanwhile; this opening only reads
                self._note_damage(position, following, f"{_describe(reason)}, and intact records follow")
            position = following
        return self._limit

    def _end_at(self, position: int) -> int:
        """The end of a log in which nothing follows: further on, if it is known to have reached further.

        Its records there are lost. Their offsets are not reused: queue entries that point there lead to a damaged
        place, not to other messages.
        """
        reached = None if self._reached is None else self._reached(position)
        if reached is None or reached.end <= position:
            return position
        self._damage.add(Damage(position, reached.end, "the log has lost its end"))
        self.findings += note_short_log(position, reached.end, reached.known_by)
        return reached.end

    def _within(self, following: int | None) -> int | None:
        """Up to the limit everything is kept, damaged or not."""
        return following if self._limit is None else min(self._limit, following or self._limit)

    # ------------------------------------------------------------------ reading

    def _read(self, segment: Segment, position: int) -> tuple[int, Reason | None]:
        """Read records up to the segment's end (no reason) or to a place where none begins (and why)."""
        with held(segment) as view:
            start = position - segment.base
            end = segment.size if self._limit is None else min(segment.size, self._limit - segment.base)
            batches = (
                Batch(view, begin, stop, segment.base)
                for begin, stop in cut_batches(view, start, end, segment.base, SCAN_BYTES)
            )
            scans = scan_in_order(batches, threads=self._threads, check_crc=True, delay_levels_ms=self._delay_levels_ms)
            with closing(scans):
                for batch, scan in scans:
                    half = self._half_written(segment, view, scan)
                    whole = scan if half is None else self._scan(batch, batch.start, half)
                    if self._record_crc is None:
                        self._consume(batch, whole)
                    else:
                        self._consume_whole(segment, batch, whole, self._record_crc)
                    if half is not None:
                        return segment.base + half, _LACKS_ITS_END
                    start = scan.end
                    if scan.reason is not ScanStop.LIMIT:
                        return self._stopped(segment, view, batch, scan)
                    self._report(segment.base + start)
            return segment.base + start, None

    def _half_written(self, segment: Segment, view: memoryview, scan: Scan) -> int | None:
        """Where the last records of the log begin that lack their end after a crash; None when none does."""
        if self._clean_end is not None or self._limit is not None:
            return None
        start = scan.end
        for number in reversed(range(scan.count)):
            size = scan.row(number).size
            if not parse_record(view, start - size, start).lacks_its_end:
                break
            start -= size
        return start if start < scan.end and self._is_last(segment, view, scan.end) else None

    def _is_last(self, segment: Segment, view: memoryview, place: int) -> bool:
        """Whether the log ends at a place: neither a blank nor any intact record follows it."""
        if blank_at(view[: segment.size], place) is not None or find_intact(segment, place) >= 0:
            return False
        return self._first_intact(segment.end) is None

    def _stopped(self, segment: Segment, view: memoryview, batch: Batch, scan: Scan) -> tuple[int, ScanStop | None]:
        if scan.reason is ScanStop.BLANK:
            return segment.base + segment.size, None
        if scan.reason is ScanStop.SHORT and batch.stop < segment.size:
            # A body holds bytes that look like a record at their own place: the batch was cut inside it.
            return self._read_one(segment, view, scan.end)
        if scan.reason is ScanStop.BAD_CRC and self._continues_after(segment, view, scan.end):
            return self._read_damaged_body(segment, view, scan.end)
        return segment.base + scan.end, scan.reason

    def _read_one(self, segment: Segment, view: memoryview, place: int) -> tuple[int, ScanStop | None]:
        size = record_size(view, place, segment.size, segment.base)
        if not size:
            return segment.base + place, ScanStop.BAD_LENGTH
        seen = kernel.scan(view, place, place + size, segment.base, delay_levels_ms=self._delay_levels_ms)
        self._consume(Batch(view, place, place + size, segment.base), seen)
        return segment.base + place + size, None

    def _continues_after(self, segment: Segment, view: memoryview, place: int) -> bool:
        """Whether a record with a wrong CRC and right lengths is followed by a record, a blank or a clean end."""
        if segment.base + place == self._cut_at:
            return False
        whole, following = view[: segment.size], place + size_at(view, place)
        if self._clean_end is None or begins_something(whole, segment.base, following):
            return keeps_its_place(whole, segment.base, place)
        if any(view[following : following + _HEAD_BYTES]):
            return False
        return self._known_end is None or segment.base + following <= self._known_end

    def _read_damaged_body(self, segment: Segment, view: memoryview, place: int) -> tuple[int, None]:
        size = size_at(view, place)
        seen = kernel.scan(view, place, place + size, segment.base, delay_levels_ms=self._delay_levels_ms)
        self._consume(Batch(view, place, place + size, segment.base), seen)
        offset, evidence = segment.base + place, "the body does not match its CRC"
        self._damage.add(Damage(offset, offset + size, evidence, readable=True))
        self._note_damaged_record(segment, offset, size, evidence)
        return offset + size, None

    def _consume_whole(self, segment: Segment, batch: Batch, scan: Scan, record_crc: RecordCrc) -> None:
        """As `_consume`, without the records that do not match the CRC over the whole record.

        Such a record's topic, queue or offset may be wrong: it could take the place of another one in a queue. Its own
        place stays empty, because the records that follow it have offsets of their own.
        """
        start = batch.start
        for number in range(scan.count):
            row = scan.row(number)
            place = row.physical_offset - segment.base
            fault = record_crc.fault_in(batch.view[place : place + row.size])
            if fault == WRONG:
                self._consume_between(batch, start, place)
                self._damage.add(Damage(row.physical_offset, row.physical_offset + row.size, fault))
                start = place + row.size
            elif fault is not None:
                self._damage.add(Damage(row.physical_offset, row.physical_offset + row.size, fault, readable=True))
            if fault is not None:
                self._note_damaged_record(segment, row.physical_offset, row.size, fault)
        if start == batch.start:
            self._consume(batch, scan)
        else:
            self._consume_between(batch, start, scan.end)

    def _consume_between(self, batch: Batch, start: int, stop: int) -> None:
        if start < stop:
            self._consume(Batch(batch.view, start, stop, batch.base), self._scan(batch, start, stop))

    def _scan(self, batch: Batch, start: int, stop: int) -> Scan:
        """Records of a batch that were seen to be intact."""
        return kernel.scan(batch.view, start, stop, batch.base, delay_levels_ms=self._delay_levels_ms)

    def _note_damaged_record(self, segment: Segment, offset: int, size: int, evidence: str) -> None:
        self.findings.append(
            Finding(
                "damaged-record",
                "error",
                f"{evidence}; its lengths are right",
                "the message is lost, everything else is kept",
                str(segment.path),
                offset - segment.base,
                offset,
                size,
            )
        )

    # ------------------------------------------------------------------ bad places

    def _was_whole(self, segment: Segment, position: int) -> bool:
        """Whether there was a record before a clean stop, of which something is left."""
        if self._clean_end is None or position >= self._clean_end or position == self._cut_at:
            return False
        return written_end(segment, position - segment.base) > position - segment.base

    def _dispatched_end(self, segment: Segment, position: int) -> int | None:
        """Where the last record ends that a queue has an entry for, if all bytes up to there have arrived.

        A put writes the first bytes of a record last. If they are zeros, the disk got the page while a put filled it:
        no sync has returned since, though the queue's entry, which came later, may have arrived.
        """
        if self._clean_end is not None:
            return None
        with held(segment) as view:
            place = position - segment.base
            if not any(view[place : place + _HEAD_BYTES]):
                return None
            ends = (
                end
                for end in self._queue_ends
                if position < end <= segment.end and has_arrived(view, place, end - segment.base)
            )
            return max(ends, default=None)

    def _next_intact(self, segment: Segment, position: int, reason: Reason) -> int | None:
        if reason == _LACKS_ITS_END:
            return None  # `_half_written` has seen that nothing follows
        place = position - segment.base
        with held(segment) as view:
            if reason is ScanStop.NO_RECORD and position >= self._expected_end and not any(view[place : place + 8]):
                return None
            if position == self._cut_at:
                return None
        found = find_intact(segment, place + 1)
        if found >= 0:
            return segment.base + found
        return self._first_intact(segment.base + segment.size)

    def _first_intact(self, position: int) -> int | None:
        """The first intact record in the segments from an offset on."""
        for segment in self._segments.segments:
            if segment.base >= position:
                found = find_intact(segment, 0)
                if found >= 0:
                    return segment.base + found
        return None

    def _note_damage(self, start: int, end: int, evidence: str) -> None:
        segment = self._segments.find(start)
        self._damage.add(Damage(start, end, evidence))
        self.findings.append(
            Finding(
                "damaged-range",
                "error",
                f"{evidence}; {end - start} bytes",
                "what these bytes held is lost, everything else is kept",
                None if segment is None else str(segment.path),
                None if segment is None else start - segment.base,
                start,
                end - start,
            )
        )
        if segment is not None and start == segment.base:
            self._note_name(segment)

    def _note_name(self, segment: Segment) -> None:
        """A whole file of records may be bad for its name alone, as when two have been mistaken for each other."""
        with held(segment) as view:
            home = find_home(view, segment.raw().data_end(0), segment.base)
        if home is not None and home.base != segment.base:
            is_waiting = self._segments.find(home.base) is not None
            self.findings.append(Misnamed(segment.path, home.base, segment.size, is_waiting=is_waiting).finding())

    def _note_tail(self, segment: Segment, position: int, reason: Reason) -> None:
        if position == self._known_end:
            return
        place = position - segment.base
        torn = written_end(segment, place) - place
        if torn > 0 and not _begins_something(segment, position):
            self.findings.append(
                Finding(
                    "torn-tail",
                    "warning",
                    f"{_describe(reason)}, and no intact record follows; {torn} bytes",
                    "the log ends before them",
                    str(segment.path),
                    place,
                    position,
                    torn,
                )
            )

    def _report(self, position: int) -> None:
        if self._progress is not None:
            self._progress(position, self._segments.max_offset)


def record_size(view: memoryview, place: int, stop: int, base: int) -> int:
    """The size of the intact record at a place; 0 when there is none."""
    if not 0 <= place <= stop:
        return 0
    seen = kernel.scan(view, place, stop, base, check_crc=True, max_count=1)
    return seen.end - place if seen.count else 0


def _begins_something(segment: Segment, position: int) -> bool:
    """Whether an intact record or a blank begins here now."""
    place = position - segment.base
    with held(segment) as view:
        return begins_something(view, segment.base, place)


def _describe(reason: Reason) -> str:
    return reason if isinstance(reason, str) else REASONS.get(reason, reason.name)
