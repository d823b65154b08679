"""`restore`: makes a store from a backup, whole or cut at a point in time or in the log.

1. NEW.restoring gets the log files, whose digests are checked, cut after the last wanted record, and the config.
2. It is opened once: queues, index and checkpoint are built from the log, and offsets beyond it are lowered.
3. It is renamed to NEW.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flintlog import kernel
from flintlog.disk.media.local import LocalMedium
from flintlog.disk.media.medium import Medium
from flintlog.disk.places import local_path
from flintlog.errors import DamagedStore, InvalidConfig, InvalidOffset
from flintlog.maintenance.backup.backup_batches import BackupBatches
from flintlog.maintenance.backup.backup_files import (
    DELETED,
    BackupFile,
    Manifest,
    copy_hashed,
    hash_file,
    load_manifest,
    stored_path,
)
from flintlog.maintenance.repair.kept import copy_file
from flintlog.maintenance.repair.reopen import lower_delay_offsets, settle
from flintlog.store.queues.deleted_queues import DeletedQueue
from flintlog.store.runtime.jobs import Counted, Progress
from flintlog.store.runtime.note_file import NoteFile

if TYPE_CHECKING:
    from flintlog.store.options.store_config import StoreConfig

_SCAN_ROWS = 65_536
OnStep = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """The new store's log and queues, and the end of the backup's log."""

    min_offset: int
    end_offset: int
    backup_end_offset: int
    queue_count: int


def restore(
    target: Path,
    new: Path,
    *,
    at_ms: int | None = None,
    to_offset: int | None = None,
    config: StoreConfig | None = None,
    medium: Medium | None = None,
    progress: Progress | None = None,
    on_step: OnStep | None = None,
) -> RestoreReport:
    """Make a store in a new directory.

    `at_ms` keeps the messages that were stored up to then, `to_offset` those that begin before this offset. `progress`
    counts bytes that are read and copied; then `on_step("build")` is called before queues and index are built.
    """
    target, new = local_path(target), local_path(new)
    medium = LocalMedium() if medium is None else medium
    if medium.exists(new) and medium.listing(new):
        raise DamagedStore("there is something here already", path=new, advice="name a new directory")
    manifest = load_manifest(target, medium)
    return _Restoring(target, new, manifest, config, medium, progress).run(at_ms, to_offset, on_step)


class _Restoring:
    def __init__(
        self,
        target: Path,
        new: Path,
        manifest: Manifest,
        config: StoreConfig | None,
        medium: Medium,
        progress: Progress | None,
    ) -> None:
        self._target = target
        self._new = new
        self._working = new.with_name(f"{new.name}.restoring")
        self._manifest = manifest
        self._batches = BackupBatches(target, manifest, medium)
        self._medium = medium
        self._config = config
        self._counted = Counted(progress)

    def run(self, at_ms: int | None, to_offset: int | None, on_step: OnStep | None) -> RestoreReport:
        manifest, medium = self._manifest, self._medium
        if manifest.is_ledger and (at_ms is not None or to_offset is not None):
            what = "the log of this backup is a ledger, which is restored as a whole"
            raise InvalidConfig(what, path=self._target, advice="leave --at and --to out")
        end = self._find_end(at_ms, to_offset)
        self._counted.total = 2 * max(0, end - manifest.min_offset)  # read for their digests, then copied
        medium.remove_tree(self._working)
        medium.make_directories(self._working / "commitlog")
        for file in manifest.log:
            self._restore_log_file(file, end)
        for file in manifest.files:
            if file.base is None:
                self._restore_small(file)
        if end < manifest.end_offset:
            self._batches.note_kept(self._working, end)
            self._keep_deletions(end)
        if on_step is not None:
            on_step("build")
        end, queue_count = self._build(end)
        if medium.exists(self._new):
            medium.remove_tree(self._new)
        medium.rename(self._working, self._new)
        medium.sync_directory(self._new.absolute().parent)
        return RestoreReport(min(manifest.min_offset, end), end, manifest.end_offset, queue_count)

    # ------------------------------------------------------------------ where to cut

    def _find_end(self, at_ms: int | None, to_offset: int | None) -> int:
        if at_ms is None and to_offset is None:
            return self._manifest.end_offset
        if to_offset is not None and to_offset < self._manifest.min_offset:
            raise InvalidOffset("the backup begins later", offset=to_offset)
        for file in self._manifest.log:
            found = self._first_unwanted(file, at_ms, to_offset)
            if found is not None:
                return self._batches.end_outside(found)
        return self._manifest.end_offset

    def _first_unwanted(self, file: BackupFile, at_ms: int | None, to_offset: int | None) -> int | None:
        """Where the first record after the wanted end begins; None when this file has none."""
        base = file.base or 0
        if to_offset is not None and base + file.length <= to_offset:
            return None
        raw = self._medium.open(stored_path(self._target, file))
        try:
            return _first_unwanted(raw.buffer, base, at_ms, to_offset)
        finally:
            raw.close()

    # ------------------------------------------------------------------ copying

    def _restore_log_file(self, file: BackupFile, end: int) -> None:
        base = file.base or 0
        if base >= end and file is not self._manifest.log[0]:
            return
        stored = stored_path(self._target, file)
        if hash_file(self._medium, stored, self._counted) != file.sha256:
            raise _mismatch(stored)
        path = self._working / file.name
        self._medium.make_directories(path.parent)
        copy_file(self._medium, stored, path, size=self._manifest.log_file_size, counted=self._counted)
        if base + file.length > end:
            raw = self._medium.open(path, writable=True)
            raw.clear(end - base, raw.size)
            raw.sync()
            raw.close()

    def _restore_small(self, file: BackupFile) -> None:
        stored, path = stored_path(self._target, file), self._working / file.name
        self._medium.make_directories(path.parent)
        if copy_hashed(self._medium, stored, file.length, path, self._counted) != file.sha256:
            raise _mismatch(stored)

    def _keep_deletions(self, end: int) -> None:
        """Forget deletions after the cut: those queues exist again."""
        note = NoteFile(self._working / DELETED, self._medium, list[DeletedQueue])
        known = note.load().content
        if known is not None:
            note.save([each for each in known if not each.is_deletion or each.log_end <= end])

    def _build(self, end: int) -> tuple[int, int]:
        """Open the store once: queues and index are built from the log, and offsets beyond it are lowered.

        A ledger's log is read up to its committed end; its group decides about the entries after that.
        """
        from flintlog.store.options.store_config import StoreConfig

        base = StoreConfig() if self._config is None else self._config
        options = {**self._manifest.options, "mapped_file_size_commit_log": self._manifest.log_file_size}
        config = base.with_changes(**options)
        found, count = settle(self._working, config, self._medium, is_guessed=self._config is None)
        if found != end and self._manifest.log and not self._manifest.is_ledger:
            raise DamagedStore(f"the log ends at {found}, not at {end}", path=self._working)
        lower_delay_offsets(self._working, config, self._medium)
        return found, count


def _first_unwanted(view: memoryview, base: int, at_ms: int | None, to_offset: int | None) -> int | None:
    place = 0
    while True:
        seen = kernel.scan(view, place, len(view), base, max_count=_SCAN_ROWS)
        for number in range(seen.count):
            row = seen.row(number)
            is_late = at_ms is not None and row.store_timestamp > at_ms
            if is_late or (to_offset is not None and row.physical_offset >= to_offset):
                return row.physical_offset
        place = seen.end
        if not seen.count:
            place = kernel.find_record(view, place + 1, len(view), base) if place + 1 < len(view) else -1
            if place < 0:
                return None


def _mismatch(path: Path) -> DamagedStore:
    advice = "`flintlog backup verify` lists all such files; take another backup, or copy this file from one"
    return DamagedStore("this file of the backup does not match its digest", path=path, advice=advice)
