"""A sync that fails once: nothing is acknowledged as durable any more, and everything that was there is served."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from flintlog import Message, PutStatus, Receipt
from flintlog.errors import SyncFailed
from flintlog.store.flush.group_commit import GroupCommit
from flintlog.store.runtime.lifecycle import State
from tests.faults.world import ROOT, World, assert_there, small_config

REFUSED = (PutStatus.FLUSH_DISK_TIMEOUT, PutStatus.SERVICE_NOT_AVAILABLE)


@pytest.fixture
def world() -> Iterator[World]:
    made = World(small_config("sync"))
    yield made
    made.abandon()


def test_nothing_is_acknowledged_after_a_failed_sync_and_reads_go_on(world: World) -> None:
    world.put(1, 20)
    world.medium.fail_next_syncs(1)
    assert world.store.put(Message("orders", b"lost?"), check=False).status is PutStatus.FLUSH_DISK_TIMEOUT
    for _ in range(3):
        assert world.store.put(Message("orders", b"x"), check=False).status in REFUSED
        assert world.store.put_batch([Message("orders", b"x")], check=False).status in REFUSED
        assert world.store.put_async(Message("orders", b"x"), check=False).result(5).status in REFUSED
        assert asyncio.run(world.store.aput(Message("orders", b"x"), check=False)).status in REFUSED
    for sent in world.kept.values():
        assert_there(world.store, sent)


def test_a_stop_after_a_failed_sync_is_not_clean_and_gives_the_store_back(world: World) -> None:
    world.put(1, 20)
    world.medium.fail_next_syncs(1)
    world.store.put(Message("orders", b"lost?"), check=False)
    world.store.shutdown()
    assert world.store._engine.lifecycle.state is State.SHUTDOWN_OK
    assert world.medium.exists(ROOT / "abort")
    world.medium = world.medium.crash(5)
    world.store = world.open(world.medium)
    world.check()
    world.put(2, 20)
    world.crash(6)
    world.check()


def test_a_failed_sync_of_an_index_file_stalls_dispatch_and_loses_nothing(world: World) -> None:
    world.put(1, 12)
    failing = True

    def before_sync(path: object) -> None:
        if failing and "/index/" in str(path):
            world.medium.fail_next_syncs(1)

    world.medium.before_sync = before_sync
    world.put(2, 60)  # the log is synced, so these are acknowledged
    assert isinstance(world.store._engine.dispatcher.failure, SyncFailed)
    world.crash(3)
    world.check()


def test_a_failed_sync_of_a_queue_does_not_move_the_checkpoint(world: World) -> None:
    world.put(1, 30)
    world.tide()
    covered = world.store._engine.parts.checkpoint.values
    world.put(2, 30)
    world.medium.before_sync = lambda path: world.medium.fail_next_syncs(int("/consumequeue/" in str(path)))
    assert world.store._engine.flushing.queue_flush is not None
    with pytest.raises(SyncFailed):
        world.store._engine.flushing.queue_flush.flush_all()
    assert world.store._engine.parts.checkpoint.values.logics_physical_offset == covered.logics_physical_offset
    with pytest.raises(SyncFailed):
        world.store.shutdown()
    assert world.medium.exists(ROOT / "abort")
    assert world.store._engine.lifecycle.state is State.SHUTDOWN_OK
    world.crash(4)
    world.check()


@pytest.mark.parametrize("flush", ["sync", "async"])
def test_power_loss_right_after_a_failed_sync(flush: str) -> None:
    for seed in range(15):
        world = World(small_config(flush))
        world.put(seed, 25)
        if flush == "async":
            world.flush()
        world.medium.fail_next_syncs(1)
        world.put(seed + 100, 10)
        world.crash(seed)
        world.check()
        world.put(seed + 200, 25)
        world.crash(seed + 1)
        world.check()
        world.abandon()


@pytest.mark.parametrize("ending", ["kill", "stop"])
@pytest.mark.parametrize("flush", ["sync", "async"])
def test_what_a_failed_sync_left_in_memory_is_durable_once_the_next_process_says_so(flush: str, ending: str) -> None:
    for seed in range(10):
        world = World(small_config(flush))
        world.put(seed, 25)
        world.medium.fail_next_syncs(1, world.holds_records)
        world.put(seed + 100, 10)
        if flush == "async":
            with pytest.raises(SyncFailed):
                world.store.flush()
        if ending == "kill":
            world.kill()
        else:
            world.stop()
        world.flush()
        world.crash(seed)
        world.check()
        world.abandon()


class FailsOnce:
    """A log whose first sync fails, and whose later ones would succeed: what an operating system may do."""

    def __init__(self) -> None:
        self.flushed_where = 0
        self.fails = True

    def flush(self, least_pages: int) -> bool:
        if self.fails:
            self.fails = False
            raise SyncFailed("the disk did not take the data")
        self.flushed_where = 1 << 40
        return True


def test_a_group_commit_that_failed_once_never_acknowledges_again() -> None:
    failures: list[SyncFailed] = []
    commit = GroupCommit(FailsOnce(), timeout_ms=5000, after_flush=lambda: None, on_failure=failures.append)
    commit.start()
    receipt = Receipt(PutStatus.PUT_OK, 0, 0, 100)
    statuses = [commit.wait(receipt, Message("orders", b"x")).status for _ in range(3)]
    commit.stop()
    assert statuses == [PutStatus.FLUSH_DISK_TIMEOUT] * 3
    assert len(failures) == 1
