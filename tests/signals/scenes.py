"""Stores in which every kind of put is interrupted, and what must hold afterwards.

An interrupted put is in the log or not. Whichever it is: no offset is given twice, every record of the log is at its
queue offset, other threads go on putting, closing ends, and the next opening and `verify` find nothing.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from flintlog import Message, Receipt, Store, StoreConfig, encoded_batch, open_store
from flintlog.maintenance.verify.verify import verify
from flintlog.services.transaction.transaction_service import TransactionService
from flintlog.store.model.stored_message import StoredMessage
from flintlog.store.runtime.service import Rewritten

SOON_S = 8.0
CONFIG = StoreConfig(
    mapped_file_size_commit_log=1 << 20,
    mapped_file_size_consume_queue=20 * 64,
    mapped_file_size_consume_queue_ext=1 << 16,  # a scene makes hundreds of queues, and each has such a file
    max_hash_slot_num=100,
    max_index_num=4000,
    max_message_size=16 * 1024,
    flush_interval_consume_queue=60_000,
)


def soon(call: Callable[[], object], patience_s: float = SOON_S) -> None:
    """Call it in another thread; it has to return in time."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as failure:  # noqa: BLE001 (it is raised again below)
            failures.append(failure)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(patience_s)
    assert not thread.is_alive(), f"{call} has not returned after {patience_s} s"
    if failures:
        raise failures[0]


class Scene:
    """One store, what was acknowledged in it, and the checks."""

    def __init__(self, kind: Kind) -> None:
        root = "/dev/shm" if Path("/dev/shm").is_dir() else None
        self.folder = Path(tempfile.mkdtemp(prefix="signals-", dir=root))
        self.config = CONFIG.with_changes(**kind.config)
        self.store = open_store(self.folder / "store", self.config)
        self.given: dict[tuple[str, int, int], int] = {}
        self.numbers = count()
        self.begun: list[list[bytes]] = []
        self.closed: list[list[bytes]] = []
        kind.prepare(self.store)

    def body(self) -> bytes:
        return b"%d" % next(self.numbers)

    def took(self, message: Message, receipt: Receipt) -> None:
        """A put was acknowledged."""
        receipt.check()
        place = message.topic, message.queue_id, receipt.queue_offset
        assert place not in self.given, f"{place} was given twice"
        self.given[place] = receipt.physical_offset

    def took_all(self, messages: Iterable[Message], receipts: Iterable[Receipt]) -> None:
        for message, receipt in zip(messages, receipts, strict=True):
            self.took(message, receipt)

    def probe(self) -> None:
        """Another thread puts on the short way and on the long one, and can wait for dispatch, as `close` does."""

        def put() -> None:
            for topic in ("orders", "batches"):
                message = Message(topic, self.body())
                self.took(message, self.store.put(message))
                self.took(message, self.store.put_async(message).result(SOON_S))

        soon(put)
        soon(self.store.wait_dispatched)
        assert self.store._engine.batch_notes.opened is None, "others would end their reading before the batch"

    def check(self) -> None:
        """What was acknowledged can be read; closing ends; the next opening and `verify` find nothing."""
        soon(self.store.flush)
        soon(self.store.wait_dispatched)
        self._check_given(self.store)
        soon(self.store.close)
        with open_store(self.folder / "store", self.config) as store:
            assert store.recovery.clean, list(store.recovery)
            assert not list(store.recovery), list(store.recovery)
            self._check_given(store)
        found = verify(self.folder / "store", self.config).findings
        assert not found, found

    def _check_given(self, store: Store) -> None:
        for (topic, queue_id, offset), physical_offset in self.given.items():
            entry = store._host.entry(topic, queue_id, offset)
            assert entry is not None, f"nothing at {topic}/{queue_id}/{offset}"
            assert entry.physical_offset == physical_offset, f"another message at {topic}/{queue_id}/{offset}"
        self._check_batches(store)

    def _check_batches(self, store: Store) -> None:
        """Every batch is there once as a whole or not at all, those that were acknowledged once."""
        found = Counter(message.body for queue_id in (0, 1) for message in _all_of(store, "closed", queue_id))
        for bodies in self.begun:
            counts = {found.pop(body, 0) for body in bodies}
            assert counts == {1} or (counts == {0} and bodies not in self.closed), (bodies, counts)
        assert not found, found

    def close(self) -> None:
        threading.Thread(target=self.store.close, daemon=True).start()
        shutil.rmtree(self.folder, ignore_errors=True)


