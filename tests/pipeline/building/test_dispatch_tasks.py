"""What the tasks of `dispatch` write and what its driver takes over, without Spark."""

from __future__ import annotations

import pickle
import random
from pathlib import Path

import pytest
from tests.store.dispatch.test_external_dispatch import EXTERNAL, bodies, derived, embedded_twin, put

from flintlog import Message, StoreConfig, open_store
from flintlog.disk.media.local import LocalMedium
from flintlog.errors import StoreInUse
from flintlog.pipeline.building.dispatch_core import DispatchCore
from flintlog.pipeline.building.dispatch_source import Asked, DispatchReader
from flintlog.pipeline.building.dispatch_tasks import Derived, DispatchPlan, derive_range, plan_ranges
from flintlog.pipeline.building.rebuild_scan import BuildPlan
from flintlog.pipeline.spark.tasks import Refusal
from flintlog.store.paths import StorePaths

MEDIUM = LocalMedium()


class Job:
    """The job with its tasks run here; batches end anywhere, as the stream's do."""

    def __init__(self, root: Path, core: DispatchCore, config: StoreConfig = EXTERNAL) -> None:
        paths = StorePaths.of(root, config)
        build = BuildPlan.of(config, config.topic_queue_types, staged=root, spill=paths.dispatch)
        self.plan = DispatchPlan(paths, build, core.claim)
        self._core = core
        self._position = core.progress.end
        self._is_record = True

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
            with DispatchCore(root, EXTERNAL, MEDIUM) as core:
                job = Job(root, core)
                for _ in range(4):
                    put(store, 60, written)
                    written += 60
                    while core.progress.end < store.max_physical_offset - 3000:
                        assert job.batch(core.progress.end + chance.randrange(1, 30_000), chance) is None
        store.put(Message("orders", bytes(9000))).check()  # longer than a batch
        with DispatchCore(root, EXTERNAL, MEDIUM) as core:
            job = Job(root, core)
            for stop in range(core.progress.end + 500, store.max_physical_offset + 500, 500):
                assert job.batch(stop, chance) is None
            assert core.progress.end == store.max_physical_offset
        store.wait_dispatched()
        assert len(bodies(store)) == 241
    assert derived(root) == embedded_twin(root, tmp_path / "twin")


def test_a_place_that_is_taken_is_left_alone_and_the_stores_rules_decide(tmp_path: Path) -> None:
    root, chance = tmp_path / "store", random.Random(1)
    with open_store(root, EXTERNAL) as store, DispatchCore(root, EXTERNAL, MEDIUM) as core:
        job = Job(root, core)
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
    with open_store(root, EXTERNAL) as store, DispatchCore(root, EXTERNAL, MEDIUM) as core:
        job = Job(root, core)
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
        with DispatchCore(tmp_path, EXTERNAL, MEDIUM) as core:
            job = Job(tmp_path, core)
        with DispatchCore(tmp_path, EXTERNAL, MEDIUM):
            (task,) = plan_ranges(job.plan.paths, MEDIUM, 0, store.max_physical_offset, cores=1, is_record=True)
            found = derive_range(job.plan, task)
            assert isinstance(found, Refusal)
            assert found.kind is StoreInUse
            assert not (tmp_path / "consumequeue").exists()


def test_the_stream_has_a_partition_a_core_and_reads_no_further_than_asked(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(root, EXTERNAL) as store, DispatchCore(root, EXTERNAL, MEDIUM) as core:
        job = Job(root, core)
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
