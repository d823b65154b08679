"""Reads records of some topics, or with some keys, by queues and index, instead of walking the whole log.

    log      |··A··|··B··|··A··|··C··|··B··|··D··|      topic A is wanted; D is not dispatched yet
    queues     A      B     A     C     B               A's records are read where its entries say
                                              scanned   what no entry names is walked, record by record

The log decides which records there are, and a queue is only evidence. A split is read so only if the evidence is whole:

- No byte of the split belongs to the records of two entries. If one does, an entry is wrong, and the split is scanned.
- What no entry names is walked in the log: records that are not dispatched yet, prepared or rolled back ones, markers
  of batches, those of a deleted queue or of a lost entry.
- Every record that is returned is what its entry says: topic, queue id, queue offset, size. So are, of each other
  queue, the first and the last record in the split, because a queue may stand in the place of another; and all records
  beside a stretch that no entry names, because an entry that points into it would hide a part of it. If one is not,
  the split is scanned, from there on or all of it.
- With keys, records are left out that the index names only by other hashes (`index_entries.py`). If it names something
  that is no record, it is not used.

What remains is taken on trust: that no entry was damaged in such a way that it names exactly the records of a stretch
that no other entry names. Ledgers, and stores that are reached by a URI, are always scanned.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final, NamedTuple

import pyarrow as pa

from flintlog import kernel
from flintlog.derive.columns import to_record_batch
from flintlog.derive.splits import Window
from flintlog.disk.media.source import ByteSource, MappedSource
from flintlog.format.names import COMMIT_LOG
from flintlog.kernel import ScanStop
from flintlog.pipeline.reading.decoding import Decoding
from flintlog.pipeline.reading.filters import Wanted
from flintlog.pipeline.reading.index_entries import KeySearch
from flintlog.pipeline.reading.logs import open_source
from flintlog.pipeline.reading.partitions import load_window
from flintlog.pipeline.reading.queue_entries import Entries, Named, Queue, entries_between, find_queues

QUEUE_COST_BYTES: Final = 64 * 1024
"""Looking into a queue takes as long as scanning about so much of a log."""
MOST_OF_A_SPLIT: Final = 0.5
"""If more of a split's bytes would be read one by one, it is scanned."""

PART_BYTES: Final = 128 * 1024 * 1024
"""Evidence is gathered for so much of the log at a time: it takes a bit for each byte."""
MAX_HASHES: Final = 10_000
"""Keys of more topics are not looked up in the index."""

_CHECKED: Final = frozenset({"topic", "queue_id", "queue_offset", "size"})


def read_narrowed(decoding: Decoding) -> Iterator[pa.RecordBatch]:
    """The wanted records of a split, through its queues where these can be trusted."""
    store = _find_store(decoding)
    if store is None:
        yield from decoding.scan()
        return
    for part in decoding.parts(PART_BYTES):
        yield from _read_part(part, store)


def _read_part(decoding: Decoding, store: _Store) -> Iterator[pa.RecordBatch]:
    evidence = _gather(decoding, store)
    if evidence is None:
        yield from decoding.scan()
        return
    decoding.fields |= _CHECKED | decoding.rest.fields()
    for piece in evidence.read(decoding):
        if isinstance(piece, int):
            yield from decoding.scan(piece)
            return
        yield piece


class _Store(NamedTuple):
    """Where a store is on this machine, and its queues."""

    source: ByteSource
    root: PurePath
    queues: Sequence[Queue]


