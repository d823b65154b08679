"""`Store`: one directory of messages, open. This is what users see.

    with open_store("orders-store") as store:
        store.put(Message("orders", b"..."))
        store.get("orders", queue_id=0, offset=0).messages

What a store does is done elsewhere: `engine.py` opens it, runs it and stops it, `appending.py` brings messages into
the log, `reading.py` answers questions. Every method may be called from any thread.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, cast

from flintlog.disk.local import LocalMedium
from flintlog.disk.medium import Medium, load_medium
from flintlog.disk.overlay import OverlayMedium
from flintlog.errors import DamagedStore, InvalidConfig, ServiceNotEnabled, StoreClosed, StoreInUse
from flintlog.format.properties import WAIT_STORE_MSG_OK
from flintlog.store.appending import Appender, BeforePut, Rewrite
from flintlog.store.arrival_wait import ArrivalWait
from flintlog.store.background import Background, Job
from flintlog.store.broker_stats import BrokerStats
from flintlog.store.checks import check_count, check_int64, check_offset, check_queue, check_text, check_topics
from flintlog.store.clock import Clock, Milliseconds, TurnedClock, as_milliseconds
from flintlog.store.closed_batch import ClosedBatch, ClosedBatches
from flintlog.store.config import StoreConfig
from flintlog.store.config_folder import ConfigFolder
from flintlog.store.consumer import MAX_UNACKNOWLEDGED, Consumer
from flintlog.store.consumer_offsets import ConsumerOffsets
from flintlog.store.consumers import Consumers
from flintlog.store.dispatch import BitmapHook, Listener
from flintlog.store.engine import Engine, Progress
from flintlog.store.filters import MessageFilter, as_filter
from flintlog.store.get_figures import GetFigures
from flintlog.store.groups import Groups
from flintlog.store.logical_queue import CqUnit
from flintlog.store.message import Message, PutStatus, Receipt, Receipts
from flintlog.store.queue_cleaning import clean_expired_queues, clean_unused_topics
from flintlog.store.raw_log import RawLog
from flintlog.store.reading import MAX_PULL_BYTES, Reader
from flintlog.store.recovery_report import Finding, RecoveryReport
from flintlog.store.retention import Retention
from flintlog.store.service import HOMES, HasFigures, Rewritten, Service, make_service
from flintlog.store.stats import StoreStatsService
from flintlog.store.stored import Page, QueueInfo, StoredMessage
from flintlog.store.subscriptions import Subscriptions
from flintlog.store.topics import Topics

if TYPE_CHECKING:
    import pyarrow as pa

_OK = PutStatus.PUT_OK


def open_store(
    path: str | os.PathLike[str],
    config: StoreConfig | None = None,
    *,
    clock: Clock | Milliseconds | None = None,
    read_only: bool = False,
    medium: Medium | None = None,
    progress: Progress | None = None,
) -> Store:
    """Open a store directory: load, recover, start. A directory that does not exist becomes an empty store.

    `read_only` takes no lock and writes nothing: what has to be recovered is recovered in memory.

    >>> import tempfile
    >>> config = StoreConfig(mapped_file_size_commit_log=65536, max_hash_slot_num=100, max_index_num=400)
    >>> with tempfile.TemporaryDirectory() as folder, open_store(folder, config) as store:
    ...     receipt = store.put(Message("orders", b"42 pieces", tags="paid", keys=["o-17"])).check()
    ...     [message.body for message in store.get("orders", queue_id=0, offset=0, filter="paid || shipped").messages]
    [b'42 pieces']
    """
    config = StoreConfig() if config is None else config
    if not isinstance(config, StoreConfig):
        raise InvalidConfig(f"a store is opened with a StoreConfig, not {type(config).__name__}")
    _refuse_what_is_not_here(config)
    disk = medium if medium is not None else _make_medium(config)
    held = disk.stat(Path(path))
    if held is not None and not held.is_directory:
        raise DamagedStore("this is a file, not a store's directory", path=path)
    if read_only:
        disk = OverlayMedium(disk)
    engine = Engine(Path(path), config, disk, as_milliseconds(clock), read_only=read_only)
    engine.samples_itself = not isinstance(clock, TurnedClock)
    engine.open(progress)
    store = Store(engine, Background(clock))
    try:
        store._load_config_folder()
        store._start_services()
    except BaseException:
        store.shutdown()
        raise
    return store


def _refuse_what_is_not_here(config: StoreConfig) -> None:
    """What would change what a put means must not be silently left undone."""
    if config.dispatch != "embedded":
        raise InvalidConfig(f"dispatch = {config.dispatch!r}", advice="this version dispatches in the store alone")


def _make_medium(config: StoreConfig) -> Medium:
    return LocalMedium(config.max_mapped_files) if config.medium == "local" else load_medium(config.medium)


class Store:
    """An open store; made by `open_store`."""

    def __init__(self, engine: Engine, background: Background) -> None:
        parts = engine.parts
        self._engine = engine
        self._background = background
        self._services: dict[str, Service] = {}
        self._jobs: dict[str, Job] = {}
        self._retention: Retention | None = None
        self._retention_job: Job | None = None
        self._appender = Appender(engine)
        self._put_lane = engine.log.put_lane
        self._put_plain = self._put_lane.put
        self._group_commit = engine.waiting
        self._queues = parts.queues
        self._reader = Reader(parts.commit_log, parts.queues, parts.index, parts.damage, engine.config)
        self._get_figures = GetFigures(engine, self._reader)
        self._folder = ConfigFolder(engine, background, on_queue_type=self._appender.open_short_way)
        self._consumers = Consumers(self)
        self._closed_batches = ClosedBatches(engine, self._put_now)
        self._raw_log = RawLog(engine)

    @property
    def path(self) -> Path:
        """The directory."""
        return self._engine.path

    @property
    def config(self) -> StoreConfig:
        """The options that it was opened with."""
        return self._engine.config

    @property
    def medium(self) -> Medium:
        """The disk that its files are on."""
        return self._engine.medium

    def now_ms(self) -> int:
        """The time by the store's clock."""
        return self._engine.now_ms()

    @property
    def read_only(self) -> bool:
        """Whether nothing may be put."""
        return self._engine.read_only

    @property
    def recovery(self) -> RecoveryReport:
        """What the opening found: what was cut, where, why, and where it is kept."""
        return self._engine.recovery

    def report(self, findings: Sequence[Finding]) -> None:
        """Add to what the opening found: for services, which read their files when they start."""
        if findings:
            self._engine.recovery = self._engine.recovery.with_findings(findings)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    def _load_config_folder(self) -> None:
        self.report(self._folder.load())

    def _start_services(self) -> None:
        if self.read_only:
            return
        if self.config.retention == "on":
            self._start_retention()
        for name in () if self._engine.is_replica else sorted(self.config.services):
            service = make_service(name, self)
            service.start()
            self._services[name] = service
            self._jobs[name] = self._background.add(name, service.run_due)
        if not self._engine.samples_itself:
            self._background.add("stats", self._engine.sample)
        self._appender.services = self._services
        self._background.start()

    def _start_retention(self) -> None:
        engine = self._engine
        self._retention = Retention(engine.config, engine.parts, engine.lifecycle, engine.dispatcher, engine.now_ms)
        # A group that has gone back, and is not saved yet, must not lose what it went back to.
        self._retention.before_look = self._folder.offsets.save
        self._retention_job = self._background.add("retention", self._retention.run_due)

    def service(self, name: str) -> Service:
        """A running service, by its name in the configuration."""
        if name not in HOMES:
            raise InvalidConfig(f"there is no service {name!r}", advice=", ".join(HOMES))
        if name not in self._services:
            advice = f"open the store with services={{{name!r}}}"
            if name in self.config.services:
                advice = "it runs in a store that is open for writing"
            raise ServiceNotEnabled(f"the service {name!r} does not run", advice=advice)
        return self._services[name]

    def nudge(self, name: str) -> None:
        """A service found work that is due before the time it asked for."""
        if name in self._jobs:
            self._jobs[name].nudge()

    def run_due(self) -> None:
        """Do now, in this thread, whatever services have due; their own threads would do it in time."""
        self._background.run_due()

    def shutdown(self) -> None:
        """Stop cleanly: services, flush, dispatch of the rest, `abort` removed. A second call does nothing.

        An arrival listener cannot do this: it would wait for the thread that it runs in.
        """
        if self._engine.dispatcher.is_calling_listener:
            raise StoreInUse("an arrival listener cannot shut its store down", advice="let another thread do it")
        if self._engine.is_left_to_parent:
            return  # what services and groups would save is the parent's to save
        with ExitStack() as stack:
            stack.callback(self._engine.shutdown)
            stack.callback(self._folder.save)
            while self._services:
                stack.callback(self._services.popitem()[1].stop)
            self._consumers.close()
            self._background.stop()

    close = shutdown

    def destroy(self) -> None:
        """Shut down and remove the store's files, and nothing else that lies in the directory."""
        if not self.read_only:
            self.shutdown()
        self._engine.destroy()

    # ------------------------------------------------------------------ topics, groups, consumers

    @property
    def topics(self) -> Topics:
        """The configured topics: create, change, delete, list."""
        return self._folder.topics

    @property
    def groups(self) -> Groups:
        """The configured consumer groups: create, change, delete, list."""
        return self._folder.groups

    @property
    def consumer_offsets(self) -> ConsumerOffsets:
        """How far each group has consumed each queue."""
        return self._folder.offsets

    def consumer(
        self,
        group: str,
        topic: str,
        *,
        filter: str | MessageFilter | None = None,
        queue_ids: Sequence[int] | None = None,
        start: str | int = "earliest",
        timeout_s: float | None = None,
        retries: bool = True,
        max_unacknowledged: int = MAX_UNACKNOWLEDGED,
    ) -> Consumer:
        """A reader of a topic that remembers for its group how far it is; see `Consumer`."""
        self._check_readable()
        return self._consumers.open(
            group, topic, filter, queue_ids, start, timeout_s, retries=retries, max_unacknowledged=max_unacknowledged
        )

    def arrival_wait(self, topics: Sequence[str]) -> ArrivalWait:
        """A place to sleep until a message arrives for one of these topics; see `arrival_wait.py`."""
        return ArrivalWait(topics, self._engine.dispatcher.arm)

    def queue_ids(self, topic: str) -> list[int]:
        """The queues of a topic that have had a message."""
        self._check_readable()
        return self._queues.queue_ids(topic)

    # ------------------------------------------------------------------ putting

    def put(self, message: Message) -> Receipt:
        """Store one message. Under sync flush it is on disk when this returns PUT_OK."""
        receipt: Receipt | None = self._put_plain(message)
        if receipt is None:
            receipt = self._appender.append(message)
            if receipt.status is not _OK:
                return self._count_failed(receipt)
        if self._group_commit is None:
            if self._put_lane.is_behind:
                self._engine.after_append()
            return receipt
        if _waits_not(message):
            self._group_commit.nudge()
            return receipt
        return cast(Receipt, self._group_commit.wait(receipt, message))

    def put_batch(self, messages: Sequence[Message]) -> Receipts:
        """Store messages of one queue as one write; a receipt for each."""
        if not isinstance(messages, (list, tuple)):
            messages = tuple(messages)
        receipts: Receipts | None = self._put_lane.put_batch(messages)
        if receipts is None:
            receipts = self._appender.append_batch(messages)
        return self._wait_for_all(receipts, messages)

    def put_encoded(self, batch: Message) -> Receipts:
        """Store messages that a client encoded one behind the other as the body of `batch`; a receipt for each.

        `flintlog.encoded_batch` makes such a batch, and a client's request to a broker holds one. Topic, queue, born
        and store host are the batch's; body, flag and properties each message's own.
        """
        receipts: Receipts | None = self._put_lane.put_encoded(batch)
        if receipts is None:
            receipts = self._appender.append_encoded(batch)
        return self._wait_for_all(receipts, (batch,))

    def _wait_for_all(self, receipts: Receipts, messages: Sequence[Message]) -> Receipts:
        """Make a batch as durable as the configuration says, or visible, when its put did not."""
        if receipts.status is not _OK:
            self._engine.counters.put_failed(len(receipts))
            return receipts
        if self._group_commit is None:
            if self._put_lane.is_behind:
                self._engine.after_append()
            return receipts
        return cast(Receipts, self._group_commit.wait(receipts, messages[0]))

    def put_async(self, message: Message) -> Future[Receipt]:
        """Store one message; the future is done when it is as durable as the configuration says."""
        receipt = self._appender.append(message)
        if receipt.status is _OK and self._group_commit is not None and not _waits_not(message):
            return cast("Future[Receipt]", self._group_commit.future(receipt, message))
        done: Future[Receipt] = Future()
        done.set_result(self._without_waiting(receipt))
        return done

    def put_rewritten(self, message: Message, rewrite: Rewrite) -> Receipt:
        """Store what a service makes of a message; hooks and compression come first, as in `put`."""
        return self._wait_for(self._appender.append_rewritten(message, rewrite), message)

    def put_rebuilt(self, rebuilt: Rewritten, *, wait: bool = True) -> Receipt:
        """Store a message that was made from a stored one, its property text in the order that Java would give it.

        Without `wait` it is durable after a later `flush`, as many are then together.
        """
        receipt = self._appender.append_rebuilt(rebuilt)
        return self._wait_for(receipt, rebuilt.message) if wait else self._without_waiting(receipt)

    def put_closed(
        self, messages: Iterable[Message], *, writer_id: str | None = None, batch_id: int = 0
    ) -> ClosedBatch | None:
        """Store messages of any queues as one batch: after a crash all of them are there, or none.

        A batch that its writer has written before is skipped: None. Nothing else may be put meanwhile.
        """
        return self._closed_batches.put(messages, writer_id, batch_id)

    def _put_now(self, message: Message) -> Receipt:
        """Append a message that a later flush makes durable."""
        receipt: Receipt | None = self._put_plain(message)
        if receipt is None:
            return self._without_waiting(self._appender.append(message))
        if self._put_lane.is_behind:
            self._engine.after_append()
        return receipt

    def _wait_for(self, receipt: Receipt, message: Message) -> Receipt:
        if receipt.status is _OK and self._group_commit is not None:
            return cast(Receipt, self._group_commit.wait(receipt, message))
        return self._without_waiting(receipt)

    async def aput(self, message: Message) -> Receipt:
        """Store one message from asyncio; a group of waiting producers is woken by one call into the loop."""
        receipt: Receipt | None = self._put_plain(message)
        if receipt is None:
            receipt = self._appender.append(message)
        if receipt.status is _OK and self._group_commit is not None and not _waits_not(message):
            return cast(Receipt, await self._group_commit.task(receipt, message))
        return self._without_waiting(receipt)

    async def aput_batch(self, messages: Sequence[Message]) -> Receipts:
        """`put_batch` from asyncio."""
        if not isinstance(messages, (list, tuple)):
            messages = tuple(messages)
        receipts = self._appender.append_batch(messages)
        if receipts.status is _OK and self._group_commit is not None:
            return cast(Receipts, await self._group_commit.task(receipts, messages[0]))
        if receipts.status is _OK:
            self._engine.after_append()
        else:
            self._engine.counters.put_failed(len(receipts))
        return receipts

    def _without_waiting(self, receipt: Receipt) -> Receipt:
        """The end of a put that nobody waits for: tell those who make it durable and visible."""
        if receipt.status is not _OK:
            return self._count_failed(receipt)
        if self._group_commit is None:
            self._engine.after_append()
        else:
            self._group_commit.nudge()
        return receipt

    def _count_failed(self, receipt: Receipt) -> Receipt:
        self._engine.counters.put_failed()
        return receipt

    def add_put_hook(self, hook: BeforePut) -> None:
        """Let a function look at each message before it is appended."""
        self._appender.add_hook(hook)

    def flush(self) -> None:
        """Make everything put so far durable, whatever the configuration leaves to its flush thread."""
        self._check_readable()
        self._engine.flush()

    def wait_dispatched(self) -> None:
        """Return when everything put so far is visible; in an arrival listener it returns at once."""
        self._check_readable()
        self._engine.wait_dispatched()

    # ------------------------------------------------------------------ reading

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
    ) -> Page:
        """Messages of one queue from an offset on, with RocketMQ's status and limits.

        `group` is the consumer group that asks: its figures are counted in `broker_stats`.
        """
        self._check_readable()
        check_queue(topic, queue_id)
        check_count("max_count", max_count)
        check_count("max_bytes", max_bytes)
        check_int64("a queue offset", offset)
        chosen = None if filter is None else as_filter(filter)
        began = time.monotonic()
        page = self._reader.get(topic, queue_id, offset, max_count, chosen, max_bytes)
        self._get_figures.count(page, topic, queue_id, int((time.monotonic() - began) * 1000), group)
        return page

    def query(
        self,
        topic: str,
        key: str,
        begin: int = 0,
        end: int = (1 << 63) - 1,
        max_count: int = 32,
        index_type: str | None = None,
    ) -> list[StoredMessage]:
        """Messages that carry a key, stored between two times; `index_type="T"` looks for a tag instead."""
        self._check_readable()
        check_queue(topic, 0)
        check_text("a key", key)
        if index_type is not None:
            check_text("an index type", index_type)
        check_int64("begin", begin)
        check_int64("end", end)
        check_count("max_count", max_count)
        return self._reader.query(topic, key, begin, end, max_count, index_type)

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

    def entry(self, topic: str, queue_id: int, offset: int) -> CqUnit | None:
        """One entry of a queue: where its message lies, and its tags code; None where the queue has none."""
        self._check_readable()
        check_queue(topic, queue_id)
        check_offset("a queue offset", offset)
        queue = self._queues.get(topic, queue_id)
        return None if queue is None else queue.entry(offset)

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
        topics: Sequence[str] | None = None,
        start: int | None = None,
        end: int | None = None,
        include_body: bool = True,
    ) -> Iterator[pa.RecordBatch]:
        """The log as Arrow record batches, in log order, one range at a time."""
        from flintlog.store.scan import scan_log

        self._check_readable()
        check_topics(topics)
        for offset in (start, end):
            if offset is not None:
                check_offset("a physical offset", offset)
        return scan_log(
            self._engine.parts.segments,
            self._engine.parts.damage,
            topics=topics,
            start=start,
            end=end,
            include_body=include_body,
            delay_levels_ms=self.config.delay_levels_ms,
        )

    @property
    def subscriptions(self) -> Subscriptions:
        """The SQL filters that consumer groups registered; one of them given to `get` reads only what can pass."""
        return self._engine.subscriptions

    @property
    def broker_stats(self) -> BrokerStats:
        """Figures by topic, queue and group over the last minute, hour and day, under RocketMQ's names."""
        return self._engine.broker_stats

    @property
    def counters(self) -> StoreStatsService:
        """What the store counts in all: totals, rates, latencies. `str` gives the lines that RocketMQ prints."""
        return self._engine.counters

    def stats(self) -> dict[str, int | float | str]:
        """Counters, rates and offsets under RocketMQ's names; numbers where RocketMQ shows one number."""
        found = self._engine.stats()
        for service in self._services.values():
            if isinstance(service, HasFigures):
                found.update(service.running_stats())
        return found

    def on_arrival(self, callback: Listener) -> None:
        """Call back with an `Arrival` for each message that becomes visible, in log order.

        The callback runs in the thread that made the message visible, which goes on when it returns.
        """
        if not callable(callback):
            raise InvalidConfig(f"a listener is a function, not {type(callback).__name__}")
        self._engine.dispatcher.add_listener(callback)
        self._appender.open_short_way()

    # ------------------------------------------------------------------ retention

    def delete_expired_files(self) -> None:
        """Let expired files go now, whatever the hour; what more there is goes in the rounds that follow."""
        if self._retention is None or self._retention_job is None:
            raise InvalidConfig(
                "this store keeps everything", advice="open it with retention='on' or with a file_reserved_time"
            )
        self._retention.delete_expired_files()
        self._retention_job.nudge()

    def clean_expired_queues(self) -> list[tuple[str, int]]:
        """Delete the queues none of whose messages the log still has, but for those of system topics; which."""
        self._check_writable()
        return clean_expired_queues(self._engine)

    def clean_unused_topics(self, retained: Collection[str]) -> list[str]:
        """Delete the queues of all topics that are not retained, but for system topics and light queues; which."""
        self._check_writable()
        return clean_unused_topics(self._engine, retained)

    def _check_writable(self) -> None:
        if self.read_only:
            raise StoreClosed("the store was opened read-only", path=self.path)
        self._check_readable()

    def set_bitmap_hook(self, hook: BitmapHook | None) -> None:
        """Give each record's filter bitmap for its queue extension (`enableConsumeQueueExt`); None: as configured."""
        self._engine.use_bitmap_hook(hook)

    @property
    def raw_log(self) -> RawLog:
        """The log as bytes, for replication."""
        return self._raw_log

    def reload_settings(self) -> None:
        """Read topics, groups and offsets again: a slave's files were brought in line with its master's."""
        if not self._engine.is_replica:
            raise InvalidConfig("only a slave's settings come from elsewhere")
        self._folder.load()

    def set_replicas(self, *, confirmed_where: int, in_sync_count: int) -> None:
        """Told by whoever sends the log: what enough replicas hold, and how many are in sync, this store counted."""
        if self._engine.confirmation is not None:
            self._engine.confirmation.confirm(confirmed_where)
        self._appender.set_in_sync_count(in_sync_count)

    def on_waiting_for_replicas(self, callback: Callable[[], None] | None) -> None:
        """Call back, in the thread that waits or that synced for it, when puts begin to wait for replicas."""
        if self._engine.confirmation is not None:
            self._engine.confirmation.on_waiting = callback

    @property
    def min_physical_offset(self) -> int:
        """Where the log begins: what lies below was deleted."""
        return max(0, self._engine.log.min_offset)

    @property
    def max_physical_offset(self) -> int:
        """Where the log ends, as far as it can be read."""
        return self._engine.log.max_offset

    @property
    def flushed_offset(self) -> int:
        """Everything below is on disk."""
        return self._engine.parts.segments.flushed_where

    def _check_readable(self) -> None:
        if not self._engine.lifecycle.is_readable:
            raise StoreClosed("the store is not open for reading", path=self.path)


def _waits_not(message: Message) -> bool:
    properties = message.properties
    if not properties:
        return False
    try:
        wait = properties.get(WAIT_STORE_MSG_OK)
        return wait is not None and wait.lower() != "true"
    except Exception:  # noqa: BLE001
        # A name of the user's own type failed to compare. The message is in the log by now: wait, which is safe.
        return False
