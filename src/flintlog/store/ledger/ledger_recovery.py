"""Finding the end of a ledger after a stop: how far the chain of entries in the data files reaches.

    data    [e0 e1 … blank] [ek … blank] [em en en+1 ·····]
                             ^ reading begins here          ^ the first place where no entry follows: the end
    index   … k … m n n+1 ·····                             records that differ are written again

An entry follows if it knows its own place, has the next index, and a term that is not below the one before. Reading
begins among the last `LOOK_BACK_FILES`, at a file whose first entry the index knows, and further back where it does
not. An entry that was not committed must also have an intact body: after a loss of power its head may be there without
its body. Such an entry was not acknowledged, so the log ends before it.

Nothing is written before `run` has returned: a ledger that ends before what it had committed, or before an entry that
was written whole and is damaged since (`flintlog.store.ledger.ledger_tail`), is not opened.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from flintlog.disk.segments.segment import Segment
from flintlog.disk.segments.segment_queue import SegmentQueue
from flintlog.errors import DamagedStore, FormatError
from flintlog.format.ledger import (
    ENTRY_BLANK,
    ENTRY_BLANK_MAGIC,
    ENTRY_END_RESERVE,
    ENTRY_HEAD,
    ENTRY_HEAD_SIZE,
    ENTRY_MAGIC,
    INDEX_RECORD_SIZE,
    NO_INDEX,
    EntryHead,
    IndexRecord,
    encode_index_record,
    parse_entry_head,
)
from flintlog.store.ledger.ledger_state import REFILL_ADVICE
from flintlog.store.ledger.ledger_tail import BodyCheck, continues_at, find_entry_after, was_written
from flintlog.store.log.segment_bytes import held

LOOK_BACK_FILES: Final = 3


@dataclass(frozen=True, slots=True)
class LedgerEnd:
    """What a ledger holds: nothing, if `end` is NO_INDEX. `position` is the place after the last entry."""

    begin: int
    end: int
    term: int
    position: int


class LedgerRecovery:
    """One reading of a ledger's tail, before anything is written to it."""

    def __init__(
        self,
        directory: Path,
        files: Sequence[Segment],
        index: SegmentQueue,
        *,
        begin_position: int,
        committed: int,
        max_term: int,
        is_intact: BodyCheck | None = None,
    ) -> None:
        """`begin_position` is where an empty ledger would begin; `max_term` is the term that the member knows."""
        self._directory = directory
        self._files = files
        self._index = index
        self._begin_position = begin_position
        self._committed = committed
        self._max_term = max_term
        self._is_intact = is_intact
        self.changed_index_records: list[tuple[int, bytes]] = []
        self._bad_position = begin_position

    def run(self) -> LedgerEnd:
        end = self._find_end()
        self._check_committed(end)
        self._check_tail(end)
        return end

    def _find_end(self) -> LedgerEnd:
        first = self._first_head(self._files[0]) if self._files else None
        if first is None:
            self._bad_position = self._files[0].base if self._files else self._begin_position
            return LedgerEnd(NO_INDEX, NO_INDEX, NO_INDEX, self._begin_position)
        start = self._start_file()
        before = self._first_head(self._files[start])
        if before is None:
            raise DamagedStore("no entry begins this file", path=self._files[start].path)
        end = LedgerEnd(first.index, before.index - 1, 0, self._files[start].base)
        for segment in self._files[start:]:
            if segment.base < end.position or segment.base - end.position > segment.size:
                break
            end, is_sealed = self._walk(segment, end)
            self._bad_position = segment.end if is_sealed else max(segment.base, end.position)
            if not is_sealed:
                break
        return end

    def _start_file(self) -> int:
        number = max(0, len(self._files) - LOOK_BACK_FILES)
        while number > 0:
            head = self._first_head(self._files[number])
            if head is not None and self._index_knows(head.index_record):
                break
            number -= 1
        return number

    def _first_head(self, segment: Segment) -> EntryHead | None:
        with held(segment) as view:
            try:
                head = parse_entry_head(view)
            except FormatError:
                return None
        return head if head.position == segment.base else None

    def _index_knows(self, record: IndexRecord) -> bool:
        return self._index_bytes(record.index) == encode_index_record(record)

    def _index_bytes(self, index: int) -> bytes:
        offset = index * INDEX_RECORD_SIZE
        segment = self._index.find(offset)
        if segment is None:
            return b""
        with held(segment) as view:
            return bytes(view[offset - segment.base : offset - segment.base + INDEX_RECORD_SIZE])

    def _walk(self, segment: Segment, end: LedgerEnd) -> tuple[LedgerEnd, bool]:
        """Follow the chain through one file; True when the file ends with a blank."""
        index, term, last = end.end + 1, end.term, end.position
        with held(segment) as view:
            place, limit, base = 0, segment.size, segment.base
            while place + ENTRY_HEAD_SIZE <= limit:
                magic, size, its_index, its_term, position, _, _, _, body_size = ENTRY_HEAD.unpack_from(view, place)
                if magic == ENTRY_BLANK_MAGIC:
                    break
                if (magic, position, its_index) != (ENTRY_MAGIC, base + place, index):
                    break
                if its_term < term:
                    break
                if its_term > self._max_term:
                    raise self._too_late(index, its_term, position)
                if body_size < 0 or size != ENTRY_HEAD_SIZE + body_size or place + size > limit - ENTRY_END_RESERVE:
                    break
                if index > self._committed and not self._is_whole(
                    view[place + ENTRY_HEAD_SIZE : place + size], position
                ):
                    break
                record = encode_index_record(IndexRecord(position, size, index, its_term))
                if self._index_bytes(index) != record:
                    self.changed_index_records.append((index, record))
                index, term, place, last = index + 1, its_term, place + size, base + place + size
            is_sealed = _is_blank(view, place, limit)
        return LedgerEnd(end.begin, index - 1, term, last), is_sealed

    def _too_late(self, index: int, term: int, position: int) -> DamagedStore:
        return DamagedStore(
            f"entry {index} of the ledger is of term {term}, and the member knows of no term above {self._max_term}",
            path=self._directory,
            offset=position,
            advice=REFILL_ADVICE,
        )

    def _is_whole(self, body: memoryview, position: int) -> bool:
        return self._is_intact is None or self._is_intact(body, position)

    def _check_committed(self, end: LedgerEnd) -> None:
        if end.end < self._committed:
            raise DamagedStore(
                f"the ledger ends with entry {end.end}, and entry {self._committed} was committed",
                path=self._files[-1].path if self._files else self._directory,
                offset=end.position,
                advice=REFILL_ADVICE,
            )

    def _check_tail(self, end: LedgerEnd) -> None:
        """After the end may lie what a loss of power tore, and nothing that was written whole and is damaged now.

        A read-only opening may run beside a writer. An entry that was bad when the chain was followed, and is whole
        once a later one was found, was being written meanwhile: the log ended there when reading began.
        """
        bad, index = self._bad_position, end.end + 1
        later = find_entry_after(self._files, bad, end.term, self._is_intact)
        if later is None or not was_written(self._files, bad, index, later.position):
            return
        if continues_at(self._files, bad, index, self._is_intact):
            return
        raise DamagedStore(
            f"entry {index} of the ledger is damaged, and entry {later.index} after it is whole",
            path=self._directory,
            offset=bad,
            advice=REFILL_ADVICE,
        )


def _is_blank(view: memoryview, place: int, limit: int) -> bool:
    if place + ENTRY_END_RESERVE > limit:
        return False
    magic, remaining = ENTRY_BLANK.unpack_from(view, place)
    return bool(magic == ENTRY_BLANK_MAGIC and remaining == limit - place)
