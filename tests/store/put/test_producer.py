"""A producer that puts again what it is not sure of: once in the log, through kills, power loss, and threads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tests.store.small_store import ASYNC, SMALL

from flintlog import (
    InvalidConfig,
    InvalidMessage,
    Message,
    PutFailed,
    PutStatus,
    Receipt,
    Store,
    StoreClosed,
    open_store,
)
from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.testing import FakeClock, temporary_store

ROOT = Path("/store")


def bodies(store: Store) -> list[bytes]:
    store.wait_dispatched()
    return [message.body for message in store.messages("orders", 0)]


def order(number: int) -> Message:
    return Message("orders", b"%d" % number, keys=[f"o-{number}"])


def test_a_repeated_number_is_stored_once_and_its_receipt_is_true(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL) as store:
        producer = store.producer("web-1")
        assert producer.next_sequence == 0
        for number in (0, 1, 1, 0, 2):
            receipt = producer.put(order(number), number)
            assert receipt
        stored = store.get("orders", 0, 2).messages[0]
        assert (receipt.physical_offset, receipt.queue_offset) == (stored.physical_offset, 2)
        assert producer.put(order(1), 1).physical_offset == -1
        assert store.producer("web-2").put(order(0), 0).queue_offset == 3
    with open_store(tmp_path, SMALL) as store:
        producer = store.producer("web-1")
        assert producer.next_sequence == 3
        assert producer.put(order(2), 2) and producer.put(order(3), 3)
        assert bodies(store) == [b"0", b"1", b"2", b"0", b"3"]


def test_a_gap_is_refused_before_anything_is_written() -> None:
    with temporary_store(SMALL) as store:
        producer = store.producer("web-1")
        for wrong in (1, 5):
            with pytest.raises(InvalidMessage, match="leaves a gap") as raised:
                producer.put(order(wrong), wrong)
            assert "put number 0" in str(raised.value)
        assert store.max_physical_offset == 0
        producer.put(order(0), 0)
        with pytest.raises(InvalidMessage, match="leaves a gap"):
            producer.put(order(2), 2)
        assert bodies(store) == [b"0"]


def test_a_message_that_cannot_be_stored_does_not_use_up_its_number() -> None:
    with temporary_store(SMALL) as store:
        producer = store.producer("web-1")
        with pytest.raises(InvalidMessage):
            producer.put(Message("no/topic", b""), 0)
        with pytest.raises(InvalidMessage):
            producer.put(b"orders", 0)  # type: ignore[arg-type]
        with pytest.raises(InvalidConfig):
            producer.put(order(0), -1)
        for bad in ("", 7, "x" * 2000):
            with pytest.raises(InvalidConfig):
                store.producer(bad)  # type: ignore[arg-type]
        assert producer.next_sequence == 0
        assert producer.put(order(0), 0).queue_offset == 0
    with pytest.raises(StoreClosed):
        producer.put(order(1), 1)


class Interrupted(Exception):
    pass


def interrupt_at(medium: FaultyMedium, step: int, crash: Callable[[FaultyMedium], FaultyMedium]) -> FaultyMedium | None:
    """Put number 3, and take the disk away at one of the steps; None when there are fewer."""
    with open_store(ROOT, ASYNC, medium=medium, clock=FakeClock()) as store:
        engine = store._engine
        left = [step]
        crashed: list[FaultyMedium] = []

        def watched(call: Callable[..., object]) -> Callable[..., object]:
            def run(*arguments: object) -> object:
                for part in (call, None):
                    left[0] -= 1
                    if left[0] < 0 and not crashed:
                        crashed.append(crash(medium))
                        raise Interrupted
                    if part is not None:
                        result = part(*arguments)
                return result

            return run

        engine.flush = watched(engine.flush)  # type: ignore[method-assign, assignment]
        engine.batch_notes.open = watched(engine.batch_notes.open)  # type: ignore[method-assign, assignment]
        engine.batch_notes.close = watched(engine.batch_notes.close)  # type: ignore[method-assign, assignment]
        appender = store._appender
        appender.append_held = watched(appender.append_held)  # type: ignore[method-assign, assignment]
        try:
            store.producer("web-1").put(order(3), 3)
        except Interrupted:
            return crashed[0]
    return None


@pytest.mark.parametrize("kind", ["kill", "crash"])
def test_interrupted_at_any_step_and_put_again_it_is_stored_once(kind: str) -> None:
    step, was_there = 0, []
    expected = [b"%d" % number for number in range(4)]
    while True:
        medium = FaultyMedium()
        with open_store(ROOT, ASYNC, medium=medium, clock=FakeClock()) as store:
            for number in range(3):
                store.producer("web-1").put(order(number), number)
        left = interrupt_at(
            medium, step, FaultyMedium.kill if kind == "kill" else partial(FaultyMedium.crash, seed=step)
        )
        if left is None:
            break
        with open_store(ROOT, ASYNC, medium=left, clock=FakeClock()) as store:
            producer = store.producer("web-1")
            was_there.append(producer.next_sequence == 4)
            assert bodies(store) == expected[: producer.next_sequence], step
            assert producer.put(order(3), 3)
            assert bodies(store) == expected, step
            assert len(store.query("orders", "o-3")) == 1
        with open_store(ROOT, ASYNC, medium=left, clock=FakeClock()) as store:
            assert not list(store.recovery) and bodies(store) == expected
        step += 1
    assert step >= 12 and not was_there[0] and was_there[-1]


def test_a_process_that_is_killed_again_and_again_stores_each_message_once(tmp_path: Path) -> None:
    code = f"""
from tests.store.put.test_producer import order, open_store, SMALL
with open_store({str(tmp_path)!r}, SMALL) as store:
    producer = store.producer("web-1")
    number = max(0, producer.next_sequence - 1)  # this one again: the process does not know that it was stored
    while number < 400:
        producer.put(order(number), number)
        number += 1
        print(number, flush=True)
"""
    for lines in (3, 7, 1, 12):
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment) as process:
            assert process.stdout is not None
            for _ in range(lines):
                assert process.stdout.readline()
            process.send_signal(signal.SIGKILL)
    with open_store(tmp_path, SMALL) as store:
        count = store.producer("web-1").next_sequence
        assert count >= 12
        assert bodies(store) == [b"%d" % number for number in range(count)]


def test_threads_with_one_producer_store_each_number_once() -> None:
    with temporary_store(ASYNC) as store:
        producer = store.producer("web-1")

        def work() -> None:
            for number in range(20):
                producer.put(order(number), number)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert bodies(store) == [b"%d" % number for number in range(20)]


def test_a_refused_put_gives_its_receipt_on_request() -> None:
    with temporary_store(SMALL) as store:
        store.add_put_hook(lambda _: Receipt(PutStatus.MESSAGE_ILLEGAL))
        producer = store.producer("web-1")
        with pytest.raises(PutFailed, match="MESSAGE_ILLEGAL"):
            producer.put(order(0), 0)
        assert producer.put(order(0), 0, check=False).status is PutStatus.MESSAGE_ILLEGAL
        assert producer.next_sequence == 0
