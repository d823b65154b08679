"""`df.write.format("flintlog")` and `df.writeStream.format("flintlog")`: rows become messages of a store.

    tasks    make messages of their rows, check them, stage them                    sink_rows.py, sink_staging.py
    driver   open the store, append what was staged and a closing marker            store/closed_batch.py

Messages are appended in the order of the partitions and of the rows in them, so a queue has its rows in that order.
Each batch is in the log once: tasks that are tried again or run twice stage twice, but the driver appends what one
attempt staged; a commit that is repeated after a restart is skipped; a part of a batch that a crash left is cut when
the store is opened next. The driver holds the store's lock while it appends.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from flintlog.disk.media.leftovers import remove_empty
from flintlog.disk.media.local import LocalMedium
from flintlog.disk.media.lock import is_locked
from flintlog.errors import FlintlogError, FormatError, InvalidConfig, StoreInUse
from flintlog.format.names import COMMIT_LOG
from flintlog.pipeline.reading.logs import find_logs
from flintlog.pipeline.sink.sink_options import SinkOptions
from flintlog.pipeline.sink.sink_rows import RowMessages, check_columns
from flintlog.pipeline.sink.sink_staging import clear, clear_stale, folder_name, stage, staged
from flintlog.store.put.closed_batch import ClosedBatch, StagedMessages
from flintlog.store.options.store_config import StoreConfig
from flintlog.maintenance.inspect.file_sizes import with_found_sizes
from flintlog.store.model.message import Message
from flintlog.store.runtime.note_file import decode_json
from flintlog.store.paths import StorePaths
from flintlog.store.store import Store, open_store

_METADATA_BYTES = 65536


class _QueryMetadata(msgspec.Struct):
    id: str


@dataclass
class StagedRows(WriterCommitMessage):
    """What one task staged."""

    names: tuple[str, ...]
    count: int


@dataclass(frozen=True, slots=True)
class _Staged(StagedMessages):
    """The messages that all tasks staged, in the order of their partitions: read twice, never all in memory."""

    folder: Path
    rows: Sequence[StagedRows]

    def __iter__(self) -> Iterator[Message]:
        for part in self.rows:
            for each in staged(self.folder, part.names):
                yield each.message()


@dataclass(frozen=True, slots=True)
class StagingArea:
    """Where the rows of one writer wait, and how they come into the store."""

    asked: SinkOptions
    whose: str

    @property
    def root(self) -> Path:
        return Path(self.asked.path).absolute()

    @property
    def folder(self) -> Path:
        return StorePaths.of(self.root, None).staged / folder_name(self.whose)

    def write(self, batches: Iterator[pa.RecordBatch]) -> StagedRows:
        """What a task does with its rows."""
        config = self.asked.store_config() or StoreConfig()
        rows = RowMessages(self.asked.topic, config.max_message_size)
        return StagedRows(*stage((message for batch in batches for message in rows.of(batch)), self.folder))

    def append(
        self, parts: Sequence[WriterCommitMessage | None], writer_id: str | None, batch_id: int
    ) -> ClosedBatch | None:
        """What the driver does with all that was staged, once."""
        rows = [part for part in parts if isinstance(part, StagedRows)]
        try:
            if not any(part.count for part in rows):
                return None
            with self._opened() as store:
                return store.put_closed(_Staged(self.folder, rows), writer_id=writer_id, batch_id=batch_id)
        finally:
            self.clear()
            clear_stale(self.folder.parent)

    def clear(self) -> None:
        """Remove what was staged; of a store that did not come to be nothing stays."""
        clear(self.folder)
        medium, paths = LocalMedium(), StorePaths.of(self.root, None)
        if not any(medium.exists(log) for log in paths.commit_logs):
            for folder in (paths.staged, paths.own, paths.root):
                remove_empty(folder)

    def settle(self) -> None:
        """Open the store once: a batch that a crash left open is then closed, or gone."""
        open_store(self.root, self._config()).shutdown()

    @contextmanager
    def _opened(self) -> Iterator[Store]:
        """The store; when the batch fails it is opened once more, so that no part of the batch is left behind."""
        config = self._config()
        store = open_store(self.root, config)
        try:
            yield store
        except BaseException:
            store.shutdown()
            with suppress(FlintlogError):
                self.settle()
            raise
        store.shutdown()

    def _config(self) -> StoreConfig:
        """Durable by the batch, not by the message; and nothing else runs in the store meanwhile."""
        given = self.asked.store_config()
        config = with_found_sizes(self.root, StoreConfig(), LocalMedium()) if given is None else given
        return config.with_changes(flush="async", services=frozenset(), retention="off")


class BatchWriter(DataSourceArrowWriter):
    """One batch."""

    def __init__(self, asked: SinkOptions) -> None:
        self.asked = asked
        self.area = StagingArea(asked, uuid.uuid4().hex)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        return self.area.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self.area.append(messages, self.asked.writer_id, self.asked.batch_id or 0)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self.area.clear()


class StreamWriter(DataSourceStreamArrowWriter):
    """A stream's batches. Spark makes it anew in each process: what must stay the same follows from the options."""

    def __init__(self, asked: SinkOptions) -> None:
        self.asked = asked
        self.area = StagingArea(asked, asked.writer_id or asked.checkpoint or "")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        return self.area.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        self.area.append(messages, self._writer_id(), batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        self.area.clear()

    def _writer_id(self) -> str:
        return self.asked.writer_id or query_id(self.asked.checkpoint or "")


def query_id(checkpoint: str) -> str:
    """The id that a query keeps for as long as its checkpoint: with a new one its batches count from 0 again."""
    path = Path(checkpoint.removeprefix("file://").removeprefix("file:")) / "metadata"
    medium = LocalMedium()
    if "://" not in checkpoint.removeprefix("file://") and medium.exists(path):
        with suppress(FormatError):
            return decode_json(medium.read(path, _METADATA_BYTES), _QueryMetadata).id
    raise InvalidConfig(
        "the query's id cannot be read from its checkpoint", path=checkpoint, advice="set option writerId"
    )


def check_sink(asked: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
    """Refuse before any task runs what could not be written at the end."""
    if overwrite:
        raise InvalidConfig("a store is not overwritten", advice='use mode("append")')
    columns = {field.name: field.dataType.simpleString() for field in schema.fields}
    check_columns(columns, has_topic=asked.topic is not None)
    root = Path(asked.path).absolute()
    check_place(root)
    if LocalMedium().exists(root / COMMIT_LOG):
        find_logs((str(root),))  # files of different sizes


def check_place(root: Path) -> None:
    """Refuse a place where no store can be written now."""
    held = LocalMedium().stat(root)
    if held is not None and not held.is_directory:
        raise InvalidConfig("this is a file, not a store's directory", path=root)
    if is_locked(StorePaths.of(root, None).lock):
        raise StoreInUse("the store is in use", path=root, advice="a sink is the only writer: stop the other one")
