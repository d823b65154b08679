"""Consuming in asyncio: tasks wait without holding up their loop, several share a consumer, and all of them end."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from tests.store.small_store import ASYNC, SMALL

from flintlog import Message, Store, StoreConfig
from flintlog.testing import temporary_store

LONG_S = 20.0


def put(store: Store, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        store.put(Message("orders", b"%d" % number, queue_id=number % 3)).check()
    store.wait_dispatched()


@pytest.mark.parametrize("config", [SMALL, ASYNC], ids=["sync", "async"])
def test_async_for_gets_what_threads_put_meanwhile(config: StoreConfig) -> None:
    async def consume(store: Store) -> list[int]:
        found: list[int] = []
        producer = threading.Thread(target=put, args=(store, 200, 5))
        async with store.consumer("g", "orders") as consumer:
            async for message in consumer:
                if len(found) == 4:
                    producer.start()
                found.append(int(message.body))
                consumer.ack(message)
                if len(found) == 205:
                    break
            assert consumer.lag() == 0
        producer.join()
        return found

    with temporary_store(config) as store:
        put(store, 5)
        assert sorted(asyncio.run(asyncio.wait_for(consume(store), LONG_S))) == list(range(205))


def test_the_loop_runs_other_tasks_while_one_waits_and_while_there_is_much_to_read() -> None:
    async def main(store: Store) -> None:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0)
                ticks += 1

        ticking = asyncio.create_task(tick())
        consumer = store.consumer("g", "orders", timeout_s=0.05)
        count = 0
        async for message in consumer:  # nothing in this body waits
            consumer.ack(message)
            count += 1
            assert count < 100 or ticks > 1
        assert count == 300
        before = ticks
        assert await consumer.apoll(0.05) is None
        assert ticks > before + 10
        ticking.cancel()

    with temporary_store(ASYNC) as store:
        put(store, 300)
        asyncio.run(asyncio.wait_for(main(store), LONG_S))


def test_apoll_ends_in_time_and_when_it_is_closed() -> None:
    async def main(store: Store) -> None:
        consumer = store.consumer("g", "orders")
        assert await consumer.apoll() is None
        began = time.monotonic()
        assert await consumer.apoll(0.05) is None
        assert 0.05 <= time.monotonic() - began < LONG_S
        waiting = [asyncio.create_task(consumer.apoll(None)) for _ in range(3)]
        await asyncio.sleep(0.02)
        threading.Thread(target=consumer.close).start()
        assert await asyncio.gather(*waiting) == [None, None, None]

    with temporary_store(SMALL) as store:
        asyncio.run(asyncio.wait_for(main(store), LONG_S))


def test_a_cancelled_task_takes_no_message_with_it() -> None:
    async def main(store: Store) -> None:
        consumer = store.consumer("g", "orders")
        for number in range(20):
            waiting = asyncio.create_task(consumer.apoll(None))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.to_thread(put, store, 1, number)
            assert waiting.cancelled()
            message = await consumer.apoll(LONG_S)
            assert message is not None and message.body == b"%d" % number
            consumer.ack(message)
        assert consumer._seat.sleepers == 0 and not consumer._seat.wait._tasks

    with temporary_store(SMALL) as store:
        asyncio.run(asyncio.wait_for(main(store), LONG_S))


def test_tasks_and_consumers_share_a_group() -> None:
    async def work(store: Store, found: list[int]) -> None:
        async with store.consumer("g", "orders", timeout_s=0.3) as consumer:

            async def take() -> None:
                async for message in consumer:
                    await asyncio.sleep(0.0001)
                    found.append(int(message.body))
                    consumer.ack(message)

            await asyncio.gather(take(), take())

    async def main(store: Store) -> list[int]:
        found: list[int] = []
        await asyncio.gather(work(store, found), work(store, found), asyncio.to_thread(put, store, 300))
        return found

    with temporary_store(ASYNC) as store:
        assert sorted(asyncio.run(asyncio.wait_for(main(store), LONG_S))) == list(range(300))


def test_a_message_that_expires_is_awaited_too() -> None:
    async def main(store: Store) -> None:
        put(store, 1)
        consumer = store.consumer("g", "orders", ack_timeout_s=0.05)
        counts = []
        for _ in range(3):
            message = await consumer.apoll(LONG_S)
            assert message is not None
            counts.append(message.delivery_count)
        assert counts == [1, 2, 3]

    with temporary_store(SMALL) as store:
        asyncio.run(asyncio.wait_for(main(store), LONG_S))


def test_a_loop_that_was_closed_while_a_task_waited_does_no_harm() -> None:
    with temporary_store(SMALL) as store:
        consumer = store.consumer("g", "orders")
        loop = asyncio.new_event_loop()
        waiting = loop.create_task(consumer.apoll(None))
        loop.run_until_complete(asyncio.sleep(0.01))
        loop.close()
        put(store, 1)
        message = consumer.poll(LONG_S)
        assert message is not None and message.body == b"0"
        waiting._log_destroy_pending = False  # type: ignore[attr-defined]
