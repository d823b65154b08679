"""One index file of a rebuild: one task owns it, several threads of that task fill it.

    keys, some at a time ─▶ each thread chains all of them, in its share of the slots       kernel.index_link
                         ─▶ each thread writes the entries of a piece, with all the links   kernel.index_entries
                         ─▶ they are synced while the next ones are chained
    at the end           ─▶ slots, header, sync; then the file gets its name

The bytes are the same as when keys are added one after another: a chain stays within a slot, and an entry's place
follows from its number. Slots stay in memory until the end, because keys reach them in no order. Everything is written
through the file, because new pages of a map would cost more than all the rest. The task works under a name of its own,
so concurrent attempts do no harm.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from flintlog import kernel
from flintlog.derive.index_plan import KeyRange, starting_header
from flintlog.disk.media.libc import MemoryMap
from flintlog.disk.media.local import LocalMedium
from flintlog.disk.media.medium import Medium, RawFile
from flintlog.format.index_file import HEADER_SIZE, SLOT_SIZE, IndexHeader, IndexLayout, encode_index_header
from flintlog.format.names import INDEX
from flintlog.kernel import KEY
from flintlog.pipeline.building.rebuild_scan import BuildPlan
from flintlog.pipeline.building.staging import give_name
from flintlog.pipeline.spark.tasks import attempt_name

PIECE_KEYS: Final = 1 << 17
PIECES_AT_ONCE: Final = 8
"""Threads wait for each other twice for every group of so many pieces; their links take 4 MiB."""

MOST_THREADS: Final = 8
"""Each thread reads all keys: with more threads that would take longer than the shared work."""

_HUGE_PAGES = getattr(mmap, "MADV_HUGEPAGE", None)  # Linux


@dataclass(frozen=True, slots=True)
class IndexTask:
    """Build one index file."""

    plan: BuildPlan
    name: str
    ranges: tuple[KeyRange, ...]
    previous: tuple[int, int] | None
    """Store time and physical offset of the last key before."""

    thread_count: int = 1


class Piece(NamedTuple):
    """Keys that follow each other, the number of the first, and the time against which they are timed."""

    keys: memoryview
    first: int
    begin_time: int


def thread_count(core_count: int, file_count: int) -> int:
    """How many threads fill each of so many files, so that together they leave no core idle.

    >>> thread_count(8, 3), thread_count(1, 1), thread_count(2, 5), thread_count(64, 1)
    (2, 1, 1, 8)
    """
    return max(1, min(MOST_THREADS, core_count // max(1, file_count)))


def build_index_file(task: IndexTask) -> int:
    """The task; returns how many keys the file holds."""
    layout = task.plan.index
    assert layout is not None
    medium = LocalMedium()
    working = Path(task.plan.spill) / attempt_name()
    medium.make_directories(working.parent)
    raw = medium.create(working, layout.file_size)
    header = IndexHeader() if task.previous is None else starting_header(*task.previous)
    fill_index_file(raw, layout, header, _spilled(task, medium), task.thread_count)
    raw.close()
    staged = Path(task.plan.staged)
    give_name(medium, working, staged / INDEX / task.name, staged)
    return sum(keys.stop - keys.start for keys in task.ranges)


def _spilled(task: IndexTask, medium: Medium) -> Iterator[memoryview]:
    for keys in task.ranges:
        yield medium.open(task.plan.keys_path(keys.split)).buffer[keys.start * KEY.size : keys.stop * KEY.size]


def _cut(parts: Iterator[memoryview], begin_time: int) -> Iterator[Piece]:
    """The first key is timed against the end of the file before, all others against the first."""
    number, wanted = 1, 1
    for part in parts:
        place = 0
        while place < part.nbytes:
            piece = part[place : place + wanted * KEY.size]
            yield Piece(piece, number, begin_time)
            if number == 1:
                (_, begin_time, _), wanted = KEY.unpack_from(piece), PIECE_KEYS
            number += piece.nbytes // KEY.size
            place += piece.nbytes


def fill_index_file(
    raw: RawFile, layout: IndexLayout, header: IndexHeader, keys: Iterator[memoryview], threads: int
) -> int:
    """Write all keys of a new file, and make it durable; returns how many there are.

    `header` is the one that it begins with. Of the keys, only some at a time are held.
    """
    raw.write_at(0, memoryview(encode_index_header(header)))  # by one thread: the others need the file open
    slots = MemoryMap(layout.slot_count * SLOT_SIZE, None, writable=True)
    if _HUGE_PAGES is not None:
        slots.advise(_HUGE_PAGES, 0, slots.size)
    used_slot_count = 0
    threads = min(threads, os.cpu_count() or 1)
    pieces = _cut(keys, header.begin_timestamp)
    first = last = None
    with ThreadPoolExecutor(threads, "fill-index") as pool, ThreadPoolExecutor(1, "sync-index") as beside:
        run = map if threads == 1 else pool.map  # a single thread does the work itself
        syncs = []
        while group := list(islice(pieces, PIECES_AT_ONCE)):
            filling = _Filling(raw, layout, slots.buffer, group, threads)
            used_slot_count += sum(run(filling.link, range(threads)))
            list(run(filling.write, range(len(filling.pieces))))
            syncs.append(beside.submit(raw.sync, *filling.place()))
            first, last = first or group[0], group[-1]
        raw.write_at(HEADER_SIZE, slots.buffer)
        if first is not None and last is not None:
            raw.write_at(0, memoryview(encode_index_header(_header_of(first, last, used_slot_count))))
        for synced in syncs:
            synced.result()
    raw.sync()
    return 0 if last is None else last.first - 1 + last.keys.nbytes // KEY.size


class _Filling:
    """Some pieces on their way into the file: first one thread links each share, then any thread writes a piece."""

    def __init__(
        self, raw: RawFile, layout: IndexLayout, slots: memoryview, pieces: Sequence[Piece], share_count: int
    ) -> None:
        self.pieces = pieces
        self._raw = raw
        self._layout = layout
        self._slots = slots
        self._links: list[list[memoryview]] = [[] for _ in range(share_count)]

    def link(self, share: int) -> int:
        """How many slots of the share were empty before."""
        empty = 0
        for piece in self.pieces:
            links, found = kernel.index_link(self._slots, piece.keys, piece.first, share, len(self._links))
            self._links[share].append(links)
            empty += found
        return empty

    def place(self) -> tuple[int, int]:
        """Where the entries begin and end in the file."""
        last = self.pieces[-1]
        stop = last.first + last.keys.nbytes // KEY.size
        return self._layout.entry_position(self.pieces[0].first), self._layout.entry_position(stop)

    def write(self, number: int) -> None:
        piece = self.pieces[number]
        links = [share[number] for share in self._links]
        entries = kernel.index_entries(piece.keys, links, self._layout.slot_count, piece.begin_time)
        self._raw.write_at(self._layout.entry_position(piece.first), entries)


def _header_of(first: Piece, last: Piece, used_slot_count: int) -> IndexHeader:
    begin_offset, begin_time, _ = KEY.unpack_from(first.keys)
    end_offset, end_time, _ = KEY.unpack_from(last.keys, last.keys.nbytes - KEY.size)
    next_entry = last.first + last.keys.nbytes // KEY.size
    return IndexHeader(begin_time, end_time, begin_offset, end_offset, used_slot_count, next_entry)
