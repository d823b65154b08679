"""Putting: alone, in batches, from threads and from asyncio; receipts, hooks, options of the put path."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from tests.store.small_store import ASYNC, SMALL, bodies, read_all

from flintlog import InvalidMessage, Message, PutFailed, PutStatus, Receipt, Store, StoreConfig, open_store
from flintlog.disk.faulty.faulty_disk import FaultyMedium
from flintlog.format.client_batch import ClientMessage, encode_client_batch
from flintlog.store.model.compression import decompress
from flintlog.store.model.message import Receipts
from flintlog.testing import FakeClock

ROOT = Path("/store")
LMQ = SMALL.with_changes(enable_lmq=True, enable_multi_dispatch=True, max_lmq_consume_queue_num=2)
BATCH = SMALL.with_changes(topic_queue_types={"batched": "BatchCQ"}, mapped_file_size_batch_consume_queue=46 * 100)


def open_in_memory(config: StoreConfig = SMALL, medium: FaultyMedium | None = None) -> Store:
    return open_store(ROOT, config, medium=FaultyMedium() if medium is None else medium)


# One message


@pytest.mark.parametrize("config", [SMALL, ASYNC], ids=["sync", "async"])
def test_a_receipt_says_where_the_message_is(tmp_path: Path, config: StoreConfig) -> None:
    clock = FakeClock(1_700_000_000_000)
    with open_store(tmp_path, config, clock=clock) as store:
        first = store.put(Message("orders", b"one", queue_id=3))
        clock.advance(5)
        second = store.put(Message("orders", b"two", queue_id=3))
        assert (first.status, first.physical_offset, first.queue_offset) == (PutStatus.PUT_OK, 0, 0)
        assert (second.physical_offset, second.queue_offset) == (first.size, 1)
        assert second.store_timestamp == first.store_timestamp + 5 == 1_700_000_000_005
        assert bool(first) and first.check() is first
        stored = store.message_by_id(second.message_id)
        assert stored is not None
        assert (stored.body, stored.size, stored.message_id) == (b"two", second.size, second.message_id)
        assert second.message_id == f"7F00000100002A9F{second.physical_offset:016X}"
        assert stored.queue_offset == 1
        assert stored.store_timestamp == stored.born_timestamp == 1_700_000_000_005


def test_a_receipt_that_is_no_acknowledgement_is_false_and_raises() -> None:
    receipt = Receipt(PutStatus.FLUSH_DISK_TIMEOUT, 0, 0, 90)
    assert not receipt
    with pytest.raises(PutFailed, match="FLUSH_DISK_TIMEOUT"):
        receipt.check()


def test_bodies_of_any_bytes_like_type_and_none_at_all() -> None:
    with open_in_memory() as store:
        for body in (b"", b"x", bytearray(b"x"), memoryview(b"axb")[1:2]):
            store.put(Message("orders", body)).check()
        assert bodies(read_all(store, "orders")) == [b"", b"x", b"x", b"x"]


def test_every_field_comes_back() -> None:
    message = Message(
        "orders",
        b"body",
        tags="paid",
        keys=["a", "b"],
        queue_id=7,
        properties={"region": "eu", "UNIQ_KEY": "u1"},
        flag=-3,
        born_timestamp=11,
        born_host="10.0.0.1:99",
        store_host="[fe80::1]:10911",
        reconsume_times=4,
    )
    with open_in_memory() as store:
        receipt = store.put(message).check()
        stored = store.message_at(receipt.physical_offset)
    assert stored is not None
    assert (stored.topic, stored.queue_id, stored.tags, stored.keys) == ("orders", 7, "paid", ["a", "b"])
    assert stored.properties == {"TAGS": "paid", "KEYS": "a b", "region": "eu", "UNIQ_KEY": "u1"}
    assert (stored.flag, stored.uniq_key, stored.born_timestamp, stored.reconsume_times) == (-3, "u1", 11, 4)
    assert (stored.born_host, stored.store_host) == ("10.0.0.1:99", "[fe80::1]:10911")
    assert stored.message_id == receipt.message_id


def test_queues_count_for_themselves() -> None:
    with open_in_memory() as store:
        offsets = [store.put(Message("orders", b"x", queue_id=number % 3)).queue_offset for number in range(9)]
        other = store.put(Message("others", b"x")).queue_offset
    assert offsets == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert other == 0


def test_messages_of_an_open_transaction_take_no_queue_offset() -> None:
    with open_in_memory() as store:
        store.put(Message("orders", b"first")).check()
        prepared = store.put(Message("orders", b"prepared", sys_flag=0x4))
        rolled_back = store.put(Message("orders", b"rolled back", sys_flag=0xC))
        committed = store.put(Message("orders", b"committed", sys_flag=0x8))
        assert [prepared.queue_offset, rolled_back.queue_offset, committed.queue_offset] == [0, 0, 1]
        assert bodies(read_all(store, "orders")) == [b"first", b"committed"]
        assert store.stats()["putMessageTimesTotal"] == 4


def test_a_log_goes_on_over_the_ends_of_its_files() -> None:
    config = SMALL.with_changes(mapped_file_size_commit_log=1024)
    with open_in_memory(config) as store:
        receipts = [store.put(Message("orders", b"%03d" % number * 20)).check() for number in range(50)]
        assert bodies(read_all(store, "orders")) == [b"%03d" % number * 20 for number in range(50)]
        assert all(receipt.physical_offset % 1024 + receipt.size + 8 <= 1024 for receipt in receipts)
        assert store.stats()["putMessageSizeTotal"] == sum(receipt.size for receipt in receipts)


# Batches


def test_a_batch_is_one_write_with_a_receipt_for_each() -> None:
    with open_in_memory() as store:
        store.put(Message("orders", b"before")).check()
        receipts = store.put_batch([Message("orders", b"m%d" % number, keys=["k"]) for number in range(5)]).check()
        assert isinstance(receipts, Receipts) and len(receipts) == 5
        assert [receipt.queue_offset for receipt in receipts] == [1, 2, 3, 4, 5]
        assert all(left.end_offset == right.physical_offset for left, right in itertools.pairwise(receipts))
        assert receipts[-1] == receipts[4] and receipts[1:3] == [receipts[1], receipts[2]]
        assert receipts.end_offset == receipts[-1].end_offset == store.max_physical_offset
        with pytest.raises(IndexError):
            receipts[5]
        assert [store.message_at(receipt.physical_offset).body for receipt in receipts] == [  # type: ignore[union-attr]
            b"m0", b"m1", b"m2", b"m3", b"m4",
        ]  # fmt: skip
        assert len(store.query("orders", "k")) == 5


def test_a_batch_and_single_puts_give_the_same_bytes() -> None:
    media = [FaultyMedium(), FaultyMedium()]
    messages = [Message("orders", b"m%d" % number, tags="t", keys=[f"k{number}"]) for number in range(20)]
    clock = FakeClock()
    for medium, is_batch in zip(media, (True, False), strict=True):
        with open_store(ROOT, SMALL, medium=medium, clock=clock) as store:
            if is_batch:
                store.put_batch(messages).check()
            else:
                for message in messages:
                    store.put(message).check()
    log = ROOT / "commitlog" / f"{0:020d}"
    assert media[0].read(log) == media[1].read(log)


def test_a_batch_goes_whole_to_the_next_file() -> None:
    config = SMALL.with_changes(mapped_file_size_commit_log=1024)
    with open_in_memory(config) as store:
        store.put(Message("orders", b"x" * 500)).check()
        receipts = store.put_batch([Message("orders", b"x" * 200)] * 2).check()
        assert receipts[0].physical_offset == 1024
        assert len(read_all(store, "orders")) == 3


def test_a_batch_may_be_any_iterable() -> None:
    with open_in_memory() as store:
        assert len(store.put_batch(Message("orders", b"x") for _ in range(3))) == 3  # type: ignore[arg-type]


# Threads and tasks


@pytest.mark.parametrize(
    "config", [SMALL, ASYNC, ASYNC.with_changes(put_lock="spinning")], ids=["sync", "async", "spin"]
)
def test_eight_threads_leave_no_gap_and_lose_nothing(config: StoreConfig) -> None:
    count = 500

    def produce(store: Store, name: int) -> list[Receipt]:
        return [store.put(Message("orders", b"%d-%d" % (name, number), queue_id=name % 2)) for number in range(count)]

    with open_in_memory(config) as store:
        with ThreadPoolExecutor(8) as pool:
            receipts = [r for done in [pool.submit(produce, store, name) for name in range(8)] for r in done.result()]
        assert all(receipts)
        store.wait_dispatched()
        ends = sorted((receipt.physical_offset, receipt.end_offset) for receipt in receipts)
        assert len(ends) == 8 * count and len(set(ends)) == 8 * count
        for queue_id in (0, 1):
            found = bodies(read_all(store, "orders", queue_id))
            assert len(found) == 4 * count
            for name in range(queue_id, 8, 2):  # each producer's own messages are in its order
                assert [body for body in found if body.startswith(b"%d-" % name)] == [
                    b"%d-%d" % (name, number) for number in range(count)
                ]
        assert store.stats()["putMessageTimesTotal"] == 8 * count


def test_put_async_is_done_when_the_message_is_on_disk() -> None:
    with open_in_memory() as store:
        futures = [store.put_async(Message("orders", b"%d" % number)) for number in range(100)]
        receipts = [future.result(10) for future in futures]
        assert [receipt.queue_offset for receipt in receipts] == list(range(100))
        assert store.flushed_offset == store.max_physical_offset == receipts[-1].end_offset


def test_sixty_four_tasks_are_woken_by_groups() -> None:
    medium = FaultyMedium()
    medium.before_sync = lambda path: time.sleep(0.002)
    wakes = 0

    async def produce_all(store: Store) -> list[Receipt]:
        loop = asyncio.get_running_loop()
        wake = loop.call_soon_threadsafe

        def counting(*arguments: object, **keywords: object) -> object:
            nonlocal wakes
            wakes += 1
            return wake(*arguments, **keywords)  # type: ignore[arg-type]

        loop.call_soon_threadsafe = counting  # type: ignore[method-assign, assignment]

        async def produce(name: int) -> list[Receipt]:
            return [await store.aput(Message("orders", b"%d-%d" % (name, number))) for number in range(10)]

        return [receipt for done in await asyncio.gather(*map(produce, range(64))) for receipt in done]

    with open_in_memory(SMALL, medium) as store:
        receipts = asyncio.run(produce_all(store))
        assert all(receipts) and sorted(receipt.queue_offset for receipt in receipts) == list(range(640))
        assert len(read_all(store, "orders")) == 640
    assert 10 <= wakes <= 64, "a group is woken by one call"


def test_tasks_may_put_batches_and_need_no_flush_under_async_flush() -> None:
    async def produce(store: Store) -> list[int]:
        single = await store.aput(Message("orders", b"x"))
        batch = await store.aput_batch([Message("orders", b"x")] * 2)
        return [single.queue_offset, *(receipt.queue_offset for receipt in batch)]

    for config in (SMALL, ASYNC):
        with open_in_memory(config) as store:
            assert asyncio.run(produce(store)) == [0, 1, 2]


def test_a_cancelled_task_does_not_disturb_its_group() -> None:
    medium = FaultyMedium()
    medium.before_sync = lambda path: time.sleep(0.02)

    async def produce(store: Store) -> Receipt:
        cancelled = asyncio.ensure_future(store.aput(Message("orders", b"cancelled")))
        other = asyncio.ensure_future(store.aput(Message("orders", b"other")))
        await asyncio.sleep(0)
        cancelled.cancel()
        return await other

    with open_in_memory(SMALL, medium) as store:
        assert asyncio.run(produce(store)).queue_offset == 1
        assert bodies(read_all(store, "orders")) == [b"cancelled", b"other"]


# Compression


@pytest.mark.parametrize(("codec", "bits"), [("zlib", 0x301), ("lz4", 0x101), ("zstd", 0x201)])
def test_a_compressed_body_comes_back_with_its_flag(codec: str, bits: int) -> None:
    body = b"the same again and again " * 50
    with open_in_memory() as store:
        alone = store.put(Message("orders", body, compress=codec)).check()
        in_batch = store.put_batch([Message("orders", body, compress=codec), Message("orders", body)]).check()
        found = [store.message_at(receipt.physical_offset) for receipt in (alone, *in_batch)]
    for stored in found[:2]:
        assert stored is not None and stored.sys_flag == bits and len(stored.body) < len(body)
        assert decompress(stored.body, stored.sys_flag) == stored.plain_body() == body
    assert found[2] is not None and found[2].body == body and found[2].sys_flag == 0


# Hooks


def test_a_hook_may_change_refuse_or_let_pass() -> None:
    def hook(message: Message) -> Message | Receipt | None:
        if message.tags == "never":
            return Receipt(PutStatus.MESSAGE_ILLEGAL)
        return msgspec.structs.replace(message, topic="moved") if message.tags == "move" else None

    with open_in_memory() as store:
        store.add_put_hook(hook)
        statuses = [
            store.put(Message("orders", b"x", tags=tags), check=False).status.name
            for tags in ("plain", "move", "never")
        ]
        assert statuses == ["PUT_OK", "PUT_OK", "MESSAGE_ILLEGAL"]
        assert (store.max_offset("orders", 0), store.max_offset("moved", 0)) == (1, 1)
        refused = store.put_batch([Message("orders", b"x"), Message("orders", b"x", tags="never")], check=False)
        assert [receipt.status for receipt in refused] == [PutStatus.MESSAGE_ILLEGAL] * 2
        assert store.put_batch([Message("orders", b"x", tags="move")] * 2)[1].queue_offset == 2
        assert store.stats()["putMessageFailedTimes"] == 3


def test_hooks_see_what_the_one_before_made() -> None:
    seen: list[str] = []

    def rename(to: str) -> Callable[[Message], Message]:
        def hook(message: Message) -> Message:
            seen.append(message.topic)
            return msgspec.structs.replace(message, topic=to)

        return hook

    with open_in_memory() as store:
        store.add_put_hook(rename("b"))
        store.add_put_hook(rename("c"))
        store.put(Message("a", b"x")).check()
        assert (seen, store.max_offset("c", 0)) == (["a", "b"], 1)


def test_a_hook_that_raises_ends_the_put_only() -> None:
    def hook(message: Message) -> None:
        if message.tags == "bad":
            raise KeyError("mine")

    with open_in_memory() as store:
        store.add_put_hook(hook)
        with pytest.raises(KeyError):
            store.put(Message("orders", b"x", tags="bad"))
        assert store.put(Message("orders", b"x")).queue_offset == 0


# Light queues


def test_a_message_goes_into_the_light_queues_it_names() -> None:
    with open_in_memory(LMQ) as store:
        for number in range(3):
            names = "%LMQ%a,%LMQ%b" if number else "%LMQ%a"
            store.put(Message("orders", b"%d" % number, properties={"INNER_MULTI_DISPATCH": names})).check()
        assert bodies(read_all(store, "orders")) == [b"0", b"1", b"2"]
        assert bodies(read_all(store, "%LMQ%a")) == [b"0", b"1", b"2"]
        assert bodies(read_all(store, "%LMQ%b")) == [b"1", b"2"]
        stored = store.get("orders", 0, 2).messages[0]
        assert stored.properties["INNER_MULTI_QUEUE_OFFSET"] == "2,1"


def test_light_queues_beyond_the_limit_are_refused_by_status() -> None:
    with open_in_memory(LMQ) as store:

        def put(names: str) -> Receipt:
            return store.put(Message("orders", b"x", properties={"INNER_MULTI_DISPATCH": names}), check=False)

        assert put("%LMQ%a,%LMQ%b")
        assert put("%LMQ%c").status is PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED
        assert put("%LMQ%b,%LMQ%a,%LMQ%b").queue_offset == 1
        assert [info.topic for info in store.queues()] == ["%LMQ%a", "%LMQ%b", "orders"]


def test_light_queues_of_undispatched_messages_count_too() -> None:
    with open_in_memory(LMQ) as store:
        with store._engine.dispatcher._running:  # nobody gets to dispatch
            futures = [
                store.put_async(
                    Message("orders", b"x", properties={"INNER_MULTI_DISPATCH": name, "WAIT": "false"}), check=False
                )
                for name in ("%LMQ%a", "%LMQ%b", "%LMQ%c")
            ]
            statuses = [future.result().status.name for future in futures]
        assert statuses == ["PUT_OK", "PUT_OK", "LMQ_CONSUME_QUEUE_NUM_EXCEEDED"]


def test_entries_of_light_queues_have_no_extension() -> None:
    config = LMQ.with_changes(enable_consume_queue_ext=True, mapped_file_size_consume_queue_ext=4096)
    with open_in_memory(config) as store:
        store.set_bitmap_hook(lambda record: b"\x07")
        for tags in ("paid", "sent"):
            store.put(Message("orders", b"x", tags=tags, properties={"INNER_MULTI_DISPATCH": "%LMQ%a"})).check()
        extensions = {}
        for topic in ("orders", "%LMQ%a"):
            entries = store._engine.parts.queues.get_or_create(topic, 0).entries_from(0)
            assert entries is not None
            with entries:
                extensions[topic] = [unit.extension is not None for unit in entries]
            assert [message.tags for message in store.get(topic, 0, 0, filter="sent").messages] == ["sent"]
        assert extensions == {"orders": [True, True], "%LMQ%a": [False, False]}


def test_light_queues_go_on_after_reopening() -> None:
    medium = FaultyMedium()
    for expected in ("0", "1"):
        with open_in_memory(LMQ, medium) as store:
            receipt = store.put(Message("orders", b"x", properties={"INNER_MULTI_DISPATCH": "%LMQ%a"}))
            stored = store.message_at(receipt.physical_offset)
            assert stored is not None and stored.properties["INNER_MULTI_QUEUE_OFFSET"] == expected


def test_retries_are_not_multi_dispatched() -> None:
    with open_in_memory(LMQ) as store:
        store.put(Message("%RETRY%group", b"x", properties={"INNER_MULTI_DISPATCH": "%LMQ%a"})).check()
        assert [info.topic for info in store.queues()] == ["%RETRY%group"]


# Inner batches


def _inner_batch(*parts: bytes, **changed: object) -> Message:
    body = encode_client_batch([ClientMessage(body=part) for part in parts])
    message = Message("batched", body, sys_flag=0xC0, properties={"INNER_NUM": str(len(parts))})
    return msgspec.structs.replace(message, **changed)


def test_an_inner_batch_takes_as_many_offsets_as_it_has_messages() -> None:
    with open_in_memory(BATCH) as store:
        offsets = [store.put(_inner_batch(*parts)).queue_offset for parts in ([b"a", b"b", b"c"], [b"d"], [b"e", b"f"])]
        assert offsets == [0, 3, 4]
        assert store.max_offset("batched", 0) == store.stats()["putMessageTimesTotal"] == 6
        stored = store.get("batched", 0, 4).messages[0]
        assert (stored.properties["INNER_BASE"], stored.properties["INNER_NUM"]) == ("4", "2")
        assert [info.type for info in store.queues()] == ["BatchCQ"]


def test_reading_in_the_middle_of_a_batch_gives_the_whole_batch() -> None:
    """Java's answers, too: an inner batch is one record, and the next offset is behind all of it."""
    with open_in_memory(BATCH) as store:
        for parts in ([b"a", b"b", b"c"], [b"d"], [b"e", b"f"]):
            store.put(_inner_batch(*parts)).check()
        for offset, expected in ((0, [0, 3, 4]), (1, [0, 3, 4]), (2, [0, 3, 4]), (3, [3, 4]), (5, [4])):
            page = store.get("batched", 0, offset)
            assert [message.queue_offset for message in page.messages] == expected
            assert page.next_offset == 6
        page = store.get("batched", 0, 1, max_count=3)
        assert ([message.queue_offset for message in page.messages], page.next_offset) == ([0], 3)


