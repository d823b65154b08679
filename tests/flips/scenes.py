"""Small stores that together have every kind of file, on a disk in memory, each stopped cleanly and killed.

Records of the plain queues are 128 bytes long, so that one bit of a queue entry can lead to a whole record of another
queue. Each store has the least number of messages that fills two files of each kind. A scene has the same bytes each
time it is made: several processes share its bits, and `counts.json` holds their outcomes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from flintlog import Message, Store, StoreConfig, open_store
from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.format.client_batch import ClientMessage, encode_client_batch
from flintlog.format.config_json import JsonObject, encode_config_json, parse_config_object
from flintlog.format.ledger import LedgerCheckpoint, TermVote, encode_ledger_checkpoint, encode_term_vote
from flintlog.testing import FakeClock
from tests.faults.world import ROOT, files_below, small_config
from tests.flips.serving import BATCH_TOPIC, Served, look
from tests.store.scripted_group import ScriptedGroup

LOG_FILE_BYTES = 512
SEALED = "sealed"
RECORD_BYTES = 128
START_MS = 1_700_000_000_000
TIMER_SLOTS = 20
PROCESS = b"4711"
LEDGER_ENTRIES = 4

PLAIN = small_config(
    "async",
    mapped_file_size_commit_log=LOG_FILE_BYTES,
    mapped_file_size_consume_queue=20 * 2,
    mapped_file_size_batch_consume_queue=46,
    max_hash_slot_num=3,
    max_index_num=7,
    max_message_size=256,
    message_delay_level="1s 5s 10s",
    topic_queue_types={BATCH_TOPIC: "BatchCQ"},
)
EXTENDED = PLAIN.with_changes(
    enable_consume_queue_ext=True,
    mapped_file_size_consume_queue_ext=100,
    enable_calc_filter_bit_map=True,
    expect_consumer_num_use_filter=4,
    enable_lmq=True,
    enable_multi_dispatch=True,
)
SERVICES = PLAIN.with_changes(
    services={"schedule", "transaction", "timer"},
    mapped_file_size_timer_log=52 * 3 + 20,
    timer_roll_window_slot=10,
)
LEDGER = PLAIN.with_changes(
    enable_dledger_commit_log=True,
    dledger_self_id="n0",
    ledger_index_file_size=32 * 3,
)
OWN = ("orders", BATCH_TOPIC, "billing")
"""The topics and the group of the scene `config`."""


@dataclass(frozen=True)
class Scene:
    """A store directory in which every bit may be flipped, and what it serves while it is whole."""

    kind: str
    is_clean: bool
    config: StoreConfig
    medium: FaultyMedium
    now_ms: int
    truth: Served

    @property
    def files(self) -> dict[Path, bytes]:
        """Every file with its bytes, by its path below the store."""
        return {path: content for path, content in files_below(self.medium, ROOT) if content}

    @property
    def flipped_files(self) -> dict[Path, bytes]:
        """Those in which the bits of this scene are flipped."""
        begins = _FLIPPED[self.kind]
        return {path: content for path, content in self.files.items() if str(path).startswith(begins)}

    @property
    def is_sealed(self) -> bool:
        """Whether each record has a CRC over all of it."""
        return self.config.enabled_append_prop_crc

    @property
    def is_ledger(self) -> bool:
        """Whether the log is that of a ledger's member: it takes messages only while it leads."""
        return self.config.enable_dledger_commit_log

    def open(self, medium: FaultyMedium, *, read_only: bool) -> Store:
        return open_store(ROOT, self.config, medium=medium, clock=FakeClock(self.now_ms), read_only=read_only)


def scene_name(kind: str, is_clean: bool) -> str:
    return f"{kind}-{'clean' if is_clean else 'killed'}"


