"""Opening a store of 100 GiB and 10,000 queues reads little of it, and maps what it looks at, no more.

What is measured happens in a process of its own, so that nothing else is counted.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from tests.scale import opener
from tests.scale.huge_store import (
    CONFIG,
    LAST_RECORDS,
    QUEUES,
    RECORDS,
    make_huge_store,
    mark_clean,
    mark_clean_by_java,
    mark_killed,
)
from tests.scale.process_cost import MIB

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PAGE_BYTES = 4096
MAX_SECONDS = 40
BYTES_A_QUEUE = 10 * 1024
"""What a queue may keep of memory of its own: paths, positions, locks."""


@pytest.fixture(scope="module")
def huge_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("huge") / "store"
    make_huge_store(root)
    yield root
    shutil.rmtree(root)  # a gibibyte of it was allocated, and pytest keeps three runs


def open_elsewhere(root: Path, mode: str) -> opener.Opened:
    project = Path(opener.__file__).parents[2]
    done = subprocess.run(
        [sys.executable, opener.__file__, str(root), mode],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(project / "src"), str(project)])},
        check=True,
        timeout=240,
    )
    return msgspec.json.decode(done.stdout, type=opener.Opened)


@pytest.mark.parametrize("mode", ["read", "write"])
@pytest.mark.parametrize("mark", [mark_clean, mark_killed, mark_clean_by_java], ids=["clean", "killed", "java"])
def test_opening_is_bounded_whatever_the_log_holds(mark: Callable[[Path], None], mode: str, huge_store: Path) -> None:
    mark(huge_store)
    opened = open_elsewhere(huge_store, mode)
    cost = opened.cost

    assert opened.queue_count == QUEUES
    assert opened.offset_sum >= RECORDS
    assert opened.first_body.startswith(b"body 99")
    assert opened.put_queue_offset > LAST_RECORDS
    assert [finding for finding in opened.findings if not finding.startswith("missing-index")] == []

    assert cost.seconds < MAX_SECONDS
    assert opened.closing_seconds < MAX_SECONDS
    assert cost.anonymous_bytes < QUEUES * BYTES_A_QUEUE
    assert cost.peak_resident_bytes < 256 * MIB
    assert cost.maps < CONFIG.max_mapped_files + 600
    assert cost.read_bytes < QUEUES * PAGE_BYTES + 8 * MIB, "a page of each queue, and little of the log"
    assert cost.fault_count < 4 * QUEUES  # a look at each mebibyte of the log alone would be 100,000
    assert cost.descriptor_count < 32
