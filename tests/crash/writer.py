"""A process that puts messages and says so after each put returned; it runs until it is killed.

    python writer.py STORE FLUSH STYLE SEED

It writes a line for each thing that happened: `opening`, `running`, and for each acknowledged message its
topic, queue id, queue offset, physical offset and key.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import threading
from collections.abc import Sequence

from flintlog import Message, Receipt, Store, StoreConfig, open_store

TOPICS = ("orders", "events", "audit")
PRODUCERS = 4


def config(flush: str) -> StoreConfig:
    """Small files, so that all of them roll, and a checkpoint that moves all the time."""
    return StoreConfig(
        flush=flush,  # type: ignore[arg-type]
        mapped_file_size_commit_log=64 * 1024,
        mapped_file_size_consume_queue=20 * 100,
        max_hash_slot_num=100,
        max_index_num=300,
        flush_interval_commit_log=20,
        flush_interval_consume_queue=10,
        flush_consume_queue_thorough_interval=40,
    )


def body_of(key: str) -> bytes:
    """The body follows from the key, so that a reader can check it."""
    chance = random.Random(key)
    return key.encode() + chance.randbytes(chance.choice((0, 20, 200, 2000)))


def tell(text: str) -> None:
    os.write(1, text.encode() + b"\n")


def tell_acknowledged(message: Message, receipt: Receipt) -> None:
    if receipt:
        place = f"{receipt.queue_offset} {receipt.physical_offset}"
        tell(f"ack {message.topic} {message.queue_id} {place} {message.keys[0]}")


class Producer:
    """Makes messages: single ones, and batches for one queue."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._count = 0
        self._chance = random.Random(name)

    def next(self) -> list[Message]:
        topic, queue_id = self._chance.choice(TOPICS), self._chance.randrange(3)
        count = self._chance.choice((1, 1, 1, 1, 2, 7, 40))  # the last are written through the file
        return [self._make(topic, queue_id) for _ in range(count)]

    def _make(self, topic: str, queue_id: int) -> Message:
        self._count += 1
        key = f"{self._name}-{self._count}"
        shared = [f"s{n}" for n in range(self._chance.randrange(3))]
        tags = self._chance.choice((None, "a", "b"))
        return Message(topic, body_of(key), queue_id=queue_id, keys=[key, *shared], tags=tags)


def put_in_thread(store: Store, producer: Producer) -> None:
    while True:
        messages = producer.next()
        receipts: Sequence[Receipt]
        if len(messages) == 1:
            receipts = [store.put(messages[0], check=False)]
        else:
            receipts = store.put_batch(messages, check=False)
        for message, receipt in zip(messages, receipts, strict=True):
            tell_acknowledged(message, receipt)


async def put_in_task(store: Store, producer: Producer) -> None:
    while True:
        messages = producer.next()
        receipts: Sequence[Receipt]
        if len(messages) == 1:
            receipts = [await store.aput(messages[0], check=False)]
        else:
            receipts = await store.aput_batch(messages, check=False)
        for message, receipt in zip(messages, receipts, strict=True):
            tell_acknowledged(message, receipt)
        await asyncio.sleep(0)


async def put_in_tasks(store: Store, producers: list[Producer]) -> None:
    await asyncio.gather(*(put_in_task(store, producer) for producer in producers))


def main(path: str, flush: str, style: str, seed: str) -> None:
    tell("opening")
    store = open_store(path, config(flush))
    tell("running")
    producers = [Producer(f"{seed}.{number}") for number in range(PRODUCERS)]
    if style == "asyncio":
        asyncio.run(put_in_tasks(store, producers))
    threads = [threading.Thread(target=put_in_thread, args=(store, producer)) for producer in producers]
    for thread in threads:
        thread.start()


if __name__ == "__main__":
    main(*sys.argv[1:])
