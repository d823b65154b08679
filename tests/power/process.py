"""Processes of the drivers: started from this source, heard over a pipe, killed by their id."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
STOP_PATIENCE_S = 30.0


class Child:
    """A process whose standard output is a pipe; what it wrote before it was ended is not lost."""

    def __init__(self, module: str, *arguments: object, errors: Path | None = None) -> None:
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        command = [sys.executable, "-m", module, *map(str, arguments)]
        with open(os.devnull if errors is None else errors, "ab") as log:
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, env={**os.environ, "PYTHONPATH": path}
            )
        assert self._process.stdout is not None
        self._pipe = self._process.stdout
        self._rest = b""
        self.is_at_end = False

    def lines(self, wait_s: float = 0.0) -> list[bytes]:
        """The whole lines that have arrived; waits for the first of them as long as this."""
        while not self.is_at_end and select.select([self._pipe], [], [], wait_s)[0]:
            chunk = os.read(self._pipe.fileno(), 1 << 16)
            self.is_at_end = not chunk
            self._rest += chunk
            wait_s = 0.0
        *whole, self._rest = self._rest.split(b"\n")
        return whole

    def kill(self) -> list[bytes]:
        """End it at once; the lines that were still in the pipe."""
        self._process.kill()
        return self._collect()

    def stop(self) -> list[bytes]:
        """Let it end by itself; the lines that it wrote until then."""
        self._process.send_signal(signal.SIGTERM)
        return self._collect()

    def _collect(self) -> list[bytes]:
        lines: list[bytes] = []
        while not self.is_at_end:
            lines += self.lines(1.0)
        self._process.wait(STOP_PATIENCE_S)
        self._pipe.close()
        return lines
