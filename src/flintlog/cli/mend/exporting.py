"""The file of an export: `FILE.part-<digits>` while it is written, FILE once it is whole.

An export that was interrupted goes on after the last whole line of that part. The digits follow from what was asked
for, so a part of another export is not touched. The last line must still be what the store has there; otherwise the
export begins anew.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from flintlog.cli.messages import to_row
from flintlog.cli.output import encode
from flintlog.errors import DiskError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flintlog.maintenance.inspect.log_reader import LogReader, Wanted

FORM: Final = "base64"
_LOOK_BYTES: Final = 1 << 20


@dataclass(slots=True)
class Part:
    """An open part: how many lines it has, and the physical offset from which on messages are missing."""

    path: Path
    file: BinaryIO
    count: int = 0
    start: int | None = None

    def write(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.file.write(f"{line}\n".encode())
            self.count += 1


def part_of(target: Path, store: Path, wanted: Wanted) -> Path:
    """Where the messages that are wanted of a store are written until all are there."""
    asked = hashlib.sha256(repr((str(store.absolute()), wanted)).encode()).hexdigest()
    return target.with_name(f"{target.name}.part-{asked[:8]}")


@contextmanager
def whole_file(target: Path, store: Path, wanted: Wanted, reader: LogReader) -> Iterator[Part]:
    """Write a file that appears only once it is whole. What an interruption leaves of it is used the next time."""
    if target.exists() and not target.is_file():  # a device or a pipe cannot be replaced
        with _opened(target, "wb") as device:
            yield Part(target, device)
        return
    path = part_of(target, store, wanted)
    with _opened(path, "r+b" if path.exists() else "w+b") as file:
        part = Part(path, file)
        _go_on(part, reader)
        yield part
        file.flush()
        os.fsync(file.fileno())
    path.replace(target)


def _opened(path: Path, mode: str) -> BinaryIO:
    try:
        return open(path, mode)  # type: ignore[return-value]
    except OSError as error:
        raise DiskError(f"the file cannot be written: {error.strerror}", path=path) from error


def _go_on(part: Part, reader: LogReader) -> None:
    """Find the end of the last whole line; without one that can be trusted, the part begins anew."""
    end = last = 0
    for line in part.file:
        if not line.endswith(b"\n"):
            break
        part.count += 1
        last, end = end, end + len(line)
    part.file.seek(last)
    start = _end_of_message(part.file.read(end - last), reader)
    if start is None:
        part.count = end = 0
    part.start = start
    part.file.seek(end)
    part.file.truncate()


def _end_of_message(line: bytes, reader: LogReader) -> int | None:
    """The physical offset after a line's message, if the store has exactly this message there."""
    with suppress(ValueError, TypeError, KeyError):
        offset, size = (json.loads(line)[name] for name in ("physical_offset", "size"))
        message = reader.message_at(offset)
        if message is not None and encode(to_row(message, FORM)).encode() == line.rstrip(b"\n"):
            return int(offset) + int(size)
    return None
