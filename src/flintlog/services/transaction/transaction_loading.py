"""What a store's log says about its transactions, when the service starts.

    1  half messages from the saved offset on         who is there
    2  op messages from theirs on                     who is decided, and was noted as such
    3  the log from the oldest undecided one on       who is decided, and was not noted: a crash, or a Java broker
                                                      that stopped within the seconds in which it gathers notes
    4  notes and messages older than that             who was decided and copied all the same: a Java broker checks
                                                      what it has not noted yet, also while it stops

By the third step nothing is committed twice here: the committed message itself names its half message. The fourth
mends what RocketMQ would commit, or ask about, a second time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from flintlog.errors import DamagedRecord
from flintlog.format.sys_flag import TRANSACTION_MASK, TransactionType
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
from flintlog.store.store import Store
from flintlog.store.model.stored_message import StoredMessage

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

PAGE_MESSAGES: Final = 256
_COLUMNS: Final = ("topic", "physical_offset", "sys_flag", "prepared_transaction_offset", "uniq_key", "born_timestamp")


def read_queue(store: Store, topic: str, start: int, end: int | None = None) -> Iterator[StoredMessage]:
    """The messages of a queue from an offset on, as far as they are visible now; damaged ones are left out."""
    offset, end = start, store.max_offset(topic, QUEUE_ID) if end is None else end
    while offset < end:
        try:
            page = store.get(topic, QUEUE_ID, offset, PAGE_MESSAGES)
        except DamagedRecord as damage:
            log.warning("%s at %d is damaged and left out: %s", topic, offset, damage)
            offset += 1
            continue
        yield from page.messages
        if page.next_offset <= offset:
            return
        offset = page.next_offset


def read_halves(store: Store, table: TransactionTable) -> list[int]:
    """Take what is new in the half queue; the offsets of copies whose transaction was decided in the meantime."""
    end = store.max_offset(HALF_TOPIC, QUEUE_ID)
    late: list[int] = []
    for stored in read_queue(store, HALF_TOPIC, table.read_to):
        half = read_half(stored)
        if half is None:
            log.warning("%s at %d names no topic and queue, and is left out", HALF_TOPIC, stored.queue_offset)
        elif not table.add(half):
            late.append(half.queue_offset)
    table.skip_to(end)
    return late


def load_table(store: Store, half_offset: int, op_offset: int) -> tuple[TransactionTable, list[int]]:
    """What is undecided, and the half messages that are decided without an op message that says so.

    An offset below 0 says that none was saved.
    """
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
    for find in (find_ends, partial(find_older_ends, noted=noted, first_op=first_op)):
        for transaction, decision in list(find(store, table.undecided())):
            decided += table.decide(transaction, decision)
    return table, [offset for offset in decided if offset not in noted]


def _within(store: Store, topic: str, offset: int) -> int:
    """A saved offset, as far as the queue goes: a crash may have cut it, cleaning may have passed it."""
    return min(max(offset, store.min_offset(topic, QUEUE_ID)), store.max_offset(topic, QUEUE_ID))


def find_ends(store: Store, undecided: list[Undecided]) -> Iterator[tuple[Undecided, Decision]]:
    """Transactions whose end stands in the log although no op message names it.

    `UNKNOWN` stands for one that was given up.
    """
    if not undecided:
        return
    by_half = {half.physical_offset: each for each in undecided for half in each.halves}
    by_key = {each.half.key: each for each in undecided}
    topics = sorted({each.half.topic for each in undecided} | {DISCARD_TOPIC})
    found: set[int] = set()
    for batch in store.scan(topics, start=min(by_half), include_body=False):
        for topic, offset, sys_flag, prepared, uniq_key, born in _rows(batch):
            is_commit = sys_flag & TRANSACTION_MASK == TransactionType.COMMIT
            if not is_commit and topic != DISCARD_TOPIC:
                continue
            transaction = by_half.get(prepared) if is_commit else None
            transaction = transaction or by_key.get((uniq_key, born))
            if transaction is None or offset < transaction.halves[0].physical_offset or id(transaction) in found:
                continue
            if not _is_whole(store, offset):
                continue  # a power cut tore it: nobody will ever read it, so it decides nothing
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
    """Transactions of which only copies are left, and whose end is older than those, or names an older half message.

    `noted` are the half messages that op messages from `first_op` on name.
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
    """What the index knows of the half messages from which this one was copied."""
    found = map(read_half, store.query(HALF_TOPIC, copy.id, max_count=PAGE_MESSAGES))
    return [
        half for half in found if half is not None and half.key == copy.key and half.queue_offset < copy.queue_offset
    ]


def _is_committed(store: Store, copy: Half) -> bool:
    """Whether the index knows a committed message that was born as this one was."""
    return any(
        (stored.uniq_key, stored.born_timestamp) == copy.key
        and stored.sys_flag & TRANSACTION_MASK == TransactionType.COMMIT
        and stored.prepared_transaction_offset < copy.physical_offset
        for stored in store.query(copy.topic, copy.id, max_count=PAGE_MESSAGES)
    )


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[str, int, int, int, str, int]]:
    return zip(*(batch.column(name).to_pylist() for name in _COLUMNS), strict=True)
