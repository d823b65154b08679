"""Which queue a put goes to, which offset it gets, and when the fast path is closed: in both kernels."""

from __future__ import annotations

import threading
import time
from types import ModuleType

import pytest
from tests.kernel.fast_puts import Duck, make_fast_put, quick_switches

from flintlog.kernel import ClosedFor, native, scan
from flintlog.store.log.put_lock import PutLock
from flintlog.store.model.message import Message

QUEUES = [("t", 0), ("u", 0), ("t", 32), ("t", 64), ("t", 1), ("ü", 0)]
ROUNDS = 5
LONG, MOST_SHORT = 100, 60_000


def another(text: str) -> str:
    """An equal text that is another object."""
    return text.encode().decode()


def test_similar_queues_have_their_own_offsets(kernel: ModuleType) -> None:
    fast_dispatch = kernel.FastDispatch()
    fast_dispatch.index_enabled = False
    ends = {queue: kernel.Tail(bytearray(20 * ROUNDS), 0) for queue in QUEUES}
    for (topic, queue_id), tail in ends.items():
        fast_dispatch.set_queue(topic, queue_id, kernel.QueueEnd(tail))
    puts = make_fast_put(kernel, fast_dispatch, kernel.Tail(bytearray(8192), 0))
    places: dict[tuple[str, int], list[int]] = {queue: [] for queue in QUEUES}
    for number in range(ROUNDS):
        for topic, queue_id in QUEUES:
            receipt = puts.put(Message(another(topic), b"x", queue_id=queue_id))
            assert receipt is not None and receipt.queue_offset == number
            places[topic, queue_id].append(receipt.physical_offset)
    assert puts.next_offsets == dict.fromkeys(QUEUES, ROUNDS)
    for queue, tail in ends.items():
        entries = bytes(tail.buffer)
        assert [int.from_bytes(entries[at : at + 8], "big") for at in range(0, len(entries), 20)] == places[queue]


def test_offsets_that_another_way_has_moved(kernel: ModuleType) -> None:
    puts = make_fast_put(kernel, kernel.FastDispatch(), kernel.Tail(bytearray(4096), 0))
    assert puts.put(Message("t", b"x"))
    puts.next_offsets["t", 0] = 70
    receipt = puts.put(Message("t", b"x"))
    assert receipt is not None and receipt.queue_offset == 70
    puts.next_offsets = {("t", 0): 5}
    receipt = puts.put(Message("t", b"x"))
    assert receipt is not None and receipt.queue_offset == 5


def test_receipts_have_the_clocks_time_also_when_it_goes_back(kernel: ModuleType) -> None:
    times = [7, 7, 8, 2**40, 2, 2, 0]
    left = iter(times)
    log = bytearray(4096)
    puts = make_fast_put(kernel, kernel.FastDispatch(), kernel.Tail(log, 0), now_ms=lambda: next(left))
    receipts = [puts.put(Message("t", b"x")) for _ in times]
    assert [receipt.store_timestamp for receipt in receipts if receipt is not None] == times
    found = scan(log, 0, len(log), 0)
    assert [found.row(number).store_timestamp for number in range(found.count)] == times


def test_receipts_have_the_size_of_their_own_record(kernel: ModuleType) -> None:
    sizes = [0, 0, 300, 300, 1, 0, 300]
    log = bytearray(4096)
    puts = make_fast_put(kernel, kernel.FastDispatch(), kernel.Tail(log, 0))
    receipts = [puts.put(Message("t", bytes(size))) for size in sizes]
    found = scan(log, 0, len(log), 0)
    assert [receipt.size for receipt in receipts if receipt is not None] == [
        found.row(number).size for number in range(found.count)
    ]
    assert found.count == len(sizes)


@pytest.mark.parametrize("make_lock", [threading.Lock, PutLock])
def test_no_put_passes_while_the_lock_is_taken(kernel: ModuleType, make_lock: Duck) -> None:
    lock = make_lock()
    puts = make_fast_put(kernel, kernel.FastDispatch(), kernel.Tail(bytearray(4096), 0), lock=lock)
    lock.acquire()
    assert puts.put(Message("t", b"x")) is None
    assert puts.put_batch([Message("t", b"x")]) is None
    lock.release()
    assert puts.tail is not None and puts.tail.position == 0 and not puts.next_offsets
    assert puts.put(Message("t", b"x"))
    assert not lock.locked()


def test_a_lock_that_answers_by_python_code_is_refused() -> None:
    class Plain:
        def __init__(self) -> None:
            lock = threading.Lock()
            self.acquire, self.release = lock.acquire, lock.release

        def locked(self) -> bool:
            return False

    with pytest.raises(TypeError, match="built-in"):
        make_fast_put(native, native.FastDispatch(), native.Tail(bytearray(4096), 0), lock=Plain())


def test_a_put_that_leaves_its_record_undispatched_reports_it(kernel: ModuleType) -> None:
    fast_dispatch = kernel.FastDispatch()
    fast_dispatch.index_enabled = False
    fast_dispatch.set_queue("t", 0, kernel.QueueEnd(kernel.Tail(bytearray(40), 0)))
    puts = make_fast_put(kernel, fast_dispatch, kernel.Tail(bytearray(4096), 0))
    calls: list[int] = []
    puts.when_behind = lambda: calls.append(fast_dispatch.log_offset)
    assert puts.put(Message("t", b"x")) and not calls
    assert puts.put(Message("v", b"x")) and len(calls) == 1  # a queue that fast dispatch does not know
    puts.close(ClosedFor.HOOKS)
    assert puts.put(Message("v", b"x")) is None and len(calls) == 1


def test_short_and_long_ways_hand_out_each_offset_once(kernel: ModuleType) -> None:
    """The long way loses the GIL between reading an offset and using it: only the lock keeps other puts out."""
    lock, log = threading.Lock(), bytearray(1 << 23)
    tail = kernel.Tail(log, 0)
    puts = make_fast_put(kernel, kernel.FastDispatch(), tail, lock=lock)
    puts.close(ClosedFor.FLUSH)
    has_begun, is_over = threading.Event(), threading.Event()
    short: list[int] = []

    def put_long() -> None:
        with lock:
            offset = puts.next_offsets.get(("t", 0), 0)
            has_begun.set()
            time.sleep(1e-5)
            assert puts.encoder.append(tail, Message("t", b"long"), offset, 1)
            time.sleep(1e-5)
            puts.next_offsets["t", 0] = offset + 1

    def put_short() -> None:
        has_begun.wait()
        while not is_over.is_set() and len(short) < MOST_SHORT:
            receipt = puts.put(Message("t", b"x"))
            short.extend([] if receipt is None else [receipt.queue_offset])

    threads = [threading.Thread(target=put_short) for _ in range(2)]
    with quick_switches():
        for thread in threads:
            thread.start()
        for _ in range(LONG):
            put_long()
            time.sleep(1e-4)
        is_over.set()
        for thread in threads:
            thread.join()
    found = scan(log, 0, tail.position, 0)
    assert [found.row(number).queue_offset for number in range(found.count)] == list(range(LONG + len(short)))
    assert short
