"""The journal of a dispatcher in another process: what it has published, in frames.

    dispatch/journal-<sequence>        of fixed size; zeros after the last frame

     0       4        8       12
    +-------+--------+-------+----------------------------------------------------------------+
    | FLDJ  | length | CRC   | msgpack: epoch, sequence, from, to, queues, index name, count  |   and the next
    +-------+--------+-------+----------------------------------------------------------------+

A frame says that every record in [from, to) is in its queue and in the index, that these files are synced, and where
each changed queue and the index end now. The first frame of a file is a snapshot that names every queue, so a file
needs no other. A full file is followed by one that begins with a snapshot; older ones are deleted.

The journal decides how far dispatch has come. A frame counts if its CRC is right and its sequence follows. The first
other one ends the journal, so a crash during a write loses that frame alone.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from flintlog.disk.media.medium import Medium, RawFile
from flintlog.errors import DamagedStore

FILE_BYTES: Final = 1024 * 1024
_NAME: Final = "journal-"
_MAGIC: Final = b"FLDJ"
_HEAD: Final = struct.Struct(">4sII")
_READABLE: Final = struct.Struct(">4sqq")
_READABLE_BYTES: Final = _READABLE.size + 4
_READABLE_MAGIC: Final = b"FLDR"
_TRIES: Final = 5


class QueueMark(msgspec.Struct, array_like=True, frozen=True):
    """Where a queue ends: the offset of its next message, and the byte after its last entry."""

    topic: str
    queue_id: int
    next_offset: int
    end_byte: int

    @property
    def key(self) -> tuple[str, int]:
        return self.topic, self.queue_id


class Frame(msgspec.Struct, array_like=True, frozen=True):
    """One publication."""

    epoch: int
    sequence: int
    start: int
    end: int
    queues: list[QueueMark]
    index_name: str
    index_count: int


class Published(msgspec.Struct, frozen=True):
    """All publications together."""

    epoch: int
    sequence: int
    end: int
    queues: dict[tuple[str, int], QueueMark]
    index_name: str
    index_count: int

    def after(self, frame: Frame) -> Published:
        queues = {**self.queues, **{mark.key: mark for mark in frame.queues}}
        return Published(frame.epoch, frame.sequence, frame.end, queues, frame.index_name, frame.index_count)

    def snapshot(self) -> Frame:
        """The same in one frame."""
        marks = list(self.queues.values())
        return Frame(self.epoch, self.sequence, self.end, self.end, marks, self.index_name, self.index_count)


NOTHING: Final = Published(0, 0, 0, {}, "", 0)


class DispatchJournal:
    """The journal of a store. Only the holder of the claim may append; any process may load it."""

    def __init__(self, directory: Path, medium: Medium, *, file_bytes: int = FILE_BYTES) -> None:
        self._directory = directory
        self._medium = medium
        self._file_bytes = file_bytes
        self._path = directory
        self._file: RawFile | None = None
        self._position = 0
        self.progress: Published | None = None

    def load(self) -> Published | None:
        """Read what was published; None when nothing was."""
        self.close()
        self.progress = None
        for name in reversed(self._names()):
            path = self._directory / name
            frames, position = _read(self._medium.read(path), int(name.removeprefix(_NAME)))
            if frames:
                self._path, self._position = path, position
                self.progress = NOTHING
                for frame in frames:
                    self.progress = self.progress.after(frame)
                break
        return self.progress

    def poll(self) -> tuple[QueueMark, ...] | None:
        """The queues that moved since the last call; None: compare all with `progress`.

        Costs next to nothing when there is nothing new, and changes no file.
        """
        before = self.progress
        if before is None or not self._medium.exists(self._path):
            return None if self.load() != before else ()
        if self._medium.exists(self._directory / _name(before.sequence + 1)):
            self.load()
            return None
        file = self._file = self._file or self._medium.open(self._path)
        moved: list[QueueMark] = []
        for frame, end in _frames(file.buffer, self._position):
            if frame.sequence != before.sequence + 1:
                break
            before, self._position = before.after(frame), end
            moved += frame.queues
        self.progress = before
        return tuple(moved)

    def begin(self, progress: Published) -> None:
        """Begin a new journal with a snapshot, durably."""
        self._begin(_encode(progress.snapshot()), progress)

    def forget(self) -> None:
        """Delete it: the files alone now show how far dispatch has come."""
        self.close()
        self.progress = None
        names = self._names()
        for name in names:
            self._medium.remove(self._directory / name)
        if names:
            self._medium.sync_directory(self._directory)

    def append(self, frame: Frame) -> None:
        """Publish a frame, durably."""
        before = self.progress
        if before is not None and frame.sequence != before.sequence + 1:
            raise DamagedStore(f"frame {frame.sequence} does not follow {before.sequence}", path=self._directory)
        progress = (before or NOTHING).after(frame)
        data = _encode(frame)
        file = None if before is None else self._writable()
        if file is None or self._position + len(data) > file.size:
            self._begin(_encode(progress.snapshot()), progress)
            return
        file.buffer[self._position : self._position + len(data)] = data
        file.sync(self._position, self._position + len(data))
        self._position += len(data)
        self.progress = progress

    def _begin(self, data: bytes, progress: Published) -> None:
        """Begin a file with a snapshot that includes the newest frame."""
        old = self._names()
        path = self._directory / _name(progress.sequence)
        self._medium.make_directories(self._directory)
        self._medium.remove(path)  # a crash may have left it without a durable frame
        file = self._medium.create(path, max(self._file_bytes, 2 * len(data)))
        file.buffer[: len(data)] = data
        file.sync()
        self.close()
        self._path, self._file, self._position, self.progress = path, file, len(data), progress
        for name in old:
            if name != path.name:
                self._medium.remove(self._directory / name)

    def _writable(self) -> RawFile:
        """The file of the last frame; bytes of a torn frame after it are cleared first."""
        if self._file is None:
            self._file = self._medium.open(self._path, writable=True)
            self._file.clear(self._position, self._file.size)
            self._file.sync()
        return self._file

    def _names(self) -> list[str]:
        return sorted(
            info.name
            for info in self._medium.listing(self._directory)
            if info.size and info.name.startswith(_NAME) and info.name.removeprefix(_NAME).isdecimal()
        )

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()


def _name(sequence: int) -> str:
    return f"{_NAME}{sequence:020d}"


def _encode(frame: Frame) -> bytes:
    payload = msgspec.msgpack.encode(frame)
    return _HEAD.pack(_MAGIC, len(payload), zlib.crc32(payload)) + payload


def _read(data: bytes, first_sequence: int) -> tuple[list[Frame], int]:
    """The frames of a file, and the byte after the last one."""
    frames: list[Frame] = []
    position = 0
    for frame, end in _frames(data):
        if frame.sequence != first_sequence + len(frames):
            break
        frames.append(frame)
        position = end
    return frames, position


def _frames(data: bytes | memoryview, position: int = 0) -> Iterator[tuple[Frame, int]]:
    while position + _HEAD.size <= len(data):
        magic, length, crc = _HEAD.unpack_from(data, position)
        payload = data[position + _HEAD.size : position + _HEAD.size + length]
        if magic != _MAGIC or len(payload) != length or zlib.crc32(payload) != crc:
            return
        position += _HEAD.size + length
        yield msgspec.msgpack.decode(payload, type=Frame), position


class ReadableEnd(msgspec.Struct, frozen=True):
    """A dispatcher may read the log up to `end`. A new epoch begins when the store has written queues itself."""

    epoch: int
    end: int


class ReadableEndFile:
    """`dispatch/readable`: written by the store with every put, read by the dispatcher.

        0       4       12      20     24
        +-------+-------+-------+------+
        | FLDR  | epoch | end   | CRC  |        the end is -1 while nothing may be read
        +-------+-------+-------+------+

    It is never synced: each opening writes it. A read during a write sees a wrong CRC and is repeated.
    """

    def __init__(self, directory: Path, medium: Medium) -> None:
        self._path = directory / "readable"
        self._medium = medium
        self._file: RawFile | None = None
        self._is_writable = False

    def publish(self, readable: ReadableEnd) -> None:
        if not self._is_writable:
            self.close()
            self._file, self._is_writable = self._open_or_make(), True
        assert self._file is not None
        head = _READABLE.pack(_READABLE_MAGIC, readable.epoch, readable.end)
        self._file.buffer[:_READABLE_BYTES] = head + zlib.crc32(head).to_bytes(4, "big")

    def _open_or_make(self) -> RawFile:
        self._medium.make_directories(self._path.parent)
        info = self._medium.stat(self._path)
        if info is not None and info.size == _READABLE_BYTES:
            return self._medium.open(self._path, writable=True)
        if info is not None:  # a crash left a part of it
            self._medium.remove(self._path)
        return self._medium.create(self._path, _READABLE_BYTES)

    def load(self) -> ReadableEnd | None:
        """The last published end; None when there is none, or it is not whole yet."""
        for _ in range(_TRIES):
            if self._file is None:
                info = self._medium.stat(self._path)
                if info is None or info.size != _READABLE_BYTES:
                    return None
                self._file = self._medium.open(self._path)
            data = bytes(self._file.buffer[:_READABLE_BYTES])
            magic, epoch, end = _READABLE.unpack_from(data)
            if magic == _READABLE_MAGIC and zlib.crc32(data[: _READABLE.size]) == int.from_bytes(data[-4:], "big"):
                return ReadableEnd(epoch, end)
        return None

    def close(self) -> None:
        file, self._file, self._is_writable = self._file, None, False
        if file is not None:
            file.close()
