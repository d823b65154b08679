"""Work that is done when its time has come, beside the puts.

A job is a function that does everything due now and says when it wants to be called again. Whose thread that is
depends on the clock:

    the system's clock        a thread a job, asleep until the job is due or nudged
    another clock             the same, but it looks every few milliseconds of real time: nobody says when it moves
    a clock turned by hand    no thread: whoever turns the clock runs the jobs before the turning returns

A clock that was turned back makes every job due once, because what it had asked for was told by the old time; a thread
sees that within a minute.

So a test that advances a fake clock finds everything done, and takes no real seconds.
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
"""The answer of a job that waits for a nudge."""

RETRY_MS: Final = 10_000
_LOOK_S: Final = 0.01
_LONGEST_SLEEP_S: Final = 60.0
_MOST_ROUNDS: Final = 100_000

RunDue = Callable[[], int]


class Job:
    """One function and the time at which it is due. Any thread may nudge it; one at a time runs it."""

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
        """Something changed: run as soon as possible, whatever was said before."""
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
        """Do what is due. An error of the store is raised after the job was put off, so that it is tried again."""
        with self._running:
            if self._stopped:
                return
            self._nudged = False
            self.due_at_ms = self._now_ms() + RETRY_MS
            self.due_at_ms = self._run_due()

    def run_forever(self, look_s: float | None) -> None:
        """The life of the job's thread. `look_s`: how often the clock is looked at, when it is not the system's."""
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
            # A callback of the user's may raise anything; the thread must live on to try again.
            log.exception("%s did not do its work and will try again", self.name)

    def stop(self) -> None:
        self._stopped = True
        self._wake.set()

    def wait(self) -> None:
        """Return when a run that has begun is over."""
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
        """A job that is due at once; before `start` it only waits in line."""
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
        """End a job; it does not run any more when this returns. After `stop` there is nothing left to end."""
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
        """Run jobs in the calling thread until none is due; a job may make another one due."""
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
        """Return when no job runs any more. A second call does nothing."""
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