def make_scene(kind: str, *, is_clean: bool) -> Scene:
    """Fill a store of some kind and stop it in some way."""
    config, fill = _KINDS[kind]
    clock = FakeClock(START_MS)
    medium = FaultyMedium(clock_ms=clock.now_ms)
    store = open_store(ROOT, config, medium=medium, clock=clock)
    fill(store, clock)
    store.wait_dispatched()
    killed = medium.kill()
    store.shutdown()
    left = medium if is_clean else killed
    if config.enable_dledger_commit_log:
        _write_state(left)
    _settle(left, config)
    scene = Scene(kind, is_clean, config, left, clock.now_ms(), Served())
    with scene.open(left.kill(), read_only=False) as opened:
        return replace(scene, truth=look(opened))


def _settle(medium: FaultyMedium, config: StoreConfig) -> None:
    """Replace what depends on the process and its threads, and leave out what RocketMQ defines in each store."""
    if medium.exists(ROOT / "abort"):
        _make_file_ahead(medium, ROOT / ("dledger-n0/data" if config.enable_dledger_commit_log else "commitlog"))
    for name in ("abort", "flintlog/writer"):
        if medium.exists(ROOT / name):
            medium.write(ROOT / name, PROCESS)
    for name, table in (("topics", "topicConfigTable"), ("subscriptionGroup", "subscriptionGroupTable")):
        for path in (ROOT / f"config/{name}.json", ROOT / f"config/{name}.json.bak"):
            if medium.exists(path):
                content = parse_config_object(medium.read(path))
                entries = cast(JsonObject, content[table])
                content[table] = {key: value for key, value in entries.items() if key in OWN}
                medium.write(path, encode_config_json(content))


def _make_file_ahead(medium: FaultyMedium, log: Path) -> None:
    """A thread of the store makes the log's next file early; when the store was killed it may not have come to it."""
    last = medium.listing(log)[-1]
    if any(medium.read(log / last.name)):
        medium.write(log / f"{int(last.name) + LOG_FILE_BYTES:020d}", bytes(LOG_FILE_BYTES))


def order(number: int, topic: str, queue_id: int, **properties: str) -> Message:
    """A message whose record has 128 bytes."""
    tags, keys = "ac"[number % 2], [f"k{number:02d}"]
    return Message(topic, b"%04d" % number, queue_id=queue_id, tags=tags, keys=keys, properties=properties)


def _checkpoint(store: Store) -> None:
    """The pass that the queue flush thread makes once a minute."""
    store.wait_dispatched()
    assert store._engine.flushing.queue_flush is not None
    store._engine.flushing.queue_flush.flush_all()


def _fill_plain(store: Store, clock: FakeClock) -> None:
    store.put(Message("gone", b"deleted")).check()
    store.wait_dispatched()
    store.topics.delete("gone")
    _fill_log(store, clock, orders=4, batches=2)


def _fill_sealed(store: Store, clock: FakeClock) -> None:
    _fill_log(store, clock, orders=3, batches=0)


def _fill_log(store: Store, clock: FakeClock, *, orders: int, batches: int) -> None:
    for number in range(orders):
        store.put(_padded(store, number, ("orders", "events")[number % 3 == 2], number % 2)).check()
        clock.advance(700)
        if number == 2:
            _checkpoint(store)
    for number in range(batches):
        store.put(inner_batch(b"%d" % number, b"")).check()
    store.put_closed([Message("orders", b"closed", queue_id=1)], writer_id="w", batch_id=1)
    store.consumer_offsets.commit("billing", "orders", 0, 2)
    store.consumer_offsets.save()
    store.put(_padded(store, 11, "orders", 0)).check()


def _padded(store: Store, number: int, topic: str, queue_id: int) -> Message:
    sum_bytes = 20 if store.config.enabled_append_prop_crc else 0
    tags_and_keys = len("TAGS\x01a\x02KEYS\x01k00\x02")
    head = 91 + len(topic) + tags_and_keys + sum_bytes
    return Message(
        topic,
        (b"%04d" % number).ljust((160 if sum_bytes else RECORD_BYTES) - head, b"."),
        queue_id=queue_id,
        tags="ac"[number % 2],
        keys=[f"k{number:02d}"],
    )