def _all_of(store: Store, topic: str, queue_id: int) -> list[StoredMessage]:
    found: list[StoredMessage] = []
    while messages := store.get(topic, queue_id, len(found)).messages:
        found += messages
    return found


def _nothing(_: Store) -> None:
    """No preparation."""


def _with_hook(store: Store) -> None:
    store.add_put_hook(lambda message: None)


def _with_listener(store: Store) -> None:
    store.on_arrival(lambda arrival: None)


def _put(scene: Scene, **fields: Any) -> None:  # noqa: ANN401 (those of a message)
    message = Message("orders", scene.body(), **fields)
    scene.took(message, scene.store.put(message))


def _put_batch(scene: Scene) -> None:
    messages = [Message("orders", scene.body(), keys=["k"]) for _ in range(3)]
    scene.took_all(messages, scene.store.put_batch(messages))


def _put_encoded(scene: Scene) -> None:
    messages = [Message("orders", scene.body()) for _ in range(3)]
    scene.took_all(messages, scene.store.put_encoded(encoded_batch(messages)))


def _put_later(scene: Scene) -> None:
    message = Message("orders", scene.body())
    future = scene.store.put_async(message)
    try:
        receipt = future.result(SOON_S)
    except RuntimeError as error:
        # The standard library's: interrupted in `Condition.wait`, it releases its lock a second time.
        raise error.__context__ or error from None
    scene.took(message, receipt)


def _put_rebuilt(scene: Scene) -> None:
    message = Message("orders", scene.body())
    scene.took(message, scene.store._host.put_rebuilt(Rewritten(message), wait=False))


def _put_rewritten(scene: Scene) -> None:
    message = Message("orders", scene.body())
    scene.took(message, scene.store._host.put_rewritten(message, Rewritten))


def _put_to_new_queue(scene: Scene) -> None:
    _put(scene, queue_id=1 + next(scene.numbers))


def _put_large(scene: Scene) -> None:
    """Half a log file and more: each put begins a new one."""
    message = Message("orders", bytes(40_000))
    scene.took(message, scene.store.put(message))


def _put_inner_batch(scene: Scene) -> None:
    message = Message("batches", scene.body(), sys_flag=0x80, properties={"INNER_NUM": "3"})
    receipt = scene.store.put(message).check()
    scene.given["batches", 0, receipt.queue_offset] = receipt.physical_offset


def _put_dispatched(scene: Scene) -> None:
    _put(scene, properties={"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"})


def _put_delayed(scene: Scene) -> None:
    scene.store.put(Message("orders", scene.body(), delay_level=18)).check()


def _begin(scene: Scene) -> None:
    service = scene.store.service("transaction")
    assert isinstance(service, TransactionService)
    message = Message("orders", scene.body())
    transaction = service.begin(message, "shop")
    scene.took(message, transaction.commit())


def _roll_back(scene: Scene) -> None:
    service = scene.store.service("transaction")
    assert isinstance(service, TransactionService)
    service.begin(Message("orders", scene.body()), "shop").rollback().check()


def _put_closed(scene: Scene, size: int = 0) -> None:
    bodies = [scene.body() + bytes(size) for _ in range(4)]
    scene.begun.append(bodies)
    messages = [Message("closed", body, queue_id=number % 2, keys=["k"]) for number, body in enumerate(bodies)]
    light = Message("orders", scene.body(), properties={"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"})
    assert scene.store.put_closed([*messages, light]) is not None
    scene.closed.append(bodies)


def _clean_unused(scene: Scene) -> None:
    topic = f"unused-{next(scene.numbers)}"
    for queue_id in (0, 1):
        scene.store.put(Message(topic, b"x", queue_id=queue_id)).check()
    scene.store.cleaning.clean_unused_topics(["orders", "batches", "closed"])


def _flush(scene: Scene) -> None:
    _put_rebuilt(scene)
    scene.store.flush()


