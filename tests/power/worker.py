"""A process that writes to a store as its seed says, and reports each thing on a pipe after it happened.

    python -m tests.power.worker STORE SEED LIFE [DISTURBED]

Lines are JSON arrays on standard output; `model.py` says what each one promises. A line is one write, so that what was
reported before a cut has arrived. The worker ends by itself only if its life ends with a stop.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial

from flintlog import Message, PutFailed, Receipt, Store, TransactionError, encoded_batch, open_store
from flintlog.services.transaction.transaction_service import TransactionService
from tests.power.plan import BATCHES, LIGHT, ORDERS, QUEUES, STOPS, TEMPORARY, TOPICS, Life, Plan, make_plan

_NOW, _LATER = True, False
"""Whether a message is durable when its put has returned, or after a flush."""


def body_of(key: str) -> bytes:
    """The body follows from the key, so that a reader can tell that it is right."""
    chance = random.Random(key)
    return key.encode() + b" " + chance.randbytes(chance.choice((0, 20, 200, 2000)))


def key_of(body: bytes) -> str:
    """The key of a message by its body."""
    return body.partition(b" ")[0].decode("ascii", "replace")


_WRITING = threading.Lock()


def report(*values: object) -> None:
    """One line to the driver. A line that is longer than the pipe's atomic unit must not mix with another."""
    line = json.dumps(values).encode() + b"\n"
    with _WRITING:
        while line:
            line = line[os.write(1, line) :]


