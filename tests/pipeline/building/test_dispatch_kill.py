"""Writer and dispatcher, each a process, killed at random moments: no gap, no double entry, the embedded bytes."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.pipeline.dispatch_processes import SIZES
from tests.store.dispatch.test_external_dispatch import derived, embedded_twin

from flintlog import open_store
from flintlog.disk.media.local import LocalMedium
from flintlog.store.dispatch.external.dispatch_journal import DispatchJournal

WAIT_S = 400
ROOT = Path(__file__).parents[3]
SIZES_OF_FILES = (
    "mapped_file_size_commit_log",
    "mapped_file_size_consume_queue",
    "max_hash_slot_num",
    "max_index_num",
)
Process = subprocess.Popen[bytes]


class Scene:
    """One store, and the processes around it."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.root = folder / "store"
        self.chance = random.Random(seed)
        self.running: list[Process] = []
        self._config = folder / "sizes.json"
        self._config.write_text(json.dumps({name: getattr(SIZES, name) for name in SIZES_OF_FILES}))
        self._log = (folder / "output").open("wb")

    def start(self, *command: str) -> Process:
        paths = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": paths},
        )
        self.running.append(process)
        return process

    def writer(self) -> Process:
        module = "tests.pipeline.dispatch_processes"
        process = self.start(module, "writer", str(self.root), str(self.chance.randrange(10**6)))
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n", self.output()
        return process

    def dispatcher(self) -> Process:
        return self.start("tests.pipeline.dispatch_processes", "dispatcher", str(self.root))

    def job(self) -> Process:
        where = (str(self.root), "--config", str(self._config), "--master", "local[1]", "-o", "json")
        return self.start("flintlog.cli.main", "pipeline", "dispatch", *where)

    def kill(self, process: Process, *, whole_group: bool = True) -> None:
        assert process.poll() is None, self.output()
        if whole_group:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
        process.wait()

    def published(self) -> tuple[int, int]:
        progress = DispatchJournal(self.root / "dispatch", LocalMedium()).load()
        return (0, 0) if progress is None else (progress.epoch, progress.end)

    def await_publication(self, dispatcher: Process) -> None:
        """Wait until something more is published by somebody else than the store, which raises the epoch."""
        deadline = time.monotonic() + WAIT_S
        before = self.published()
        while not (before[0] == self.published()[0] and before[1] < self.published()[1]):
            before = before if before[0] == self.published()[0] else self.published()
            assert dispatcher.poll() is None, self.output()
            assert time.monotonic() < deadline, "nothing was published"
            time.sleep(0.01)

    def stop(self, process: Process) -> None:
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(WAIT_S) == 0, self.output()

    def end(self) -> None:
        for process in self.running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
        self._log.close()

    def output(self) -> str:
        return Path(self._log.name).read_text("utf-8", "replace")


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path, random.randrange(10**9))
    yield made
    made.end()


def kill_around(scene: Scene, dispatcher_of: Callable[[], Process], rounds: int) -> None:
    """Kill one or the other or both, again and again; then let both end well."""
    writer = scene.writer()
    dispatcher = dispatcher_of()
    for number in range(rounds):
        if number % 3 != 2:
            scene.await_publication(dispatcher)
        time.sleep(scene.chance.random() * 0.4)
        victims = scene.chance.choice(["writer", "dispatcher", "both"])
        if victims in ("dispatcher", "both"):
            scene.kill(dispatcher, whole_group=scene.chance.random() < 0.5)
        if victims in ("writer", "both"):
            scene.kill(writer)
        if victims in ("dispatcher", "both"):
            dispatcher = dispatcher_of()
        if victims in ("writer", "both"):
            writer = scene.writer()
    scene.await_publication(dispatcher)
    scene.stop(writer)
    assert dispatcher.poll() is None, scene.output()


def check(scene: Scene, tmp_path: Path) -> None:
    assert not (scene.root / "abort").exists()
    assert derived(scene.root) == embedded_twin(scene.root, tmp_path / "twin", SIZES)
    with open_store(scene.root, SIZES) as store:
        assert store.recovery.clean
        assert not store.recovery.findings
        assert sum(batch.num_rows for batch in store.scan()) == sum(info.max_offset for info in store.queues())


@pytest.mark.timeout(400)
def test_writer_and_dispatcher_killed_at_random_moments(scene: Scene, tmp_path: Path) -> None:
    kill_around(scene, scene.dispatcher, 5)
    check(scene, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_job_on_spark_and_its_writer_killed(scene: Scene, tmp_path: Path) -> None:
    writer = scene.writer()
    job = scene.job()
    scene.await_publication(job)
    scene.kill(job, whole_group=False)
    job = scene.job()
    scene.kill(writer)
    writer = scene.writer()
    scene.await_publication(job)
    second = scene.job()
    assert second.wait(WAIT_S) == 4, scene.output()
    assert "another dispatcher holds the claim" in scene.output()
    scene.stop(writer)
    os.kill(job.pid, signal.SIGTERM)
    reported, _ = job.communicate(timeout=WAIT_S)
    assert job.returncode == 0, scene.output()
    assert json.loads(reported)["batch_count"] > 0
    assert "StackOverflowError" not in scene.output()
    check(scene, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_many_kills_of_writer_and_dispatcher(scene: Scene, tmp_path: Path) -> None:
    kill_around(scene, scene.dispatcher, 80)
    check(scene, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_many_kills_of_writer_and_job_on_spark(scene: Scene, tmp_path: Path) -> None:
    kill_around(scene, scene.job, 12)
    check(scene, tmp_path)
