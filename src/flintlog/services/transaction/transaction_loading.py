"""Reads a store's transactions from its log when the service starts.

    1  half messages from the saved offset on         all transactions
    2  op messages from their saved offset on         the decided ones that were noted
    3  the log from the oldest undecided one on       decided ones without a note: after a crash, or after a Java broker
                                                      stopped within the seconds in which it gathers notes
    4  notes and messages older than that             decided ones that were copied nevertheless: a Java broker checks
                                                      transactions that it has not noted yet, even while it stops

Step 3 ensures that no transaction is committed twice: a committed message names its half message. Step 4 catches
transactions that RocketMQ would commit, or ask about, a second time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from typing import Final, cast

from flintlog.errors import DamagedRecord
from flintlog.format.sys_flag import TRANSACTION_MASK, TransactionType
from flintlog.kernel import Decoded
from flintlog.services.queue_reading import read_pages
from flintlog.services.transaction.transaction_records import (
    DISCARD_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    QUEUE_ID,
    Half,
    read_half,
    read_op,
)
from flintlog.services.transaction.transaction_table import Decision, TransactionTable, Undecided
from flintlog.store.log.column_scan import column_values
from flintlog.store.model.stored_message import StoredMessage
from flintlog.store.put.service_host import ServiceHost
from flintlog.store.store import Store

log = logging.getLogger(__name__)

PAGE_MESSAGES: Final = 256
_COLUMNS: Final = ("topic", "physical_offset", "sys_flag", "prepared_transaction_offset", "uniq_key", "born_timestamp")
_Row = tuple[str, int, int, int, str, int]


def read_queue(store: Store, topic: str, start: int, end: int | None = None) -> Iterator[StoredMessage]:
    """The visible messages of a queue from an offset on; damaged ones are skipped."""
    end = store.max_offset(topic, QUEUE_ID) if end is None else end
    for messages, _ in read_pages(store, topic, QUEUE_ID, start, end):
        yield from messages


def read_halves(store: Store, table: TransactionTable) -> list[int]:
    """Read new half messages; returns the offsets of copies whose transaction is already decided."""
    end = store.max_offset(HALF_TOPIC, QUEUE_ID)
    late: list[int] = []
    for stored in read_queue(store, HALF_TOPIC, table.read_to):
        half = read_half(stored)
        if half is None:
            log.warning("%s at %d names no topic and queue, and is skipped", HALF_TOPIC, stored.queue_offset)
        elif not table.add(half):
            late.append(half.queue_offset)
    table.skip_to(end)
    return late


def load_table(host: ServiceHost, half_offset: int, op_offset: int) -> tuple[TransactionTable, list[int]]:
    """Return the table, and the offsets of decided half messages that no op message names.

    A negative offset means that none was saved.
    """
    store = host.store
    first_op = _within(store, OP_TOPIC, op_offset)
    table = TransactionTable(_within(store, HALF_TOPIC, half_offset), first_op)
    read_halves(store, table)
    noted: set[int] = set()
    for stored in read_queue(store, OP_TOPIC, first_op):
        half_offsets = read_op(stored)
        table.add_op(stored.queue_offset, half_offsets)
        noted.update(half_offsets)
    decided: list[int] = []
    for transaction in table.undecided():
        if any(half.queue_offset in noted for half in transaction.halves):
            decided += table.decide(transaction, Decision.UNKNOWN)
    for find in (partial(find_ends, host), partial(find_older_ends, store, noted=noted, first_op=first_op)):
        for transaction, decision in list(find(table.undecided())):
            decided += table.decide(transaction, decision)
    return table, [offset for offset in decided if offset not in noted]


def _within(store: Store, topic: str, offset: int) -> int:
    """A saved offset, brought within the queue: a crash may have cut the queue, or cleaning deleted its start."""
    return min(max(offset, store.min_offset(topic, QUEUE_ID)), store.max_offset(topic, QUEUE_ID))


def find_ends(host: ServiceHost, undecided: list[Undecided]) -> Iterator[tuple[Undecided, Decision]]:
    """Transactions whose decision is in the log but in no op message; `UNKNOWN` means given up."""
    if not undecided:
        return
    by_half = {half.physical_offset: each for each in undecided for half in each.halves}
    by_key = {each.half.key: each for each in undecided}
    topics = sorted({each.half.topic for each in undecided} | {DISCARD_TOPIC})
    found: set[int] = set()
    for decoded in host.columns(topics, start=min(by_half)):
        for topic, offset, sys_flag, prepared, uniq_key, born in _rows(decoded):
            is_commit = sys_flag & TRANSACTION_MASK == TransactionType.COMMIT
            if not is_commit and topic != DISCARD_TOPIC:
                continue
            transaction = by_half.get(prepared) if is_commit else None
            transaction = transaction or by_key.get((uniq_key, born))
            if transaction is None or offset < transaction.halves[0].physical_offset or id(transaction) in found:
                continue
            if not _is_whole(host.store, offset):
                continue  # torn by a power cut: it can never be read, so it decides nothing
            found.add(id(transaction))
            yield transaction, Decision.COMMIT if is_commit else Decision.UNKNOWN


def _is_whole(store: Store, physical_offset: int) -> bool:
    try:
        return store.message_at(physical_offset) is not None
    except DamagedRecord:
        return False


def find_older_ends(
    store: Store, undecided: list[Undecided], noted: set[int], first_op: int
) -> Iterator[tuple[Undecided, Decision]]:
    """Transactions with only copies left, whose decision is older than the copies or names an older half message.

    `noted` holds the half messages that op messages from `first_op` on name.
    """
    copies = [each for each in undecided if each.halves[0].is_copy]
    older = [_older_halves(store, each.halves[0]) for each in copies]
    begun_at_ms = min((half.store_timestamp for halves in older for half in halves), default=None)
    if begun_at_ms is not None:
        start = store.offset_at(OP_TOPIC, QUEUE_ID, begun_at_ms)
        passed = read_queue(store, OP_TOPIC, start, first_op)
        noted = noted.union(*map(read_op, passed))
    for transaction, halves in zip(copies, older, strict=True):
        if any(half.queue_offset in noted for half in halves):
            yield transaction, Decision.UNKNOWN
        elif _is_committed(store, transaction.halves[0]):
            yield transaction, Decision.COMMIT


def _older_halves(store: Store, copy: Half) -> list[Half]:
    """The half messages in the index from which this one was copied."""
    found = map(read_half, store.query(HALF_TOPIC, copy.id, max_count=PAGE_MESSAGES))
    return [
        half for half in found if half is not None and half.key == copy.key and half.queue_offset < copy.queue_offset
    ]


def _is_committed(store: Store, copy: Half) -> bool:
    """Whether the index holds a committed message with the same key as this copy."""
    return any(
        (stored.uniq_key, stored.born_timestamp) == copy.key
        and stored.sys_flag & TRANSACTION_MASK == TransactionType.COMMIT
        and stored.prepared_transaction_offset < copy.physical_offset
        for stored in store.query(copy.topic, copy.id, max_count=PAGE_MESSAGES)
    )


def _rows(decoded: Decoded) -> Iterator[_Row]:
    columns = (column_values(decoded.columns[name]) for name in _COLUMNS)
    return cast("Iterator[_Row]", zip(*columns, strict=True))
