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
from flintlog.services.transaction_records import (
    DISCARD_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    QUEUE_ID,
    Half,
    read_half,
    read_op,
)
from flintlog.services.transaction_table import Decision, TransactionTable, Undecided
from flintlog.store.store import Store
from flintlog.store.stored import StoredMessage

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

PAGE_MESSAGES: Final = 256
_COLUMNS: Final = ("topic", "physical_offset", "sys_flag", "prepared_transaction_offset", "uniq_key", "born_timestamp")


def read_queue(store: Store, topic: str, start: int) -> Iterator[StoredMessage]:
    """The messages of a queue from an offset on, as far as they are visible now; damaged ones are left out."""
    offset, end = start, store.max_offset(topic, QUEUE_ID)
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
    first_half = _within(store, HALF_TOPIC, half_offset)
    table = TransactionTable(first_half, _within(store, OP_TOPIC, op_offset))
    read_halves(store, table)
    noted: set[int] = set()
    for stored in read_queue(store, OP_TOPIC, table.first_op):
        half_offsets = read_op(stored)
        table.add_op(stored.queue_offset, half_offsets)
        noted.update(half_offsets)
    decided: list[int] = []
    for transaction in table.undecided():
        if any(half.queue_offset in noted for half in transaction.halves):
            decided += table.decide(transaction, Decision.UNKNOWN)
    passed = {offset for offset in noted if offset < first_half}
    for find in (find_ends, partial(find_older_ends, passed=passed)):
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
            found.add(id(transaction))
            yield transaction, Decision.COMMIT if is_commit else Decision.UNKNOWN


def find_older_ends(store: Store, undecided: list[Undecided], passed: set[int]) -> Iterator[tuple[Undecided, Decision]]:
    """Transactions of which only copies are left, and whose end is older, or names what they were copied from.

    `passed` are the half messages before the saved offset that op messages name.
    """
    copies = {each.half.key: each for each in undecided if each.halves[0].is_copy}
    for offset in sorted(passed) if copies else ():
        for half in filter(None, map(read_half, store.get(HALF_TOPIC, QUEUE_ID, offset, 1).messages)):
            if half.queue_offset == offset and (transaction := copies.pop(half.key, None)) is not None:
                yield transaction, Decision.UNKNOWN
    for transaction in copies.values():
        if _is_committed(store, transaction.halves[0]):
            yield transaction, Decision.COMMIT


def _is_committed(store: Store, copy: Half) -> bool:
    """Whether the index knows a committed message that was born as this one was."""
    return any(
        stored.born_timestamp == copy.born_timestamp
        and stored.sys_flag & TRANSACTION_MASK == TransactionType.COMMIT
        and stored.prepared_transaction_offset < copy.physical_offset
        for stored in store.query(copy.topic, copy.id, max_count=PAGE_MESSAGES)
    )


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[str, int, int, int, str, int]]:
    return zip(*(batch.column(name).to_pylist() for name in _COLUMNS), strict=True)
