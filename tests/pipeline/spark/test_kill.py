"""A rebuild whose driver and JVM are killed in the middle leaves a store that opens and can be rebuilt."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flintlog import open_store
from flintlog.bench.ours import fill_log
from flintlog.store.options.store_config import StoreConfig

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
CONFIG = StoreConfig(flush="async")
KILLS = 3


def files(root: Path, folder: str) -> dict[str, bytes]:
    paths = sorted(path for path in (root / folder).rglob("*") if path.is_file())
    return {
        str(path.relative_to(root)) if folder != "index" else str(n): path.read_bytes() for n, path in enumerate(paths)
    }


def start(store: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "flintlog.cli.main", "pipeline", "rebuild", str(store), "--master", "local[2]"]
    source = str(Path(__file__).parents[3] / "src")
    return subprocess.Popen(command, start_new_session=True, env={**os.environ, "PYTHONPATH": source})


def test_killed_at_any_moment_the_store_opens_and_a_later_rebuild_is_right(tmp_path: Path) -> None:
    store = tmp_path / "store"
    fill_log(store, 96)
    expected = {folder: files(store, folder) for folder in ("consumequeue", "index")}
    chance = random.Random(os.getpid())
    for _ in range(KILLS):
        shutil.rmtree(store / "consumequeue")
        running = start(store)
        while not (store / "flintlog" / "rebuild").exists() and running.poll() is None:
            time.sleep(0.01)
        time.sleep(chance.random() * 2)
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
        time.sleep(1)  # its workers end when they see that it is gone
        with open_store(store, CONFIG) as opened:
            opened.wait_dispatched()
        assert files(store, "consumequeue") == expected["consumequeue"]
    shutil.rmtree(store / "consumequeue")
    assert start(store).wait() == 0
    assert {folder: files(store, folder) for folder in expected} == expected
    assert not (store / "flintlog" / "rebuild").exists()
