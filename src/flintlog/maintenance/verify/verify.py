"""`verify`: proves a store directory, or says what is wrong with it and where. Nothing is changed.

The checks are those of `flintlog.checks.judge`; threads run them over mapped files, because the kernels release the GIL
while they scan. The directory may be ours or Java's, whole or damaged, running or not.

    full     every record, queue entry, index entry and chain
    quick    the last log file with its entries, the first record of the others, names, lengths, side files

Invariant: the memory in use does not grow with the log. The pages of a range are released once it was checked.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from threading import Lock
from typing import TYPE_CHECKING, Literal, Protocol

from flintlog import kernel
from flintlog.checks.derived_files import DataFile, DerivedFiles
from flintlog.checks.finding import ERROR, WARNING, Finding
from flintlog.checks.index_files import IndexFileView
from flintlog.checks.judge import (
    IndexSequence,
    Judgement,
    LogFacts,
    LogRange,
    RangeResult,
    check_index_file,
    check_range,
    join_ranges,
    judge,
    open_index,
    plan_fetched_ranges,
    plan_ranges,
)
from flintlog.checks.side_checks import check_checkpoint
from flintlog.derive.offset_order import OffsetGap, find_gaps
from flintlog.derive.splits import LOOK_BACK_BYTES
from flintlog.derive.stretches import Stretch
from flintlog.disk.media.medium import Advice, Medium
from flintlog.disk.media.source import MappedSource, SparseFile
from flintlog.disk.places import local_path
from flintlog.errors import DiskError, FormatError
from flintlog.format import names
from flintlog.format.checkpoint import Checkpoint, parse_checkpoint
from flintlog.format.queue_entry import QueueKey
from flintlog.kernel import Crc, Row, ScanStop
from flintlog.maintenance.inspect.queue_ends import dispatched_to, log_end_of_queues
from flintlog.maintenance.inspect.store_files import StoreFiles, look_at
from flintlog.maintenance.verify.member_files import check_member, find_given_up
from flintlog.maintenance.verify.side_files import check_side_files
from flintlog.store.runtime.jobs import Progress

if TYPE_CHECKING:
    from flintlog.store.options.store_config import StoreConfig

RANGE_BYTES = 16 * 1024 * 1024
CHUNK_BYTES = 4 * 1024 * 1024
FIRST_LOOK_BYTES = 64 * 1024
FORGET_AFTER_RANGES = 16
"""Pages of queues and index are released after so many ranges of the log."""

Mode = Literal["quick", "full"]


class Look(Protocol):
    """Checks ranges and index files instead of this process's threads (`flintlog.pipeline.verify`: on Spark)."""

    def __call__(
        self,
        ranges: Sequence[LogRange],
        chains: Sequence[IndexFileView],
        derived: DerivedFiles,
        index: IndexSequence | None,
        delay_levels_ms: tuple[int, ...],
        checked_crc: Crc,
    ) -> tuple[list[RangeResult], list[Finding]]:
        """The result of each range, in any order, and the findings of all index files."""


@dataclass(slots=True)
class Verification:
    """The result: findings, notes, what was inferred, and how much was checked."""

    root: Path
    mode: Mode
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    inferred: list[str] = field(default_factory=list)
    record_count: int = 0
    damaged_count: int = 0
    """How many of these records have a damaged body."""
    queue_count: int = 0
    key_count: int = 0
    byte_count: int = 0
    min_offset: int = 0
    max_offset: int = 0
    gaps: dict[QueueKey, list[OffsetGap]] = field(default_factory=dict)
    """Queue offsets that no record has, by queue; batch queues are left out."""
    retagged: dict[QueueKey, list[Stretch]] = field(default_factory=dict)
    """Messages whose tags differ from those of their queue entry, by queue."""


def verify(
    root: Path | str,
    config: StoreConfig | None = None,
    *,
    mode: Mode = "full",
    threads: int | None = None,
    progress: Progress | None = None,
    medium: Medium | None = None,
    range_bytes: int = RANGE_BYTES,
    look: Look | None = None,
) -> Verification:
    """Check the store in a directory; see the module. `look` is used instead of the threads."""
    while True:
        files, derived_end = _look_beside_writer(local_path(root), config, medium)
        verifier = _Verifier(files, derived_end, mode, threads or os.cpu_count() or 1, progress, range_bytes, look)
        try:
            answer = verifier.run()
        except DiskError as error:
            if not files.is_running or error.path is None or files.medium.exists(Path(error.path)):
                raise
            continue  # the writer's retention has deleted the file since it was listed
        if files.is_running or not files.is_in_use():
            return answer  # otherwise a writer has started meanwhile, and may have changed anything


