"""Compares the entries in a range of a ledger's data files with the ledger's index.

    data    … [ head i | record ] [ head i+1 | record ] …          head: index, term, position, size
    index   …   i   i+1   …                                         32 bytes each, at index x 32

Entries are kept as runs: consecutive indexes whose terms never fall. A healthy ledger is one run, however many ranges
hold a part of it. The index is compared run by run as bytes, and record by record only where these differ.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from flintlog.checks.derived_files import LedgerView, Read, pieces_of
from flintlog.derive.stretches import Stretch, Stretches
from flintlog.format.ledger import ENTRY_HEAD, ENTRY_HEAD_SIZE, ENTRY_MAGIC, INDEX_RECORD, INDEX_RECORD_SIZE
from flintlog.kernel import ROW_PLACE, Scan

MAX_HEADS = 100
"""At most this many heads with wrong constants are reported."""


@dataclass(slots=True)
class EntryRun:
    """Entries [first, stop) at [position, end) of the log, with terms that do not fall."""

    first: int
    stop: int
    first_term: int
    last_term: int
    position: int
    end: int

    def follows(self, before: EntryRun) -> bool:
        """Whether these are the entries that come next."""
        return self.first == before.stop and self.first_term >= before.last_term


@dataclass(slots=True)
class LedgerTally:
    """The entries of the data files. `absent` have no index record, `wrong` have another one.

    `odd_heads` are the positions of entries whose head has another value in the fields that are always 0.
    """

    runs: list[EntryRun] = field(default_factory=list)
    absent: Stretches = field(default_factory=Stretches)
    wrong: Stretches = field(default_factory=Stretches)
    odd_heads: list[int] = field(default_factory=list)

    def add(self, run: EntryRun) -> None:
        """Append a run that lies after all others in the log."""
        last = self.runs[-1] if self.runs else None
        if last is not None and run.follows(last) and run.position >= last.end:
            last.stop, last.last_term, last.end = run.stop, run.last_term, run.end
        else:
            self.runs.append(run)

    def merge(self, later: LedgerTally) -> None:
        """Add the tally of a later range of the log, without changing it."""
        for run in later.runs:
            self.add(replace(run))
        self.absent.extend(map(replace, later.absent))
        self.wrong.extend(map(replace, later.wrong))
        self.odd_heads += later.odd_heads[: MAX_HEADS - len(self.odd_heads)]


def compare_entries(
    view: memoryview, base: int, scan: Scan, ledger: LedgerView, read: Read, tally: LedgerTally
) -> None:
    """Compare the index with the heads of a scan's records."""
    unpack_head, pack_record = ENTRY_HEAD.unpack_from, INDEX_RECORD.pack  # looked up once: this runs for every entry
    run: EntryRun | None = None
    expected: list[bytes] = []
    stop = last_term = end = -1
    for offset, record_size in ROW_PLACE.iter_unpack(scan.rows):
        position = offset - ENTRY_HEAD_SIZE
        if position < base:
            continue
        magic, size, index, term, its_position, channel, chain_crc, body_crc, _ = unpack_head(view, position - base)
        if magic != ENTRY_MAGIC or its_position != position or size != record_size + ENTRY_HEAD_SIZE:
            continue  # the head is damaged, and reported as a damaged range
        if (channel or chain_crc or body_crc) and len(tally.odd_heads) < MAX_HEADS:
            tally.odd_heads.append(position)
        if index != stop or term < last_term:
            _close(run, stop, last_term, end, expected, ledger, read, tally)
            run, expected = EntryRun(index, index, term, term, position, position), []
        expected.append(pack_record(ENTRY_MAGIC, position, size, index, term))
        stop, last_term, end = index + 1, term, position + size
    _close(run, stop, last_term, end, expected, ledger, read, tally)


def _close(
    run: EntryRun | None,
    stop: int,
    last_term: int,
    end: int,
    expected: list[bytes],
    ledger: LedgerView,
    read: Read,
    tally: LedgerTally,
) -> None:
    """End a run after its last entry, and compare its index records."""
    if run is None:
        return
    run.stop, run.last_term, run.end = stop, last_term, end
    tally.add(run)
    if run.first < 0:
        return  # no index has a place for it
    wanted = memoryview(b"".join(expected))
    start, at = run.first * INDEX_RECORD_SIZE, run.first
    for file, place, actual in pieces_of(ledger.index, read, start, start + len(wanted)):
        begin = (file.base + place) // INDEX_RECORD_SIZE
        _absent(tally, wanted, run.first, at, begin)
        piece = wanted[(begin - run.first) * INDEX_RECORD_SIZE :][: len(actual)]
        if bytes(piece) != bytes(actual):
            _compare_records(file.path, place, actual, piece, begin, tally)
        at = begin + len(actual) // INDEX_RECORD_SIZE
    _absent(tally, wanted, run.first, at, run.stop)


def _absent(tally: LedgerTally, wanted: memoryview, first: int, begin: int, end: int) -> None:
    if begin < end:
        places = [INDEX_RECORD.unpack_from(wanted, (at - first) * INDEX_RECORD_SIZE)[1] for at in (begin, end - 1)]
        tally.absent.add(Stretch(begin, end, *places))


def _compare_records(
    path: str, place: int, actual: memoryview, wanted: memoryview, index: int, tally: LedgerTally
) -> None:
    for at in range(0, len(actual), INDEX_RECORD_SIZE):
        right, found = INDEX_RECORD.unpack_from(wanted, at), INDEX_RECORD.unpack_from(actual, at)
        here = index + at // INDEX_RECORD_SIZE
        if not any(found):
            tally.absent.add(Stretch(here, here + 1, right[1], right[1], "", path, place + at))
        elif found != right:
            evidence = f"(magic, position, size, index, term) is {found} and should be {right}"
            tally.wrong.add(Stretch(here, here + 1, right[1], right[1], evidence, path, place + at))
