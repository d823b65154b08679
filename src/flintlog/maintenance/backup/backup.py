"""`backup`: a copy of a store that is consistent even while the store runs, and cheap to repeat.

Only the log and `config/` are copied; the rest can be built again from them. The config files are copied first, then
the log up to its end at that moment, so no consumer offset of the copy is ahead of its messages. A log file with
another one after it no longer changes: it is copied once, and again only if its length or time has changed.

A backup never ends inside a closed batch, and remembers which batches it has (`backup_batches.py`).

Of a ledger's member the term, the vote and the checkpoint are copied too. The member has to be stopped: a copy taken
while it runs could hold a vote for entries that it lacks, which breaks the member's promise to its group.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flintlog import kernel
from flintlog.checks.derived_files import DataFile
from flintlog.derive.log_end import records_end
from flintlog.disk.media.durable_names import sync_names
from flintlog.disk.media.local import LocalMedium
from flintlog.disk.media.lock import is_locked
from flintlog.disk.media.medium import Medium
from flintlog.disk.places import local_path
from flintlog.errors import DamagedStore, DiskError, StoreInUse
from flintlog.format import names
from flintlog.maintenance.backup.backup_batches import NAME, encode_table, parse_table
from flintlog.maintenance.backup.backup_files import (
    DELETED,
    FILES,
    FORMAT,
    MANIFEST,
    BackupFile,
    DamagedFile,
    Manifest,
    check_files,
    copy_hashed,
    find_damage,
    load_manifest,
    save_manifest,
    stored_path,
)
from flintlog.maintenance.inspect.delay_levels import format_levels
from flintlog.maintenance.inspect.store_files import StoreFiles, look_at, refuse_member
from flintlog.store.paths import LEDGER_PREFIX, MEMBER_TERM
from flintlog.store.runtime.jobs import Counted, Progress
from flintlog.store.settings.written_with import DELAY_LEVELS, DERIVED_FILES

if TYPE_CHECKING:
    from flintlog.store.options.store_config import StoreConfig

WORKING = ".working"
_LOOKS = 1000
"""How often the log's end is sought while other batches are begun and closed, before the backup gives up."""


@dataclass(frozen=True, slots=True)
class BackupReport:
    """The contents of the backup, and how much was copied this time."""

    min_offset: int
    end_offset: int
    file_count: int
    byte_count: int
    copied_files: int
    copied_bytes: int
    healed_files: int
    """Files of the earlier backup that no longer matched their digest and were copied again."""


def backup(
    root: Path,
    target: Path,
    config: StoreConfig | None = None,
    *,
    medium: Medium | None = None,
    progress: Progress | None = None,
) -> BackupReport:
    """Bring the backup in `target` up to the store in `root`, which may run meanwhile. `progress` counts bytes."""
    root, target = local_path(root), local_path(target)
    medium = LocalMedium() if medium is None else medium
    refuse_member(root, medium, "backed up by itself")
    files = look_at(root, config, medium)
    _refuse_running_member(files)
    if target.absolute().is_relative_to(root.absolute()):
        raise DamagedStore("a backup inside its store would not survive it", path=target, advice="name another place")
    if medium.listing(target) and not medium.exists(target / MANIFEST) and not medium.exists(target / FILES):
        raise DamagedStore("this directory holds something else", path=target, advice="name an empty or new one")
    medium.make_directories(target / FILES)
    lock = medium.lock(target / names.LOCK)
    try:
        sync_names([target, target / FILES], medium)  # a backup that was killed may have left directories unsynced
        return _Copying(files, target, progress).run()
    finally:
        lock.release()


def _refuse_running_member(files: StoreFiles) -> None:
    lock = files.paths.lock
    if files.paths.ledger is not None and is_locked(lock):
        raise StoreInUse("a ledger's member is backed up when it is stopped", path=files.root, advice="stop it first")