class Producer:
    """One thread of the workload. What it does next follows from its name."""

    def __init__(self, store: Store, plan: Plan, life: Life, number: int) -> None:
        self._store = store
        self._plan = plan
        self._life = life
        self._is_first = number == 0
        self._name = f"{plan.seed}.{life.number}.{number}"
        self._chance = random.Random(self._name)
        self._count = 0
        self._steps = self._make_steps()

    def _make_steps(self) -> list[tuple[int, Callable[[], None]]]:
        steps: list[tuple[int, Callable[[], None]]] = [
            (40, self._put),
            (12, self._put_batch),
            (6, self._put_encoded),
            (6, self._put_soon),
            (4, self._put_without_waiting),
            (3, self._flush),
            (4, self._pause),
        ]
        if self._plan.has_services:
            steps += [(8, self._put_delayed), (10, self._put_transaction)]
        if self._plan.has_timer:
            steps.append((8, self._put_timed))
        if self._plan.has_light_queues:
            steps.append((15, self._put_light))
        if self._plan.config.topic_queue_types:
            steps.append((12, self._put_to_batch_queue))
        if self._is_first:
            steps.append((8, self._put_closed))
            if self._plan.deletes:
                steps += [(12, self._put_temporary), (3, self._delete)]
            if self._plan.retains:
                steps.append((2, self._retain))
        return steps

    def run(self, stop: threading.Event) -> None:
        """Work until the steps are done, if this life ends with a stop; else until somebody ends the process."""
        if self._is_first and self._plan.has_services and self._life.number:
            self._decide_what_is_left()
        weights, actions = [weight for weight, _ in self._steps], [action for _, action in self._steps]
        done = 0
        while not stop.is_set() and (self._life.end not in STOPS or done < self._life.steps):
            self._chance.choices(actions, weights)[0]()
            done += 1

    # ------------------------------------------------------------------ messages

    def _key(self) -> str:
        self._count += 1
        return f"{self._name}.{self._count}"

    def _message(self, topic: str | None = None, queue_id: int | None = None) -> Message:
        key, chance = self._key(), self._chance
        return Message(
            chance.choice(TOPICS) if topic is None else topic,
            body_of(key),
            queue_id=chance.randrange(QUEUES) if queue_id is None else queue_id,
            keys=[key, *(f"s{n}" for n in range(chance.randrange(3)))],
            tags=chance.choice((None, "a", "b")),
        )

    def _report(self, messages: Sequence[Message], receipts: Sequence[Receipt], *, now: bool | None = None) -> None:
        is_durable = self._plan.is_sync if now is None else now
        places = [
            (message.keys[0], message.topic, message.queue_id, receipt.queue_offset, receipt.physical_offset)
            for message, receipt in zip(messages, receipts, strict=True)
            if receipt
        ]
        if places:
            report("ack", is_durable, places)
        refused = {receipt.status.name for receipt in receipts if not receipt}
        if refused:
            report("refused", sorted(refused))
            time.sleep(0.01)

    # ------------------------------------------------------------------ steps

    def _put(self) -> None:
        message = self._message()
        self._report([message], [self._store.put(message, check=False)])

    def _put_batch(self) -> None:
        topic, queue_id = self._chance.choice(TOPICS), self._chance.randrange(QUEUES)
        messages = [self._message(topic, queue_id) for _ in range(self._batch_count())]
        self._report(messages, self._store.put_batch(messages, check=False))

    def _batch_count(self) -> int:
        """A batch fits into one log file."""
        return self._chance.choice((2, 5) if self._plan.config.mapped_file_size_commit_log < 64 * 1024 else (2, 7, 25))

    def _put_encoded(self) -> None:
        messages = [self._message(ORDERS, 0) for _ in range(self._chance.choice((1, 5)))]
        self._report(messages, self._store.put_encoded(encoded_batch(messages), check=False))

    def _put_soon(self) -> None:
        message = self._message()
        future = self._store.put_async(message, check=False)
        future.add_done_callback(lambda done: None if done.exception() else self._report([message], [done.result()]))

    def _put_without_waiting(self) -> None:
        message = self._message()
        message.properties = {"WAIT": "false"}
        self._report([message], [self._store.put(message, check=False)], now=_LATER)

    def _put_to_batch_queue(self) -> None:
        message = self._message(BATCHES, self._chance.randrange(2))
        self._report([message], [self._store.put(message, check=False)])

    def _flush(self) -> None:
        report("flush", self._name)
        self._store.flush()
        report("flushed", self._name)

    def _pause(self) -> None:
        time.sleep(self._chance.choice((0.0, 0.002, 0.02)))

    def _put_light(self) -> None:
        message = self._message()
        names = self._chance.sample(LIGHT, self._chance.randint(1, len(LIGHT)))
        message.properties = {"INNER_MULTI_DISPATCH": ",".join(names)}
        self._report([message], [self._store.put(message, check=False)])

    def _put_delayed(self) -> None:
        message = self._message()
        message.delay_level = self._chance.choice((1, 1, 2))
        self._put_for_later(message)

    def _put_timed(self) -> None:
        message = self._message()
        message.deliver_at_ms = int(time.time() * 1000) + self._chance.choice((1000, 1500, 3000))
        self._put_for_later(message)

    def _put_for_later(self, message: Message) -> None:
        receipt = self._store.put(message, check=False)
        if receipt:
            report("delayed", self._plan.is_sync, message.keys[0], message.topic, receipt.physical_offset)

    def _put_closed(self) -> None:
        messages = [self._message() for _ in range(self._chance.choice((1, 3, 20)))]
        batch_id = self._life.number * 1_000_000 + self._count
        report("closing", batch_id, [(message.keys[0], message.topic, message.queue_id) for message in messages])
        done = self._store.put_closed(messages, writer_id="writer", batch_id=batch_id)
        assert done is not None, f"batch {batch_id} is new, and was skipped"
        report("closed", batch_id, done.start)

    def _put_temporary(self) -> None:
        message = self._message(TEMPORARY, self._chance.randrange(2))
        self._report([message], [self._store.put(message, check=False)])

    def _delete(self) -> None:
        if TEMPORARY not in self._store.topics:
            self._store.topics.create(TEMPORARY)
            return
        report("deleting", TEMPORARY)
        self._store.topics.delete(TEMPORARY)
        report("deleted", TEMPORARY)
        if self._chance.random() < 0.5:
            self._store.topics.create(TEMPORARY)

    def _retain(self) -> None:
        report("retaining")
        self._store.cleaning.delete_expired_files()

    # ------------------------------------------------------------------ transactions

    @property
    def _transactions(self) -> TransactionService:
        return self._store.service("transaction")

    def _put_transaction(self) -> None:
        message = self._message()
        try:
            transaction = self._transactions.begin(message)
        except PutFailed as failure:
            report("refused", [str(failure)])
            return
        key, place = message.keys[0], transaction.receipt.physical_offset
        report("begun", self._plan.is_sync, key, message.topic, message.queue_id, place)
        if self._chance.random() < 0.8:
            self._decide(key, message.topic, message.queue_id, transaction.commit, transaction.rollback)

    def _decide_what_is_left(self) -> None:
        """Transactions of the lives before this one: some are decided now."""
        service = self._transactions
        for left in service.undecided():
            key = key_of(left.message.body)
            is_new = int(key.split(".")[1]) == self._life.number  # of another thread of this life
            if not is_new and self._chance.random() < 0.5:
                commit, roll_back = partial(service.commit, left.id), partial(service.rollback, left.id)
                self._decide(key, left.topic, left.queue_id, commit, roll_back)

    def _decide(
        self, key: str, topic: str, queue_id: int, commit: Callable[..., Receipt], roll_back: Callable[..., Receipt]
    ) -> None:
        commits = self._chance.random() < 0.6
        report("deciding", key)
        try:
            receipt = (commit if commits else roll_back)(check=False)
        except TransactionError:
            if self._plan.retains:
                return  # retention has deleted the half message
            raise
        if not receipt:
            report("refused", [receipt.status.name])
        elif commits:
            place = (key, topic, queue_id, receipt.queue_offset, receipt.physical_offset)
            report("committed", self._plan.is_sync, *place)
        else:
            report("rolled-back", self._plan.is_sync, key, receipt.physical_offset)


def work(store: Store, plan: Plan, life: Life) -> None:
    """All threads of a life; a stop if it ends with one."""
    stop = threading.Event()

    def run(number: int) -> None:
        try:
            Producer(store, plan, life, number).run(stop)
        except BaseException:
            report("error", traceback.format_exc())
            raise

    threads = [threading.Thread(target=run, args=(number,)) for number in range(life.threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if life.end not in STOPS:
        threading.Event().wait()  # what failed was reported; the driver ends this process
    report("stopping")
    store.close()
    report("stopped")


def main(path: str, seed: str, number: str) -> None:
    plan = make_plan(int(seed))
    life = plan.lives[int(number)]
    report("opening")
    try:
        store = open_store(path, plan.config)
    except BaseException:
        report("error", traceback.format_exc())
        raise
    report("open", [(found.id, found.severity, found.physical_offset, str(found)) for found in store.recovery])
    work(store, plan, life)


if __name__ == "__main__":
    main(*sys.argv[1:])
