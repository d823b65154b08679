"""`Store`: one open directory of messages, the public interface.

    with open_store("orders-store") as store:
        store.put(Message("orders", b"..."))
        store.get("orders", queue_id=0, offset=0).messages

`open_store.py` checks the arguments, `engine.py` opens, runs and stops a store, `writable.py` has its puts,
`readable.py` its reads. This module starts and closes stores, and has their services, topics, groups and consumers. Any
thread may call any method.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self, overload

from flintlog.disk.load_medium import check_medium, load_medium
from flintlog.disk.media.local import LocalMedium
from flintlog.disk.media.medium import Medium
from flintlog.disk.media.overlay import OverlayMedium
from flintlog.errors import DamagedStore, FlintlogError, InvalidConfig, NotLeading, StoreInUse
from flintlog.store.consume.consumer import MAX_UNACKNOWLEDGED, Consumer
from flintlog.store.consume.consumer_registry import Consumers
from flintlog.store.consume.subscription import make_subscription
from flintlog.store.dispatch.arrivals import Listener
from flintlog.store.dispatch.entry_writer import BitmapHook
from flintlog.store.engine import Engine
from flintlog.store.filters.tags import MessageFilter
from flintlog.store.ledger.ledger_emptying import finish_emptying
from flintlog.store.member.ledger_member import LedgerMember
from flintlog.store.member.replication_port import ReplicationPort
from flintlog.store.model.message import Message, Receipt
from flintlog.store.model.recovery_report import RecoveryReport
from flintlog.store.options.store_config import StoreConfig
from flintlog.store.paths import StorePaths, refuse_files_for_folders, refuse_member_directory, with_found_member
from flintlog.store.put.queue_choice import QueueChoice
from flintlog.store.put.service_host import ServiceHost
from flintlog.store.put.service_runs import ServiceRuns
from flintlog.store.put.writable import Writable
from flintlog.store.retention.queue_cleaning import RETENTION_JOB, Cleaning
from flintlog.store.retention.retention import Retention
from flintlog.store.runtime.clock import Clock, Milliseconds, TurnedClock, as_milliseconds, check_reading
from flintlog.store.runtime.jobs import Background, Progress
from flintlog.store.runtime.service import Service
from flintlog.store.settings.config_folder import ConfigFolder
from flintlog.store.settings.consumer_offsets import ConsumerOffsets
from flintlog.store.settings.groups import Groups
from flintlog.store.settings.subscriptions import Subscriptions
from flintlog.store.settings.topics import Topics
from flintlog.store.settings.written_with import fit_options, note_options
from flintlog.store.stats.broker_stats import BrokerStats
from flintlog.store.stats.store_stats import StoreStatsService

if TYPE_CHECKING:
    from flintlog.services.delay.schedule import ScheduleService
    from flintlog.services.timer.timer_service import TimerService
    from flintlog.services.transaction.transaction_service import TransactionService

log = logging.getLogger(__name__)


def start_store(
    path: Path,
    config: StoreConfig | None,
    clock: Clock | Milliseconds | None,
    medium: Medium | None,
    progress: Progress | None,
    *,
    read_only: bool,
) -> Store:
    """Read what the directory says about itself, load, recover and start; `open_store` has checked its arguments."""
    config = StoreConfig() if config is None else config
    now_ms = as_milliseconds(clock)
    check_reading(now_ms)
    disk = _make_medium(config) if medium is None else check_medium(medium)
    held = disk.stat(path)
    if held is not None and not held.is_directory:
        raise DamagedStore("this is a file, not a store's directory", path=path)
    refuse_files_for_folders(StorePaths.of(path, config), disk)
    refuse_member_directory(path, disk)
    if medium is None:
        path = path.absolute()  # the process may change its working directory
    config = with_found_member(path, config, disk)
    config = fit_options(config, StorePaths.of(path, config), disk)
    if read_only:
        disk = OverlayMedium(disk)
    else:
        finish_emptying(StorePaths.of(path, config), disk)
    engine = Engine(path, config, disk, now_ms, read_only=read_only)
    engine.figures.samples_itself = not isinstance(clock, TurnedClock)
    engine.open(progress)
    if config.waits_in_name_only and not read_only:
        asked = config.in_sync_replicas
        log.warning("broker_role is SYNC_MASTER, but with in_sync_replicas %d a put waits for no slave", asked)
    return _run(Store(engine, Background(clock)), engine)


def _run(store: Store, engine: Engine) -> Store:
    """Load the settings of an opened store and start its services."""
    try:
        store._load_config_folder()
        if not engine.read_only:
            note_options(engine.parts.paths, engine.config, engine.medium)
        store._start_services()
    except BaseException:
        for finding in store.recovery:  # the next opening does not find what this one has mended
            log.warning("%s: %s (%s)", finding.id, finding.evidence, finding.remedy)
        store.shutdown()
        raise
    return store


def _make_medium(config: StoreConfig) -> Medium:
    return LocalMedium(config.max_mapped_files) if config.medium == "local" else load_medium(config.medium)


class Store(Writable):
    """An open store; made by `open_store`."""

    def __init__(self, engine: Engine, background: Background) -> None:
        super().__init__(engine)
        self._background = background
        self._host = ServiceHost(self, engine, self._appender, self._finish, background)
        self._services = ServiceRuns(self._host, background, self._appender)
        self._cleaning = Cleaning(engine, background)
        self._folder = ConfigFolder(engine, background, on_queue_type=self._appender.look_at_queue_types)
        self._choice = self._appender.queue_choice = QueueChoice(self._folder.topics)
        self._consumers = Consumers()
        self._replication = ReplicationPort(engine, self._appender, self._folder, self._make_member)

    @property
    def replication(self) -> ReplicationPort:
        """For the nodes that replicate this store."""
        return self._replication

    def _make_member(self) -> LedgerMember:
        segments, host = self._engine.parts.segments, self._host
        host.group = member = LedgerMember(
            host, segments, self._folder, self._consumers, self._services, self._put_state
        )
        return member

    def _put_state(self, message: Message) -> Receipt:
        """Put a message of the group's shared state; hooks are not called."""
        return self._finish(self._appender.append_state(message), message, check=False)

    @property
    def read_only(self) -> bool:
        """Whether nothing may be put."""
        return self._engine.read_only

    @property
    def recovery(self) -> RecoveryReport:
        """What the opening found: what was cut, where, why, and where it is kept."""
        return self._engine.recovery

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    def _load_config_folder(self) -> None:
        self._host.report(self._folder.settle())

    def _start_services(self) -> None:
        if self.read_only:
            return
        if self.config.retention == "on":
            self._start_retention()
        if self._engine.log.is_serving and not self._engine.is_replica:
            self._closed_batches.mark_left_part()
            self._services.start()
        if not self._engine.figures.samples_itself:
            self._background.add("stats", self._engine.figures.sample)
        self._background.start()

    def _start_retention(self) -> None:
        engine = self._engine
        retention = Retention(engine.config, engine.parts, engine.lifecycle, engine.dispatcher, engine.now_ms)
        # A group may have been reset to earlier messages since the offsets were saved: those must not be deleted.
        retention.save_offsets = self._folder.offsets.save
        if engine.flushing.queue_flush is not None:
            retention.covers = engine.flushing.queue_flush.cover
        self._background.add(RETENTION_JOB, retention.run_due)
        self._cleaning.retention = retention

    @overload
    def service(self, name: Literal["schedule"]) -> ScheduleService: ...

    @overload
    def service(self, name: Literal["timer"]) -> TimerService: ...

    @overload
    def service(self, name: Literal["transaction"]) -> TransactionService: ...

    @overload
    def service(self, name: str) -> Service: ...

    def service(self, name: str) -> Service:
        """A running service, by its name in the configuration."""
        return self._services.get(name)

    def run_due(self) -> None:
        """Do now, in this thread, whatever services have due; their own threads would do it in time."""
        self._background.run_due()

    def shutdown(self) -> None:
        """Stop cleanly: services, flush, dispatch of the rest, `abort` removed. A second call does nothing.

        Puts are refused from the beginning of this call on, so it ends beside threads that go on putting. An arrival
        listener or the callback of a put's future cannot call this: it would wait for the thread it runs in.
        """
        if self._engine.dispatcher.is_calling_listener or self._engine.flushing.is_in_own_thread:
            raise StoreInUse(
                "a listener or a future's callback cannot shut its store down",
                advice="let another thread do it",
            )
        if self._engine.is_left_to_parent:
            return  # what services and groups would save is the parent's to save
        self._appender.refuse_callers()
        try:
            self._end_users()
        except FlintlogError:
            raise
        except BaseException:
            self._end_users()  # a signal handler may have raised, and an engine that is shut down saves nothing
            raise
        finally:
            self._engine.shutdown()

    close = shutdown

    def _end_users(self) -> None:
        """End what uses the engine, and save its state. A second call does what is left."""
        with ExitStack() as stack:
            stack.callback(self._folder.save)
            stack.callback(self._services.stop)
            self._consumers.close()
            self._background.stop()

    def destroy(self) -> None:
        """Shut down and remove the store's files, `flintlog/` as a whole, and nothing else in the directory."""
        if not self.read_only:
            self.shutdown()
        self._engine.destroy()

    @property
    def cleaning(self) -> Cleaning:
        """Deletes on request: expired files, queues without messages, queues of unused topics."""
        return self._cleaning

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
        ack_timeout_s: float | None = None,
        retries: bool = True,
        max_unacknowledged: int = MAX_UNACKNOWLEDGED,
    ) -> Consumer:
        """A reader of a topic that remembers for its group how far it is; see `Consumer`.

        Consumers of one group share the topic's queues; with `queue_ids` a consumer has these for itself.
        """
        self._check_readable()
        if self.replication.is_following:
            raise NotLeading("this member does not lead its group", path=self.path, advice="consume at the leader")
        subscription = make_subscription(group, topic, filter, queue_ids, start, retries, max_unacknowledged)
        return self._consumers.open(self._host, subscription, timeout_s, ack_timeout_s)

    # ------------------------------------------------------------------ figures and listeners

    @property
    def subscriptions(self) -> Subscriptions:
        """The SQL filters that consumer groups registered; one of them given to `get` reads only what can pass."""
        return self._engine.settings.subscriptions

    @property
    def broker_stats(self) -> BrokerStats:
        """Figures by topic, queue and group since the opening, under RocketMQ's names."""
        return self._engine.figures.broker

    @property
    def counters(self) -> StoreStatsService:
        """What the store counts in all: totals, rates, latencies."""
        return self._engine.figures.counters

    def stats(self) -> dict[str, int | float | str]:
        """Counters, rates and offsets under RocketMQ's names; numbers where RocketMQ shows one number."""
        found = self._engine.figures.values()
        found.update(self._services.figures())
        return found

    def on_arrival(self, callback: Listener) -> None:
        """Call back with an `Arrival` for each message that becomes visible, in log order.

        The callback runs in the thread that made the message visible, and holds it up: the thread that puts, the flush
        thread under sync flush, or a thread of the store for messages that were put meanwhile.
        """
        if not callable(callback):
            raise InvalidConfig(f"a listener is a function, not {type(callback).__name__}")
        self._engine.dispatcher.add_listener(callback)

    def set_bitmap_hook(self, hook: BitmapHook | None) -> None:
        """Give each record's filter bitmap for its queue extension (`enableConsumeQueueExt`); None: as configured."""
        if hook is not None and not callable(hook):
            raise InvalidConfig(f"a bitmap hook is a function, not {type(hook).__name__}")
        self._engine.use_bitmap_hook(hook)
