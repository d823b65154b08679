"""`flintlog top` at a real terminal, beside a real process that writes the store."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from tests.cli.terminal import Terminal, terminal
from tests.maintenance.verify.test_verify import snapshot

__all__ = ["terminal"]

_ROOT = Path(__file__).parents[3]
_WRITER = Path(__file__).parents[1] / "top_writer.py"


def _command(store: Path, *options: str) -> list[str]:
    python_path = os.pathsep.join((str(_ROOT / "src"), str(_ROOT)))
    # A test runner may have its own idea of the terminal's size.
    environment = ["env", "-u", "COLUMNS", "-u", "LINES", f"PYTHONPATH={python_path}", "LC_ALL=C.UTF-8"]
    return [*environment, sys.executable, "-m", "flintlog.cli.main", "top", str(store), *options]


def _figure(screen: str, unit: str) -> float:
    found = re.search(rf"│ ([\d,.]+) {re.escape(unit)}", screen)
    return 0.0 if found is None else float(found[1].replace(",", ""))


def _shows(text: str, screen: str) -> bool:
    return text in screen


def _topics(screen: str) -> list[str]:
    return re.findall(r"│\s+(orders|payments|returns)\s", screen.partition("groups")[0])


def test_a_session_beside_a_writer(terminal: Terminal, tmp_path: Path) -> None:
    store = tmp_path / "store"
    command = [sys.executable, str(_WRITER), str(store)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None and writer.stdin is not None
        assert writer.stdout.readline() == b"running\n"
        terminal.run(_command(store, "--interval", "0.2"))

        screen = terminal.wait("rates come", lambda screen: _figure(screen, "msg/s") > 0)
        assert "running" in screen and "log end" in screen and re.search(r"[\d.]+ [KM]iB/s", screen)
        assert _topics(screen) == ["orders", "payments", "returns"]
        assert re.search(r"billing\s+orders\s+1\s+[\d,]+", screen)
        terminal.wait("the chart grows", lambda screen: len(re.findall(r"[▁▂▃▄▅▆▇█]", screen)) > 20)

        end = _end(screen)
        terminal.wait("the log's end moves", lambda screen: _end(screen) > end)

        terminal.keys("s")
        terminal.wait("the next order", lambda screen: "by bytes" in screen)
        for order in ("by messages", "by lag", "by name"):
            terminal.keys("s")
            terminal.wait(order, partial(_shows, order))

        terminal.keys("/", "p", "a", "y")
        terminal.wait("only what was asked for", lambda screen: _topics(screen) == ["payments"])
        terminal.keys("Enter")
        terminal.wait("the filter's field is gone", lambda screen: "q quit" in screen and "with “pay”" in screen)
        terminal.keys("Escape")
        terminal.wait("all topics again", lambda screen: len(_topics(screen)) == 3)

        terminal.keys("?")
        terminal.wait("help", lambda screen: "Nothing is opened, locked or written" in screen)
        terminal.keys("?")
        terminal.wait("no help", lambda screen: "Nothing is opened" not in screen)

        terminal.keys("p")
        still = terminal.wait("it stands still", lambda screen: "paused" in screen)
        time.sleep(0.8)  # four looks
        assert terminal.screen() == still
        terminal.keys("p")
        terminal.wait("it goes on", lambda screen: "paused" not in screen and _end(screen) > _end(still))

        terminal.resize(80, 24)
        terminal.wait("a small terminal", lambda screen: "orders" in screen and len(screen.splitlines()) <= 24)

        writer.stdin.close()
        assert writer.wait(60) == 0
        before = snapshot(store)
        terminal.wait("the writer has stopped", lambda screen: "not running" in screen)
        terminal.wait("nothing comes", lambda screen: re.search(r"│ 0 msg/s", screen))
        terminal.keys("q")
        terminal.wait("it ends well", lambda screen: "exit code 0" in screen and "msg/s" not in screen)
        assert snapshot(store) == before


def _end(screen: str) -> int:
    """The log's end is the third tile."""
    figures = next((line for line in screen.splitlines() if "msg/s" in line and "iB/s" in line), "").split("││")
    return int(figures[2].replace(",", "")) if len(figures) == 4 else 0


def test_ctrl_c_is_a_way_out_too(terminal: Terminal, tmp_path: Path) -> None:
    from flintlog import Message, open_store

    with open_store(tmp_path / "store") as store:
        store.put(Message("orders", b"x"))
    terminal.run(_command(tmp_path / "store"))
    terminal.wait("the screen", lambda screen: "orders" in screen)
    terminal.keys("C-c")
    terminal.wait("it ends", lambda screen: "exit code 0" in screen)


def test_a_directory_without_a_store_is_reported_before_the_screen_is_taken(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    terminal.run(_command(tmp_path / "empty"))
    screen = terminal.wait("it ends", lambda screen: "exit code" in screen)
    assert "no store here" in screen.replace("\n", "") and "exit code 3" in screen
