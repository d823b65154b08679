"""Dispatch and a stream on a standalone cluster whose executors, Python workers and drivers are killed in the middle.

Speculation is on. Queues and index have the bytes of the store's own dispatcher, and each message is once in the store
that the stream writes.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.pipeline.cluster import DEADLINE_S, Cluster, running_cluster
from tests.pipeline.sink.test_sink_rows import CONFIG
from tests.pipeline.spark.test_cluster import kill_one
from tests.pipeline.spark.test_kill_spark import LARGE, Process, content
from tests.store.dispatch.test_external_dispatch import EXTERNAL, SIZES, derived, embedded_twin

from flintlog import Message, open_store
from flintlog.disk.media.local import LocalMedium
from flintlog.store.dispatch.external.dispatch_journal import DispatchJournal

SCRIPT = Path(__file__).parents[1] / "dispatch_driver.py"
VICTIMS = ("driver", "executor", "python worker")


class Scene:
    """A store that this process writes, and the driver that works for it."""

    def __init__(self, cluster: Cluster, work: Path) -> None:
        self.cluster = cluster
        self.work = work
        (work / "broker.conf").write_text(CONFIG.replace("65536", str(16 * 1024 * 1024)))
        self.store = open_store(work / "source", EXTERNAL.with_changes(dispatch_patience_ms=1000 * DEADLINE_S))
        self.put_count = 0
        self.driver = self.start()

    def start(self) -> Process:
        return Process(
            self.work, str(SCRIPT), self.cluster.master, str(self.work), environment=self.cluster.environment()
        )

    def put(self, count: int) -> None:
        for number in range(self.put_count, self.put_count + count):
            message = Message(
                "orders" if number % 3 else "payments",
                b"%d" % number * (number % 30),
                queue_id=number % 2,
                keys=[f"k{number}", "all"] if number % 4 else [],
                tags="t",
                properties={"number": str(number)},
            )
            self.store.put(message)
        self.put_count += count

    def published(self) -> int:
        progress = DispatchJournal(self.work / "source" / "dispatch", LocalMedium()).load()
        return 0 if progress is None else progress.sequence

    def commits(self) -> int:
        return len(list((self.work / "copy.checkpoint" / "commits").glob("[0-9]*")))

    def await_more(self, count: Callable[[], int]) -> None:
        before = count()
        self.wait_until(lambda: count() > before)

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not is_so():
            if self.driver.process.poll() is not None:
                # Spark waits 10 s for the process of a Python source: too short for a machine that is very busy.
                assert "Python worker failed to connect back" in self.driver.reported(), self.driver.reported()
                self.driver = self.start()
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def kill(self, victim: str) -> None:
        if victim == "driver":
            self.driver.kill()
            self.driver = self.start()
        else:
            kill_one(self.cluster.executors if victim == "executor" else self.cluster.python_workers)

    def end(self) -> dict[str, object]:
        """Let everything be dispatched and read; the last driver's report."""
        self.wait_until(lambda: self.store.stats()["dispatchBehindBytes"] == 0)
        (self.work / "stop").touch()
        self.driver.end()
        report: dict[str, object] = json.loads((self.work / "report.json").read_text())
        return report


@contextmanager
def scene_on(cluster: Cluster, work: Path) -> Iterator[Scene]:
    scene = Scene(cluster, work)
    try:
        yield scene
    finally:
        if scene.driver.process.poll() is None:
            scene.driver.kill()
        scene.store.shutdown()


def check(scene: Scene) -> None:
    root, report = scene.work / "source", scene.end()
    assert report["message_count"] == scene.put_count
    before_the_stop = derived(root)  # which would dispatch what is missing
    scene.store.shutdown()
    assert derived(root) == before_the_stop == embedded_twin(root, scene.work / "twin", SIZES)
    assert not (root / "abort").exists()
    assert not list((root / "dispatch").glob("task-*"))
    assert content(scene.work / "copy", LARGE) == content(root, SIZES)


@pytest.mark.timeout(900)
def test_dispatch_and_a_stream_on_a_cluster_with_an_executor_and_a_driver_killed(tmp_path: Path) -> None:
    with running_cluster(tmp_path / "cluster") as cluster, scene_on(cluster, tmp_path) as scene:
        scene.put(150)
        scene.await_more(scene.published)
        assert scene.cluster.executors()
        scene.kill("executor")
        scene.await_more(scene.published)
        scene.await_more(scene.commits)
        scene.kill("driver")
        scene.put(150)
        check(scene)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_twenty_kills_of_drivers_executors_and_python_workers(cluster: Cluster, tmp_path: Path) -> None:
    seed = int(os.environ.get("FLINTLOG_KILL_SEED", random.randrange(10**6)))
    chance, ended = random.Random(seed), threading.Event()
    with scene_on(cluster, tmp_path) as scene:

        def write() -> None:
            while not ended.wait(0.2):
                scene.put(5)

        writer = threading.Thread(target=write, name="writer")
        writer.start()
        try:
            for _ in range(20):
                scene.await_more(chance.choice([scene.published, scene.commits]))
                time.sleep(chance.random())
                scene.kill(chance.choice(VICTIMS))
        finally:
            ended.set()
            writer.join()
        check(scene)
