"""A store with a timer for tests: a small wheel, small files, and a clock that is turned by hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flintlog import Message, Store, StoreConfig, open_store
from flintlog.disk.media.medium import Medium
from flintlog.services.queue_reading import read_pages
from flintlog.services.timer.timer_service import TimerService
from flintlog.store.model.stored_message import StoredMessage
from flintlog.testing import FakeClock

TIMER_TOPIC = "rmq_sys_wheel_timer"
SLOTS = 512
CONFIG = StoreConfig(
    mapped_file_size_commit_log=64 * 1024,
    mapped_file_size_consume_queue=20 * 40,
    max_hash_slot_num=40,
    max_index_num=400,
    flush_interval_consume_queue=3_600_000,
    mapped_file_size_timer_log=52 * 10 + 20,
    timer_roll_window_slot=100,
    warm_ahead_bytes=0,
    services=frozenset({"timer"}),
)


@contextmanager
def timer_store(
    path: Path, clock: FakeClock, config: StoreConfig = CONFIG, medium: Medium | None = None
) -> Iterator[Store]:
    with open_store(path, config, clock=clock, medium=medium) as store:
        yield store


def timer_of(store: Store) -> TimerService:
    return store.service("timer")


def timed(number: int, deliver_at_ms: int, topic: str = "orders", queue_id: int = 0) -> Message:
    return Message(
        topic,
        b"%d" % number,
        tags="t",
        queue_id=queue_id,
        properties={"UNIQ_KEY": f"U{number}"},
        deliver_at_ms=deliver_at_ms,
    )


def numbers(store: Store, topic: str = "orders", queue_id: int = 0) -> list[int]:
    """The numbers of the messages that were delivered, in order."""
    return [int(message.body) for message in delivered(store, topic, queue_id)]


def delivered(store: Store, topic: str = "orders", queue_id: int = 0) -> list[StoredMessage]:
    store.wait_dispatched()
    stop = store.max_offset(topic, queue_id)
    pages = read_pages(store, topic, queue_id, store.min_offset(topic, queue_id), stop)
    return [message for messages, _ in pages for message in messages]
