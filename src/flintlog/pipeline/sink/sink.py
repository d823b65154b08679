"""`df.write.format("flintlog")` and `df.writeStream.format("flintlog")`: rows become messages of a store.

    tasks    make messages of their rows, check them, stage them                    sink_rows.py, sink_staging.py
    driver   open the store, append the staged messages and a closing marker        store/put/closed_batch.py

Messages are appended in the order of the partitions and of their rows, so a queue has its rows in that order. Each
batch is in the log once: tasks that are retried or run twice stage twice, but the driver appends the rows of one
attempt only; a commit that is repeated after a restart is skipped; a partial batch after a crash is cut at the next
opening of the store. The driver holds the store's lock while it appends.
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
from flintlog.disk.places import is_uri, local_path
from flintlog.errors import FlintlogError, FormatError, InvalidConfig, StoreInUse
from flintlog.format.names import COMMIT_LOG
from flintlog.maintenance.inspect.store_files import fitting_config
from flintlog.pipeline.reading.logs import find_logs
from flintlog.pipeline.sink.sink_options import SinkOptions
from flintlog.pipeline.sink.sink_rows import RowMessages, check_columns
from flintlog.pipeline.sink.sink_staging import clear, clear_stale, folder_name, stage, staged
from flintlog.store.model.message import Message
from flintlog.store.open_store import open_store
from flintlog.store.options.store_config import StoreConfig
from flintlog.store.paths import StorePaths
from flintlog.store.put.closed_batch import ClosedBatch, StagedMessages
from flintlog.store.runtime.note_file import decode_json
from flintlog.store.store import Store

_METADATA_BYTES = 65536


class _QueryMetadata(msgspec.Struct):
    id: str


@dataclass
class StagedRows(WriterCommitMessage):
    """The files of one task, and how many messages they hold."""

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
    """Stages the rows of one writer and appends them to the store."""

    asked: SinkOptions
    whose: str

    @property
    def root(self) -> Path:
        return Path(self.asked.path).absolute()

    @property
    def folder(self) -> Path:
        return StorePaths.of(self.root, None).staged / folder_name(self.whose)

    def write(self, batches: Iterator[pa.RecordBatch]) -> StagedRows:
        """Stage the rows of a task."""
        config = self.asked.store_config() or StoreConfig()
        rows = RowMessages(self.asked.topic, config.max_message_size)
        return StagedRows(*stage((message for batch in batches for message in rows.of(batch)), self.folder))

    def append(
        self, parts: Sequence[WriterCommitMessage | None], writer_id: str | None, batch_id: int
    ) -> ClosedBatch | None:
        """Append the rows of all tasks as one batch; run once, by the driver."""
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
        """Remove the staged files; if the store has no log, remove its empty directories too."""
        clear(self.folder)
        medium, paths = LocalMedium(), StorePaths.of(self.root, None)
        if not any(medium.exists(log) for log in paths.commit_logs):
            for folder in (paths.staged, paths.own, paths.root):
                remove_empty(folder)

    def settle(self) -> None:
        """Open the store once: a batch that a crash left open is then closed or cut."""
        open_store(self.root, self._config()).shutdown()

    @contextmanager
    def _opened(self) -> Iterator[Store]:
        """The store; when the batch fails it is opened once more, which cuts the partial batch."""
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
        """Options for one batch: flushed at its end instead of at each message, without services or retention."""
        given = self.asked.store_config()
        config = fitting_config(self.root) if given is None else given
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
    """A stream's batches. Spark makes a new writer in each process, so its names are derived from the options."""

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
    """The id of a query, which is kept in its checkpoint: with a new checkpoint its batches count from 0 again."""
    medium = LocalMedium()
    if not is_uri(checkpoint) and medium.exists(local_path(checkpoint) / "metadata"):
        with suppress(FormatError):
            return decode_json(medium.read(local_path(checkpoint) / "metadata", _METADATA_BYTES), _QueryMetadata).id
    raise InvalidConfig(
        "the query's id cannot be read from its checkpoint", path=checkpoint, advice="set option writerId"
    )


def check_sink(asked: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
    """Raise before any task runs if the result could not be written."""
    if overwrite:
        raise InvalidConfig("a store is not overwritten", advice='use mode("append")')
    columns = {field.name: field.dataType.simpleString() for field in schema.fields}
    check_columns(columns, has_topic=asked.topic is not None)
    root = Path(asked.path).absolute()
    check_place(root)
    if LocalMedium().exists(root / COMMIT_LOG):
        find_logs((str(root),))  # files of different sizes


def check_place(root: Path) -> None:
    """Raise if no store can be written at a path now."""
    held = LocalMedium().stat(root)
    if held is not None and not held.is_directory:
        raise InvalidConfig("this is a file, not a store's directory", path=root)
    if is_locked(StorePaths.of(root, None).lock):
        raise StoreInUse("the store is in use", path=root, advice="a sink is the only writer: stop the other one")
