"""The job `dispatch` on Spark: a store that leaves its queues and index to it gets what its own dispatcher gives."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.store.dispatch.test_external_dispatch import EXTERNAL, SIZES, bodies, derived, embedded_twin, put

from flintlog import Message, Store, StoreConfig, open_store
from flintlog.disk.media.local import LocalMedium
from flintlog.errors import DamagedStore, InvalidConfig, StoreInUse, WrongFileSize
from flintlog.pipeline.building.dispatch_core import DispatchCore
from flintlog.pipeline.dispatch import DispatchReport, dispatch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def job(spark: SparkSession, root: Path, config: StoreConfig = EXTERNAL) -> Iterator[list[DispatchReport | Exception]]:
    """The job is at work; its report, or what made it fail, is in the list afterwards."""
    stop = threading.Event()
    ended: list[DispatchReport | Exception] = []

    def run() -> None:
        try:
            ended.append(dispatch(spark, root, config=config, stop=stop))
        except Exception as error:  # noqa: BLE001 - the test looks at it
            ended.append(error)

    thread = threading.Thread(target=run, name="job", daemon=True)
    thread.start()
    try:
        yield ended
    finally:
        stop.set()
        thread.join()


def test_a_running_store_is_dispatched_and_what_it_leaves_is_what_its_own_dispatcher_leaves(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    store = open_store(root, EXTERNAL)
    with job(spark, root) as ended:
        put(store, 300)
        store.wait_dispatched()
        assert len(bodies(store)) == 100
        assert [message.body for message in store.query("orders", "k5", 0, 2**62, 9)] == [b"5" * 5]
        put(store, 300, 300)
        store.shutdown()
        with open_store(root, EXTERNAL) as store:  # the job gives the files up, and goes on
            put(store, 100, 600)
            store.wait_dispatched()
            store.put(Message("orders", b"rest")).check()
    (report,) = ended
    assert isinstance(report, DispatchReport), report
    assert report.start_count >= 2
    assert report.serial_count == 0, report.serial_because
    assert report.record_count >= 300
    assert derived(root) == embedded_twin(root, tmp_path / "twin")


def test_once_dispatches_what_may_be_read_and_ends(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(root, EXTERNAL) as store:
        put(store, 200)
        report = dispatch(spark, root, config=EXTERNAL, once=True)
        assert (report.log_start, report.log_end) == (0, store.max_physical_offset)
        assert (report.record_count, report.entry_count) == (200, 200)
        store.wait_dispatched()
        assert store.max_offset("orders", 0) == 66
        assert dispatch(spark, root, config=EXTERNAL, once=True).batch_count == 0
    assert dispatch(spark, root, config=EXTERNAL, once=True).batch_count == 0  # nobody runs it


def test_batches_of_any_size_give_the_same_bytes(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(root, EXTERNAL) as store:
        put(store, 100)
        report = dispatch(spark, root, config=EXTERNAL, once=True, max_bytes=1500, interval_s=0.01)
        assert report.batch_count > 8
        assert report.serial_count == 0, report.serial_because
        store.wait_dispatched()
        assert len(bodies(store)) == 33
    assert derived(root) == embedded_twin(root, tmp_path / "twin")


def test_batch_queues_and_extensions_are_done_by_the_stores_own_rules(spark: SparkSession, tmp_path: Path) -> None:
    changes = {"topic_queue_types": {"batches": "BatchCQ"}, "enable_consume_queue_ext": True}
    config = EXTERNAL.with_changes(**changes)
    with open_store(tmp_path / "store", config) as store:
        put(store, 30)
        for _ in range(10):
            store.put(Message("batches", b"two", sys_flag=0xC0, properties={"INNER_NUM": "2"})).check()
        report = dispatch(spark, store.path, config=config, once=True)
        assert report.serial_count == report.batch_count == 1
        store.wait_dispatched()
        assert (store.max_offset("batches", 0), len(bodies(store))) == (20, 10)


def test_a_record_for_a_place_that_is_taken_overwrites_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """As a log of Java's may have it: the same queue offset twice."""
    root = tmp_path / "store"
    with open_store(root, EXTERNAL) as store:
        put(store, 40)
        dispatch(spark, root, config=EXTERNAL, once=True)
        store.wait_dispatched()
        before = bodies(store)
        store._engine.parts.queues.offsets.by_queue["orders", 0] = 3
        store.put(Message("orders", b"again")).check()
        report = dispatch(spark, root, config=EXTERNAL, once=True)
        assert report.serial_because is not None
        assert "orders/0" in report.serial_because
        store.wait_dispatched()
        assert bodies(store) == before
    assert derived(root) == embedded_twin(root, tmp_path / "twin")


def test_a_second_dispatcher_is_refused_and_the_first_continues(spark: SparkSession, tmp_path: Path) -> None:
    with open_store(tmp_path, EXTERNAL) as store:
        put(store, 10)
        with (
            DispatchCore(tmp_path, EXTERNAL, LocalMedium()) as core,
            pytest.raises(StoreInUse, match=r"another dispatcher holds the claim \(process \d+ on "),
        ):
            dispatch(spark, tmp_path, config=EXTERNAL, once=True)
        core.close()


def test_stores_that_give_nothing_away(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(DamagedStore, match="there is no store here"):
        dispatch(spark, tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
    with open_store(tmp_path / "own", SIZES) as store:
        put(store, 5)
        with pytest.raises(InvalidConfig, match="dispatches its messages itself"):
            dispatch(spark, tmp_path / "own", config=EXTERNAL)
    with open_store(tmp_path / "external", EXTERNAL) as store:
        put(store, 5)
        with pytest.raises(WrongFileSize):
            dispatch(spark, tmp_path / "external", once=True)
        dispatch(spark, tmp_path / "external", config=EXTERNAL, once=True)
        store.wait_dispatched()
        assert _count(store) == 5


def _count(store: Store) -> int:
    return sum(info.max_offset for info in store.queues())
