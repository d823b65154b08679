"""The job `verify`: the checks of `flintlog.checks.judge`, in which Spark's tasks read ranges and index files.

    driver   find the files, plan ranges of the log
    tasks    a range: its records, their queue entries and keys; an index file: its chains
    driver   read ranges again that met inside a record; judge all results; side files

Planning and judging are `flintlog.maintenance.verify.verify`'s, so both find the same. A task gets names and places,
and maps the files itself: they must be at the same path or URI wherever tasks run. Of a log at a URI it fetches only
its range; index files are fetched whole. Nothing is changed, and the store may be running.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from flintlog.checks.derived_files import DerivedFiles, LedgerView, QueueFilesView
from flintlog.checks.finding import Finding
from flintlog.checks.index_files import IndexFileView
from flintlog.checks.judge import IndexSequence, LogRange, RangeResult, check_index_file, check_range
from flintlog.disk.media.local import LocalMedium
from flintlog.disk.media.remote import source_of
from flintlog.format.queue_entry import QueueKey
from flintlog.kernel import Crc
from flintlog.maintenance.verify.verify import Mode, Verification
from flintlog.maintenance.verify.verify import verify as verify_files
from flintlog.pipeline.reading.logs import medium_of
from flintlog.pipeline.spark.tasks import count_of, run_tasks
from flintlog.pipeline.views.store_place import place_of
from flintlog.pipeline.views.view_rows import FINDING_COLUMNS
from flintlog.store.runtime.jobs import Progress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from flintlog.store.options.store_config import StoreConfig

RANGE_BYTES = 64 * 1024 * 1024
OPEN_FILES = 256


@dataclass(frozen=True, slots=True)
class KindCount:
    """How often one kind of finding was seen, and where first."""

    id: str
    severity: str
    count: int
    first_file: str | None
    first_offset: int | None
    remedy: str


@dataclass(frozen=True, slots=True)
class SharedFiles:
    """The facts about queues and index that every task needs: plain values that can be pickled."""

    queues: Mapping[QueueKey, QueueFilesView]
    batch_topics: frozenset[str]
    index: tuple[IndexFileView, ...] | None
    delay_levels_ms: tuple[int, ...]
    checked_crc: Crc
    doubtful_levels: frozenset[int]
    ledger: LedgerView | None = None
    uri: str | None = None
    """The store's URI, if it is not on a mounted file system."""


def verify(
    spark: SparkSession,
    store: str | Path,
    *,
    config: StoreConfig | None = None,
    mode: Mode = "full",
    range_bytes: int = RANGE_BYTES,
    progress: Progress | None = None,
) -> Verification:
    """Check a store on Spark, by its path or URI; the findings are those of `flintlog.maintenance.verify.verify`."""
    root, medium, uri = place_of(store)

    def look(
        ranges: Sequence[LogRange],
        chains: Sequence[IndexFileView],
        derived: DerivedFiles,
        index: IndexSequence | None,
        delay_levels_ms: tuple[int, ...],
        checked_crc: Crc,
    ) -> tuple[list[RangeResult], list[Finding]]:
        index_files = None if index is None else index.files
        shared = SharedFiles(
            dict(derived.queues),
            derived.batch_topics,
            index_files,
            delay_levels_ms,
            checked_crc,
            derived.doubtful_levels,
            derived.ledger,
            uri,
        )
        # Chains first, because an index file takes longer than a range.
        items: list[LogRange | IndexFileView] = [*chains, *ranges]
        parts = f"{count_of(len(ranges), 'range')} and {count_of(len(chains), 'index file')}"
        doing = f"verify: check {parts} of {store}"
        found = run_tasks(spark, partial(look_at_item, shared), items, progress, doing=doing)
        results = [each for each in found if isinstance(each, RangeResult)]
        return results, [finding for each in found if isinstance(each, list) for finding in each]

    return verify_files(root, config, mode=mode, medium=medium, range_bytes=range_bytes, look=look)


def look_at_item(shared: SharedFiles, item: LogRange | IndexFileView) -> RangeResult | list[Finding]:
    """One task: a range of the log, or the chains of an index file."""
    medium = LocalMedium() if shared.uri is None else medium_of(shared.uri)[0]
    source = source_of(medium, OPEN_FILES)

    def read(path: str, start: int, stop: int) -> memoryview:
        return source.view(Path(path), start, stop)

    if isinstance(item, IndexFileView):
        return check_index_file(read, item)
    doubtful = shared.doubtful_levels
    derived = DerivedFiles(read, shared.queues, shared.batch_topics, ledger=shared.ledger, doubtful_levels=doubtful)
    index = None if shared.index is None else IndexSequence(read, shared.index)
    view = source.sparse(Path(item.file.path), item.start, item.stop)
    return check_range(
        view, item, derived, index, delay_levels_ms=shared.delay_levels_ms, checked_crc=shared.checked_crc
    )


def findings_frame(spark: SparkSession, findings: Sequence[Finding]) -> DataFrame:
    """Findings as rows."""
    rows = [tuple(getattr(finding, name) for name, _ in FINDING_COLUMNS) for finding in findings]
    return spark.createDataFrame(rows, ", ".join(f"`{name}` {kind}" for name, kind in FINDING_COLUMNS))


def count_kinds(findings: Sequence[Finding]) -> list[KindCount]:
    """A line a kind, errors first, the most frequent first.

    >>> found = [Finding("torn-tail", "error", "seen", "cut it", "a", 5), Finding("torn-tail", "error", "", "", "b", 6)]
    >>> [(kind.id, kind.count, kind.first_offset) for kind in count_kinds(found)]
    [('torn-tail', 2, 5)]
    """
    counts = Counter(finding.id for finding in findings)
    firsts: dict[str, Finding] = {}
    for finding in findings:
        firsts.setdefault(finding.id, finding)
    kinds = [
        KindCount(first.id, first.severity, counts[first.id], first.file, first.offset, first.remedy)
        for first in firsts.values()
    ]
    return sorted(kinds, key=lambda kind: (kind.severity, -kind.count, kind.id))
