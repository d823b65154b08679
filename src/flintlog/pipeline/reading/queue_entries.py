"""The entries of a store's consume queues that point into a range of its log.

A queue's physical offsets ascend, so the entries of a range are found by a binary search. Where they do not, or a file
is deleted meanwhile, entries are missed; the reader notices records that no entry names. Light queues are left out:
their records are in a queue of their own topic, too.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final, NamedTuple

from flintlog import kernel
from flintlog.checks.derived_files import DataFile
from flintlog.disk.media.source import ByteSource
from flintlog.errors import DiskError, FormatError
from flintlog.format.names import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, FAR, parse_queue_id, parse_segment_name
from flintlog.format.queue_entry import (
    BASE_AND_COUNT,
    BASE_AT,
    BATCH_ENTRY_SIZE,
    ENTRY_SIZE,
    OFFSET_AND_SIZE,
)
from flintlog.format.topics import LMQ_PREFIX

_STRIDES: Final = {CONSUME_QUEUE: ENTRY_SIZE, BATCH_CONSUME_QUEUE: BATCH_ENTRY_SIZE}


@dataclass(frozen=True, slots=True)
class Queue:
    """The files of one queue, and how long an entry is."""

    topic: str
    queue_id: int
    stride: int
    files: tuple[DataFile, ...]


class Named(NamedTuple):
    """A record that a queue entry names: where it is, and what it must be."""

    physical_offset: int
    size: int
    queue_offset: int
    queue_id: int
    topic: str


def find_queues(source: ByteSource, root: PurePath) -> list[Queue]:
    """All queues of a store but the light ones."""
    found = []
    for kind, stride in _STRIDES.items():
        for topic in source.listing(root / kind):
            if not topic.is_directory or topic.name.startswith(LMQ_PREFIX):
                continue
            folder = root / kind / topic.name
            for queue in source.listing(folder):
                queue_id = parse_queue_id(queue.name) if queue.is_directory else None
                if queue_id is not None:
                    files = _find_files(source, folder / queue.name, stride)
                    found.append(Queue(topic.name, queue_id, stride, files))
    return found


def _find_files(source: ByteSource, folder: PurePath, stride: int) -> tuple[DataFile, ...]:
    found = []
    for info in source.listing(folder):
        with suppress(FormatError):
            base = parse_segment_name(info.name)
            if not info.is_directory and info.size >= stride:
                found.append(DataFile(str(folder / info.name), base, info.size // stride * stride))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Entries:
    """Neighbouring entries of a queue; `first` is the number of the first one."""

    queue: Queue
    first: int
    view: memoryview

    def named(self, start: int, stop: int, others: bytearray | None = None) -> list[Named]:
        """The records that they name in [start, stop), but for `others`, which have a mark."""
        return self._as_named(kernel.named_records(self.view, self.queue.stride, start, stop, without=others))

    def of_offsets(self, first: int, last: int) -> Entries:
        """Those of queue offsets from `first` to `last`, if their places tell them."""
        if self.queue.stride != ENTRY_SIZE:
            return self
        low = min(max(0, first - self.first), len(self.view) // ENTRY_SIZE)
        high = max(low, min(last + 1 - self.first, len(self.view) // ENTRY_SIZE))
        return Entries(self.queue, self.first + low, self.view[low * ENTRY_SIZE : high * ENTRY_SIZE])

    def samples(self, start: int, stop: int, edges: bytearray | None) -> list[Named]:
        """Of these the first and the last, and all that begin or end at one of the edges, a mark for each byte."""
        stride, found = self.queue.stride, []
        if edges is not None:
            found = self._as_named(kernel.named_records(self.view, stride, start, stop, beside=edges))
        heads, last = Entries(self.queue, self.first, self.view[: 2 * stride]), len(self.view) // stride - 1
        tail = Entries(self.queue, self.first + last, self.view[last * stride :])
        return [*heads.named(start, stop)[:1], *tail.named(start, stop), *found]

    def _as_named(self, found: array[int]) -> list[Named]:
        """Made of the kernel's numbers: physical offset, size and place of each."""
        queue = self.queue
        return [
            Named(found[place], found[place + 1], self._queue_offset(found[place + 2]), queue.queue_id, queue.topic)
            for place in range(0, len(found), 3)
        ]

    def _queue_offset(self, number: int) -> int:
        if self.queue.stride == ENTRY_SIZE:
            return self.first + number
        return int(BASE_AND_COUNT.unpack_from(self.view, number * BATCH_ENTRY_SIZE + BASE_AT)[0])


def entries_between(source: ByteSource, queue: Queue, start: int, stop: int) -> Iterator[Entries]:
    """The entries whose records begin in [start, stop), and the one before them."""
    with suppress(DiskError):
        first = max(0, bisect_left(queue.files, start, key=lambda file: _first_offset(source, queue, file)) - 1)
        for file in queue.files[first:]:
            if _first_offset(source, queue, file) >= stop:
                return
            view = source.view(PurePath(file.path), 0, file.size)
            places = range(len(view) // queue.stride)
            low = max(0, _find(view, queue.stride, places, start) - 1)
            high = _find(view, queue.stride, places, stop)
            if low < high:
                yield Entries(queue, file.base // queue.stride + low, view[low * queue.stride : high * queue.stride])


def _first_offset(source: ByteSource, queue: Queue, file: DataFile) -> int:
    return _offset_at(source.view(PurePath(file.path), 0, queue.stride), 0)


def _find(view: memoryview, stride: int, places: Sequence[int], offset: int) -> int:
    return bisect_left(places, offset, key=lambda place: _offset_at(view, place * stride))


def _offset_at(view: memoryview, place: int) -> int:
    """The physical offset of an entry; beyond any log for places that were not written yet."""
    offset, size = OFFSET_AND_SIZE.unpack_from(view, place)
    return int(offset) if size > 0 else FAR
