"""The files of a backup: a manifest, and files that are named after their contents.

    TARGET/manifest.json                                       replaced last, as a whole
    TARGET/files/00000000000000524288-140433-9f86d081884c7d65   <name>-<bytes>-<first digits of its SHA-256>

A file never changes once it has its name, so an interrupted backup leaves the earlier one whole. The next backup
removes files that the manifest does not name. The manifest carries the digest of each file and one of itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from flintlog.disk.media.medium import Advice, Medium
from flintlog.errors import DamagedStore, DiskError, FormatError
from flintlog.store.runtime.jobs import Counted, Progress
from flintlog.store.runtime.note_file import decode_json
from flintlog.store.settings.written_with import by_their_names

MANIFEST = "manifest.json"
DELETED = "flintlog/deleted.json"
"""The note about deleted queues, by its name in a store and in a manifest."""
FILES = "files"
FORMAT = 1
CHUNK_BYTES = 4 * 1024 * 1024


class BackupFile(msgspec.Struct, frozen=True):
    """One file: its name in the store, its name in the backup, its length and digest."""

    name: str
    stored: str
    length: int
    sha256: str
    modified_ms: int
    base: int | None = None
    """The first physical offset of a log file."""


class Manifest(msgspec.Struct, frozen=True):
    """The contents of a backup. `options` are the sizes that the store was written with."""

    format: int
    taken_at_ms: int
    min_offset: int
    end_offset: int
    log_file_size: int
    options: dict[str, int | bool | str | dict[str, str]]
    files: tuple[BackupFile, ...]
    digest: str = ""

    def sealed(self) -> Manifest:
        """The same with the digest over all other fields."""
        return msgspec.structs.replace(self, digest=_digest_of(self))

    @property
    def is_ledger(self) -> bool:
        """Whether the log belongs to a ledger's member, which is only restored whole."""
        return bool(self.options.get("enable_dledger_commit_log"))

    @property
    def log(self) -> list[BackupFile]:
        """The files of the log, in order."""
        return sorted((file for file in self.files if file.base is not None), key=lambda file: file.base or 0)


@dataclass(frozen=True, slots=True)
class DamagedFile:
    """A file of a backup that does not match the manifest."""

    file: str
    problem: str


def _digest_of(manifest: Manifest) -> str:
    return hashlib.sha256(msgspec.json.encode(msgspec.structs.replace(manifest, digest=""))).hexdigest()


def save_manifest(target: Path, manifest: Manifest, medium: Medium) -> None:
    """Replace the manifest: from here on the new backup counts."""
    medium.replace(target / MANIFEST, msgspec.json.format(msgspec.json.encode(manifest.sealed()), indent=1))


def load_manifest(target: Path, medium: Medium) -> Manifest:
    """The manifest of a backup; `DamagedStore` when there is none or it cannot be trusted."""
    path = target / MANIFEST
    if not medium.exists(path):
        raise DamagedStore("there is no backup here", path=target, advice="name the directory that `backup` wrote")
    try:
        manifest = decode_json(medium.read(path), Manifest)
    except FormatError as error:
        raise DamagedStore(f"the manifest cannot be read: {error.what}", path=path) from error
    if manifest.format != FORMAT:
        raise DamagedStore(f"a backup of format {manifest.format}", path=path, advice="a later flintlog wrote it")
    if manifest.digest != _digest_of(manifest):
        raise DamagedStore("the manifest does not match its own digest", path=path)
    return msgspec.structs.replace(manifest, options=by_their_names(manifest.options))


def stored_path(target: Path, file: BackupFile) -> Path:
    """The path of a file in a backup; `DamagedStore` for a name that leads elsewhere."""
    if "/" in file.stored or ".." in Path(file.name).parts or Path(file.name).is_absolute():
        raise DamagedStore(f"a file {file.stored!r} for {file.name!r}", path=target)
    return target / FILES / file.stored


def copy_hashed(medium: Medium, source: Path, length: int, working: Path, counted: Counted) -> str:
    """Copy the first bytes of a file into a new one, durably; returns their SHA-256."""
    medium.remove(working)
    if not length:
        medium.write(working, b"")
        return hashlib.sha256().hexdigest()
    made = medium.create(working, length)
    try:
        digest = _pump(medium, source, length, made.write_at, counted)
        made.sync()
    finally:
        made.close()
    return digest


def hash_file(medium: Medium, path: Path, counted: Counted) -> str:
    """The SHA-256 of a file."""
    info = medium.stat(path)
    if info is None or not info.size:
        return hashlib.sha256().hexdigest()
    return _pump(medium, path, info.size, lambda position, data: None, counted)


def _pump(medium: Medium, source: Path, length: int, take: Callable[[int, memoryview], None], counted: Counted) -> str:
    """Pass a file's first bytes to `take` in pieces; returns their SHA-256."""
    digest = hashlib.sha256()
    read = medium.open(source)
    try:
        for start in range(0, length, CHUNK_BYTES):
            stop = min(start + CHUNK_BYTES, length)
            part = read.buffer[start:stop]
            digest.update(part)
            take(start, part)
            part.release()
            read.advise(Advice.DONT_NEED, start, stop)
            counted.add(stop - start)
    finally:
        read.close()
    return digest.hexdigest()


def check_files(
    target: Path, manifest: Manifest, medium: Medium, progress: Progress | None = None
) -> list[DamagedFile]:
    """Every file that is missing, or has another length or other bytes than the manifest says."""
    counted = Counted(progress, sum(file.length for file in manifest.files))
    found = ((file.name, find_damage(target, file, medium, counted)) for file in manifest.files)
    return [DamagedFile(name, problem) for name, problem in found if problem is not None]


def find_damage(target: Path, file: BackupFile, medium: Medium, counted: Counted) -> str | None:
    """Compare a file of a backup with the manifest: the damage, or None."""
    path = stored_path(target, file)
    info = medium.stat(path)
    if info is None:
        return f"{path.name} is missing"
    if info.size != file.length:
        return f"{path.name} has {info.size} bytes, not {file.length}"
    try:
        is_right = hash_file(medium, path, counted) == file.sha256
    except DiskError as error:
        return f"{path.name}: {error.what}"
    return None if is_right else f"{path.name} does not match its digest"
