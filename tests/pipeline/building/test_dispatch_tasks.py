"""What the tasks of `dispatch` write and what its driver takes over, without Spark."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from unittest import mock

import pytest
from tests.store.dispatch.test_external_dispatch import EXTERNAL, SIZES, bodies, derived, embedded_twin, put

from flintlog import Message, Store, StoreConfig, open_store
from flintlog.disk.media.local import LocalMedium
from flintlog.errors import StoreInUse
from flintlog.pipeline.building import dispatch_ordered
from flintlog.pipeline.building.dispatch_driver import DispatchDriver, Runner
from flintlog.pipeline.building.dispatch_ordered import Applied, OrderedTask, apply_ordered
from flintlog.pipeline.building.dispatch_source import Asked, DispatchReader
from flintlog.pipeline.building.dispatch_tasks import Derived, DispatchPlan, derive_range, plan_ranges
from flintlog.pipeline.spark.tasks import Refusal

MEDIUM = LocalMedium()
Ordered = Callable[[OrderedTask], Applied]


def run_here(function: Ordered, tasks: Sequence[OrderedTask], doing: str) -> list[Applied]:
    """In the place of Spark."""
    assert doing
    return [function(task) for task in tasks]


def drive(root: Path, config: StoreConfig = EXTERNAL, run: Runner = run_here) -> DispatchDriver:
    return DispatchDriver(root, config, MEDIUM, run, cores=2)


class Job:
    """The job with its tasks run here; batches end anywhere, as the stream's do."""

    def __init__(self, core: DispatchDriver) -> None:
        self._core = core
        self._position = core.progress.end
        self._is_record = True

    @property
    def plan(self) -> DispatchPlan:
        return self._core.plan

    def batch(self, stop: int, chance: random.Random) -> str | None:
        readable = self._core.readable()
        assert readable is not None
        stop = min(stop, readable.end)
        is_record = self._is_record
        tasks = plan_ranges(self.plan.paths, MEDIUM, self._position, stop, cores=2, is_record=is_record)
        chance.shuffle(tasks)
        found = [derive_range(self.plan, task) for task in [*tasks, *tasks[:1]]]  # one of them is run twice
        made = {each.split.start: each for each in found if isinstance(each, Derived)}
        assert len(made) == len(tasks), found
        self._position, self._is_record = stop, stop == readable.end
        return self._core.take([made[start] for start in sorted(made)], stop)


@pytest.mark.parametrize("seed", range(6))
def test_batches_that_end_anywhere_give_the_bytes_of_the_embedded_dispatcher(tmp_path: Path, seed: int) -> None:
    root, chance = tmp_path / "store", random.Random(seed)
    with open_store(root, EXTERNAL) as store:
        written = 0
        for _ in range(3):  # a dispatcher that is killed, and another that goes on
            with drive(root) as core:
                job = Job(core)
                for _ in range(4):
                    put(store, 60, written)
                    written += 60
                    while core.progress.end < store.max_physical_offset - 3000:
                        assert job.batch(core.progress.end + chance.randrange(1, 30_000), chance) is None
        store.put(Message("orders", bytes(9000))).check()  # longer than a batch
        with drive(root) as core:
            job = Job(core)
            for stop in range(core.progress.end + 500, store.max_physical_offset + 500, 500):
                assert job.batch(stop, chance) is None
            assert core.progress.end == store.max_physical_offset
        store.wait_dispatched()
        assert len(bodies(store)) == 241
    assert derived(root) == embedded_twin(root, tmp_path / "twin")


def test_a_place_that_is_taken_is_left_alone_and_the_stores_rules_decide(tmp_path: Path) -> None:
    root, chance = tmp_path / "store", random.Random(1)
    with open_store(root, EXTERNAL) as store, drive(root) as core:
        job = Job(core)
        put(store, 60)
        assert job.batch(1 << 40, chance) is None
        before = derived(root)[0]["consumequeue/orders/0/" + "0" * 20]
        store._engine.parts.queues.offsets.by_queue["orders", 0] = 3
        store.put(Message("orders", b"again")).check()
        (task,) = plan_ranges(
            job.plan.paths, MEDIUM, core.progress.end, store.max_physical_offset, cores=1, is_record=True
        )
        derive_range(job.plan, task)
        assert derived(root)[0]["consumequeue/orders/0/" + "0" * 20] == before
        assert "orders/0" in (job.batch(1 << 40, chance) or "")
        assert core.progress.end == store.max_physical_offset
    assert derived(root) == embedded_twin(root, tmp_path / "twin")


