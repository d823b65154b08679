"""What a dispatcher outside the store has published: a journal of frames.

    dispatch/journal-<sequence>        of fixed size; zeros behind the last frame

     0       4        8       12
    +-------+--------+-------+----------------------------------------------------------------+
    | FLDJ  | length | CRC   | msgpack: epoch, sequence, from, to, queues, index name, count  |   and the next
    +-------+--------+-------+----------------------------------------------------------------+

A frame says that every record in [from, to) is in its queue and in the index, that these files are synced, and where
each changed queue and the index end now. The first frame of a file is a snapshot: it names every queue, and with it the
file stands alone. A file that is full is followed by one that begins with a snapshot; older ones are removed.

The journal is the truth about how far dispatch has come. A frame counts when its CRC is right and its sequence follows;
the first that does not ends the journal, so a crash while one was written costs that one.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from flintlog.disk.medium import Medium, RawFile
from flintlog.errors import DamagedStore

FILE_BYTES: Final = 1024 * 1024
_NAME: Final = "journal-"
_MAGIC: Final = b"FLDJ"
_HEAD: Final = struct.Struct(">4sII")


class QueueMark(msgspec.Struct, array_like=True, frozen=True):
    """Where a queue ends: the offset of its next message, and the byte behind its last entry."""

    topic: str
    queue_id: int
    next_offset: int
    end_byte: int


class Frame(msgspec.Struct, array_like=True, frozen=True):
    """One publication."""

    epoch: int
    sequence: int
    start: int
    end: int
    queues: list[QueueMark]
    index_name: str
    index_count: int


class Progress(msgspec.Struct, frozen=True):
    """All publications together."""

    epoch: int
    sequence: int
    end: int
    queues: dict[tuple[str, int], QueueMark]
    index_name: str
    index_count: int

    def after(self, frame: Frame) -> Progress:
        queues = {**self.queues, **{(mark.topic, mark.queue_id): mark for mark in frame.queues}}
        return Progress(frame.epoch, frame.sequence, frame.end, queues, frame.index_name, frame.index_count)

    def snapshot(self) -> Frame:
        """The same in one frame."""
        marks = list(self.queues.values())
        return Frame(self.epoch, self.sequence, self.end, self.end, marks, self.index_name, self.index_count)


NOTHING: Final = Progress(0, 0, 0, {}, "", 0)


class DispatchJournal:
    """The journal of a store; `append` belongs to whoever holds the claim, anyone may `load`."""

    def __init__(self, directory: Path, medium: Medium, *, file_bytes: int = FILE_BYTES) -> None:
        self._directory = directory
        self._medium = medium
        self._file_bytes = file_bytes
        self._path = directory
        self._file: RawFile | None = None
        self._position = 0
        self.progress: Progress | None = None

    def load(self) -> Progress | None:
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

    def append(self, frame: Frame) -> None:
        """Publish: when this returns, the frame is durable."""
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

    def _begin(self, data: bytes, progress: Progress) -> None:
        """Begin a file with a snapshot, which says what the new frame says and all before it."""
        old = self._names()
        path = self._directory / f"{_NAME}{progress.sequence:020d}"
        self._medium.make_directories(self._directory)
        self._medium.remove(path)  # one that a crash left behind before its first frame was durable
        file = self._medium.create(path, max(self._file_bytes, 2 * len(data)))
        file.buffer[: len(data)] = data
        file.sync()
        self.close()
        self._path, self._file, self._position, self.progress = path, file, len(data), progress
        for name in old:
            if name != path.name:
                self._medium.remove(self._directory / name)

    def _writable(self) -> RawFile:
        """The file of the last frame; what a torn frame left behind it is cleared first."""
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


def _encode(frame: Frame) -> bytes:
    payload = msgspec.msgpack.encode(frame)
    return _HEAD.pack(_MAGIC, len(payload), zlib.crc32(payload)) + payload


def _read(data: bytes, first_sequence: int) -> tuple[list[Frame], int]:
    """The frames of a file, and the byte behind the last one."""
    frames: list[Frame] = []
    position = 0
    for frame, end in _frames(data):
        if frame.sequence != first_sequence + len(frames):
            break
        frames.append(frame)
        position = end
    return frames, position


def _frames(data: bytes) -> Iterator[tuple[Frame, int]]:
    position = 0
    while position + _HEAD.size <= len(data):
        magic, length, crc = _HEAD.unpack_from(data, position)
        payload = data[position + _HEAD.size : position + _HEAD.size + length]
        if magic != _MAGIC or len(payload) != length or zlib.crc32(payload) != crc:
            return
        position += _HEAD.size + length
        yield msgspec.msgpack.decode(payload, type=Frame), position


class Readable(msgspec.Struct, frozen=True):
    """What a store lets a dispatcher read: the log up to `end`. A new epoch: what was below the end may be gone."""

    epoch: int
    end: int


class ReadableEnd:
    """`dispatch/readable.json`: written by the store, read by the dispatcher."""

    def __init__(self, directory: Path, medium: Medium) -> None:
        self._path = directory / "readable.json"
        self._medium = medium

    def publish(self, readable: Readable) -> None:
        self._medium.make_directories(self._path.parent)
        self._medium.replace(self._path, msgspec.json.encode(readable))

    def load(self) -> Readable | None:
        if not self._medium.exists(self._path):
            return None
        try:
            return msgspec.json.decode(self._medium.read(self._path), type=Readable)
        except msgspec.MsgspecError as error:
            raise DamagedStore(f"the readable end cannot be read: {error}", path=self._path) from error
