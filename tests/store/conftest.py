"""A golden store as the queues and the index see it, with its own truth beside it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from flintlog import kernel
from flintlog.disk.media.local import LocalMedium
from flintlog.format.index_file import IndexLayout
from flintlog.format.record import Record, parse_record
from flintlog.kernel import Row
from flintlog.store.index.index_service import IndexService
from flintlog.store.queues.queue_files import QueueFiles
from flintlog.store.queues.queue_table import QueueTable

NOW_MS = 1_800_000_000_000


@dataclass
class GoldenStore:
    """One case's folder: its store, its configuration, and the truth the Java store wrote down."""

    folder: Path
    medium: LocalMedium

    def __post_init__(self) -> None:
        config = json.loads((self.folder / "config.json").read_text())
        options = config["set"]
        has_ext = options.get("enableConsumeQueueExt") == "true"
        self.types: dict[str, str] = config["topicQueueTypes"]
        self.files = QueueFiles(
            int(options["mappedFileSizeConsumeQueue"]),
            int(options["mapperFileSizeBatchConsumeQueue"]),
            int(options["mappedFileSizeConsumeQueueExt"]) if has_ext else None,
        )
        self.layout = IndexLayout(int(options["maxHashSlotNum"]), int(options["maxIndexNum"]))
        self.root = self.folder / "store"
        self.log_file_size = int(options["mappedFileSizeCommitLog"])
        self.log = {int(file.name): file.read_bytes() for file in sorted((self.root / "commitlog").iterdir())}

    def truth(self, file: str, kind: str) -> list[dict[str, Any]]:
        """The lines of one kind."""
        with open(self.folder / f"{file}.jsonl", encoding="utf-8") as lines:
            return [line for line in map(json.loads, lines) if line["kind"] == kind]

    def queues(self, root: Path | None = None) -> QueueTable:
        """The queues under a root, not loaded yet."""
        root = self.root if root is None else root
        return QueueTable(root, self.medium, self.files, topic_queue_types=self.types, now_ms=lambda: NOW_MS)

    def index(self, root: Path | None = None, now_ms: Callable[[], int] = lambda: NOW_MS) -> IndexService:
        """The index under a root, not loaded yet."""
        root = self.root if root is None else root
        return IndexService(root / "index", self.medium, self.layout, now_ms=now_ms)

    def record(self, physical_offset: int) -> Record:
        base = physical_offset - physical_offset % self.log_file_size
        return parse_record(self.log[base], physical_offset - base)

    def store_time(self, physical_offset: int, size: int = 0) -> int:
        return self.record(physical_offset).store_timestamp

    def rows(self) -> Iterator[tuple[str, int, Row, list[int]]]:
        """Every record in the log's order: topic, queue id, row, index hashes."""
        for base, data in self.log.items():
            scan = kernel.scan(data, 0, len(data), base)
            for number in range(scan.count):
                row = scan.row(number)
                topic, queue_id = scan.queues[row.queue]
                yield topic, queue_id, row, list(scan.hashes[row.first_hash : row.first_hash + row.hash_count])


@pytest.fixture
def golden_store(golden: Callable[[str], Path]) -> Callable[[str], GoldenStore]:
    return lambda case: GoldenStore(golden(case), LocalMedium())