def inner_batch(*parts: bytes) -> Message:
    body = encode_client_batch([ClientMessage(body=part) for part in parts])
    return Message(BATCH_TOPIC, body, sys_flag=0xC0, properties={"INNER_NUM": str(len(parts))})


def _fill_config(store: Store, clock: FakeClock) -> None:
    store.topics.create("orders", attributes={})
    store.topics.create(BATCH_TOPIC, attributes={"queue.type": "BatchCQ"})
    store.groups.create("billing")
    store.put(order(0, "orders", 0)).check()
    store.put(inner_batch(b"x", b"y")).check()
    store.consumer_offsets.commit("billing", "orders", 0, 1)


def _fill_extended(store: Store, clock: FakeClock) -> None:
    store.subscriptions.register("g1", "orders", "a > 2")
    for number in range(5):
        light = {"INNER_MULTI_DISPATCH": "%LMQ%one,%LMQ%two"} if number % 3 == 0 else {}
        store.put(order(number, "orders", number % 2, a=str(number), **light)).check()
        clock.advance(700)
        if number == 2:
            _checkpoint(store)
    store.consumer_offsets.commit("billing", "orders", 0, 2)
    store.consumer_offsets.save()


def _fill_services(store: Store, clock: FakeClock) -> None:
    now = clock.now_ms()
    for number in range(3):
        store.put(Message("timed", b"%d" % number, deliver_at_ms=now + 3000 + 2000 * number)).check()
        store.put(Message("late", b"%d" % number, delay_level=1 + number % 3)).check()
    transactions = store.service("transaction")
    transactions.begin(Message("orders", b"decided", properties={"UNIQ_KEY": "t1"})).commit()
    transactions.begin(Message("orders", b"open", properties={"UNIQ_KEY": "t2"}))
    clock.advance(4000)
    _checkpoint(store)


def _write_state(medium: FaultyMedium) -> None:
    """The files that the node of a group keeps beside its log."""
    member, last = ROOT / "dledger-n0", LEDGER_ENTRIES - 1
    medium.write(member / "currterm", encode_term_vote(TermVote(1, "n0")))
    medium.write(member / "checkpoint", encode_ledger_checkpoint(LedgerCheckpoint(last, last)))


def _fill_ledger(store: Store, clock: FakeClock) -> None:
    group = ScriptedGroup(store)
    group.is_quick = True
    group.lead()
    for number in range(LEDGER_ENTRIES):
        store.put(order(number, "orders", number % 2)).check()
        clock.advance(700)
        if number == 1:
            _checkpoint(store)
    store.wait_dispatched()
    group.port.stop()


_KINDS: dict[str, tuple[StoreConfig, Callable[[Store, FakeClock], None]]] = {
    "plain": (PLAIN, _fill_plain),
    SEALED: (PLAIN.with_changes(enabled_append_prop_crc=True), _fill_sealed),
    "config": (PLAIN.with_changes(topic_queue_types={}), _fill_config),
    "extended": (EXTENDED, _fill_extended),
    "services": (SERVICES, _fill_services),
    "ledger": (LEDGER, _fill_ledger),
}
_FLIPPED: dict[str, tuple[str, ...]] = {
    "plain": (
        "commitlog/",
        "consumequeue/",
        "batchconsumequeue/",
        "index/",
        "checkpoint",
        "abort",
        "lock",
        "flintlog/",
    ),
    SEALED: ("commitlog/",),
    "config": ("config/",),
    "extended": ("consumequeue/", "consumequeue_ext/", "config/"),
    "services": ("consumequeue/", "config/", "timerlog/", "timerwheel", "flintlog/delay.json"),
    "ledger": ("consumequeue/", "dledger-n0/", "flintlog/writer"),
}
"""Which files are flipped in a scene, by how their paths begin: those that no other scene has in the same way."""
KINDS = tuple(_KINDS)
