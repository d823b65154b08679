"""A store that another process writes while it is read."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import flintlog
from flintlog.maintenance.inspect.log_reader import LogReader
from flintlog.maintenance.inspect.store_files import look_at

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(flintlog.__file__).parents[1])}
"""Other processes run the code that is tested here."""


@dataclass
class BusyStore:
    """A store directory and the process that puts into it."""

    root: Path
    writer: subprocess.Popen[str]

    def stop(self) -> None:
        """Let the writer close its store."""
        if self.writer.poll() is None:
            said, _ = self.writer.communicate(timeout=60)
            assert "closed" in said

    def offsets(self) -> list[int]:
        """Where each record of the stopped store begins."""
        self.stop()
        return [message.physical_offset for message in LogReader(look_at(self.root)).messages()]


Begin = Callable[[int, float], BusyStore]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Start a writer with log files of a size, which pauses after each put."""
    started: list[BusyStore] = []

    def start(log_file_bytes: int, pause_s: float) -> BusyStore:
        root = tmp_path / "store"
        command = [sys.executable, "-m", "tests.beside.busy_writer", str(root), str(log_file_bytes), str(pause_s)]
        writer = subprocess.Popen(
            command, cwd=ROOT, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(BusyStore(root, writer))
        assert writer.stdout is not None
        assert writer.stdout.readline() == "running\n"
        while not any(LogReader(look_at(root)).messages()):
            time.sleep(0.05)
        return started[-1]

    yield start
    for store in started:
        store.stop()
