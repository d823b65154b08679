"""The reading methods of `Store`: messages by queue, key, time, id and offset, and the ends of queues.

They check their arguments and pass them to `reader.py`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from flintlog.errors import InvalidConfig
from flintlog.store.engine import Engine
from flintlog.store.filters.tags import MessageFilter, as_filter
from flintlog.store.model.arguments import (
    check_count,
    check_flag,
    check_int64,
    check_offset,
    check_queue,
    check_text,
    check_topics,
)
from flintlog.store.model.stored_message import Page, QueueInfo, StoredMessage
from flintlog.store.options.store_config import StoreConfig
from flintlog.store.read.get_figures import GetFigures
from flintlog.store.read.reader import MAX_PULL_BYTES, Reader

if TYPE_CHECKING:
    import pyarrow as pa

PAGE_MESSAGES: Final = 1000
PAGE_BYTES: Final = 4 * 1024 * 1024
"""Most messages, and most bytes of them, that an iteration over a queue holds in memory; at least one message."""


class Readable:
    """The reading methods of `Store`. Any thread may call them."""

    def __init__(self, engine: Engine) -> None:
        parts = engine.parts
        self._engine = engine
        self._check_readable = engine.check_readable
        self._queues = parts.queues
        self._reader = Reader(parts.commit_log, parts.queues, parts.index, parts.damage, engine.config)
        self._get_figures = GetFigures(engine, self._reader)

    @property
    def path(self) -> Path:
        """The directory."""
        return self._engine.path

    @property
    def config(self) -> StoreConfig:
        """The options that the store was opened with."""
        return self._engine.config

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int = 32,
        filter: str | MessageFilter | None = None,
        max_bytes: int = MAX_PULL_BYTES,
        *,
        group: str | None = None,
        exact: bool = True,
    ) -> Page:
        """A page of one queue from an offset on, with RocketMQ's status; `next_offset` is where the next one begins.

        It has `max_count` messages if they are there and have no more than `max_bytes`; the first one always. With a
        filter it may have fewer: one get looks through as many entries as were asked for, and at least
        `max_filter_message_size` bytes of them. RocketMQ's own limits, 32 messages and 256 KiB, hold where the
        configuration names them (`max_transfer_count_on_message_in_memory` and its neighbours), as `from_rocketmq`
        does.

        Tags are compared as text. `exact=False` compares only their hashes, as RocketMQ's store does: then messages
        come too whose tag has the hash of a wanted one. `group` is the reading consumer group; `broker_stats` counts
        its figures.
        """
        self._check_readable()
        check_queue(topic, queue_id)
        check_count("max_count", max_count)
        check_count("max_bytes", max_bytes)
        check_int64("a queue offset", offset)
        if group is not None and not isinstance(group, str):
            raise InvalidConfig(f"a group is text, not {type(group).__name__}")
        check_flag("exact", exact)
        chosen = None if filter is None else as_filter(filter, exact=exact)
        return self._get(topic, queue_id, offset, max_count, chosen, max_bytes, group)

    def _get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        chosen: MessageFilter | None,
        max_bytes: int,
        group: str | None = None,
        end: int | None = None,
    ) -> Page:
        began = time.monotonic()
        page = self._reader.get(topic, queue_id, offset, max_count, chosen, max_bytes, end)
        self._get_figures.count(page, topic, queue_id, int((time.monotonic() - began) * 1000), group)
        return page

    def messages(
        self,
        topic: str,
        queue_id: int,
        start: int | None = None,
        *,
        filter: str | MessageFilter | None = None,
    ) -> Iterator[StoredMessage]:
        """The messages of one queue in order, read in pages, up to the end that is visible now.

        They begin at the queue offset `start`, or with the first one that is left. Messages that are deleted meanwhile
        are skipped. At a damaged one this raises `DamagedRecord`; its `next_queue_offset` is where to start again.

        >>> from flintlog import Message
        >>> from flintlog.testing import temporary_store
        >>> with temporary_store() as store:
        ...     _ = store.put_batch([Message("orders", b"order %d" % number) for number in range(100)])
        ...     [bytes(message.body) for message in store.messages("orders", 0, start=98)]
        [b'order 98', b'order 99']
        """
        self._check_readable()
        check_queue(topic, queue_id)
        if start is not None:
            check_int64("a queue offset", start)
        chosen = None if filter is None else as_filter(filter)
        return self._messages(topic, queue_id, start, self.max_offset(topic, queue_id), chosen)

    def _messages(
        self, topic: str, queue_id: int, start: int | None, end: int, chosen: MessageFilter | None
    ) -> Iterator[StoredMessage]:
        low = self.min_offset(topic, queue_id)
        offset = low if start is None else max(low, start)
        while offset < end:
            self._check_readable()
            count = min(PAGE_MESSAGES, end - offset)
            page = self._get(topic, queue_id, offset, count, chosen, PAGE_BYTES, end=end)
            following = max(page.next_offset, page.min_offset)  # a slave leaves the next offset as it was asked for
            if following <= offset:
                return  # the queue was deleted
            yield from page.messages
            offset = following

    def query(
        self,
        topic: str,
        key: str,
        begin: int = 0,
        end: int = (1 << 63) - 1,
        max_count: int | None = None,
        index_type: str | None = None,
        *,
        exact: bool = True,
    ) -> list[StoredMessage]:
        """Messages that have a key, stored between two times; `index_type="T"` looks for a tag instead.

        Without `max_count` at most `default_query_max_num` of them; never more than `max_msgs_num_batch`, if that is
        configured.
        `exact=False` is RocketMQ's raw answer: messages whose key has the same hash come too.
        """
        self._check_readable()
        check_queue(topic, 0)
        check_text("a key", key)
        if index_type is not None:
            check_text("an index type", index_type)
        check_int64("begin", begin)
        check_int64("end", end)
        if max_count is None:
            max_count = self._engine.config.default_query_max_num
        check_count("max_count", max_count)
        check_flag("exact", exact)
        look_up = self._reader.query if exact else self._reader.query_hash
        return look_up(topic, key, begin, end, max_count, index_type)

    def message_at(self, physical_offset: int) -> StoredMessage | None:
        """The message whose record begins at this offset of the log."""
        self._check_readable()
        return self._reader.message_at(physical_offset)

    def message_by_id(self, message_id: str) -> StoredMessage | None:
        """The message with this id, as a receipt gives it."""
        self._check_readable()
        return self._reader.message_by_id(message_id)

    def offset_at(self, topic: str, queue_id: int, timestamp_ms: int, boundary: str = "lower") -> int:
        """The queue offset for a point in time."""
        self._check_readable()
        check_queue(topic, queue_id)
        check_int64("a timestamp", timestamp_ms)
        return self._reader.offset_at(topic, queue_id, timestamp_ms, boundary)

    def min_offset(self, topic: str, queue_id: int) -> int:
        """The first offset of a queue that can still be read; 0 when there is no such queue."""
        self._check_readable()
        check_queue(topic, queue_id)
        queue = self._queues.get(topic, queue_id)
        return 0 if queue is None else queue.min_offset

    def max_offset(self, topic: str, queue_id: int) -> int:
        """The offset that the next visible message of a queue will have; 0 when there is no such queue."""
        self._check_readable()
        check_queue(topic, queue_id)
        queue = self._queues.get(topic, queue_id)
        return 0 if queue is None else queue.max_offset

    def queues(self) -> list[QueueInfo]:
        """Every queue, by topic and queue id."""
        self._check_readable()
        found = [
            QueueInfo(queue.topic, queue.queue_id, queue.min_offset, queue.max_offset, queue.type.value)
            for queue in self._queues.all()
        ]
        return sorted(found, key=lambda info: (info.topic, info.queue_id))

    def scan(
        self,
        topics: Iterable[str] | None = None,
        start: int | None = None,
        end: int | None = None,
        include_body: bool = True,
    ) -> Iterator[pa.RecordBatch]:
        """The log as Arrow record batches, in log order, one range at a time. Needs `flintlog[arrow]`."""
        from flintlog.derive.columns import to_record_batch
        from flintlog.store.log.column_scan import scan_columns

        self._check_readable()
        topics = check_topics(topics)
        for offset in (start, end):
            if offset is not None:
                check_offset("a physical offset", offset)
        parts = self._engine.parts
        found = scan_columns(
            parts.segments, parts.damage, self.config, topics=topics, start=start, end=end, include_body=include_body
        )
        return map(to_record_batch, found)

    @property
    def min_physical_offset(self) -> int:
        """Where the log begins; everything before was deleted."""
        return max(0, self._engine.log.min_offset)

    @property
    def max_physical_offset(self) -> int:
        """Where the log ends, as far as it can be read."""
        return self._engine.log.max_offset

    @property
    def flushed_offset(self) -> int:
        """Everything below is on disk."""
        return self._engine.parts.segments.flushed_where
