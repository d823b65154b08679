"""The job `dispatch` on Spark: a store that leaves its queues and index to it gets what its own dispatcher gives."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING
from unittest import mock

import pytest
from tests.pipeline.building.test_dispatch_tasks import DENSE, all_queues, dense_twin, put_dense
from tests.store.dispatch.test_external_dispatch import EXTERNAL, SIZES, bodies, derived, embedded_twin, put

from flintlog import Message, Store, StoreConfig, open_store
from flintlog.disk.media.local import LocalMedium
from flintlog.disk.media.medium import RawFile
from flintlog.errors import DamagedStore, InvalidConfig, JobFailed, StoreInUse
from flintlog.pipeline import dispatch as dispatch_job
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
        report = dispatch(spark, root, once=True)  # the store says with which sizes it runs
        assert (report.log_start, report.log_end) == (0, store.max_physical_offset)
        assert (report.record_count, report.entry_count) == (200, 200)
        store.wait_dispatched()
        assert store.max_offset("orders", 0) == 66
        assert dispatch(spark, root, config=EXTERNAL, once=True).batch_count == 0
        with pytest.raises(InvalidConfig, match="max_index_num is 7, and the store runs with"):
            dispatch(spark, root, config=EXTERNAL.with_changes(max_index_num=7), once=True)
    assert dispatch(spark, root, once=True).batch_count == 0  # nobody runs it
    with open_store(root, EXTERNAL) as store:
        assert store.max_offset("orders", 0) == 66


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


@contextmanager
def late_starts(count: int) -> Iterator[None]:
    """So many streams end at once, as Spark ends one whose process has not started within 10 s."""
    start, left = dispatch_job._Dispatch._start, [count]

    def start_late(job: dispatch_job._Dispatch, *arguments: object) -> object:
        if not left[0]:
            return start(job, *arguments)  # type: ignore[arg-type]
        left[0] -= 1
        error = RuntimeError("[STREAM_FAILED] Query terminated: Python worker failed to connect back. SQLSTATE: XXKST")
        return SimpleNamespace(isActive=False, exception=lambda: error, stop=lambda: None)

    with mock.patch.object(dispatch_job._Dispatch, "_start", start_late):
        yield


def test_a_stream_that_spark_starts_too_late_is_started_again(spark: SparkSession, tmp_path: Path) -> None:
    with open_store(tmp_path / "store", EXTERNAL) as store:
        put(store, 20)
        with late_starts(2):
            report = dispatch(spark, store.path, config=EXTERNAL, once=True)
        assert report.log_end == store.max_physical_offset
        assert report.start_count >= 3  # a busy machine adds late starts of its own


def test_a_machine_that_never_starts_the_stream_in_time_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    with open_store(tmp_path / "store", EXTERNAL) as store:
        put(store, 20)
        with late_starts(99), pytest.raises(JobFailed, match="failed to connect back"):
            dispatch(spark, store.path, config=EXTERNAL, once=True)


@contextmanager
def writes_of_this_process(except_by: Collection[threading.Thread]) -> Iterator[list[Path]]:
    """The files that the driver makes, opens for writing, replaces or deletes; tasks are other processes."""
    seen: list[Path] = []

    def note(path: Path) -> None:
        if threading.current_thread() not in except_by:
            seen.append(path)

    opened = LocalMedium.open

    def spy(name: str) -> Callable[..., object]:
        original = getattr(LocalMedium, name)

        def call(medium: LocalMedium, path: Path, *arguments: object, **named: object) -> object:
            note(path)
            return original(medium, path, *arguments, **named)

        return call

    def open_and_see(medium: LocalMedium, path: Path, writable: bool = False, *, in_steps: bool = False) -> RawFile:
        if writable:
            note(path)
        return opened(medium, path, writable, in_steps=in_steps)

    names = ("create", "replace", "rename", "remove", "remove_tree", "sync")
    with ExitStack() as patches:
        for name in names:
            patches.enter_context(mock.patch.object(LocalMedium, name, spy(name)))
        patches.enter_context(mock.patch.object(LocalMedium, "open", open_and_see))
        yield seen


@pytest.mark.parametrize("kind", ["plain", "dense", "serial"])
def test_the_driver_writes_the_journal_alone(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    root, config = tmp_path / "store", DENSE if kind == "dense" else EXTERNAL
    before = {*threading.enumerate()}
    store = open_store(root, config)
    put_dense(store, 60, 0) if kind == "dense" else put(store, 300)
    if kind == "serial":
        store._engine.parts.queues.offsets.by_queue["orders", 0] = 120
        put(store, 30, 300)
    of_the_store = {*threading.enumerate()} - before
    with writes_of_this_process(except_by=of_the_store) as seen:
        report = dispatch(spark, root, config=config, once=True)
    assert report.log_end == store.max_physical_offset
    assert report.serial_count == (kind == "serial"), report.serial_because
    assert {path.relative_to(root).parts[0] for path in seen} == {"dispatch"}
    store.shutdown()
    twin = tmp_path / "twin"
    assert (all_queues(root) if kind == "dense" else derived(root)) == (
        dense_twin(root, twin) if kind == "dense" else embedded_twin(root, twin)
    )


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
        dispatch(spark, tmp_path / "external", once=True)
        store.wait_dispatched()
        assert _count(store) == 5


def _count(store: Store) -> int:
    return sum(info.max_offset for info in store.queues())