def test_a_queue_that_does_not_continue_where_it_ended(tmp_path: Path) -> None:
    root, chance = tmp_path / "store", random.Random(1)
    with open_store(root, EXTERNAL) as store, drive(root) as core:
        job = Job(core)
        put(store, 60)
        assert job.batch(1 << 40, chance) is None
        store._engine.parts.queues.offsets.by_queue["orders", 0] = 40
        put(store, 30, 60)
        assert "does not go on at 20" in (job.batch(1 << 40, chance) or "")
        put(store, 30, 90)
        assert job.batch(1 << 40, chance) is None  # the lost places have entries, and the queue goes on
    assert derived(root) == embedded_twin(root, tmp_path / "twin")


def test_a_task_that_outlived_its_dispatcher_writes_nothing(tmp_path: Path) -> None:
    with open_store(tmp_path, EXTERNAL) as store:
        put(store, 10)
        with drive(tmp_path) as core:
            job = Job(core)
        with drive(tmp_path):
            (task,) = plan_ranges(job.plan.paths, MEDIUM, 0, store.max_physical_offset, cores=1, is_record=True)
            found = derive_range(job.plan, task)
            assert isinstance(found, Refusal)
            assert found.kind is StoreInUse
            assert not (tmp_path / "consumequeue").exists()


