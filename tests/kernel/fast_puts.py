"""Put fast dispatches as a store makes them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from flintlog.kernel import reference
from flintlog.store.model.message import Message, PutStatus, Receipt, Receipts

Duck = Any  # of either kernel


@contextmanager
def quick_switches() -> Iterator[None]:
    """Makes Python switch threads as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def make_fast_put(
    kernel: ModuleType,
    fast_dispatch: Duck,
    tail: Duck,
    *,
    max_message_size: int = 1000,
    lock: Duck = None,
    now_ms: Callable[[], int] = lambda: 1,
) -> reference.FastPut[Receipt, Receipts]:
    """One that dispatches, open, with all pages of its tail ready."""
    puts: reference.FastPut[Receipt, Receipts] = kernel.FastPut(
        kernel.Encoder(Message, store_host="127.0.0.1:10911", max_message_size=max_message_size),
        fast_dispatch,
        lock=lock or threading.Lock(),
        receipt_type=Receipt,
        batch_type=Receipts,
        ok=PutStatus.PUT_OK,
        now_ms=now_ms,
    )
    puts.tail = tail
    puts.ready_until = tail.capacity
    return puts
