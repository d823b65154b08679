"""Stores with transactions for tests: small files, a clock to turn, and looks into the service's queues."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flintlog import Message, Store, StoreConfig, StoredMessage, open_store
from flintlog.disk.media.medium import Medium
from flintlog.errors import DamagedRecord
from flintlog.services.transaction.transaction_service import TransactionService
from flintlog.testing import FakeClock

CONFIG = StoreConfig(
    services=frozenset({"transaction"}),
    mapped_file_size_commit_log=64 * 1024,
    mapped_file_size_consume_queue=20 * 100,
    max_hash_slot_num=100,
    max_index_num=400,
    flush_interval_consume_queue=3_600_000,
    transaction_check_interval=30_000,
)
HALF, OP, DISCARD = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"


@contextmanager
def opened(
    path: Path, clock: FakeClock, config: StoreConfig = CONFIG, medium: Medium | None = None
) -> Iterator[tuple[Store, TransactionService]]:
    """A store and its transaction service."""
    with open_store(path, config, clock=clock, medium=medium) as store:
        yield store, service_of(store)


def service_of(store: Store) -> TransactionService:
    service = store.service("transaction")
    assert isinstance(service, TransactionService)
    return service


def order(number: int, **properties: str) -> Message:
    """A message whose transaction has the id `t<number>`."""
    return Message(
        "orders",
        b"order %d" % number,
        tags="paid",
        keys=[f"o-{number}"],
        properties={"UNIQ_KEY": f"t{number}", **properties},
    )


def read(store: Store, topic: str = "orders", queue_id: int = 0, *, around_damage: bool = False) -> list[StoredMessage]:
    """Everything that a queue shows; a damaged message is an error, or passed over."""
    store.wait_dispatched()
    found: list[StoredMessage] = []
    offset = store.min_offset(topic, queue_id)
    while offset < store.max_offset(topic, queue_id):
        try:
            page = store.get(topic, queue_id, offset)
        except DamagedRecord as damaged:
            if not around_damage or damaged.next_queue_offset is None:
                raise
            offset = damaged.next_queue_offset
            continue
        found += page.messages
        offset = page.next_offset
    return found


def bodies(store: Store, topic: str = "orders") -> list[bytes]:
    return [message.body for message in read(store, topic)]
