"""A put that dispatches its own record and a dispatcher share one lane: one at a time, in both kernels."""

from __future__ import annotations

import threading
import time
from types import ModuleType

from tests.kernel.put_lanes import make_put_lane, quick_switches

from flintlog.kernel import LaneStop, reference
from flintlog.kernel.types import Buffer
from flintlog.store.model.message import Message, Receipt, Receipts

PUTS = 1000
LOG_BYTES = 1 << 18


def put_lane(kernel: ModuleType, lane: reference.Lane, log: bytearray) -> reference.PutLane[Receipt, Receipts]:
    return make_put_lane(kernel, lane, kernel.Tail(log, 0))


class SlowLane(reference.Lane):
    """Lets another thread run in the middle of its work."""

    def __init__(self) -> None:
        super().__init__()
        self.is_at_work = threading.Event()

    def run(self, buffer: Buffer, start: int, stop: int, base: int, at_index: bool = False) -> LaneStop:
        self.is_at_work.set()
        time.sleep(0.05)
        return super().run(buffer, start, stop, base, at_index)


def test_a_dispatcher_waits_for_the_put_that_is_in_the_lane() -> None:
    lane = SlowLane()
    lane.index_enabled = False
    entries = reference.Tail(bytearray(20), 0)
    lane.set_queue("t", 0, reference.QueueEnd(entries))
    puts = put_lane(reference, lane, bytearray(4096))
    seen: list[int] = []

    def dispatch() -> None:
        assert lane.is_at_work.wait(10)
        lane.own()
        seen.append(entries.position)
        lane.is_owned = False

    dispatcher = threading.Thread(target=dispatch)
    dispatcher.start()
    assert puts.put(Message("t", b"x"))
    dispatcher.join()
    assert seen == [20]
    assert not lane.is_owned


def test_a_put_leaves_its_record_to_the_dispatcher_that_has_the_lane(kernel: ModuleType) -> None:
    lane = kernel.Lane()
    puts = put_lane(kernel, lane, bytearray(4096))
    lane.own()
    assert puts.put(Message("t", b"x"))
    assert lane.log_offset == 0 and puts.is_behind


def test_each_record_gets_one_entry_from_put_or_dispatcher(kernel: ModuleType) -> None:
    lane = kernel.Lane()
    lane.index_enabled = False
    entries = kernel.Tail(bytearray(20 * PUTS), 0)
    lane.set_queue("t", 0, kernel.QueueEnd(entries))
    log = bytearray(LOG_BYTES)
    puts = put_lane(kernel, lane, log)
    tail = puts.tail
    assert tail is not None
    is_over = threading.Event()

    def dispatch() -> None:
        lane.own()
        try:
            lane.run(log, lane.log_offset, tail.position, 0)
            lane.log_offset = lane.position
        finally:
            lane.is_owned = False

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