def _find_store(decoding: Decoding) -> _Store | None:
    """The store of a split; None if nothing narrows what is wanted, the store is not here, or scanning costs less."""
    planned, wanted = decoding.planned, decoding.wanted
    if not (wanted.chooses_topics or wanted.all_keys is not None):
        return None
    source, path = open_source(planned.uri)
    # The files of a ledger have a folder in their names.
    if not isinstance(source, MappedSource) or "/" in planned.split.file.name or path.name != COMMIT_LOG:
        return None
    queues = find_queues(source, path.parent)
    is_cheap = queues and len(queues) * QUEUE_COST_BYTES <= min(planned.split.size, PART_BYTES)
    return _Store(source, path.parent, queues) if is_cheap else None


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the queues say about a split: the wanted records, and stretches of which they say nothing."""

    window: Window
    named: Sequence[Named]
    unclaimed: Sequence[tuple[int, int]]

    def read(self, decoding: Decoding) -> Iterator[pa.RecordBatch | int]:
        """The wanted records in the order of the log, and the place from which on the log must be scanned, if any."""
        split, done = decoding.planned.split, 0
        for begin, end in [*self.unclaimed, (split.stop, split.stop)]:
            upto = bisect_left(self.named, begin, key=_offset)
            yield from self._read_named(decoding, self.named[done:upto])
            done = bisect_left(self.named, end, key=_offset)
            if begin == split.start != split.file.base:
                yield from decoding.scan(begin, end)  # a record may begin before the split
            else:
                yield from decoding.walk(self.window, begin, end)

    def _read_named(self, decoding: Decoding, named: Sequence[Named]) -> Iterator[pa.RecordBatch | int]:
        done = 0
        for piece in decoding.decode_at(self.window, [each.physical_offset for each in named]):
            if isinstance(piece, int):
                yield piece
                return
            right = _count_right(piece, named[done : done + piece.num_rows])
            done += right
            records = piece.slice(0, right)
            mask = decoding.rest.mask(records)
            yield records if mask is None else records.filter(mask)
            if right < piece.num_rows:
                yield named[done].physical_offset
                return


def _gather(decoding: Decoding, store: _Store) -> Evidence | None:
    """The evidence about a split; None if it is not whole, or scanning costs less."""
    planned, wanted, (source, root, queues) = decoding.planned, decoding.wanted, store
    start, stop = planned.split.start, planned.split.stop
    pieces = [piece for queue in queues for piece in entries_between(source, queue, start, stop)]
    marks = bytearray((stop - start + 7) // 8)
    claimed = sum(kernel.claim(marks, start, stop, piece.view, piece.queue.stride) for piece in pieces)
    unclaimed = kernel.unclaimed(marks, start, stop)
    left = sum(end - begin for begin, end in unclaimed)
    if claimed + left != stop - start:
        return None
    search = _search_keys(source, root, wanted, pieces, start, stop)
    if search is None and not wanted.chooses_topics:
        return None
    others = None if search is None else search.others
    named = sorted(each for piece in pieces for each in _wanted_of(piece, wanted, start, stop, others))
    if search is not None and not _are_claimed(search.hits, named, unclaimed):
        return None
    edges = marks if unclaimed else None
    samples = sorted({each for piece in pieces for each in piece.samples(start, stop, edges)})
    if left + sum(each.size for each in (*named, *samples)) > MOST_OF_A_SPLIT * planned.split.size:
        return None
    window = load_window(planned)
    return Evidence(window, named, unclaimed) if _are_right(window, samples) else None


def _search_keys(
    source: ByteSource, root: PurePath, wanted: Wanted, pieces: Sequence[Entries], start: int, stop: int
) -> KeySearch | None:
    """The index's answer; None if no key is wanted, or the index cannot be trusted."""
    topics = {piece.queue.topic for piece in pieces if wanted.has_topic(piece.queue.topic)}
    if wanted.all_keys is None or len(topics) * len(wanted.all_keys) > MAX_HASHES:
        return None
    hashes = frozenset(kernel.index_hash(f"{topic}#{key}") for topic in topics for key in wanted.all_keys)
    search = KeySearch(hashes, start, stop)
    return search if search.search(source, root) else None


def _are_claimed(hits: Collection[int], named: Sequence[Named], unclaimed: Sequence[tuple[int, int]]) -> bool:
    """Whether every hit of the index is a record that a queue names, or lies where no queue names any."""
    known = {each.physical_offset for each in named}
    return all(hit in known or any(begin <= hit < end for begin, end in unclaimed) for hit in hits)


def _wanted_of(entries: Entries, wanted: Wanted, start: int, stop: int, others: bytearray | None) -> list[Named]:
    if not wanted.has_topic(entries.queue.topic):
        return []
    if others is not None:  # few are left, and every hit of the index must be among them
        return entries.named(start, stop, others)
    if entries.queue.queue_id not in wanted.range_of("queue_id"):
        return []
    offsets = wanted.range_of("queue_offset")
    return entries.of_offsets(offsets.first, offsets.last).named(start, stop)


def _are_right(window: Window, samples: Sequence[Named]) -> bool:
    """Whether records are what the entries say."""
    done = 0
    while done < len(samples):
        places = [each.physical_offset - window.base for each in samples[done:]]
        decoded = kernel.decode_at(window.view, array("q", places), window.base, columns=_CHECKED)
        if decoded.reason is not ScanStop.LIMIT:
            return False
        after = done + decoded.count
        if _count_right(to_record_batch(decoded), samples[done:after]) < decoded.count:
            return False
        done = after
    return True


def _count_right(records: pa.RecordBatch, named: Sequence[Named]) -> int:
    """How many records, from the first on, are what the entries say."""
    columns = (records.column(name).to_pylist() for name in ("size", "queue_offset", "queue_id", "topic"))
    for place, (found, each) in enumerate(zip(zip(*columns, strict=True), named, strict=True)):
        if found != (each.size, each.queue_offset, each.queue_id, each.topic):
            return place
    return len(named)


def _offset(named: Named) -> int:
    return named.physical_offset
