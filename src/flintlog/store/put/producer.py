"""A producer whose message is stored once, however often it is put: after a crash it puts the last one again.

    producer   17 ─▶ stored           17 ─▶ (killed)         17 ─▶ was stored already, or is now
    batches.json  { "closed": { "web-1": 16 } }                 last closed number of the producer

Each message is a closed batch of one (`closed_batch.py`, `store/recovery/batch_notes.py`): after a crash at any step
the message is in the log and its number is noted, or neither. Numbers have no gaps, so one that was passed is stored.
"""

from __future__ import annotations

from collections.abc import Callable

from flintlog.errors import InvalidMessage, PutFailed
from flintlog.store.model.message import Message, PutStatus, Receipt
from flintlog.store.put.closed_batch import ClosedBatches


class Producer:
    """Puts each message of one producer once; made by `Store.producer`. Any thread may call.

    A number (`sequence`) belongs to one message for ever. The first is 0, and each put takes the next one or repeats
    one: a repeated one is not stored again, a gap is refused. What was put is on disk when the call returns, which
    takes several syncs: to put much, use `Store.put_closed`, which does the same for a batch.

    >>> from flintlog.testing import temporary_store
    >>> with temporary_store() as store:
    ...     producer = store.producer("web-1")
    ...     first = producer.put(Message("orders", b"42 pieces"), sequence=0)
    ...     again = producer.put(Message("orders", b"42 pieces"), sequence=0)
    ...     bool(first), bool(again), producer.next_sequence, len(list(store.messages("orders", 0)))
    (True, True, 1, 1)

    The numbers of 10,000 producers are kept; then the one that put longest ago is forgotten, and begins with 0 again.
    If a broker of RocketMQ opens a store after a crash, before flintlog does, a message that was being put may stay in
    the log without its number. A ledger's log takes no such puts.
    """

    def __init__(self, batches: ClosedBatches, id: str, finish: Callable[[Receipt, Message, bool], Receipt]) -> None:
        self.id = id
        self._batches = batches
        self._finish = finish

    @property
    def next_sequence(self) -> int:
        """The number of the next message: all those before it are stored."""
        return self._batches.next_id(self.id)

    def put(self, message: Message, sequence: int, *, check: bool = True) -> Receipt:
        """Store a message, unless it was stored before. Then the receipt is true too, and has no offsets.

        A repeated put does not wait for slaves.
        """
        if type(message) is not Message:
            raise InvalidMessage(f"put takes a Message, not {type(message).__name__}")
        try:
            written = self._batches.put([message], self.id, sequence, is_next=True)
        except PutFailed as refusal:
            if check or refusal.receipt is None:
                raise
            return refusal.receipt
        if written is None or written.last is None:
            return Receipt(PutStatus.PUT_OK)
        return self._finish(written.last, message, check)

    def __repr__(self) -> str:
        return f"Producer({self.id!r})"
