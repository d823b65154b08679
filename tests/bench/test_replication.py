"""`flintlog bench replication` measures what it says: real processes, and messages that were acknowledged."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from benchmarks.java import RealJava
from flintlog.bench.replication import QUICK_REPLICATION, measure_replication

SMALL = msgspec.structs.replace(QUICK_REPLICATION, ha_threads=2, producers=8)


@pytest.mark.timeout(120)
def test_every_task_gives_a_rate(tmp_path: Path) -> None:
    steps: list[str] = []
    figures = measure_replication(tmp_path, SMALL, java=None, progress=steps.append)
    assert [figure.task for figure in figures] == [
        "HA sync pair, 2 threads",
        "HA sync pair, 2 asyncio",
        "HA sync pair, 8 asyncio",
        "group of three, 8 asyncio",
    ]
    assert all(figure.flintlog > 0 and figure.cpu_us > 0 for figure in figures)
    assert [(figure.java, figure.ratio, figure.java_cpu_us) for figure in figures] == [(None, None, None)] * 4
    assert len(steps) == 4
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.interop
@pytest.mark.timeout(300)
def test_java_is_measured_beside(tmp_path: Path) -> None:
    figures = measure_replication(tmp_path, SMALL, java=RealJava(), progress=lambda _: None)
    assert all(figure.java for figure in figures)
    assert all(figure.ratio and figure.java_cpu_us for figure in figures)
