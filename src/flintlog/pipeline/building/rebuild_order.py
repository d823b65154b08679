"""What the driver of a rebuild asks for, and what comes of it, whichever way the files are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from flintlog.format.names import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, CONSUME_QUEUE_EXT, INDEX
from flintlog.format.queue_entry import QueueKey
from flintlog.pipeline.building.rebuild_build import BuiltQueue, LogFacts
from flintlog.pipeline.building.rebuild_readings import Readings, join_misfits
from flintlog.pipeline.building.rebuild_scan import BuildPlan, SplitResult
from flintlog.pipeline.reading.logs import Log
from flintlog.pipeline.reading.partitions import LogSplit
from flintlog.pipeline.reading.partitions import plan as plan_log_splits
from flintlog.pipeline.spark.tasks import Item, Result, count_of, parallelism, run_tasks
from flintlog.store.options.store_config import StoreConfig
from flintlog.store.queues.deleted_queues import DeletedQueue
from flintlog.store.runtime.jobs import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DERIVED: Final = (CONSUME_QUEUE_EXT, BATCH_CONSUME_QUEUE, CONSUME_QUEUE, INDEX)
"""The directories that a rebuild makes, in the order of their renames: a queue after its extension."""

MIN_TASK_BYTES: Final = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Order:
    """One rebuild: the log, how far it is read, and what is to be built."""

    spark: SparkSession
    root: str
    config: StoreConfig
    log: Log
    stop: int
    topics: frozenset[str]
    queue_types: Mapping[str, str]
    deleted: Sequence[DeletedQueue]
    doubtful_levels: frozenset[int]
    split_bytes: int
    in_place: bool
    progress: Progress | None = None

    @property
    def cores(self) -> int:
        return parallelism(self.spark)

    def run(
        self,
        function: Callable[[Item], Result],
        items: Sequence[Item],
        verb: str,
        noun: str,
        progress: Progress | None = None,
    ) -> list[Result]:
        return run_tasks(self.spark, function, items, progress, doing=self.doing(verb, len(items), noun))

    def doing(self, verb: str, count: int, noun: str) -> str:
        """What the UI shows."""
        return f"rebuild: {verb} {count_of(count, noun)} of {self.root}"

    def plan(self, staged: Path | str, spill: Path | str = "") -> BuildPlan:
        return BuildPlan.of(
            self.config,
            self.queue_types,
            staged=staged,
            spill=spill,
            topics=self.topics or None,
            deleted=self.deleted,
        )

    def splits(self) -> list[LogSplit]:
        wished = max(1, min(2 * self.cores, (self.stop - self.log.first) // MIN_TASK_BYTES))
        asked = [(self.log, self.log.first, self.stop)]
        return plan_log_splits(asked, split_bytes=self.split_bytes, least_count=wished)

    def read(self, read: Callable[[list[LogSplit]], list[SplitResult]]) -> tuple[list[LogSplit], Readings]:
        """Read the log until its splits fit together; `read` begins anew each time."""
        planned = self.splits()
        while True:
            readings = Readings.of(planned, read(planned), self.log.first)
            if not readings.misfits:
                return planned, readings
            planned = join_misfits(planned, readings.misfits)

    def facts(self, readings: Readings) -> LogFacts:
        size = self.log.files[0].size if self.log.files else 1
        return LogFacts(size, tuple((gap.start, gap.stop) for gap in readings.gaps))

    def notes_of(self, key: QueueKey) -> tuple[DeletedQueue, ...]:
        return tuple(note for note in self.deleted if (note.topic, note.queue_id) == key)


@dataclass(slots=True)
class Built:
    """The result: everything is complete and durable, under names that no reader of a store looks at."""

    readings: Readings
    split_count: int
    placed_count: int
    """How many entries have places of their own."""

    placed: frozenset[QueueKey]
    queues: list[BuiltQueue] = field(default_factory=list)
    """The queues that were built entry by entry."""

    serial: frozenset[QueueKey] = frozenset()
    """Those of them whose offsets do not follow each other."""

    index_file_count: int = 0

    @property
    def topics(self) -> set[str]:
        return {topic for topic, _ in self.keys}

    @property
    def keys(self) -> set[QueueKey]:
        return {*self.placed, *(queue.key for queue in self.queues if queue.entry_count)}

    @property
    def entry_count(self) -> int:
        return self.placed_count + sum(queue.entry_count for queue in self.queues)

    def findings(self) -> list[str]:
        refused = [queue for queue in self.queues if queue.refused_count]
        return self.readings.findings() + [
            f"{queue.refused_count} records name impossible offsets of {queue.key[0]}/{queue.key[1]}"
            for queue in refused
        ]
