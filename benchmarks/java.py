"""Measures the RocketMQ store, by a class of ours in a JVM that keeps running, so that its compiler has warmed up.

Before the first measurement of each task the same task runs for the warm-up time in a directory of its own. Cold
batches have neither: each is measured in a JVM that was started for it.
"""

from __future__ import annotations

import logging
import shutil
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec

from benchmarks.java_replication import java_group, java_pair
from flintlog.bench.replication import Side
from flintlog.bench.run import Contender
from flintlog.bench.tasks import Measurement, Task, Window
from interop.java_process import JavaProcess
from interop.java_runtime import ROCKETMQ_VERSION

# A broker's own garbage collector, and a heap that is large enough.
LONG_LIVED = ("-Xms1g", "-Xmx2g", "-XX:+UseG1GC", "-XX:MaxDirectMemorySize=4g")


class RealJava:
    """All that runs RocketMQ's own store, as `flintlog.bench.run.Java` wants it."""

    def store(self) -> Contender:
        """A store in a JVM that stays."""
        return JavaContender()

    def pair(self, directory: Path) -> AbstractContextManager[Side]:
        """A master with its slave."""
        return java_pair(directory)

    def group(self, directory: Path) -> AbstractContextManager[Side]:
        """Three DLedger nodes."""
        return java_group(directory)


class JavaContender:
    """RocketMQ's DefaultMessageStore as a contender."""

    name = "java"
    version = f"RocketMQ {ROCKETMQ_VERSION}"

    def __init__(self) -> None:
        # The benchmark reports an interrupt itself; Py4J would print a traceback too.
        logging.getLogger("py4j").addHandler(logging.NullHandler())
        self._process = JavaProcess(jvm_options=LONG_LIVED)
        self._warm: set[str] = set()

    def prepare(self, task: Task, window: Window, directory: Path) -> None:
        """Write what a task reads."""
        if task.kind == "get":
            self._run(task, "fill", directory, seconds=0.0, count=window.get_count)

    def measure(self, task: Task, window: Window, directory: Path) -> Measurement | None:
        """Run a task once in a directory that is its own; the first time, warm up before."""
        kind = "synced" if task.kind == "synced-async" else task.kind
        if kind == "cold":
            return self._measure_cold(task, window, directory)
        if task.name not in self._warm:
            self._warm.add(task.name)
            self._warm_up(task, kind, window, directory)
        answer = self._run(task, kind, directory, seconds=window.seconds)
        return msgspec.json.decode(answer, type=Measurement)

    def _measure_cold(self, task: Task, window: Window, directory: Path) -> Measurement:
        process = JavaProcess(jvm_options=LONG_LIVED)
        try:
            answer = self._run(task, "cold", directory, seconds=window.seconds, process=process)
        finally:
            process.end()
        return msgspec.json.decode(answer, type=Measurement)

    def close(self) -> None:
        """End the JVM."""
        self._process.end()

    def _warm_up(self, task: Task, kind: str, window: Window, directory: Path) -> None:
        if kind in ("get", "rebuild"):
            if kind == "get":
                self._run(task, kind, directory, seconds=window.warm_up_seconds)
            return
        scratch = directory.with_name(directory.name + "-warm-up")
        self._run(task, kind, scratch, seconds=window.warm_up_seconds)
        shutil.rmtree(scratch, ignore_errors=True)

    def _run(
        self,
        task: Task,
        kind: str,
        directory: Path,
        *,
        seconds: float,
        count: int = 0,
        process: JavaProcess | None = None,
    ) -> str:
        asked = {
            "kind": kind,
            "bodyBytes": task.body_bytes,
            "threads": task.threads,
            "rate": task.rate,
            "ready": task.ready,
            "seconds": seconds,
            "count": count,
            "keeps": kind in ("fill", "get", "rebuild"),
            "options": _options(task),
        }
        try:
            return (process or self._process).entry_point.measure(str(directory), msgspec.json.encode(asked).decode())
        except AttributeError as trip:
            # Ctrl-C in the middle of a call: Py4J fails on its own connection, and that error hides the interrupt.
            if isinstance(trip.__context__, KeyboardInterrupt):
                raise trip.__context__ from None
            raise


def _options(task: Task) -> dict[str, str]:
    synced = task.kind in ("synced", "synced-async")
    return {
        "flushDiskType": "SYNC_FLUSH" if synced else "ASYNC_FLUSH",
        "useReentrantLockWhenPutMessage": "true" if task.put_lock == "blocking" else "false",
        # A rebuild reads the whole log, not only its newest files.
        "commitLogRecoverMaxNum": "1000",
    }
