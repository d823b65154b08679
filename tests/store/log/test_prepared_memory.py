"""Write buffers and warm files by configuration: what they change, and that a refusal of memory is no failure."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.store.small_store import ASYNC, bodies, read_all, wait_until

from flintlog import Message, open_store
from flintlog.disk.media.libc import MemoryMap
from flintlog.store.model.message import PutStatus

SIZE = 16384
POOL = ASYNC.with_changes(
    mapped_file_size_commit_log=SIZE,
    transient_store_pool_enable=True,
    transient_store_pool_size=2,
    commit_interval_commit_log=3_600_000,
    wake_commit_when_put_message=False,
)
BODY = bytes(4000)


def test_without_a_free_buffer_a_put_fails_fast_and_later_succeeds(tmp_path: Path) -> None:
    config = POOL.with_changes(fast_fail_if_no_buffer_in_store_pool=True)
    with open_store(tmp_path, config) as store:
        statuses = [store.put(Message("orders", BODY), check=False).status for _ in range(12)]
        assert PutStatus.CREATE_MAPPED_FILE_FAILED in statuses
        assert statuses[0] is PutStatus.PUT_OK
        store.wait_dispatched()  # which commits: full files give their buffers back
        wait_until(lambda: store.put(Message("orders", b"again")))
        store.wait_dispatched()
        kept = statuses.count(PutStatus.PUT_OK)
        assert bodies(read_all(store, "orders"))[:kept] == [BODY] * kept
        assert b"again" in bodies(read_all(store, "orders"))


def test_without_fast_fail_a_file_without_a_buffer_is_mapped(tmp_path: Path) -> None:
    with open_store(tmp_path, POOL) as store:
        receipts = [store.put(Message("orders", BODY)).check() for _ in range(30)]
        store.wait_dispatched()
        assert len(read_all(store, "orders")) == len(receipts)


def test_a_slave_and_writing_by_file_calls_have_no_pool(tmp_path: Path) -> None:
    for config in (POOL.with_changes(broker_role="SLAVE"), POOL.with_changes(write_without_mmap=True)):
        with open_store(tmp_path / str(config.write_without_mmap), config) as store:
            assert store._engine.parts.pool is None


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (POOL, "2 write buffers"),
        (ASYNC.with_changes(mapped_file_size_commit_log=SIZE, warm_mapped_file_enable=True), "is warm, but"),
    ],
)
def test_memory_that_cannot_be_locked_is_a_line_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, config: object, text: str
) -> None:
    monkeypatch.setattr(MemoryMap, "lock", lambda self: False)
    with caplog.at_level(logging.WARNING, "flintlog"), open_store(tmp_path, config) as store:  # type: ignore[arg-type]
        for _ in range(20):
            store.put(Message("orders", BODY)).check()
        store.wait_dispatched()
        assert len(read_all(store, "orders")) == 20
    assert len([record for record in caplog.records if text in record.message]) == 1


def test_a_warm_file_is_in_memory_before_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    locked: list[int] = []
    unlocked: list[int] = []

    def note_in(sizes: list[int]) -> Callable[[MemoryMap], bool]:
        def note(memory: MemoryMap) -> bool:
            sizes.append(memory.size)
            return True

        return note

    monkeypatch.setattr(MemoryMap, "lock", note_in(locked))
    monkeypatch.setattr(MemoryMap, "unlock", note_in(unlocked))
    with open_store(
        tmp_path, ASYNC.with_changes(mapped_file_size_commit_log=SIZE, warm_mapped_file_enable=True)
    ) as store:
        store.put(Message("orders", b"x")).check()
        wait_until(lambda: len(locked) == 2)  # the first, and the one behind it
        for _ in range(8):
            store.put(Message("orders", BODY)).check()
        assert unlocked
        assert set(locked) == {SIZE}