@pytest.mark.parametrize("count", ["0", "-1", "two", "", "32768"])
def test_an_inner_batch_says_how_many_it_holds(count: str) -> None:
    with open_in_memory(BATCH) as store:
        with pytest.raises(InvalidMessage, match="INNER_NUM"):
            store.put(_inner_batch(b"a", properties={"INNER_NUM": count}))
        with pytest.raises(InvalidMessage, match="INNER_NUM"):
            store.put(_inner_batch(b"a", properties=None))
        assert store.put(_inner_batch(b"a", b"b")).queue_offset == 0


def test_a_topic_with_a_batch_queue_takes_no_plain_batch() -> None:
    with open_in_memory(BATCH) as store, pytest.raises(InvalidMessage, match="inner batches"):
        store.put_batch([Message("batched", b"x")])


# The disk says no


@pytest.mark.parametrize("pool", [False, True], ids=["mapped", "write buffers"])
def test_a_full_disk_is_a_status_and_passes(pool: bool) -> None:
    config = ASYNC.with_changes(
        mapped_file_size_commit_log=4096,
        message_index_enable=False,
        transient_store_pool_enable=pool,
        transient_store_pool_size=3,
    )
    medium = FaultyMedium(capacity=24_000)
    with open_in_memory(config, medium) as store:
        receipts = [store.put(Message("orders", b"x" * 500), check=False) for _ in range(60)]
        stored = [receipt for receipt in receipts if receipt]
        assert {receipt.status.name for receipt in receipts} == {"PUT_OK", "CREATE_MAPPED_FILE_FAILED"}
        assert store.put_batch([Message("orders", b"x")], check=False).status is PutStatus.CREATE_MAPPED_FILE_FAILED
        time.sleep(0.3 if pool else 0)  # so that the commit thread gives the full buffer back
        assert store.put(Message("orders", b"x"), check=False).status is PutStatus.CREATE_MAPPED_FILE_FAILED
        medium.capacity = None
        assert store.put(Message("orders", b"at last")).queue_offset == len(stored)
        store.wait_dispatched()
        assert bodies(read_all(store, "orders"))[-1] == b"at last"
        assert store.stats()["putMessageTimesTotal"] == len(stored) + 1


