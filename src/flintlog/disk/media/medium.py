"""What the rest of flintlog asks of a disk.

`Medium` is a whole file system, `RawFile` one file of fixed size that is mapped into memory. There is
a real one (`LocalMedium`), one that breaks on command (`FaultyMedium`), and others may be installed
under the entry point group "flintlog.media" and named in the configuration.

What an implementation promises, and callers rely on:

- `create` gives a file of exactly `size` zero bytes whose space is allocated, or `DiskFull` and no file.
- After `RawFile.sync(start, stop)` returned, these bytes, the file's name and its directories survive a crash, whoever
  wrote them and however the file was opened: a process that was killed leaves bytes that only the page cache has.
- `Medium.sync(path)` does that for a whole file that need not be open.
- After one `sync` of a file failed, every later `sync` of it fails: what the operating system did
  with the lost pages is unknown, so success must never be reported again.
- `RawFile.close` never raises; a view that someone still holds stays valid until it is dropped.
- Errors are flintlog's: `DiskFull`, `SyncFailed`, `StoreInUse`, and `DiskError` for the rest.

Reasons and costs: docs/decisions/0013.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from errno import EDQUOT, ENOSPC
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

from flintlog.disk.media.map_cache import MapCache
from flintlog.errors import DiskError, DiskFull

PAGE_BYTES = 4096
MAX_SMALL_FILE_BYTES = 256 * 1024 * 1024


class FileInfo(NamedTuple):
    """One entry of a directory."""

    name: str
    size: int
    mtime_ms: int
    is_directory: bool


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """The space of the partition that holds a path."""

    total: int
    free: int
    used_ratio: float


class Advice(Enum):
    """How a range of a file will be used."""

    NORMAL = "normal"
    RANDOM = "random"
    SEQUENTIAL = "sequential"
    WILL_NEED = "will-need"
    DONT_NEED = "dont-need"


@runtime_checkable
class RawFile(Protocol):
    """One file of fixed size, mapped into memory."""

    @property
    def path(self) -> Path: ...

    @property
    def size(self) -> int: ...

    @property
    def buffer(self) -> memoryview:
        """All bytes of the file; writable if the file was opened so."""

    def sync(self, start: int = 0, stop: int | None = None) -> None:
        """Make these bytes, the file's name and its directories durable; `SyncFailed` for ever after a failure."""

    def write_at(self, position: int, data: memoryview) -> None:
        """Write through the file instead of the mapping: no page faults, and the GIL is free."""

    def clear(self, start: int, stop: int) -> None:
        """Set a range to zero; not yet durable."""

    def data_end(self, start: int) -> int:
        """The place from which on nothing was ever written, at least `start`: what lies behind need not be read."""

    def touch(self, start: int, stop: int) -> bool:
        """Fault pages in for writing without changing them, and so that they count as changed; False where the
        system cannot."""

    def prepare(self, start: int, stop: int) -> bool:
        """As `touch`, and so that a later sync writes nothing but pages that were changed; False where it cannot."""

    def advise(self, advice: Advice, start: int = 0, stop: int | None = None) -> bool:
        """Tell the system how a range will be used; False when it would not listen."""

    def lock_memory(self) -> bool:
        """Keep the pages in memory; False when that is not allowed."""

    def unlock_memory(self) -> bool: ...

    def close(self) -> None:
        """Give up the mapping; it dies with the last view of it."""


class UnsyncedFile:
    """What files have in common whose bytes no disk of this machine holds: no page to prepare, nothing to sync."""

    def sync(self, start: int = 0, stop: int | None = None) -> None:
        """There is nothing that could become durable."""

    def touch(self, start: int, stop: int) -> bool:
        return False

    def prepare(self, start: int, stop: int) -> bool:
        return False

    def advise(self, advice: Advice, start: int = 0, stop: int | None = None) -> bool:
        return False

    def lock_memory(self) -> bool:
        return False

    def unlock_memory(self) -> bool:
        return False

    def close(self) -> None:
        """The bytes go with the last view of them."""


@runtime_checkable
class Descriptive(Protocol):
    """A `RawFile` of which there are descriptors; other media need not have any."""

    def new_descriptor(self) -> int:
        """One for whoever writes through the file instead of the mapping, and closes it; -1 if it is not to be had."""


class LockFile(Protocol):
    """An exclusive lock on byte 0 of a file, held until `release` or the end of the process."""

    @property
    def path(self) -> Path: ...

    def release(self) -> None: ...


class Medium(Protocol):
    """A file system, as far as a store needs one. All methods may be called from any thread."""

    @property
    def maps(self) -> MapCache:
        """The bound on mapped segments, shared by all queues of this medium."""

    def create(self, path: Path, size: int) -> RawFile: ...

    def open(self, path: Path, writable: bool = False) -> RawFile: ...

    def sync(self, path: Path) -> None:
        """Make all bytes of a file durable, also those that another process wrote; the file need not be open.

        Names are covered as far as this process made them; for others there is `durable_names`.
        """

    def listing(self, directory: Path) -> list[FileInfo]:
        """The entries by name; empty when there is no such directory."""

    def stat(self, path: Path) -> FileInfo | None: ...

    def exists(self, path: Path) -> bool: ...

    def read(self, path: Path, limit: int = MAX_SMALL_FILE_BYTES) -> bytes:
        """A whole small file; `DiskError` when it is longer than `limit`."""

    def head(self, path: Path, size: int) -> bytes:
        """The first bytes of a file, `size` of them or all: much cheaper than to map one that is only glanced at."""

    def write(self, path: Path, data: bytes) -> None:
        """Write a small file in place and make it durable."""

    def replace(self, path: Path, data: bytes) -> None:
        """Put a new content under a name: after a crash there is the old or the new one, never a mix."""

    def rename(self, source: Path, target: Path) -> None: ...

    def remove(self, path: Path) -> None:
        """Unlink a file; nothing happens when there is none."""

    def remove_tree(self, path: Path) -> None: ...

    def make_directories(self, path: Path) -> None: ...

    def sync_directory(self, path: Path) -> None: ...

    def usage(self, path: Path) -> DiskUsage: ...

    def lock(self, path: Path) -> LockFile:
        """Take the store's lock; `StoreInUse` when someone else has it."""


def check_range(file: RawFile, start: int, stop: int) -> None:
    """`DiskError` unless the file holds the range."""
    if not 0 <= start <= stop <= file.size:
        raise DiskError(f"the bytes {start} to {stop} are not in a file of {file.size}", path=file.path, offset=start)


@contextmanager
def os_errors(action: str, path: Path) -> Iterator[None]:
    """Turn the operating system's errors into flintlog's, with the file's name."""
    try:
        yield
    except OSError as error:
        raise disk_error(error, action, path) from error


def disk_error(error: OSError, action: str, path: Path) -> DiskFull | DiskError:
    """The error of ours that says the same as one of the operating system's."""
    if error.errno in (ENOSPC, EDQUOT):
        return DiskFull(f"no space left to {action}", path=path, advice="free space, or lower the retention")
    return DiskError(f"cannot {action}: {error.strerror or error}", path=path)