def _wait_dispatched(scene: Scene) -> None:
    _put_rebuilt(scene)
    scene.store.wait_dispatched()


def _commit_offset(scene: Scene) -> None:
    scene.store.consumer_offsets.commit("billing", "orders", 0, next(scene.numbers) % 2)
    scene.store.consumer_offsets.save()


def _arm(scene: Scene) -> None:
    _put(scene)
    scene.store._host.arrival_wait(["orders"]).arm()


@dataclass(frozen=True)
class Kind:
    """A way of putting."""

    call: Callable[[Scene], None]
    config: dict[str, Any] = field(default_factory=dict)
    prepare: Callable[[Store], None] = _nothing
    most: int | None = None
    """How many points are tried at most: where each costs a file."""


ASYNC = {"flush": "async"}
SMALL_FILES = {"mapped_file_size_commit_log": 64 * 1024, "max_message_size": 48 * 1024}
KINDS: dict[str, Kind] = {
    "plain, sync": Kind(_put),
    "plain, async": Kind(_put, ASYNC),
    "hook, sync": Kind(_put, prepare=_with_hook),
    "hook, async": Kind(_put, ASYNC, _with_hook),
    "listener, async": Kind(_put, ASYNC, _with_listener),
    "batch, sync": Kind(_put_batch),
    "batch with hook, sync": Kind(_put_batch, prepare=_with_hook),
    "batch with hook, async": Kind(_put_batch, ASYNC, _with_hook),
    "encoded with hook, async": Kind(_put_encoded, ASYNC, _with_hook),
    "future, sync": Kind(_put_later),
    "future, async": Kind(_put_later, ASYNC),
    "rebuilt, sync": Kind(_put_rebuilt),
    "rewritten, async": Kind(_put_rewritten, ASYNC),
    "delayed, async": Kind(_put_delayed, {**ASYNC, "services": {"schedule"}}),
    "transaction, async": Kind(_begin, {**ASYNC, "services": {"transaction"}}),
    "rolled back transaction, async": Kind(_roll_back, {**ASYNC, "services": {"transaction"}}),
    "new queue, async": Kind(_put_to_new_queue, ASYNC),
    "new queue with extension, async": Kind(_put_to_new_queue, {**ASYNC, "enable_consume_queue_ext": True}),
    "full queue file, async": Kind(_put, {**ASYNC, "mapped_file_size_consume_queue": 20}),
    "full index file, async": Kind(
        lambda scene: _put(scene, keys=["a", "b", "c"]), {**ASYNC, "max_index_num": 4, "max_hash_slot_num": 2}
    ),
    "full log file, sync": Kind(_put_large, SMALL_FILES),
    "full log file, async": Kind(_put_large, {**ASYNC, **SMALL_FILES}),
    "inner batch, async": Kind(_put_inner_batch, {**ASYNC, "topic_queue_types": {"batches": "BatchCQ"}}),
    "light queues, async": Kind(_put_dispatched, {**ASYNC, "enable_lmq": True, "enable_multi_dispatch": True}),
    "write buffers, async": Kind(_put, {**ASYNC, "transient_store_pool_enable": True, "transient_store_pool_size": 3}),
    "spinning lock, hook, async": Kind(_put, {**ASYNC, "put_lock": "spinning"}, _with_hook),
    "flush": Kind(_flush, ASYNC),
    "wait_dispatched": Kind(_wait_dispatched),
    "arrival wait": Kind(_arm, ASYNC),
    "consumer offsets": Kind(_commit_offset),
    "closed batch, sync": Kind(_put_closed),
    "closed batch, async": Kind(_put_closed, ASYNC),
    "closed batch, light queues": Kind(_put_closed, {**ASYNC, "enable_lmq": True, "enable_multi_dispatch": True}),
    "closed batch over files, async": Kind(partial(_put_closed, size=20_000), {**ASYNC, **SMALL_FILES}),
    "closed batch, write buffers": Kind(
        partial(_put_closed, size=20_000),
        {**ASYNC, **SMALL_FILES, "transient_store_pool_enable": True, "transient_store_pool_size": 4},
    ),
    "unused topics": Kind(_clean_unused, ASYNC, most=1500),
}
