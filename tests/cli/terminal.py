"""A real terminal for tests: tmux, on a server of its own.

Where tmux is missing such a test cannot run, and says so; in CI (the variable CI is `true`) that is a failure: there it
must. `make setup` installs it where it may.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

_PATIENCE_S = 60.0


class Terminal:
    """A terminal of tmux's, on a server of its own."""

    def __init__(self, tmux: str, socket: Path, width: int = 120, height: int = 36) -> None:
        self._tmux = [tmux, "-u", "-f", "/dev/null", "-S", str(socket)]
        self._size = ["-x", str(width), "-y", str(height)]

    def run(self, command: list[str]) -> None:
        """Start a command; the terminal stays when it ends, so that what it left can be seen."""
        line = f"{shlex.join(command)}; echo exit code $?; cat"
        self._call("new-session", "-d", *self._size, line)

    def screen(self) -> str:
        return self._call("capture-pane", "-p")

    def keys(self, *keys: str) -> None:
        self._call("send-keys", *keys)

    def resize(self, width: int, height: int) -> None:
        self._call("resize-window", "-x", str(width), "-y", str(height))

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], capture_output=True, timeout=30, check=False)

    def wait(self, what: str, holds: Callable[[str], object]) -> str:
        """The screen, as soon as it is as it should be."""
        deadline = time.monotonic() + _PATIENCE_S
        while not holds(screen := self.screen()):
            assert time.monotonic() < deadline, f"{what}:\n{screen}"
            time.sleep(0.1)
        return screen

    def _call(self, *arguments: str) -> str:
        called = subprocess.run([*self._tmux, *arguments], capture_output=True, text=True, timeout=30, check=True)
        return called.stdout


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    tmux = shutil.which("tmux")
    if tmux is None:
        if os.environ.get("CI") == "true":
            pytest.fail("the terminal test must run in CI, and tmux is not there", pytrace=False)
        pytest.skip("tmux is not there: install it to see `flintlog top` at a terminal")
    terminal = Terminal(tmux, tmp_path / "tmux")
    yield terminal
    terminal.close()
