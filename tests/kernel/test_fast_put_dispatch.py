"""A put writes the same queue and index entries as the dispatcher would for its record: in both kernels."""

from __future__ import annotations

import random
from types import ModuleType

import pytest
from tests.kernel.fast_puts import Duck, make_fast_put

from flintlog.kernel import ClosedFor, native, reference
from flintlog.store.model.message import Message

SEEDS = range(40)
LEVELS_MS = (1000, 5000, 10000)
TOPICS = ("t", "ü", "SCHEDULE_TOPIC_XXXX", "long" * 40)
NAMES = ("UNIQ_KEY", "DELAY", "TAGS", "KEYS", "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET", "WAIT", "ñ")
VALUES = ("", "2", "9", "a b", " ", "7F0000010001", "señor", "x" * 40)
KEYS = tuple(value for value in VALUES[1:] if " " not in value)
SLOTS, ENTRIES = 7, 400


class Desk:
    """A fast put and the files it writes, over queues of all topics but the last."""

    def __init__(self, kernel: ModuleType, *, lmq: bool, dispatches: bool = True) -> None:
        self.fast_dispatch: Duck = kernel.FastDispatch(delay_levels_ms=LEVELS_MS, lmq=lmq)
        self.log, self.index = bytearray(1 << 16), bytearray(40 + 4 * SLOTS + 20 * ENTRIES)
        self.queues = [bytearray(20 * 64) for _ in TOPICS[:-1]]
        self.fast_dispatch.set_index(self.index, SLOTS, ENTRIES)
        for topic, queue in zip(TOPICS, self.queues, strict=False):
            self.fast_dispatch.set_queue(topic, 0, kernel.QueueEnd(kernel.Tail(queue, 0)))
        self.puts = make_fast_put(kernel, self.fast_dispatch, kernel.Tail(self.log, 0))
        if not dispatches:
            self.puts.close(ClosedFor.FLUSH)

    def put(self, message: Message) -> None:
        assert self.puts.put(message) is not None

    def dispatch(self) -> None:
        """As the dispatcher does it: from the record."""
        fast_dispatch, tail = self.fast_dispatch, self.puts.tail
        assert tail is not None
        reason = fast_dispatch.run(self.log, fast_dispatch.log_offset, tail.position, 0)
        fast_dispatch.log_offset = fast_dispatch.position
        fast_dispatch.stopped_at_index = reason.name == "INDEX"

    def seen(self) -> tuple[object, ...]:
        fast_dispatch = self.fast_dispatch
        done = (
            fast_dispatch.last_physical_offset,
            fast_dispatch.last_store_timestamp,
            fast_dispatch.done_count,
            fast_dispatch.hash_index,
        )
        stopped = (fast_dispatch.log_offset, fast_dispatch.position, fast_dispatch.stopped_at_index)
        return bytes(self.log), bytes(self.index), [bytes(queue) for queue in self.queues], done, stopped


def random_message(rng: random.Random) -> Message:
    names = rng.sample(NAMES, rng.randrange(4))
    properties = {name: rng.choice(VALUES) for name in names}
    tags = None if "TAGS" in properties else rng.choice((None, "", "TagA", "señor"))
    keys = () if "KEYS" in properties else tuple(rng.choice(KEYS) for _ in range(rng.randrange(3)))
    topic = rng.choice(TOPICS[:-1]) if rng.random() < 0.98 else TOPICS[-1]
    return Message(topic, rng.randbytes(rng.randrange(200)), tags=tags, keys=keys, properties=properties)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_put_dispatches_what_its_record_says(kernel: ModuleType, seed: int) -> None:
    rng = random.Random(seed)
    lmq = rng.random() < 0.5
    by_put, by_record = Desk(kernel, lmq=lmq), Desk(kernel, lmq=lmq, dispatches=False)
    for _ in range(60):
        message = random_message(rng)
        behind = by_put.puts.is_behind
        by_put.put(message)
        by_record.put(message)
        if not behind:
            by_record.dispatch()
        assert by_put.seen() == by_record.seen()


@pytest.mark.parametrize("seed", SEEDS)
def test_both_kernels_dispatch_a_put_alike(seed: int) -> None:
    rng = random.Random(seed)
    lmq = rng.random() < 0.5
    fast, plain = Desk(native, lmq=lmq), Desk(reference, lmq=lmq)
    for _ in range(60):
        message = random_message(rng)
        fast.put(message)
        plain.put(message)
        assert fast.seen() == plain.seen()


def test_a_put_stops_at_a_full_index_where_its_record_would(kernel: ModuleType) -> None:
    desk = Desk(kernel, lmq=False)
    desk.fast_dispatch.set_index(
        bytearray(40 + 4 * SLOTS + 20 * 3), SLOTS, 3
    )  # room for two: the first entry is never used
    desk.put(Message("t", b"x", tags="a", keys=("b", "c")))
    assert desk.fast_dispatch.stopped_at_index and desk.fast_dispatch.hash_index == 2
    assert desk.fast_dispatch.log_offset == 0 and desk.puts.is_behind
    desk.put(Message("t", b"x"))
    assert desk.fast_dispatch.log_offset == 0 and bytes(desk.queues[0][20:40]) == bytes(20)
