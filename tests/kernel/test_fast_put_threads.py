"""A put that dispatches its own record and a dispatcher share one fast_dispatch: one at a time, in both kernels."""

from __future__ import annotations

import threading
import time
from types import ModuleType

from tests.kernel.fast_puts import make_fast_put, quick_switches

from flintlog.kernel import DispatchStop, reference
from flintlog.kernel.types import Buffer
from flintlog.store.model.message import Message, Receipt, Receipts

PUTS = 1000
LOG_BYTES = 1 << 18


def fast_put(
    kernel: ModuleType, fast_dispatch: reference.FastDispatch, log: bytearray
) -> reference.FastPut[Receipt, Receipts]:
    return make_fast_put(kernel, fast_dispatch, kernel.Tail(log, 0))


class SlowDispatch(reference.FastDispatch):
    """Lets another thread run in the middle of its work."""

    def __init__(self) -> None:
        super().__init__()
        self.is_at_work = threading.Event()

    def run(self, buffer: Buffer, start: int, stop: int, base: int, at_index: bool = False) -> DispatchStop:
        self.is_at_work.set()
        time.sleep(0.05)
        return super().run(buffer, start, stop, base, at_index)


def test_a_dispatcher_waits_for_the_put_that_is_in_fast_dispatch() -> None:
    fast_dispatch = SlowDispatch()
    fast_dispatch.index_enabled = False
    entries = reference.Tail(bytearray(20), 0)
    fast_dispatch.set_queue("t", 0, reference.QueueEnd(entries))
    puts = fast_put(reference, fast_dispatch, bytearray(4096))
    seen: list[int] = []

    def dispatch() -> None:
        assert fast_dispatch.is_at_work.wait(10)
        fast_dispatch.own()
        seen.append(entries.position)
        fast_dispatch.is_owned = False

    dispatcher = threading.Thread(target=dispatch)
    dispatcher.start()
    assert puts.put(Message("t", b"x"))
    dispatcher.join()
    assert seen == [20]
    assert not fast_dispatch.is_owned


def test_a_put_leaves_its_record_to_the_dispatcher_that_has_fast_dispatch(kernel: ModuleType) -> None:
    fast_dispatch = kernel.FastDispatch()
    puts = fast_put(kernel, fast_dispatch, bytearray(4096))
    fast_dispatch.own()
    assert puts.put(Message("t", b"x"))
    assert fast_dispatch.log_offset == 0 and puts.is_behind


def test_each_record_gets_one_entry_from_put_or_dispatcher(kernel: ModuleType) -> None:
    fast_dispatch = kernel.FastDispatch()
    fast_dispatch.index_enabled = False
    entries = kernel.Tail(bytearray(20 * PUTS), 0)
    fast_dispatch.set_queue("t", 0, kernel.QueueEnd(entries))
    log = bytearray(LOG_BYTES)
    puts = fast_put(kernel, fast_dispatch, log)
    tail = puts.tail
    assert tail is not None
    is_over = threading.Event()

    def dispatch() -> None:
        fast_dispatch.own()
        try:
            fast_dispatch.run(log, fast_dispatch.log_offset, tail.position, 0)
            fast_dispatch.log_offset = fast_dispatch.position
        finally:
            fast_dispatch.is_owned = False

    def dispatch_all() -> None:
        while not is_over.is_set():
            dispatch()

    dispatcher = threading.Thread(target=dispatch_all)
    with quick_switches():
        dispatcher.start()
        receipts = [puts.put(Message("t", b"x")) for _ in range(PUTS)]
        is_over.set()
        dispatcher.join()
    dispatch()

    assert None not in receipts
    written = bytes(entries.buffer)
    places = [int.from_bytes(written[place : place + 8], "big") for place in range(0, len(written), 20)]
    assert places == [receipt.physical_offset for receipt in receipts if receipt is not None]
