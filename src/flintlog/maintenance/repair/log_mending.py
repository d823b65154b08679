"""The steps of a repair that change bytes of the log. The old bytes are kept first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from flintlog import kernel
from flintlog.checks.misplaced import mend_place
from flintlog.errors import FormatError
from flintlog.format import names
from flintlog.format.record import encode_blank, parse_record
from flintlog.maintenance.inspect.store_files import StoreFiles
from flintlog.maintenance.repair.fill import Filled, Gaps, ends_with, fill_range
from flintlog.maintenance.repair.kept import Kept
from flintlog.maintenance.repair.lost_messages import entries_in
from flintlog.maintenance.repair.lost_records import stand_in
from flintlog.maintenance.repair.repair_plan import Step
from flintlog.maintenance.repair.undoing import Undo


def name_of(files: StoreFiles, path: Path) -> str:
    """The name under which a file of the store is kept."""
    root = files.root
    return str(path.relative_to(root)) if path.is_relative_to(root) else f"{names.COMMIT_LOG}/{path.name}"


class LogMending:
    """These steps in one round. `gaps` are the queue offsets that no record of the log has."""

    def __init__(self, files: StoreFiles, kept: Kept, undo: Undo, gaps: Gaps, on_step: Callable[[str], None]) -> None:
        self._files = files
        self._medium = files.medium
        self._kept = kept
        self._undo = undo
        self._gaps = gaps
        self._filled: set[Filled] = set()
        self._on_step = on_step

    def _overwrite(self, path: Path, start: int, data: bytes) -> None:
        """Replace bytes of the log; the old ones are kept first."""
        raw = self._medium.open(path, writable=True)
        try:
            old = bytes(raw.buffer[start : start + len(data)])
            if old != data:
                self._keep(path, start, old, "at")
                raw.write_at(start, memoryview(data))
                raw.sync(start, start + len(data))
        finally:
            raw.close()

    def _keep(self, path: Path, start: int, old: bytes, where: str) -> None:
        self._kept.keep_bytes(f"{name_of(self._files, path)}.{where}-{start}", old)
        self._on_step("kept")
        self._undo.overwritten(path, start, old)

    def write_end_mark(self, step: Step) -> None:
        path, start = Path(step.file or ""), step.offset or 0
        info = self._medium.stat(path)
        if info is not None:
            self._overwrite(path, start, encode_blank(info.size - start))

    def put_stand_in(self, step: Step) -> None:
        path, start = Path(step.file or ""), step.offset or 0
        view = self._files.read(str(path), start, start + step.size)
        try:
            record = parse_record(view)
        except FormatError:
            return
        self._overwrite(path, start, stand_in(record))

    def mend(self, step: Step) -> None:
        path, start, at = Path(step.file or ""), step.offset or 0, step.physical_offset or 0
        for entry in entries_in(self._files, [(at, at + 1, "")]):
            record = bytes(self._files.read(str(path), start, start + entry.size))
            place = entry.topic or "", entry.queue_id or 0, entry.queue_offset or 0
            right = mend_place(record, at, *place)
            if right is not None:
                self._overwrite(path, start, right)
                return

    def fill(self, step: Step) -> None:
        path, start = Path(step.file or ""), step.offset or 0
        data = fill_range(self._files, path, start, step.size, self._gaps, self._filled)
        if data is not None:
            self._overwrite(path, start, data)
        elif ends_with(self._files, (step.physical_offset or 0) + step.size):
            self.cut(step)

    def cut(self, step: Step) -> None:
        end = step.physical_offset or 0
        for file in self._files.log:
            if file.end <= end:
                continue
            path, start = Path(file.path), max(0, end - file.base)
            raw = self._medium.open(path, writable=True)
            try:
                stop = kernel.written_end(raw.buffer, start, max(start, raw.data_end(start)))
                if stop > start:
                    self._keep(path, start, bytes(raw.buffer[start:stop]), "from")
                    raw.clear(start, stop)
                    raw.sync(start, stop)
            finally:
                raw.close()
