"""Puts of a SYNC_MASTER: acknowledged when enough replicas hold them, and reported when they do not."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest
from tests.store.small_store import SMALL

from flintlog import Message, PutStatus, StoreConfig, open_store

MASTER = SMALL.with_changes(broker_role="SYNC_MASTER", in_sync_replicas=2, slave_timeout=300)
CONFIGS = pytest.mark.parametrize("config", [MASTER, MASTER.with_changes(flush="async")], ids=["sync", "async"])
MESSAGE = Message("orders", b"42 pieces")


@CONFIGS
def test_without_replicas_every_put_says_so_and_is_stored(tmp_path: Path, config: StoreConfig) -> None:
    with open_store(tmp_path, config) as store:
        began = time.monotonic()
        assert store.put(MESSAGE, check=False).status is PutStatus.FLUSH_SLAVE_TIMEOUT
        assert time.monotonic() - began >= 0.3
        waiting = store.put_async(MESSAGE, check=False)
        assert store.put_batch([MESSAGE, MESSAGE], check=False).status is PutStatus.FLUSH_SLAVE_TIMEOUT
        assert waiting.result(5).status is PutStatus.FLUSH_SLAVE_TIMEOUT
        assert asyncio.run(store.aput(MESSAGE, check=False)).status is PutStatus.FLUSH_SLAVE_TIMEOUT
        assert store.max_offset("orders", 0) == 5


@CONFIGS
def test_a_confirmed_offset_completes_everyone_below_it(tmp_path: Path, config: StoreConfig) -> None:
    with open_store(tmp_path, config.with_changes(slave_timeout=10_000)) as store:
        rung = threading.Event()
        store.replication.on_waiting_for_replicas(lambda _: rung.set())
        futures = [store.put_async(MESSAGE) for _ in range(5)]
        assert rung.wait(5)
        while store.replication.raw_log.end < store.max_physical_offset:
            time.sleep(0.001)
        ends = [end * (store.max_physical_offset // 5) for end in range(1, 6)]
        store.replication.set_replicas(confirmed_where=ends[2] + 1, in_sync_count=2)
        assert [each.result(5).status for each in futures[:3]] == [PutStatus.PUT_OK] * 3
        assert not futures[3].done()
        store.replication.set_replicas(confirmed_where=ends[4], in_sync_count=2)
        assert [each.result(5).status for each in futures] == [PutStatus.PUT_OK] * 5


def test_a_message_that_does_not_wait_waits_for_nobody(tmp_path: Path) -> None:
    with open_store(tmp_path, MASTER.with_changes(slave_timeout=60_000)) as store:
        assert store.put(Message("orders", b"", properties={"WAIT": "false"})).status is PutStatus.PUT_OK


@pytest.mark.parametrize("changes", [{"in_sync_replicas": 1}, {"broker_role": "ASYNC_MASTER"}, {"in_sync_replicas": 0}])
def test_one_copy_or_no_role_means_no_waiting(tmp_path: Path, changes: dict[str, object]) -> None:
    with open_store(tmp_path, MASTER.with_changes(slave_timeout=60_000, **changes)) as store:
        assert store.put(MESSAGE).status is PutStatus.PUT_OK


def test_with_too_few_in_sync_nothing_is_appended(tmp_path: Path) -> None:
    with open_store(tmp_path, MASTER.with_changes(min_in_sync_replicas=2)) as store:
        assert store.put(MESSAGE, check=False).status is PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH
        assert store.put_batch([MESSAGE], check=False).status is PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH
        assert store.max_physical_offset == 0
        store.replication.set_replicas(confirmed_where=1 << 40, in_sync_count=2)
        assert store.put(MESSAGE).status is PutStatus.PUT_OK
        store.replication.set_replicas(confirmed_where=1 << 40, in_sync_count=1)
        assert store.put(MESSAGE, check=False).status is PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH


def test_stopping_gives_up_on_those_who_wait(tmp_path: Path) -> None:
    store = open_store(tmp_path, MASTER.with_changes(slave_timeout=60_000))
    waiting = store.put_async(MESSAGE, check=False)
    store.shutdown()
    assert waiting.result(5).status is PutStatus.FLUSH_SLAVE_TIMEOUT
