"""The log of a ledger group's member, in DLedger's data and index files.

    data/00000000000000000000          data/00000000000000065536
    [ e0 | e1 | e2 | …… | blank ]      [ ek | ek+1 | ………… ^ end_position    zeros ]
    index/00000000000000000000
    [ 0 | 1 | 2 | … | k | k+1 | zeros ]                   32 bytes each

Invariants. Entries have consecutive indexes from `begin` to `end`, terms that never fall, and lie where every other
member has them. After the last entry there are only zeros: truncated entries are cleared, and that is durable, before
anything is written in their place, so an old entry is never taken for one that follows a new one. The index follows
from the data files: it is made durable when a data file is full, and mended on opening.

One thread appends and truncates; any may read and `sync`. A truncation waits for a sync under way: the entries that
this sync began with must not count as durable afterwards.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from flintlog.checks.finding import Finding
from flintlog.disk.media.durable_names import sync_names
from flintlog.disk.media.medium import Medium
from flintlog.disk.segments.segment import Segment
from flintlog.disk.segments.segment_queue import SegmentQueue
from flintlog.errors import DamagedStore, DiskFull, InvalidConfig, InvalidMessage, InvalidOffset, LedgerLeftBehind
from flintlog.format.ledger import (
    ENTRY_END_RESERVE,
    ENTRY_HEAD_SIZE,
    INDEX_RECORD_SIZE,
    NO_INDEX,
    EntryHead,
    IndexRecord,
    LedgerCheckpoint,
    encode_entry_blank,
    encode_entry_head,
    encode_index_record,
    parse_entry_head,
    parse_index_record,
)
from flintlog.store.ledger.ledger_recovery import LedgerRecovery
from flintlog.store.ledger.ledger_state import NOTHING, LedgerState
from flintlog.store.ledger.ledger_tail import BodyCheck
from flintlog.store.log.segment_bytes import held, written_end
from flintlog.store.log.set_aside import keep_aside

INDEX_FILE_BYTES: Final = 5 * 1024 * 1024 * INDEX_RECORD_SIZE
"""What Java's index files have; a member may have others than its peers."""