class _Copying:
    """One backup, with the target's lock held."""

    def __init__(self, files: StoreFiles, target: Path, progress: Progress | None) -> None:
        self._files = files
        self._medium = files.medium
        self._target = target
        has_one = files.medium.exists(target / MANIFEST)
        before = load_manifest(target, files.medium).files if has_one else ()
        self._before = {file.name: file for file in before}
        self._counted = Counted(progress)
        self._copied_files = 0
        self._copied_bytes = 0
        self._healed_files = 0

    def run(self) -> BackupReport:
        config = [*self._copy_config(), *self._copy_member()]
        files, log_end, notes = self._find_end()
        self._counted.total = log_end - files[0].base if files else 0
        log = self._copy_log(files, log_end)
        config += [] if notes is None else [self._save(notes, NAME)]
        config += self._copy_deletions()
        _refuse_running_member(self._files)  # it may have been started meanwhile
        size = self._files.config.mapped_file_size_commit_log
        taken_at_ms = time.time_ns() // 1_000_000
        begin = log[0].base or 0 if log else 0
        end = (log[-1].base or 0) + log[-1].length if log else 0
        manifest = Manifest(FORMAT, taken_at_ms, begin, end, size, self._options(), (*config, *log))
        save_manifest(self._target, manifest, self._medium)
        self._sweep(manifest)
        total = sum(file.length for file in manifest.files)
        copied = self._copied_files, self._copied_bytes, self._healed_files
        return BackupReport(begin, end, len(manifest.files), total, *copied)

    def _options(self) -> dict[str, int | bool | str | dict[str, str]]:
        config = self._files.config
        options: dict[str, int | bool | str | dict[str, str]] = {name: getattr(config, name) for name in DERIVED_FILES}
        options["topic_queue_types"] = dict(config.topic_queue_types)
        options[DELAY_LEVELS] = format_levels(self._files.delay_levels_ms)
        if self._files.paths.ledger is not None:
            options["enable_dledger_commit_log"] = True
            options["dledger_self_id"] = self._files.paths.ledger.name.removeprefix(LEDGER_PREFIX)
        return options

    # ------------------------------------------------------------------ config

    def _copy_config(self) -> list[BackupFile]:
        folder = self._files.root / names.CONFIG
        found: list[BackupFile] = []
        for info in self._medium.listing(folder):
            if not info.is_directory and info.name.removesuffix(names.BACKUP_SUFFIX).endswith(".json"):
                name = f"{names.CONFIG}/{info.name}"
                try:
                    found.append(self._copy(folder / info.name, name, info.size, info.mtime_ms))
                except DiskError:
                    continue  # it is being replaced; the file or its .bak is there
        return found

    def _copy_deletions(self) -> list[BackupFile]:
        """The note about deleted queues. It is read after the log's end, so it has every deletion before that end."""
        path = self._files.root / DELETED
        return [self._save(self._medium.read(path), DELETED)] if self._medium.exists(path) else []

    def _copy_member(self) -> list[BackupFile]:
        directory = self._files.paths.ledger
        found: list[BackupFile] = []
        if directory is None:
            return found
        for name in (MEMBER_TERM, names.CHECKPOINT):
            info = self._medium.stat(directory / name)
            if info is not None:
                found.append(self._copy(directory / name, f"{directory.name}/{name}", info.size, info.mtime_ms))
        return found

    # ------------------------------------------------------------------ log

    def _name(self, file: DataFile) -> str:
        """The name of a log file in a store."""
        member, ledger = self._files.paths.ledger, self._files.ledger
        is_entries = ledger is not None and ledger.holds(file)
        folder = f"{member.name}/data" if member is not None and is_entries else names.COMMIT_LOG
        return f"{folder}/{names.segment_name(file.base)}"

    def _find_end(self) -> tuple[list[DataFile], int, bytes | None]:
        """The log files with records, their end, and the note about the batches before that end."""
        path = self._files.paths.batches
        for _ in range(_LOOKS):
            before = self._read_notes()
            files, last = self._log_now()
            end = 0 if last is None else self._end_of(last)
            if before == self._read_notes():
                break
        else:
            raise StoreInUse("batches are written one after the other", path=path, advice="try it again later")
        if before is None:
            return files, end, None
        table = parse_table(before)
        if table.opened is not None:
            end = min(end, table.opened.start)
        return [file for file in files if file.base < end or file is files[0]], end, encode_table(table)

    def _read_notes(self) -> bytes | None:
        return self._files.medium.read(self._files.paths.batches) if self._has_notes else None

    @property
    def _has_notes(self) -> bool:
        return self._files.paths.ledger is None and self._files.medium.exists(self._files.paths.batches)

    def _copy_log(self, log: list[DataFile], log_end: int) -> list[BackupFile]:
        copied: list[BackupFile] = []
        for file in log:
            path = Path(file.path)
            is_whole = file is not log[-1]
            length = file.size if is_whole else max(0, log_end - file.base)
            info = self._medium.stat(path)
            name = self._name(file)
            try:
                if info is None:
                    raise DiskError("the file is gone", path=path)
                entry = self._unchanged(name, length, info.mtime_ms) if is_whole else None
                copied.append(entry or self._copy(path, name, length, info.mtime_ms, file.base))
            except DiskError:
                if copied:
                    raise
                # The store's retention may delete the oldest files while they are copied.
        return copied

    def _log_now(self) -> tuple[list[DataFile], DataFile | None]:
        """The log files with records at this moment, and the last of them."""
        files = look_at(self._files.root, self._files.given, self._medium)
        with_data = [file for file in files.log if any(files.read(file.path, 0, min(8, file.size)))]
        if not with_data:
            return [], None
        return [file for file in files.log if file.base <= with_data[-1].base], with_data[-1]

    def _end_of(self, file: DataFile) -> int:
        raw = self._medium.open(Path(file.path))
        try:
            if self._files.ledger is not None:  # bytes after a ledger's last record are for its group to judge
                return file.base + kernel.written_end(raw.buffer, 0, raw.data_end(0))
            return records_end(raw.buffer, file.base, file.base, raw.data_end(0))
        finally:
            raw.close()

    def _unchanged(self, name: str, length: int, modified_ms: int) -> BackupFile | None:
        """The existing copy of a file that has not changed since; None if there is none or it is damaged."""
        before = self._before.get(name)
        if before is None or (before.length, before.modified_ms) != (length, modified_ms):
            return None
        if find_damage(self._target, before, self._medium, self._counted) is None:
            return before
        self._healed_files += 1
        return None

    def _copy(self, source: Path, name: str, length: int, modified_ms: int, base: int | None = None) -> BackupFile:
        working = self._target / FILES / WORKING
        digest = copy_hashed(self._medium, source, length, working, self._counted)
        entry = BackupFile(name, f"{source.name}-{length}-{digest[:16]}", length, digest, modified_ms, base)
        path = stored_path(self._target, entry)
        self._medium.rename(working, path)
        self._medium.sync_directory(path.parent)
        self._copied_files += 1
        self._copied_bytes += length
        return entry

    def _save(self, data: bytes, name: str) -> BackupFile:
        """Write a file of the backup from bytes."""
        digest = hashlib.sha256(data).hexdigest()
        entry = BackupFile(name, f"{Path(name).name}-{len(data)}-{digest[:16]}", len(data), digest, 0)
        self._medium.replace(stored_path(self._target, entry), data)
        return entry

    def _sweep(self, manifest: Manifest) -> None:
        named = {file.stored for file in manifest.files}
        for info in self._medium.listing(self._target / FILES):
            if info.name not in named:
                self._medium.remove(self._target / FILES / info.name)


def verify_backup(
    target: Path, *, medium: Medium | None = None, progress: Progress | None = None
) -> tuple[Manifest, list[DamagedFile]]:
    """Read a whole backup; returns its manifest and the files that do not match it."""
    target, medium = local_path(target), LocalMedium() if medium is None else medium
    manifest = load_manifest(target, medium)
    return manifest, check_files(target, manifest, medium, progress)
