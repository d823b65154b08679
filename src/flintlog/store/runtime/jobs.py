"""Background jobs of a store, run when they are due.

A job is a function that does everything due now and returns when to call it again. The thread that calls it depends on
the clock:

    the system's clock        a thread per job, which sleeps until the job is due or nudged
    another clock             the same, but it reads the clock every few milliseconds of real time
    a clock turned by hand    no thread: the call that turns the clock runs the due jobs before it returns

So a test that advances a fake clock finds all due work done, without waiting. A clock that was turned back makes every
job due once, because the old due times mean nothing any more; a thread notices that within a minute.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from flintlog.disk.bell import Latch
from flintlog.errors import FlintlogError, StoreClosed
from flintlog.store.runtime.clock import Clock, Milliseconds, TurnedClock, as_milliseconds, system_now_ms

log = logging.getLogger(__name__)

NEVER: Final = 1 << 62
"""Returned by a job that waits for a nudge."""

RETRY_MS: Final = 10_000
_LOOK_S: Final = 0.01
_LONGEST_SLEEP_S: Final = 60.0
_MOST_ROUNDS: Final = 100_000

RunDue = Callable[[], int]

Progress = Callable[[int, int], None]
"""Called by long work with how much is done, and of how much."""


class Counted:
    """Adds up what the steps of long work have done, for a `Progress` if there is one."""

    def __init__(self, progress: Progress | None, total: int = 0) -> None:
        self._progress = progress
        self._done, self.total = 0, total

    def add(self, count: int) -> None:
        self._done += count
        if self._progress is not None:
            self._progress(self._done, max(self._done, self.total))


class Job:
    """One function and its due time. Any thread may nudge it; one thread at a time runs it."""

    def __init__(self, name: str, run_due: RunDue, now_ms: Milliseconds) -> None:
        self.name = name
        self.due_at_ms = 0
        self._seen_ms = now_ms()
        self._run_due = run_due
        self._now_ms = now_ms
        self._wake = Latch()
        self._nudged = False
        self._running = threading.Lock()
        self._stopped = False

    def nudge(self) -> None:
        """Make the job due at once."""
        self._nudged = True
        self._wake.set()

    @property
    def is_due(self) -> bool:
        now_ms = self._now_ms()
        if now_ms < self._seen_ms:
            self._nudged = True
        self._seen_ms = now_ms
        return self._nudged or now_ms >= self.due_at_ms

    def run(self) -> None:
        """Do what is due. If it raises, the job is due again after `RETRY_MS`."""
        with self._running:
            if self._stopped:
                return
            self._nudged = False
            self.due_at_ms = self._now_ms() + RETRY_MS
            self.due_at_ms = self._run_due()

    def run_forever(self, look_s: float | None) -> None:
        """The loop of the job's thread. `look_s` is how often to read a clock that is not the system's."""
        while not self._stopped:
            if self.is_due:
                self._run_and_log()
            wait_s = min(_LONGEST_SLEEP_S, max(0, self.due_at_ms - self._now_ms()) / 1000)
            self._wake.wait(wait_s if look_s is None else min(look_s, wait_s))
            self._wake.clear()

    def _run_and_log(self) -> None:
        try:
            self.run()
        except FlintlogError as failure:
            if self._stopped and isinstance(failure, StoreClosed):
                return  # its own callback shut the store down
            log.error("%s did not do its work and will try again: %s", self.name, failure)
        except Exception:
            # A user's callback may raise anything; the thread must survive to try again.
            log.exception("%s did not do its work and will try again", self.name)

    def stop(self) -> None:
        self._stopped = True
        self._wake.set()

    def wait(self) -> None:
        """Wait for a run in progress to end."""
        with self._running:
            pass


class Background:
    """The jobs of one store; started when it is open, stopped before it closes."""

    def __init__(self, clock: Clock | Milliseconds | None) -> None:
        self._clock = clock
        self._now_ms = as_milliseconds(clock)
        self._jobs: list[Job] = []
        self._threads: dict[Job, threading.Thread] = {}
        self._turning = threading.RLock()
        self._is_running = False

    def add(self, name: str, run_due: RunDue) -> Job:
        """Add a job that is due at once, or at `start` if that was not called yet."""
        job = Job(name, run_due, self._now_ms)
        self._jobs.append(job)
        if self._is_running:
            self._begin(job)
        return job

    def nudge(self, name: str) -> None:
        """Let the jobs of this name run as soon as possible."""
        for job in self._jobs:
            if job.name == name:
                job.nudge()

    def start(self) -> None:
        self._is_running = True
        if isinstance(self._clock, TurnedClock):
            self._clock.on_turn(self.run_due)
        for job in self._jobs:
            self._begin(job)

    def _begin(self, job: Job) -> None:
        if isinstance(self._clock, TurnedClock):
            return
        look_s = None if self._now_ms is system_now_ms else _LOOK_S
        name = f"flintlog-{job.name}"
        thread = threading.Thread(target=job.run_forever, args=(look_s,), name=name, daemon=True)
        self._threads[job] = thread
        thread.start()

    def remove(self, job: Job) -> None:
        """Stop a job and wait for its run in progress. After `stop` this does nothing."""
        if not self._is_running:
            return
        self._jobs = [other for other in self._jobs if other is not job]
        job.stop()
        thread = self._threads.pop(job, None)
        if thread is None:
            job.wait()
        elif thread is not threading.current_thread():
            thread.join()

    def run_due(self) -> None:
        """Run jobs in the calling thread until none is due. A job may make another one due."""
        if not self._turning.acquire(blocking=False):
            return
        try:
            for _ in range(_MOST_ROUNDS):
                due = [job for job in self._jobs if job.is_due]
                if not due or not self._is_running:
                    return
                for job in due:
                    try:
                        job.run()
                    except StoreClosed:
                        if self._has_ended():
                            return  # its own callback shut the store down
                        raise
            raise FlintlogError(f"{due[0].name} is due again and again without an end")
        finally:
            self._turning.release()

    def _has_ended(self) -> bool:
        return not self._is_running

    def stop(self) -> None:
        """Stop all jobs and wait for those in progress. A second call does nothing."""
        if not self._is_running:
            return
        self._is_running = False
        if isinstance(self._clock, TurnedClock):
            self._clock.off_turn(self.run_due)
        for job in self._jobs:
            job.stop()
        for thread in tuple(self._threads.values()):
            if thread is not threading.current_thread():
                thread.join()
