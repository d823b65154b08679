"""`scan` holds one range at a time: its memory does not grow with the log."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from flintlog import Message, StoreConfig, open_store
from tests.scale import scanner
from tests.scale.process_cost import MIB

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

BODY_BYTES = 8 * 1024
BATCH = 128
LOG_BYTES = 1 << 30
CONFIG = StoreConfig(flush="async", max_hash_slot_num=1000, max_index_num=4000)


@pytest.fixture(scope="module")
def gibibyte_of_log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("scan") / "store"
    body = os.urandom(BODY_BYTES)
    with open_store(root, CONFIG) as store:
        while store.max_physical_offset < LOG_BYTES:
            store.put_batch([Message("orders", body) for _ in range(BATCH)]).check()
    yield root
    shutil.rmtree(root)


@pytest.mark.parametrize("include_body", [True, False], ids=["bodies", "no-bodies"])
def test_memory_does_not_grow_with_the_log(gibibyte_of_log: Path, include_body: bool) -> None:
    project = Path(scanner.__file__).parents[2]
    done = subprocess.run(
        [sys.executable, scanner.__file__, str(gibibyte_of_log), "bodies" if include_body else "none"],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(project / "src"), str(project)])},
        check=True,
        timeout=240,
    )
    scanned = msgspec.json.decode(done.stdout, type=scanner.Scanned)
    assert scanned.row_count >= LOG_BYTES // (BODY_BYTES + 200)
    assert scanned.body_bytes == (scanned.row_count * BODY_BYTES if include_body else 0)
    assert scanned.batch_count > 1 or not include_body
    assert scanned.peak_anonymous_bytes < (200 if include_body else 64) * MIB
    assert scanned.kept_anonymous_bytes < 100 * MIB
