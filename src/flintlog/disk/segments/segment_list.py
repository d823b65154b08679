"""The segments of one log, in order: found on the disk, and looked at by readers.

    00000000000000000000   00000000000001048576   00000000000002097152
    [ full, sealed       ] [ full, sealed       ] [ the last one: tail  ]
    ^ min_offset                                        ^ max_wrote

A file's name is the offset of its first byte, so nothing has to be written down about the order. The list of segments
is replaced as a whole whenever it changes, so readers take no lock.
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
    """The segments of one log, in order. Who changes the list is said in `SegmentQueue`."""

    def __init__(
        self,
        directories: Sequence[Path],
        segment_size: int,
        medium: Medium,
        *,
        read_only_directories: Collection[Path] = (),
        full_directories: Callable[[], Collection[Path]] = no_path_is_full,
        read_only: bool = False,
        is_derived: bool = False,
    ) -> None:
        """`read_only` changes nothing on the disk, not even a left-over empty file.

        `is_derived`: the files can be made again, so that one which a power loss left empty is as good as missing.
        """
        if segment_size <= 0:
            raise InvalidConfig(f"a segment size of {segment_size} bytes", path=directories[0])
        self.segment_size = segment_size
        self.medium = medium
        self.read_only = read_only
        self._is_derived = is_derived
        self.flushed_where = 0  # what was loaded counts as dirty until it was synced after that
        self.committed_where = 0
        self.readable_limit: int | None = None
        """Where reading ends for those who ask for `max_offset`, if somebody else decides that than the writer."""
        self._paths = PathChoice(directories, read_only_directories, full_directories)
        self._segments: tuple[Segment, ...] = ()
        self._bases: Mapping[Path, int | None] = {}
        self._lock = threading.Lock()

    # Loading

    def load(self, bases: Mapping[Path, int | None] | None = None) -> None:
        """Find the files, check their names and lengths, map none.

        Nothing is changed on the disk before every file was found right; then an empty last file, the trace of a crash
        while a file was made, is removed; of files that are derived, any that is empty. `bases`: where files begin
        that have another name; those of which it is None are left out.
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
        if not self.read_only:
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
        """Where the files begin that lie there now, known or not."""
        return [self._base_of(path) for path, info in self._find_files() if info.size == self.segment_size]

    def follow(self, end: int) -> None:
        """Another process has written and synced the files up to `end`: take them as they are, and change none."""
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

    # Looking

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
        """The first offset there is; -1 without segments."""
        first = self.first
        return -1 if first is None else first.base

    @property
    def max_offset(self) -> int:
        """The offset behind the last byte that can be read; 0 without segments."""
        limit = self.readable_limit
        if limit is not None:
            return limit
        last = self.last
        return 0 if last is None else last.base + last.read_position

    @property
    def max_wrote(self) -> int:
        """The offset behind the last byte written, committed or not."""
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
            # A file is missing in between, so the places are shifted.
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

    def _forget(self, gone: Segment) -> None:
        with self._lock:
            self._segments = tuple(segment for segment in self._segments if segment is not gone)


def _parse_base(name: str, path: Path) -> int:
    if not (name.isascii() and name.isdigit()) or len(name) < SEGMENT_NAME_DIGITS:
        raise DamagedStore("a file whose name is not an offset", path=path, advice="move it elsewhere")
    return int(name)
