"""CPU time of a process and everything that it started."""

from __future__ import annotations

import subprocess
import sys

from flintlog.bench.process_tree import ProcessWatch

IDLE_WORKER = """
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # as Spark's daemon does: its workers' times are then lost
if os.fork():
    time.sleep(1.2)
else:
    while time.process_time() < 0.3:
        pass
    time.sleep(0.5)
"""


def test_the_cpu_time_of_a_worker_that_ended_stays_counted() -> None:
    with ProcessWatch() as seen:
        subprocess.run([sys.executable, "-c", IDLE_WORKER], check=True)
    assert seen.cpu_seconds >= 0.3
    with ProcessWatch() as after:
        pass
    assert 0 <= after.cpu_seconds < 0.3
    assert after.mib > 0
