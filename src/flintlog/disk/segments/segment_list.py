"""The segments of one log, in order: loading and reading them.

    00000000000000000000   00000000000001048576   00000000000002097152
    [ full, sealed       ] [ full, sealed       ] [ the last one: tail  ]
    ^ min_offset                                        ^ max_wrote

A file's name is the offset of its first byte, so the order needs no other record. Each change replaces the whole list
of segments, so readers take no lock.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from flintlog.disk.media.medium import FileInfo, Medium
from flintlog.disk.segments.multi_path import PathChoice, no_path_is_full
from flintlog.disk.segments.segment import Segment
from flintlog.errors import DamagedStore, InvalidConfig, WrongFileSize
from flintlog.format.names import SEGMENT_NAME_DIGITS


class SegmentList:
    """The segments of one log, in order. `SegmentQueue` says which thread may change the list."""

    def __init__(
        self,
        directories: Sequence[Path],
        segment_size: int,
        medium: Medium,
        *,
        read_only_directories: Collection[Path] = (),
        full_directories: Callable[[], Collection[Path]] = no_path_is_full,
        is_derived: bool = False,
    ) -> None:
        """`is_derived`: the files can be rebuilt, so a file that a power loss left empty is treated as missing."""
        if segment_size <= 0:
            raise InvalidConfig(f"a segment size of {segment_size} bytes", path=directories[0])
        self.segment_size = segment_size
        self.medium = medium
        self._is_derived = is_derived
        self.flushed_where = 0  # loaded bytes count as dirty until they are synced
        self.committed_where = 0
        self.readable_limit: int | None = None
        """The value of `max_offset`, if something else than the writer's position limits reading."""
        self._paths = PathChoice(directories, read_only_directories, full_directories)
        self._segments: tuple[Segment, ...] = ()
        self._bases: Mapping[Path, int | None] = {}
        self._lock = threading.Lock()

    # Loading

    def load(self, bases: Mapping[Path, int | None] | None = None) -> None:
        """Find the files and check their names and lengths; none is mapped.

        The disk is not changed before all files are checked. Then an empty last file is removed, which a crash left
        while the file was created; of derived files, any empty one is removed. `bases` holds the offsets of misnamed
        files; a file with the offset None is skipped.
        """
        self._bases = {} if bases is None else bases
        found = self._find_files()
        empty = [item for item in (found if self._is_derived else found[-1:]) if not item[1].size]
        if empty:
            found = [item for item in found if item not in empty]
        segments: list[Segment] = []
        for path, info in found:
            base = self._base_of(path)
            if info.size != self.segment_size:
                raise WrongFileSize(
                    f"the file has {info.size} bytes, the configured size is {self.segment_size}",
                    path=path,
                    advice="open the store with the size it was written with",
                )
            if segments and segments[-1].base == base:
                raise DamagedStore(f"two files for one offset, the other is {segments[-1].path}", path=path)
            segments.append(self._loaded(path, base))
        for path, _ in empty:
            self.medium.remove(path)
        self._segments = tuple(segments)

    def _find_files(self) -> list[tuple[Path, FileInfo]]:
        found = [
            (directory / info.name, info)
            for directory in self._paths.all_paths
            for info in self.medium.listing(directory)
            if not info.is_directory
        ]
        if self._bases:
            found = [item for item in found if self._bases.get(item[0], 0) is not None]
            return sorted(found, key=lambda item: self._base_of(item[0]))
        return sorted(found, key=lambda item: item[1].name) if len(found) > 1 else found

    def _base_of(self, path: Path) -> int:
        base = self._bases.get(path)
        return _parse_base(path.name, path) if base is None else base

    def _loaded(self, path: Path, base: int) -> Segment:
        segment = Segment(path, base, self.segment_size, self.medium)
        segment.set_positions(self.segment_size)
        return segment

    def files_there(self) -> list[int]:
        """The offsets of all files that exist now, loaded or not."""
        return [self._base_of(path) for path, info in self._find_files() if info.size == self.segment_size]

    def follow(self, end: int) -> None:
        """Load the files that another process has written and synced up to `end`; change none."""
        segments = [segment for segment in self._segments if segment.base < end]
        known = segments[-1].end if segments else 0
        if not segments or known < end:
            for path, info in self._find_files():
                base = self._base_of(path)
                if known <= base < end and info.size == self.segment_size:
                    segments.append(self._loaded(path, base))
        for segment in segments:
            segment.set_positions(min(end - segment.base, segment.size))
            segment.flushed_position = segment.read_position
        with self._lock:
            self._segments = tuple(segments)
        self.flushed_where = self.committed_where = end

    # Reading

    @property
    def segments(self) -> tuple[Segment, ...]:
        return self._segments

    @property
    def first(self) -> Segment | None:
        segments = self._segments
        return segments[0] if segments else None

    @property
    def last(self) -> Segment | None:
        segments = self._segments
        return segments[-1] if segments else None

    @property
    def min_offset(self) -> int:
        """The first offset; -1 without segments."""
        first = self.first
        return -1 if first is None else first.base

    @property
    def max_offset(self) -> int:
        """The offset after the last readable byte; 0 without segments."""
        limit = self.readable_limit
        if limit is not None:
            return limit
        last = self.last
        return 0 if last is None else last.base + last.read_position

    @property
    def max_wrote(self) -> int:
        """The offset after the last written byte, committed or not."""
        last = self.last
        return 0 if last is None else last.base + last.wrote_position

    @property
    def total_size(self) -> int:
        return len(self._segments) * self.segment_size

    def find(self, offset: int) -> Segment | None:
        """The segment that holds the offset."""
        segments = self._segments
        if not segments:
            return None
        first = segments[0]
        if first.base <= offset < segments[-1].end:
            index = offset // self.segment_size - first.base // self.segment_size
            if 0 <= index < len(segments) and segments[index].base <= offset < segments[index].end:
                return segments[index]
            # A file is missing in between, so the indexes are shifted.
            for segment in segments:
                if segment.base <= offset < segment.end:
                    return segment
        return None

    def gaps(self) -> list[tuple[int, int]]:
        """Ranges of offsets between the first and the last segment that no file holds."""
        segments = self._segments
        return [(left.end, right.base) for left, right in itertools.pairwise(segments) if left.end != right.base]

    # Changing the list

    def _add(self, segment: Segment) -> Segment:
        with self._lock:
            self._segments, segment.is_listed = (*self._segments, segment), True
        return segment

    def _forget(self, deleted: Segment) -> None:
        with self._lock:
            self._segments = tuple(segment for segment in self._segments if segment is not deleted)


def _parse_base(name: str, path: Path) -> int:
    if not (name.isascii() and name.isdigit()) or len(name) < SEGMENT_NAME_DIGITS:
        raise DamagedStore("a file whose name is not an offset", path=path, advice="move it elsewhere")
    return int(name)