def test_the_stream_has_a_partition_a_core_and_reads_no_further_than_asked(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(root, EXTERNAL) as store, drive(root) as core:
        job = Job(core)
        put(store, 600)
        asked = Asked(job.plan, core.progress.epoch, core.progress.end, max_bytes=60_000, cores=2)
        reader = DispatchReader(Asked.from_option(asked.to_option()))
        start, batches = reader.initialOffset(), 0
        while (end := reader.latestOffset(start)) != start:
            assert end["end"] - start["end"] <= 60_000
            partitions = reader.partitions(start, end)
            assert 1 <= len(partitions) <= 2
            rows = [pickle.loads(row) for each in partitions for (row,) in reader.read(each)]
            assert core.take(rows, end["end"]) is None
            start, batches = end, batches + 1
        assert batches >= 2
        assert core.progress.end == store.max_physical_offset
        strange = DispatchReader(Asked(job.plan, core.progress.epoch + 1, 0, 1 << 20, 2))
        assert strange.latestOffset() == strange.initialOffset()  # of another epoch nothing is read
    assert derived(root) == embedded_twin(root, tmp_path / "twin")


DENSE_CHANGES: dict[str, object] = {
    "topic_queue_types": {"batches": "BatchCQ"},
    "enable_consume_queue_ext": True,
    "mapped_file_size_consume_queue_ext": 2048,
    "mapped_file_size_batch_consume_queue": 46 * 7,
    "enable_lmq": True,
    "enable_multi_dispatch": True,
}
DENSE = EXTERNAL.with_changes(**DENSE_CHANGES)


def put_dense(store: Store, count: int, first: int) -> None:
    for n in range(first, first + count):
        store.put(Message("batches", b"two", sys_flag=0xC0, queue_id=n % 2, properties={"INNER_NUM": "2"})).check()
        light = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"} if n % 3 else {}
        store.put(Message("orders", b"%d" % n, queue_id=n % 2, keys=[f"k{n}"], tags="t", properties=light)).check()


def all_queues(root: Path) -> tuple[dict[str, bytes], Counter[bytes]]:
    """As `derived`, with batch queues and extensions."""
    found, index = derived(root)
    for folder in ("consumequeue_ext", "batchconsumequeue"):
        paths = [path for path in (root / folder).rglob("*") if path.is_file()]
        assert paths, folder
        found.update({str(path.relative_to(root)): path.read_bytes() for path in paths})
    return found, index


def dense_twin(root: Path, twin: Path) -> tuple[dict[str, bytes], Counter[bytes]]:
    embedded_twin(root, twin, SIZES.with_changes(**DENSE_CHANGES))
    return all_queues(twin)


class Twice:
    """Tasks of ordered work run twice or three times, as Spark may do; which result it takes is a matter of chance."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.run_count = 0
        self.task_count = 0

    def __call__(self, function: Ordered, tasks: Sequence[OrderedTask], doing: str) -> list[Applied]:
        found: dict[int, list[Applied]] = {}
        attempts = [number for number in range(len(tasks)) for _ in range(self._chance.choice([1, 1, 1, 2, 3]))]
        self._chance.shuffle(attempts)
        for number in attempts:
            found.setdefault(number, []).append(function(tasks[number]))
        self.run_count += len(attempts)
        self.task_count += len(tasks)
        return [self._chance.choice(found[number]) for number in range(len(tasks))]


@pytest.mark.parametrize("seed", range(4))
def test_batch_queues_and_extensions_are_filled_by_tasks_whatever_runs_twice(tmp_path: Path, seed: int) -> None:
    root, chance = tmp_path / "store", random.Random(seed)
    run = Twice(chance)
    with open_store(root, DENSE) as store:
        written = 0
        for _ in range(3):  # a dispatcher that is killed, and another that goes on
            with drive(root, DENSE, run) as core:
                job = Job(core)
                for _ in range(3):
                    put_dense(store, 30, written)
                    written += 30
                    while core.progress.end < store.max_physical_offset - 1000:
                        assert job.batch(core.progress.end + chance.randrange(1, 20_000), chance) is None
        with drive(root, DENSE, run) as core:
            if core.progress.end < store.max_physical_offset:
                assert Job(core).batch(1 << 40, chance) is None
            assert core.progress.end == store.max_physical_offset
        assert run.run_count > run.task_count
        assert all_queues(root) == dense_twin(root, tmp_path / "before")  # a stop would do what is missing
        store.wait_dispatched()
        assert store.max_offset("batches", 0) == 2 * written // 2
        assert store.max_offset("%LMQ%a", 0) == written * 2 // 3
    assert all_queues(root) == dense_twin(root, tmp_path / "twin")
    assert not (root / "dispatch" / "spill").exists()


def test_a_queue_with_an_extension_that_does_not_go_on_is_left_to_the_stores_rules(tmp_path: Path) -> None:
    root, chance = tmp_path / "store", random.Random(1)
    with open_store(root, DENSE) as store, drive(root, DENSE) as core:
        job = Job(core)
        put_dense(store, 20, 0)
        assert job.batch(1 << 40, chance) is None
        store._engine.parts.queues.offsets.by_queue["orders", 0] = 40
        put_dense(store, 20, 20)
        assert "orders/0 does not go on at 10" in (job.batch(1 << 40, chance) or "")
        put_dense(store, 20, 40)
        assert job.batch(1 << 40, chance) is None
    assert all_queues(root) == dense_twin(root, tmp_path / "twin")


class Killed(BaseException):
    pass


@pytest.mark.parametrize("config", [EXTERNAL, DENSE], ids=["plain", "dense"])
def test_a_driver_stopped_before_or_after_any_of_its_steps_leaves_what_the_next_one_completes(
    tmp_path: Path, config: StoreConfig
) -> None:
    """Each start has two runs of ordered tasks and each batch one: every one of them is the last of a driver once."""
    root, chance = tmp_path / "store", random.Random(3)
    is_dense = config is DENSE
    with open_store(root, config) as store:
        for step in range(12):
            put_dense(store, 12, step * 12) if is_dense else put(store, 25, step * 25)
            left = [step // 2]

            def run(
                function: Ordered, tasks: Sequence[OrderedTask], doing: str, left: list[int] = left, step: int = step
            ) -> list[Applied]:
                if left[0] == 0 and step % 2:
                    raise Killed
                found = [function(task) for task in tasks]
                if left[0] == 0:
                    raise Killed
                left[0] -= 1
                return found

            with suppress(Killed), drive(root, config, run) as core:
                job = Job(core)
                while core.progress.end < store.max_physical_offset:
                    assert job.batch(core.progress.end + 1500, chance) is None
        with drive(root, config) as core:
            if core.progress.end < store.max_physical_offset:
                assert Job(core).batch(1 << 40, chance) is None
            assert core.progress.end == store.max_physical_offset
        found = all_queues(root) if is_dense else derived(root)
        twin = tmp_path / "twin"
        assert found == (dense_twin(root, twin) if is_dense else embedded_twin(root, twin))


def test_an_attempt_that_begins_after_the_result_was_made_has_the_work_done_again(tmp_path: Path) -> None:
    root, chance, doing_what = tmp_path / "store", random.Random(1), list[str]()

    def run(function: Ordered, tasks: Sequence[OrderedTask], doing: str) -> list[Applied]:
        found = [function(task) for task in tasks]
        doing_what.append(doing)
        if doing_what == ["set queues and index back to the journal", doing]:
            with mock.patch.object(dispatch_ordered, "_put_keys", side_effect=Killed), suppress(Killed):
                function(tasks[0])  # it has taken back what the first attempt did, and dies
        return found

    with open_store(root, EXTERNAL) as store, drive(root, run=run) as core:
        put(store, 40)
        assert Job(core).batch(1 << 40, chance) is None
        added = f"add 100 index keys of 40 records in {store.max_physical_offset:,} bytes"
        assert doing_what == ["set queues and index back to the journal", added, added]
        assert derived(root) == embedded_twin(root, tmp_path / "twin")


def test_an_attempt_that_spark_has_given_up_writes_nothing_once_its_result_is_published(tmp_path: Path) -> None:
    root, chance, given_up = tmp_path / "store", random.Random(1), list[OrderedTask]()

    def run(function: Ordered, tasks: Sequence[OrderedTask], doing: str) -> list[Applied]:
        given_up.extend(tasks)
        return [function(task) for task in tasks]

    with open_store(root, EXTERNAL) as store, drive(root, run=run) as core:
        job = Job(core)
        put(store, 40)
        assert job.batch(1 << 40, chance) is None
        before = derived(root)
        for task in given_up:
            with pytest.raises(StoreInUse, match="taken over"):
                apply_ordered(task)
        assert derived(root) == before