def test_puts_that_race_with_shutdown_are_stored_or_refused() -> None:
    for config in (SMALL, ASYNC):
        medium = FaultyMedium()
        store = open_in_memory(config, medium)
        receipts: list[Receipt] = []

        def produce(store: Store = store, receipts: list[Receipt] = receipts) -> None:
            while True:
                receipt = store.put(Message("orders", b"x"), check=False)
                receipts.append(receipt)
                if not receipt:
                    return

        threads = [threading.Thread(target=produce) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.03)
        store.shutdown()
        for thread in threads:
            thread.join(10)
        stored = [receipt.queue_offset for receipt in receipts if receipt]
        assert {receipt.status.name for receipt in receipts} == {"PUT_OK", "SERVICE_NOT_AVAILABLE"}
        with open_in_memory(config, medium) as again:
            assert again.recovery.clean
            assert again.max_offset("orders", 0) == len(stored) == max(stored) + 1


def test_a_put_that_finds_the_log_held_for_long_is_refused_as_busy() -> None:
    with open_in_memory(ASYNC.with_changes(os_page_cache_busy_time_out_millis=0)) as store:
        store.put(Message("orders", b"x")).check()
        with store._engine.log.lock():  # as while a new file does not come
            store._engine.log.locked_since = time.monotonic() - 1
            assert store.put(Message("orders", b"x"), check=False).status is PutStatus.OS_PAGE_CACHE_BUSY
            assert store.put_batch([Message("orders", b"x")], check=False).status is PutStatus.OS_PAGE_CACHE_BUSY
            store._engine.log.locked_since = None
        assert store.put(Message("orders", b"x")).queue_offset == 1