class LedgerFiles:
    """Data and index files of one member; see the module for what always holds."""

    def __init__(
        self,
        directory: Path,
        medium: Medium,
        *,
        data_file_bytes: int,
        index_file_bytes: int = INDEX_FILE_BYTES,
        data: SegmentQueue | None = None,
        data_directories: Sequence[Path] = (),
        is_intact: BodyCheck | None = None,
        cut_directory: Path | None = None,
    ) -> None:
        """`data` may hold other files before the ledger's own, which are those in the data directories."""
        if index_file_bytes % INDEX_RECORD_SIZE:
            raise InvalidConfig(
                f"index files of {index_file_bytes} bytes hold no whole number of records", path=directory
            )
        self.directory = directory
        self.state = LedgerState(directory, medium)
        self.data = SegmentQueue([directory / "data"], data_file_bytes, medium) if data is None else data
        self.end = self.end_term = self.committed = NO_INDEX
        self.end_position = self.synced_position = 0
        self._directories = frozenset(data_directories or (directory / "data",))
        self.is_read_from = False
        """Whether queues were derived from the entries: then the log cannot begin anew."""
        self._begin = NO_INDEX
        self._first: Segment | None = None
        self._syncing = threading.Lock()
        self._index = SegmentQueue([directory / "index"], index_file_bytes, medium)
        self._is_intact = is_intact
        self._medium = medium
        self._cut_directory = cut_directory or directory / "cut"
        self.torn: Finding | None = None
        """The finding about bytes after the log's end, which the opening has set aside."""

    # ------------------------------------------------------------------ opening

    def load(self) -> None:
        """Find the files and the log's end, and clear the bytes after it. Files of the caller's are loaded before."""
        sync_names([self.directory, self.directory / "index", *self._directories], self._medium)
        if not self.data.segments:
            self.data.load()
        self._index.load()
        self.end_position = self._begin_position()
        self.committed = self.state.load_checkpoint().committed_index
        recovery = LedgerRecovery(
            self.directory,
            self._own_files(),
            self._index,
            begin_position=self.end_position,
            committed=self.committed,
            max_term=self.state.known_term(),
            is_intact=self._is_intact,
        )
        found = recovery.run()
        self._begin, self.end, self.end_term, self.end_position = found.begin, found.end, found.term, found.position
        self._first = self.data.first
        self._keep_torn(keep_aside(self.data, self.end_position, self._cut_directory, self._medium))
        self._clear_after(self.data, self.end_position)
        self.data.take_over()
        self.synced_position = self.end_position
        self._settle_index(recovery.changed_index_records)

    def _keep_torn(self, kept: Sequence[Path]) -> None:
        """The last entries were being written; they were not acknowledged."""
        if kept:
            self.torn = Finding(
                "torn-tail",
                "warning",
                f"the bytes after entry {self.end}, the ledger's last, are no entry that follows it",
                "nothing to do: the leader sends again what is missing",
                physical_offset=self.end_position,
                kept_in=", ".join(map(str, kept)),
            )

    def _own_files(self) -> list[Segment]:
        return [segment for segment in self.data.segments if segment.path.parent in self._directories]

    def _begin_position(self) -> int:
        """Where an empty ledger begins: after the files of a plain log, if there are some."""
        before = [segment for segment in self.data.segments if segment.path.parent not in self._directories]
        return before[-1].end if before else 0

    def _settle_index(self, changed: Sequence[tuple[int, bytes]]) -> None:
        for index, record in changed:
            self._write_index(index, record)
        self._clear_after(self._index, (self.end + 1) * INDEX_RECORD_SIZE)
        self._index.take_over()

    def _write_index(self, index: int, record: bytes) -> None:
        """Put an index record into its place, wherever the index ends."""
        offset = index * INDEX_RECORD_SIZE
        segment = self._index.find(offset)
        if segment is None:
            last = self._index.last
            if last is not None:
                last.set_positions(last.size)
            segment = self._made(self._index.last_or_new(offset), self._index)
        place = offset - segment.base
        if not segment.hold():
            raise DamagedStore("an index file of the ledger is being deleted", path=segment.path)
        try:
            raw = segment.raw(writable=True)
            raw.allocate(place, place + INDEX_RECORD_SIZE)
            raw.buffer[place : place + INDEX_RECORD_SIZE] = record
        finally:
            segment.release()

    def settle(self) -> None:
        """Make everything durable."""
        self.sync()
        self._index.flush_all()

    def close(self) -> None:
        """Make everything durable and close the files."""
        self.settle()
        self.release()
        self.data.shut_down()

    def release(self) -> None:
        """Close the index files; the data files may belong to the caller."""
        self._index.shut_down()

    # ------------------------------------------------------------------ reading

    @property
    def begin(self) -> int:
        """The first entry there is: the oldest files may be deleted by others."""
        first, known = self.data.first, self._first
        if first is not known and self.end != NO_INDEX and (first is None or known is None or first.base > known.base):
            self._first = first
            with held(self._own_files()[0]) as view:
                self._begin = parse_entry_head(view).index
        return self._begin

    def let_go(self, position: int) -> bool:
        """Give up the entries of the files that end here or before, which are about to be deleted.

        Called by the thread that appends, so that no reader is between finding an entry and reading it. False, and
        nothing is given up, when the other files hold no entry.
        """
        left = [segment for segment in self._own_files() if segment.end > position]
        if not left or self.end == NO_INDEX or left[0].base >= self.end_position:
            return False
        with held(left[0]) as view:
            self._begin, self._first = parse_entry_head(view).index, left[0]
        return True

    def place(self, position: int, size: int) -> int:
        """Where an entry of this size lies that follows one which ended at `position`: there, or in the next file."""
        file_bytes = self.data.segment_size
        if size + ENTRY_END_RESERVE > file_bytes:
            raise InvalidMessage(f"an entry of {size} bytes does not fit into a file of {file_bytes}")
        room = file_bytes - position % file_bytes
        return position if size + ENTRY_END_RESERVE <= room else position + room

    def index_record(self, index: int) -> IndexRecord:
        """Where an entry lies."""
        if index == NO_INDEX or not self.begin <= index <= self.end:
            raise InvalidOffset(f"the ledger has the entries {self.begin} to {self.end}, not {index}")
        offset = index * INDEX_RECORD_SIZE
        segment = self._index.find(offset)
        if segment is None:
            raise DamagedStore(f"no index file has the entry {index}", path=self.directory)
        with held(segment) as view:
            return parse_index_record(view, offset - segment.base)

    def term_of(self, index: int) -> int:
        """The term of an entry that is there."""
        return self.end_term if index == self.end else self.index_record(index).term

    def entry(self, index: int) -> tuple[EntryHead, bytes]:
        """An entry that is there."""
        record = self.index_record(index)
        segment = self.data.find(record.position)
        selected = None if segment is None else segment.select(record.position - segment.base, record.size)
        if selected is None:
            raise DamagedStore(
                f"the entry {index} is not in the data files", path=self.directory, offset=record.position
            )
        with selected:
            head = parse_entry_head(selected.view)
            body = bytes(selected.view[ENTRY_HEAD_SIZE:])
        if head.index_record != record:
            raise DamagedStore(
                f"the entry {index} is not where the index has it", path=self.directory, offset=record.position
            )
        return head, body

    def position_after(self, index: int) -> int:
        """Where the entry ends; where the ledger begins for the index before its first."""
        if index == self.end:
            return self.end_position
        if index < self.begin or index == NO_INDEX:
            files = self._own_files()
            return files[0].base if files else self._begin_position()
        record = self.index_record(index)
        return record.position + record.size

    # ------------------------------------------------------------------ appending

    def append(self, entries: Sequence[tuple[EntryHead, bytes]]) -> None:
        """Write entries after the last one; readable at once, durable after `sync`."""
        place = 0
        while place < len(entries):
            place += self._append_run(entries[place:])

    def _append_run(self, entries: Sequence[tuple[EntryHead, bytes]]) -> int:
        """Write the first of these entries and those that follow it in its file, with one copy. Returns how many."""
        first = entries[0][0]
        self._check_follows(*entries[0])
        segment = self._segment_for(first.position)
        index, term, position, limit = first.index, first.term, first.position, segment.end - ENTRY_END_RESERVE
        index_end = self._index_segment(first.index).end // INDEX_RECORD_SIZE
        data: list[bytes] = []
        records: list[bytes] = []
        for head, body in entries:
            is_next = (head.index, head.position, head.body_size) == (index, position, len(body))
            if not is_next or head.term < term or head.end > limit or index == index_end:
                break  # in the next file, or wrong: the next run's first entry is checked
            data += (encode_entry_head(head), body)
            records.append(encode_index_record(head.index_record))
            index, term, position = index + 1, head.term, head.end
        # The index must not fail after the entries were appended.
        self._index_segment(first.index).tail.make_room(len(records) * INDEX_RECORD_SIZE)
        if not segment.append(b"".join(data)):
            raise DamagedStore("the ledger's file is shorter than it was", path=segment.path)
        self._append_index(first.index, records)
        if self._begin == NO_INDEX:
            self._begin, self._first = first.index, self.data.first
        self.end, self.end_term, self.end_position = index - 1, term, position
        return len(records)

    def _check_follows(self, head: EntryHead, body: bytes) -> None:
        is_next = head.index == self.end + 1 or self.end == NO_INDEX
        if not is_next or head.term < self.end_term or head.body_size != len(body):
            raise InvalidOffset(f"{head} does not follow entry {self.end} of term {self.end_term}")
        if head.position != self.place(self.end_position, head.size):
            raise InvalidOffset(
                f"entry {head.index} belongs to position {self.place(self.end_position, head.size)}",
                offset=head.position,
                advice="all members of a group need the same size of data files",
            )

    def _segment_for(self, position: int) -> Segment:
        last = self.data.last
        if last is not None and last.base + last.wrote_position == position and not last.is_full:
            return last
        if last is not None and position >= last.end:
            self._seal(last)
            self._index.flush_all()  # an opening does not look through the files before the last ones
            if self.begin > 0:
                self._index.delete_before(self.begin * INDEX_RECORD_SIZE, now_ms=0)
        segment = self._made(self.data.last_or_new(position), self.data)
        if segment.base + segment.wrote_position != position:
            raise DamagedStore(f"the log ends at {self.data.max_wrote}", path=segment.path, offset=position)
        return segment

    def _seal(self, segment: Segment) -> None:
        room = segment.size - segment.wrote_position
        if room >= ENTRY_END_RESERVE:
            segment.append(encode_entry_blank(room))
        segment.wrote_position = segment.size

    def _index_segment(self, index: int) -> Segment:
        """The file for the next index record, which is that of this entry."""
        offset = index * INDEX_RECORD_SIZE
        segment = self._made(self._index.last_or_new(offset), self._index)
        if segment.wrote_position == 0 and offset > segment.base:
            segment.wrote_position = offset - segment.base  # a ledger that begins in the middle of an index file
        return segment

    def _append_index(self, index: int, records: Sequence[bytes]) -> None:
        offset = index * INDEX_RECORD_SIZE
        segment = self._index_segment(index)
        if segment.base + segment.wrote_position != offset or not segment.append(b"".join(records)):
            raise DamagedStore(f"the index ends at {self._index.max_wrote}", path=segment.path, offset=offset)

    def _made(self, segment: Segment | None, queue: SegmentQueue) -> Segment:
        if segment is None:
            raise queue.create_failure or DiskFull("no new file for the ledger", path=self.directory)
        return segment

    def sync(self) -> int:
        """Make durable what was appended before the call; the last entry that this covers."""
        with self._syncing:
            index, position = self.end, self.end_position
            self.data.flush_all()
            self.synced_position = position
            return index

    # ------------------------------------------------------------------ truncating

    def truncate(self, last_index: int) -> None:
        """Keep everything up to an entry that is there; the rest is cleared, and that is durable when this returns."""
        if last_index == self.end:
            return
        record = self.index_record(last_index)
        with self._syncing:
            self._clear_after(self.data, record.position + record.size)
            self._clear_after(self._index, (last_index + 1) * INDEX_RECORD_SIZE)
            self.end, self.end_term = last_index, record.term
            self.end_position = record.position + record.size
            self.synced_position = min(self.synced_position, self.end_position)

    def restart(self, position: int, first_index: int) -> None:
        """Keep nothing: the next entry has this position, which begins a file, and this index."""
        if position % self.data.segment_size:
            raise InvalidOffset("a ledger begins where a file does", path=self.directory, offset=position)
        # Another first entry at our own beginning: ours was never committed, so nothing was derived from the old ones.
        if self.is_read_from and self.end != NO_INDEX and position != self._begin_position():
            raise LedgerLeftBehind(
                f"the group's log begins at {position}, after the end of what this member has of it",
                path=self.directory,
                offset=self.end_position,
                advice="a member that runs empties itself; otherwise move its directory away: the group fills it again",
            )
        if self.is_read_from:
            self._check_plain_log(position, first_index)
        # The checkpoint first: one that names more than there is would keep the member from being opened.
        self.state.save_checkpoint(NOTHING)
        with self._syncing:
            files = self._own_files()
            if files:
                self.data.drop_from(files[0].base)
            self._index.drop_from(0)
            self._begin = self.end = self.end_term = NO_INDEX
            self.end_position = self.synced_position = position

    def _check_plain_log(self, position: int, first_index: int) -> None:
        """A group's first entry lies after the same plain log on all members, or their queues would differ."""
        own = self._begin_position()
        if position < own or (position > own and (own > 0 or first_index == 0)):
            raise DamagedStore(
                f"the group's log begins at {position}, and this store's own log before it ends at {own}",
                path=self.directory,
                offset=own,
                advice="give each member a copy of the same store before the group begins; keep this store until its "
                "messages are known to be on others",
            )

    def _clear_after(self, queue: SegmentQueue, end: int) -> None:
        """End a queue's files here: later ones are deleted, the last first, and the rest of this one is zeros."""
        queue.truncate(end)
        segment = queue.find(end)
        if segment is not None and written_end(segment, end - segment.base) > end - segment.base:
            segment.clear_unwritten()

    def save_checkpoint(self, committed_index: int) -> None:
        """Save how far the log was committed; it is made durable up to there first."""
        if committed_index > NO_INDEX and self.position_after(committed_index) > self.synced_position:
            self.sync()
        self.state.save_checkpoint(LedgerCheckpoint(self.end, committed_index))
