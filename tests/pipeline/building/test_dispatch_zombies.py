"""Tasks and dispatchers that were paused (SIGSTOP) while others went on: none of them writes over another's work."""

from __future__ import annotations

import os
import pickle
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.pipeline.building.test_dispatch_kill import ROOT, Scene, check
from tests.pipeline.building.test_dispatch_tasks import Job, drive
from tests.pipeline.cluster import PYTHON_DAEMON, command, descendants, parent
from tests.pipeline.dispatch_processes import CONFIG
from tests.store.dispatch.test_external_dispatch import EXTERNAL, bodies, derived, embedded_twin, put
from tests.store.outside import dispatching

from flintlog import open_store
from flintlog.disk.media.local import LocalMedium
from flintlog.errors import StoreInUse
from flintlog.pipeline.building.dispatch_core import DispatchCore
from flintlog.pipeline.building.dispatch_tasks import plan_ranges
from flintlog.store.dispatch.external.dispatch_claim import load_owner, working_for
from flintlog.store.dispatch.external.dispatch_journal import DispatchJournal

MEDIUM = LocalMedium()
DEADLINE_S = 60


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path, random.randrange(10**9))
    yield made
    made.end()


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def owner_of(root: Path) -> str | None:
    owner = load_owner(root / "dispatch", MEDIUM)
    return None if owner is None else owner.name


def is_stopped(process: int) -> bool:
    return Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].startswith("T")


@contextmanager
def paused_task(job: Job, folder: Path, stop: int) -> Iterator[subprocess.Popen[str]]:
    """A task of a job in a process of its own, which is paused before it writes its first entry."""
    (task,) = plan_ranges(job.plan.paths, MEDIUM, 0, stop, cores=1, is_record=True)
    (folder / "task").write_bytes(pickle.dumps((job.plan, task)))
    with subprocess.Popen(
        [sys.executable, "-m", "tests.pipeline.dispatch_processes", "task", str(folder / "task")],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
    ) as process:  # fmt: skip
        try:
            wait_until(lambda: is_stopped(process.pid))
            yield process
        finally:
            process.kill()


def go_on(process: subprocess.Popen[str]) -> str:
    """Let a paused task end; what came of it."""
    process.send_signal(signal.SIGCONT)
    return process.communicate(timeout=DEADLINE_S)[0]


def orphaned_job(root: Path) -> Job:
    """A job whose driver is gone: the lock is free, and the name of its claim still stands."""
    with drive(root) as core:
        return Job(core)


def test_a_new_dispatcher_takes_over_only_when_a_paused_task_of_the_old_one_has_ended(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(root, EXTERNAL) as store:
        put(store, 60)
        job = orphaned_job(root)
        published = DispatchJournal(root / "dispatch", MEDIUM).load()
        with paused_task(job, tmp_path, store.max_physical_offset) as zombie, dispatching(root, EXTERNAL) as failures:
            wait_until(lambda: owner_of(root) != job.plan.claim)
            time.sleep(0.3)
            assert DispatchJournal(root / "dispatch", MEDIUM).load() == published
            assert not bodies(store)
            assert "another dispatcher has taken over" in go_on(zombie)
            put(store, 60, 60)
            store.wait_dispatched()
            assert not failures
        assert len(bodies(store)) == 40
    assert derived(root) == embedded_twin(root, tmp_path / "twin")
    assert not list((root / "dispatch").glob("task-*"))


def test_a_store_is_not_opened_over_a_task_that_may_still_write(tmp_path: Path) -> None:
    root, impatient = tmp_path / "store", EXTERNAL.with_changes(dispatch_patience_ms=50)
    store = open_store(root, impatient)
    put(store, 60)
    job = orphaned_job(root)
    with paused_task(job, tmp_path, store.max_physical_offset) as zombie:
        store.shutdown()
        assert (root / "abort").exists()  # it could not finish the queues, and says so
        with pytest.raises(StoreInUse, match="a task of a dispatcher that is gone still writes queue files"):
            open_store(root, impatient)
        go_on(zombie)
    with open_store(root, impatient) as after:
        assert len(bodies(after)) == 20
    assert derived(root) == embedded_twin(root, tmp_path / "twin")


def test_a_task_notices_before_its_next_piece_that_it_outlived_its_dispatcher(tmp_path: Path) -> None:
    with open_store(tmp_path, EXTERNAL):
        job = orphaned_job(tmp_path)
        with working_for(job.plan.claim, tmp_path / "dispatch", MEDIUM) as check_claim:
            check_claim()
            (tmp_path / "dispatch" / "owner.json").write_text('{"name": "another", "kind": "dispatcher"}')
            with pytest.raises(StoreInUse, match="taken over"):
                check_claim()


def test_what_a_killed_task_leaves_is_no_obstacle(tmp_path: Path) -> None:
    with open_store(tmp_path, EXTERNAL) as store:
        put(store, 60)
        job = orphaned_job(tmp_path)
        with paused_task(job, tmp_path, store.max_physical_offset) as zombie:
            zombie.kill()
            zombie.wait()
            assert len(list((tmp_path / "dispatch").glob("task-*"))) == 1
            with dispatching(tmp_path, EXTERNAL):
                store.wait_dispatched()
        assert not list((tmp_path / "dispatch").glob("task-*"))


@pytest.mark.timeout(400)
def test_a_paused_dispatcher_keeps_its_claim_and_continues(scene: Scene, tmp_path: Path) -> None:
    writer, dispatcher = scene.writer(), scene.dispatcher()
    scene.await_publication(dispatcher)
    dispatcher.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, dispatcher.pid, os.WSTOPPED)  # it may publish once more until then
    published = scene.published()
    with pytest.raises(StoreInUse, match="another dispatcher holds the claim"):
        DispatchCore(scene.root, CONFIG, MEDIUM)
    assert scene.published() == published
    dispatcher.send_signal(signal.SIGCONT)
    scene.await_publication(dispatcher)
    scene.stop(writer)
    check(scene, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_python_workers_paused_while_a_new_job_on_spark_takes_over(scene: Scene, tmp_path: Path) -> None:
    writer, job = scene.writer(), scene.job()
    for _ in range(3):
        scene.await_publication(job)
        daemons = [process for process in descendants(job.pid) if PYTHON_DAEMON in command(process)]
        workers = [process for process in daemons if parent(process) in daemons]
        for worker in workers:
            os.kill(worker, signal.SIGSTOP)
        scene.kill(job)  # and its JVM; the workers have a process group of their own
        job = scene.job()
        time.sleep(scene.chance.random() * 20)
        for worker in workers:
            with suppress(ProcessLookupError):  # the system ends what is paused in a group that nobody owns any more
                os.kill(worker, signal.SIGCONT)
        scene.await_publication(job)
    scene.stop(writer)
    check(scene, tmp_path)
