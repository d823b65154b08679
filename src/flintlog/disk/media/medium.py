"""The interface of a disk.

`Medium` is a whole file system, `RawFile` one file of fixed size that is mapped into memory. There is a real one
(`LocalMedium`) and one that fails on command (`FaultyMedium`). Others may be installed under the entry point group
"flintlog.media" and named in the configuration.

An implementation guarantees:

- `create` returns a file of exactly `size` zero bytes, of which the first `allocated` ones (all, if that is None) have
  space on the disk; or it raises `DiskFull` and leaves no file.
- Bytes that have space can be written through the mapping. Writing elsewhere ends the process on a full disk, so
  `allocate` comes first. `open` for writing allocates the whole file, unless the caller does so itself (`in_steps`).
- After `RawFile.sync(start, stop)` returned, these bytes, the file's name and its directories survive a crash. It does
  not matter which process wrote them (a killed one may leave bytes that are only in the page cache), nor how the file
  was opened.
- `Medium.sync(path)` does that for a whole file that need not be open.
- After one `sync` of a file failed, every later `sync` of it fails: the operating system may have dropped the pages, so
  success must never be reported again.
- `RawFile.close` never raises; a view of the file stays valid until it is dropped.
- Errors are flintlog's: `DiskFull`, `SyncFailed`, `StoreInUse`, and `DiskError` for the rest.

Reasons and costs: docs/decisions/0013.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from errno import EDQUOT, ENOSPC
from pathlib import Path, PurePath
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
        """Make these bytes, the file's name and its directories durable. After one `SyncFailed` it always fails."""

    def write_at(self, position: int, data: memoryview) -> None:
        """Write through the file instead of the mapping: without page faults and without the GIL."""

    def allocate(self, start: int, stop: int) -> None:
        """Get space on the disk for a range; raises `DiskFull`. What was written there stays."""

    def clear(self, start: int, stop: int) -> None:
        """Set a range to zero; not yet durable. The range has space on the disk afterwards."""

    def data_end(self, start: int) -> int:
        """The offset, at least `start`, after which nothing was ever written, so that it need not be read."""

    def touch(self, start: int, stop: int) -> bool:
        """Fault pages in for writing: they become dirty, with the same content. False where the system cannot."""

    def prepare(self, start: int, stop: int) -> bool:
        """As `touch`, and so that a later sync writes only pages that were changed. False where it cannot."""

    def advise(self, advice: Advice, start: int = 0, stop: int | None = None) -> bool:
        """Advise the system how a range will be used; False when it refused."""

    def lock_memory(self) -> bool:
        """Keep the pages in memory; False when that is not allowed."""

    def unlock_memory(self) -> bool: ...

    def close(self) -> None:
        """Drop the mapping; it is unmapped with the last view of it."""


class UnsyncedFile:
    """A base for files that are not on a disk of this machine: there is nothing to prepare or sync."""

    def sync(self, start: int = 0, stop: int | None = None) -> None:
        """Does nothing."""

    def allocate(self, start: int, stop: int) -> None:
        """Does nothing."""

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
        """Does nothing; the memory is freed with the last view of it."""


@runtime_checkable
class Descriptive(Protocol):
    """A `RawFile` with file descriptors; other media need not have any."""

    def new_descriptor(self) -> int:
        """A descriptor to write through the file instead of the mapping, which the caller closes; -1 on failure."""


class LockFile(Protocol):
    """An exclusive lock on byte 0 of a file, held until `release` or the end of the process."""

    @property
    def path(self) -> Path: ...

    def release(self) -> None: ...


class Medium(Protocol):
    """The part of a file system that a store needs. All methods may be called from any thread."""

    @property
    def maps(self) -> MapCache:
        """The mapped segments of all queues of this medium, with a bound on their number."""

    def create(self, path: Path, size: int, allocated: int | None = None) -> RawFile: ...

    def open(self, path: Path, writable: bool = False, *, in_steps: bool = False) -> RawFile: ...

    def sync(self, path: Path) -> None:
        """Make all bytes of a file durable, also those that another process wrote; the file need not be open.

        Names become durable if this process created them; for others there is `durable_names`.
        """

    def listing(self, directory: Path) -> list[FileInfo]:
        """The entries by name; empty when there is no such directory."""

    def stat(self, path: Path) -> FileInfo | None: ...

    def exists(self, path: Path) -> bool: ...

    def read(self, path: Path, limit: int = MAX_SMALL_FILE_BYTES) -> bytes:
        """A whole small file; `DiskError` when it is longer than `limit`."""

    def head(self, path: Path, size: int) -> bytes:
        """The first `size` bytes of a file, or all; much cheaper than mapping it."""

    def write(self, path: Path, data: bytes) -> None:
        """Write a small file in place and make it durable."""

    def replace(self, path: Path, data: bytes) -> None:
        """Replace the content of a name. After a crash the file has the old or the new content, never a mix."""

    def rename(self, source: Path, target: Path) -> None: ...

    def remove(self, path: Path) -> None:
        """Unlink a file, if there is one."""

    def remove_tree(self, path: Path) -> None: ...

    def make_directories(self, path: Path) -> None: ...

    def sync_directory(self, path: Path) -> None: ...

    def usage(self, path: Path) -> DiskUsage: ...

    def lock(self, path: Path) -> LockFile:
        """Take the store's lock; `StoreInUse` when it is taken."""


def check_range(path: PurePath, size: int, start: int, stop: int) -> None:
    """Raise `DiskError` unless a file of `size` bytes holds the range."""
    if not 0 <= start <= stop <= size:
        raise DiskError(f"the bytes {start} to {stop} are not in a file of {size}", path=path, offset=start)


@contextmanager
def os_errors(action: str, path: Path) -> Iterator[None]:
    """Convert the operating system's errors to flintlog's, with the file's name."""
    try:
        yield
    except OSError as error:
        raise disk_error(error, action, path) from error


def first_line(error: Exception) -> str:
    """The first line of another library's error, or its type if it has no text.

    >>> first_line(OSError("no space\\nat Java.java:1")), first_line(ValueError())
    ('no space', 'ValueError')
    """
    return next(iter(str(error).splitlines()), type(error).__name__)


def disk_error(error: OSError, action: str, path: Path) -> DiskFull | DiskError:
    """flintlog's error for one of the operating system."""
    if error.errno in (ENOSPC, EDQUOT):
        return DiskFull(f"no space left to {action}", path=path, advice="free space, or lower the retention")
    return DiskError(f"cannot {action}: {error.strerror or error}", path=path)