def _look_beside_writer(root: Path, config: StoreConfig | None, medium: Medium | None) -> tuple[StoreFiles, int | None]:
    """The files of a store, and beside a writer the offset below which its queues and index are complete."""
    files = look_at(root, config, medium, every_name=True)
    if not files.is_running:
        return files, None
    derived_end = dispatched_to(files)
    files = look_at(root, config, medium, every_name=True)
    end = files.end
    return files, None if end is None else min(end, derived_end)


class _Verifier:
    """One verification. The calling thread plans and judges; threads of a pool check ranges and index files."""

    def __init__(
        self,
        files: StoreFiles,
        derived_end: int | None,
        mode: Mode,
        threads: int,
        progress: Progress | None,
        range_bytes: int,
        look: Look | None,
    ) -> None:
        self._files = files
        self._derived_end = derived_end
        self._mode = mode
        self._threads = threads
        self._progress = progress
        self._range_bytes = range_bytes
        self._look_elsewhere = look
        self._delay_levels_ms = files.delay_levels_ms
        self._checked_crc = files.checked_crc
        self._done_bytes = 0
        self._since_forgotten = 0
        self._counting = Lock()
        self._answer = Verification(files.root, mode, inferred=list(files.inferred.reasons))

    def run(self) -> Verification:
        files, answer = self._files, self._answer
        facts = self._facts()
        to_read = self._files_to_read(facts)
        derived = files.derived()
        answer.findings += files.findings
        index = self._open_index()
        results, chains = self._look(to_read, facts, derived, index)
        given_up = find_given_up(files, results, facts)
        if given_up is not None:
            answer.notes.append(f"the bytes after {given_up} are of entries that the ledger gave up")
            facts = replace(facts, cut_at=given_up)
            results, chains = self._look([file for file in to_read if file.base < given_up], facts, derived, index)
        if facts.is_clean and any(place.end is None for result in results for place in result.bad_places):
            facts = replace(facts, queues_end=log_end_of_queues(files))
        checkpoint = self._checkpoint()
        judgement = judge(
            results,
            files.log,
            derived,
            index,
            facts,
            logics_physical_offset=checkpoint.logics_physical_offset,
            index_safe_timestamp=checkpoint.index_msg_timestamp,
            known_topics=files.known_topics,
        )
        answer.findings = [_without_loss(finding, judgement) for finding in answer.findings]
        answer.findings += judgement.findings + chains
        answer.notes += judgement.notes
        self._judge_sides(judgement, facts)
        found, notes = check_member(files, results, judgement.log, facts, self._written_end)
        answer.findings += found
        answer.notes += notes
        self._sum_up(judgement)
        return answer

    # ------------------------------------------------------------------ facts

    def _facts(self) -> LogFacts:
        files = self._files
        is_clean = files.is_clean and not files.is_running
        cut_at = self._earlier_cut() if is_clean else files.end
        checked_from = 0
        if self._mode == "quick":
            below = [file for file in files.log if files.end is None or file.base < files.end]
            with_data = [file for file in below if any(files.read(file.path, 0, min(8, file.size)))]
            checked_from = with_data[-1].base if with_data else 0
        if files.is_running:
            self._answer.notes.append("the store is in use: what is written meanwhile is not judged")
        elif not files.is_clean:
            self._answer.notes.append("the last stop was not clean: the next opening recovers the store")
        known_end, derived_end = files.known_end, self._derived_end
        return LogFacts(is_clean, files.is_running, cut_at, known_end, checked_from, derived_end=derived_end)

    def _earlier_cut(self) -> int | None:
        """Where Java's last recovery ended the log, by its checkpoint, if nothing was put since."""
        values = self._checkpoint()
        confirmed = values.confirm_physical_offset
        if confirmed <= 0 or values.logics_physical_offset != confirmed:
            return None
        size = self._record_size(confirmed)
        return confirmed + size if size else None

    def _checkpoint(self) -> Checkpoint:
        """The checkpoint; one of zeros if it cannot be read."""
        try:
            return parse_checkpoint(self._files.small(self._files.paths.checkpoint) or b"")
        except FormatError:
            return Checkpoint()

    def _files_to_read(self, facts: LogFacts) -> list[DataFile]:
        """The log files to check. In quick mode only the first record of the others is checked, here."""
        files = [file for file in self._files.log if facts.cut_at is None or file.base < facts.cut_at]
        for file in files:
            if file.base < facts.checked_from:
                self._check_first_record(file)
        return [file for file in files if file.base >= facts.checked_from]

    def _check_first_record(self, file: DataFile) -> None:
        view = self._files.view(file, 0, LOOK_BACK_BYTES)
        seen = kernel.scan(view, 0, file.size, file.base, check_crc=self._checked_crc, max_count=1)
        if not seen.count and seen.reason is not ScanStop.BLANK:
            evidence = "no intact record begins at the file's begin"
            remedy = "verify in full; restore these bytes from a replica or a backup"
            self._answer.findings.append(Finding("damaged-range", ERROR, evidence, remedy, file.path, 0, file.base, 0))

    # ------------------------------------------------------------------ checking

    def _open_index(self) -> IndexSequence | None:
        files = self._files
        if files.given is not None and not files.given.message_index_enable:
            return None
        index, findings = open_index(
            files.index,
            files.layout,
            files.read,
            self._store_time_at,
            is_running=files.is_running,
            data_end=self._written_end,
        )
        self._answer.findings += findings
        return index

    def _look(
        self, to_read: Sequence[DataFile], facts: LogFacts, derived: DerivedFiles, index: IndexSequence | None
    ) -> tuple[list[RangeResult], list[Finding]]:
        """Check all ranges and all index files, here or elsewhere."""
        if self._look_elsewhere is None:
            results, broken = self._look_here(to_read, facts, derived, index)
        else:
            ranges = list(self._ranges(to_read, facts))
            chains = list(self._chain_files(index))
            results, broken = self._look_elsewhere(
                ranges, chains, derived, index, self._delay_levels_ms, self._checked_crc
            )
        results.sort(key=lambda result: result.range.first_physical_offset)
        return self._rejoin(results, derived, index), broken

    def _look_here(
        self, to_read: Sequence[DataFile], facts: LogFacts, derived: DerivedFiles, index: IndexSequence | None
    ) -> tuple[list[RangeResult], list[Finding]]:
        """Check them on the threads of this process."""
        total = sum(file.size for file in to_read)
        ranges = self._ranges(to_read, facts)
        pulling = Lock()
        results: list[RangeResult] = []

        def work() -> None:
            while True:
                with pulling:
                    log_range = next(ranges, None)
                if log_range is None:
                    return
                results.append(self._check(log_range, derived, index))
                self._report_progress(log_range.stop - log_range.start, total)

        with ThreadPoolExecutor(self._threads, thread_name_prefix="flintlog-verify") as pool:
            chains = [pool.submit(check_index_file, self._files.read, file) for file in self._chain_files(index)]
            for done in [pool.submit(work) for _ in range(self._threads)]:
                done.result()
            broken = [finding for chain in chains for finding in chain.result()]
        if self._progress is not None:
            self._progress(total, total)
        return results, broken

    def _ranges(self, to_read: Sequence[DataFile], facts: LogFacts) -> Iterator[LogRange]:
        for file in to_read:
            limit = file.size if facts.cut_at is None else facts.cut_at - file.base
            for planned in self._ranges_of(file):
                if planned.stop <= limit:
                    yield planned
                elif planned.start < limit:
                    yield LogRange(file, planned.start, limit, True, True)

    def _ranges_of(self, file: DataFile) -> Iterator[LogRange]:
        if not isinstance(self._files.source, MappedSource):
            sparse = SparseFile(self._files.source, PurePath(file.path), file.size)
            yield from plan_fetched_ranges(sparse.fetch, file, self._range_bytes)
            return
        raw = self._files.medium.open(Path(file.path))
        raw.advise(Advice.SEQUENTIAL)
        yield from plan_ranges(raw.buffer, file, self._written_end(file.path), self._range_bytes)

    def _check(self, log_range: LogRange, derived: DerivedFiles, index: IndexSequence | None) -> RangeResult:
        raw = self._files.medium.open(Path(log_range.file.path))
        is_mapped = isinstance(self._files.source, MappedSource)
        view = raw.buffer if is_mapped else self._files.view(log_range.file, log_range.start, log_range.stop)
        try:
            return check_range(
                view, log_range, derived, index, delay_levels_ms=self._delay_levels_ms, checked_crc=self._checked_crc
            )
        finally:
            raw.advise(Advice.DONT_NEED, log_range.start, log_range.stop)
            with self._counting:
                self._since_forgotten += 1
                if self._since_forgotten >= FORGET_AFTER_RANGES:
                    self._since_forgotten = 0
                    self._files.source.forget()

    def _rejoin(
        self, results: list[RangeResult], derived: DerivedFiles, index: IndexSequence | None
    ) -> list[RangeResult]:
        """Check neighbouring ranges again as one, if their border lay inside a record."""
        joined: list[RangeResult] = []
        for result in results:
            before = joined[-1] if joined else None
            if before is None or before.cut_inside_record_at < 0:
                joined.append(result)
                continue
            joined[-1] = self._check(join_ranges(before.range, result.range), derived, index)
        return joined

    def _chain_files(self, index: IndexSequence | None) -> Iterator[IndexFileView]:
        for file in () if index is None else index.files:
            assert index is not None
            is_last = file is index.files[-1]
            if is_last and self._files.is_running:
                continue  # its entries, slots and header change while they are read
            if self._mode == "full" or is_last:
                yield file

    def _report_progress(self, byte_count: int, total: int) -> None:
        if self._progress is not None:
            with self._counting:
                self._done_bytes += byte_count
                self._progress(min(self._done_bytes, total), total)

    def _written_end(self, path: str) -> int:
        """The place after the last byte of a file that is not zero. The pages that were read are released."""
        source = self._files.source
        if not isinstance(source, MappedSource):
            return self._fetched_end(path)
        raw = self._files.medium.open(Path(path))
        end = raw.data_end(0)
        while end > 0:
            begin = max(0, end - CHUNK_BYTES)
            written = kernel.written_end(raw.buffer, begin, end)
            raw.advise(Advice.DONT_NEED, begin, end)
            if written > begin:
                return written
            end = begin
        return 0

    def _fetched_end(self, path: str) -> int:
        """The same of a file that is not mapped."""
        end = self._files.source.size(PurePath(path))
        while end > 0:
            begin = max(0, end - CHUNK_BYTES)
            written = kernel.written_end(self._files.read(path, begin, end), 0, end - begin)
            if written:
                return begin + written
            end = begin
        return 0

    # ------------------------------------------------------------------ single records

    def _row_at(self, physical_offset: int, checked_crc: Crc) -> Row | None:
        file = self._files.log_file_of(physical_offset)
        if file is None:
            return None
        start = physical_offset - file.base
        for size in (FIRST_LOOK_BYTES, LOOK_BACK_BYTES):  # few records are longer than that
            view = self._files.view(file, start, start + size)
            seen = kernel.scan(view, start, file.size, file.base, check_crc=checked_crc, max_count=1)
            if seen.count:
                break
        return seen.row(0) if seen.count else None

    def _record_size(self, physical_offset: int) -> int:
        """The size of the intact record at an offset; 0 when none begins there."""
        row = self._row_at(physical_offset, self._checked_crc)
        return 0 if row is None else row.size

    def _store_time_at(self, physical_offset: int) -> int | None:
        row = self._row_at(physical_offset, Crc.NONE)
        return None if row is None else row.store_timestamp

    # ------------------------------------------------------------------ the rest

    def _judge_sides(self, judgement: Judgement, facts: LogFacts) -> None:
        files, answer = self._files, self._answer
        path = files.paths.checkpoint
        data = files.small(path)
        if data is None and self._may_lack_checkpoint():
            answer.notes.append("there is no checkpoint yet: the store was stopped before it wrote its first")
        else:
            _, findings = check_checkpoint(
                data, str(path), judgement.log, facts, lambda offset: bool(self._record_size(offset))
            )
            answer.findings += findings
        answer.findings += check_side_files(files, judgement, facts, is_quick=self._mode == "quick")

    def _may_lack_checkpoint(self) -> bool:
        """A flintlog store that ran for less than a second has none. RocketMQ's has one, and an abort.bak."""
        files = self._files
        return files.is_running or not (files.is_clean or files.medium.exists(files.root / names.ABORT_BACKUP))

    def _sum_up(self, judgement: Judgement) -> None:
        answer = self._answer
        answer.record_count, answer.damaged_count = judgement.log.record_count, judgement.log.damaged_count
        answer.key_count = judgement.key_count
        answer.queue_count = len(self._files.queues)
        answer.byte_count = sum(file.size for file in self._files.log)
        answer.min_offset, answer.max_offset = judgement.log.min_offset, judgement.log.end
        for key, tally in judgement.queues.items():
            if key[0] not in self._files.batch_topics:
                answer.gaps[key] = find_gaps(tally.records.in_log_order())
            if tally.retagged.items:
                answer.retagged[key] = tally.retagged.items


def _without_loss(finding: Finding, judgement: Judgement) -> Finding:
    """Lower the severity for a log file that was cut inside its blank: it has lost no message."""
    if finding.id != "wrong-file-size" or finding.file not in judgement.log.cut_blanks:
        return finding
    return replace(finding, severity=WARNING, remedy="repair brings it to its length; only unused bytes are missing")
