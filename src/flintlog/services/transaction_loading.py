"""What a store's log says about its transactions, when the service starts.

    1  half messages from the saved offset on         who is there
    2  op messages from theirs on                     who is decided, and was noted as such
    3  the log from the oldest undecided one on       who is decided, and was not noted: a crash, or a Java broker
                                                      that stopped within the seconds in which it gathers notes

The third step is why a transaction is never committed twice: the committed message itself names its half message.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from flintlog.errors import DamagedRecord
from flintlog.format.sys_flag import TRANSACTION_MASK, TransactionType
from flintlog.services.transaction_records import DISCARD_TOPIC, HALF_TOPIC, OP_TOPIC, QUEUE_ID, read_half, read_op
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


def load_table(store: Store, half_offset: int, op_offset: int) -> TransactionTable:
    """All transactions that are not noted as decided; an offset below 0 says that none was saved."""
    table = TransactionTable(_within(store, HALF_TOPIC, half_offset), _within(store, OP_TOPIC, op_offset))
    read_halves(store, table)
    noted: set[int] = set()
    for stored in read_queue(store, OP_TOPIC, table.first_op):
        half_offsets = read_op(stored)
        table.add_op(stored.queue_offset, half_offsets)
        noted.update(half_offsets)
    for transaction in table.undecided():
        if any(half.queue_offset in noted for half in transaction.halves):
            table.decide(transaction, Decision.UNKNOWN)
    return table


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


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[str, int, int, int, str, int]]:
    return zip(*(batch.column(name).to_pylist() for name in _COLUMNS), strict=True)
