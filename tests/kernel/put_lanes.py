"""A short way for puts, as a store would make one."""

from __future__ import annotations

import threading
from types import ModuleType
from typing import Any

from flintlog.kernel import reference
from flintlog.store.message import Message, PutStatus, Receipt, Receipts

Duck = Any  # of either kernel


def make_put_lane(
    kernel: ModuleType, lane: Duck, tail: Duck, *, max_message_size: int = 1000
) -> reference.PutLane[Receipt, Receipts]:
    """One that dispatches, open, with all pages of its tail ready."""
    puts: reference.PutLane[Receipt, Receipts] = kernel.PutLane(
        kernel.Encoder(Message, store_host="127.0.0.1:10911", max_message_size=max_message_size),
        lane,
        lock=threading.Lock(),
        receipt_type=Receipt,
        batch_type=Receipts,
        ok=PutStatus.PUT_OK,
        now_ms=lambda: 1,
    )
    puts.tail = tail
    puts.ready_until = tail.capacity
    puts.is_open = puts.dispatches = True
    return puts
