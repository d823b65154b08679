"""The messages with which the transactions of the golden store `halves` began; makes all records of its log again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from flintlog import Message, StoreConfig, StoredMessage, open_store
from flintlog.format.properties import REAL_TOPIC
from flintlog.format.properties import TRANSACTION_PREPARED_QUEUE_OFFSET as PREPARED
from flintlog.services.transaction import transaction_records as records
from flintlog.store.runtime.service import Rewritten
from flintlog.testing import FakeClock

GROUP = "tellers"
UNDECIDED = (100, 101, 105)
"""Begun last, and not decided when the broker was killed."""

OPTIONS = {
    "mappedFileSizeCommitLog": "262144",
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
    "transactionCheckInterval": "400",
    "transactionTimeOut": "300",
    "transactionCheckMax": "2",
    "transactionOpBatchInterval": "300",
}


def message_of(number: int) -> Message:
    """The message with which producer number `number` begins a transaction."""
    properties = {"WAIT": "true", "i": str(number), f"long-name-{number * 7919}": "x" * (number % 40)}
    properties.update({f"p{each}": str(each) for each in range(number % 11)})
    if number % 5 == 0:
        properties["CHECK_IMMUNITY_TIME_IN_SECONDS"] = "2"
    return Message(
        f"paid-{number % 3}",
        b"payment %d " % number * (number % 7 + 1),
        queue_id=number % 4,
        tags=None if number % 4 == 0 else f"tag{number % 4}",
        keys=[f"k{number}", "все"] if number % 3 else [],
        properties=properties,
        flag=number,
        born_host="10.0.0.7:1234",
    )


def again(log: list[StoredMessage], check_max: int) -> Iterator[Rewritten]:
    """Make each record of the log again: from its message if it begins a transaction, else from the one it follows."""
    latest: dict[str, StoredMessage] = {}
    by_offset = {stored.physical_offset: stored for stored in log}
    for stored in log:
        yield _again(stored, latest, by_offset, check_max)
        if stored.topic == records.HALF_TOPIC:
            latest[str(stored.uniq_key)] = stored


def _again(
    stored: StoredMessage, latest: dict[str, StoredMessage], by_offset: dict[int, StoredMessage], check_max: int
) -> Rewritten:
    if stored.topic == records.OP_TOPIC:
        noted = records.op_message(records.read_op(stored))
        # Both are the broker's own: its clock a moment before the put, and the port that it listens on.
        noted.message.born_timestamp = stored.born_timestamp
        noted.message.born_host = noted.message.store_host = stored.store_host
        return noted
    if stored.topic == records.HALF_TOPIC and str(stored.uniq_key) not in latest:
        message = message_of(int(stored.properties["i"]))
        message.born_timestamp = stored.born_timestamp
        return records.prepare(message, GROUP, str(stored.uniq_key))
    before = by_offset.get(stored.prepared_transaction_offset) if REAL_TOPIC not in stored.properties else None
    before = before or latest[str(stored.uniq_key)]
    half = records.read_half(before)
    assert half is not None
    if stored.topic == records.DISCARD_TOPIC:
        return records.give_up(before, half, check_max)
    if stored.topic != records.HALF_TOPIC:
        return records.commit(before, half)
    is_put_off = PREPARED in stored.properties and PREPARED not in before.properties
    rebuilt = (records.put_off if is_put_off else records.check_again)(before, half)
    # The one difference, on purpose: Java's copies lose these two fields.
    rebuilt.message.flag = rebuilt.message.reconsume_times = 0
    return rebuilt


def log_of(path: Path, config: StoreConfig) -> list[StoredMessage]:
    """Every message of a store, in the order of its log."""
    with open_store(path, config, read_only=True) as store:
        offsets = [offset for batch in store.scan() for offset in batch.column("physical_offset").to_pylist()]
        return [stored for stored in map(store.message_at, offsets) if stored is not None]


def replay(theirs: Path, ours: Path, config: StoreConfig) -> None:
    """Make every record of a broker's log again, at its time: the same bytes."""
    log = log_of(theirs, config)
    kinds = {stored.topic for stored in log}
    assert {records.HALF_TOPIC, records.OP_TOPIC, records.DISCARD_TOPIC, "paid-0", "paid-1", "paid-2"} <= kinds
    clock = FakeClock()
    with open_store(ours, config.with_changes(services=frozenset()), clock=clock) as store:
        for stored, rebuilt in zip(log, again(log, config.transaction_check_max), strict=True):
            clock.set(stored.store_timestamp)
            receipt = store._host.put_rebuilt(rebuilt).check()
            found = store.message_at(receipt.physical_offset)
            assert found is not None and found.record == stored.record, (stored, stored.properties)
