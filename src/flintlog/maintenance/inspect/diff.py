"""Compares two replicas of one log: where they diverge, which is ahead, and how many messages a cut would lose.

    A  |=========================|xxxxxx        first divergence: the record that holds the first differing byte
    B  |=========================|yyy
                                 ^

The logs are compared byte by byte over their common range. Queues and index are not: they follow from the log.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flintlog import kernel
from flintlog.disk.media.medium import Medium
from flintlog.maintenance.inspect.log_reader import LogReader, Wanted
from flintlog.maintenance.inspect.overview import log_end
from flintlog.maintenance.inspect.store_files import StoreFiles, look_at
from flintlog.store.runtime.jobs import Counted, Progress

if TYPE_CHECKING:
    from flintlog.store.options.store_config import StoreConfig

CHUNK_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two logs: its ends, and its own messages, from the divergence or the other's end on."""

    path: str
    min_offset: int
    end_offset: int
    own_bytes: int
    own_messages: int
    first_own: dict[str, object] | None
    is_intact_there: bool


@dataclass(frozen=True, slots=True)
class LogDiff:
    """`diverges_at` is None when one log is a prefix of the other."""

    a: Side
    b: Side
    compared_from: int
    compared_to: int
    diverges_at: int | None
    differs_at: int | None
    ahead: str | None
    verdict: str


def diff(
    root_a: Path,
    root_b: Path,
    config: StoreConfig | None = None,
    *,
    medium: Medium | None = None,
    progress: Progress | None = None,
) -> LogDiff:
    """Compare the logs of two stores; nothing is changed. `progress` counts bytes."""
    files = look_at(root_a, config, medium), look_at(root_b, config, medium)
    ends = [log_end(each)[0] for each in files]
    begins = [each.min_offset for each in files]
    start, stop = max(begins), min(ends)
    differs_at = _first_difference(*files, start, stop, Counted(progress, stop - start))
    parts_at = None if differs_at is None else min(_record_start(each, start, differs_at) for each in files)
    own_from = min(stop, *ends) if parts_at is None else parts_at
    a, b = (_side(each, begin, end, own_from) for each, begin, end in zip(files, begins, ends, strict=True))
    ahead = None if ends[0] == ends[1] else "A" if ends[0] > ends[1] else "B"
    verdict = _verdict(a, b, parts_at, ahead, is_apart=start > stop)
    return LogDiff(a, b, start, max(start, stop), parts_at, differs_at, ahead, verdict)


def _first_difference(a: StoreFiles, b: StoreFiles, start: int, stop: int, counted: Counted) -> int | None:
    position = start
    while position < stop:
        left, right = _bytes_at(a, position, stop), _bytes_at(b, position, stop)
        size = min(len(left), len(right))
        if not size:
            return position  # one of them lacks a file
        if left[:size] != right[:size]:
            return position + _first_unlike(left[:size], right[:size])
        position += size
        counted.add(size)
    return None


def _bytes_at(files: StoreFiles, position: int, stop: int) -> memoryview:
    file = LogReader(files).file_of(position)
    if file is None:
        return memoryview(b"")
    begin = position - file.base
    return files.read(file.path, begin, min(begin + CHUNK_BYTES, file.size, stop - file.base))


def _first_unlike(left: memoryview, right: memoryview) -> int:
    """The first place where two views of one length differ, by bisection."""
    low, high = 0, len(left)
    while high - low > 1:
        middle = (low + high) // 2
        if left[low:middle] != right[low:middle]:
            high = middle
        else:
            low = middle
    return low


def _record_start(files: StoreFiles, start: int, position: int) -> int:
    """Where the record that holds an offset begins."""
    file = LogReader(files).file_of(position)
    if file is None:
        return position
    view = files.view(file)
    place, last = max(0, start - file.base), max(start, file.base)
    while True:
        seen = kernel.scan(view, place, file.size, file.base, max_count=4096)
        for number in range(seen.count):
            row = seen.row(number)
            if row.physical_offset > position:
                return last
            last = row.physical_offset
            if last + row.size > position:
                return last
        place = seen.end
        if not seen.count:
            return min(position, file.base + place)


def _side(files: StoreFiles, begin: int, end: int, own_from: int) -> Side:
    count, first = 0, None
    for message in LogReader(files).messages(Wanted(start=own_from, stop=end)):
        count += 1
        if first is None:
            names = ("physical_offset", "topic", "queue_id", "queue_offset", "store_timestamp", "message_id")
            first = {name: getattr(message, name) for name in names}
    is_intact = end <= own_from or LogReader(files).message_at(own_from) is not None
    return Side(str(files.root), begin, end, max(0, end - own_from), count, first, is_intact)


def _verdict(a: Side, b: Side, parts_at: int | None, ahead: str | None, *, is_apart: bool) -> str:
    if is_apart:
        return "the two logs have no offset in common: nothing can be said"
    if parts_at is None:
        if ahead is None:
            return "the logs are the same as far as both go"
        first, second = (a, b) if ahead == "A" else (b, a)
        other = "B" if ahead == "A" else "A"
        return f"{other} is the begin of {ahead} and lacks {first.own_messages} messages; nothing need be cut" + (
            "" if not second.own_bytes else f" ({second.own_bytes} bytes of its own)"
        )
    if a.is_intact_there != b.is_intact_there:
        good, bad = ("A", "B") if a.is_intact_there else ("B", "A")
        return f"{bad} is damaged at {parts_at}, {good} is not: copy these bytes from {good}"
    return (
        f"the logs part at {parts_at}: one of them must be cut there; cutting A loses {a.own_messages} messages, "
        f"cutting B loses {b.own_messages}"
    )
