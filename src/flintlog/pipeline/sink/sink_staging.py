"""Staged messages: tasks write them for the driver into files of their own, under names that no other attempt has.

    flintlog/staged/<whose>/<attempt>-<number>        CRC-32, then msgpack: an array of messages, at most a few MiB

An attempt that fails or is run twice leaves unused files; they are deleted with the writer's directory at the end of
the batch. Files of a killed driver are deleted with the next batch of the same stream. A batch outside of a stream has
a directory of its own; the next batch of any writer deletes it if it was not written for a day.
"""

from __future__ import annotations

import hashlib
import struct
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from flintlog.disk.media.leftovers import remove_leftovers
from flintlog.disk.media.local import LocalMedium
from flintlog.errors import DamagedStore, DiskError
from flintlog.pipeline.sink.sink_rows import StagedMessage
from flintlog.pipeline.spark.tasks import attempt_name

MAX_FILE_BYTES: Final = 8 * 1024 * 1024
STALE_MS: Final = 24 * 60 * 60 * 1000
_OVERHEAD_BYTES: Final = 64
_CRC: Final = struct.Struct(">I")


def folder_name(whose: str) -> str:
    """A directory's name for a writer of any name."""
    return hashlib.sha256(whose.encode()).hexdigest()[:32]


def stage(messages: Iterable[StagedMessage], folder: Path) -> tuple[tuple[str, ...], int]:
    """Write a task's messages; returns the files' names in order, and how many messages they hold."""
    medium, attempt = LocalMedium(), attempt_name()
    medium.make_directories(folder)
    names: list[str] = []
    count = 0
    for part in _cut(messages):
        names.append(f"{attempt}-{len(names):06d}")
        data = msgspec.msgpack.encode(part)
        medium.replace(folder / names[-1], _CRC.pack(zlib.crc32(data)) + data)
        count += len(part)
    return tuple(names), count


def _cut(messages: Iterable[StagedMessage]) -> Iterator[list[StagedMessage]]:
    part: list[StagedMessage] = []
    size = 0
    for message in messages:
        part.append(message)
        size += len(message.body) + _OVERHEAD_BYTES
        if size >= MAX_FILE_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


def staged(folder: Path, names: Iterable[str]) -> Iterator[StagedMessage]:
    """The messages of some files, in order."""
    medium = LocalMedium()
    decoder = msgspec.msgpack.Decoder(list[StagedMessage])
    for name in names:
        data = memoryview(medium.read(folder / name))
        if len(data) < _CRC.size or zlib.crc32(data[_CRC.size :]) != _CRC.unpack_from(data)[0]:
            raise DamagedStore("what a task staged is damaged", path=folder / name, advice="run the job again")
        yield from decoder.decode(data[_CRC.size :])


def clear(folder: Path) -> None:
    """Remove staged files. It never fails: by now the batch is in the store, or its own error is reported."""
    remove_leftovers(folder, LocalMedium())


def clear_stale(folder: Path, now_ms: int | None = None) -> None:
    """Remove the files of killed drivers: everything in `folder` that was not written for a day."""
    medium = LocalMedium()
    before_ms = (time.time_ns() // 1_000_000 if now_ms is None else now_ms) - STALE_MS
    with suppress(DiskError):
        for info in medium.listing(folder):
            inside = medium.listing(folder / info.name) if info.is_directory else []
            if max(each.mtime_ms for each in (info, *inside)) < before_ms:
                remove_leftovers(folder / info.name, medium)
