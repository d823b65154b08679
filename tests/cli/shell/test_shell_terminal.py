"""`flintlog shell` at a real terminal: prompt, completion, history, Ctrl-C and Ctrl-D."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest
from tests.cli.terminal import Terminal, terminal

from flintlog import Message, open_store
from flintlog.cli import main
from flintlog.cli.shell.prompt import history_path, open_history

__all__ = ["terminal"]

_SOURCE = Path(__file__).parents[3] / "src"
_HISTORY = "state/flintlog/shell-history"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with open_store(tmp_path / "orders-store") as opened:
        for topic in ("orders", "payments"):
            opened.put(Message(topic, b"x", keys=["o-17"]))
    return tmp_path / "orders-store"


def _command(store: Path) -> list[str]:
    # A test runner may have its own idea of the terminal's size.
    environment = ["env", "-u", "COLUMNS", "-u", "LINES", f"PYTHONPATH={_SOURCE}", "LC_ALL=C.UTF-8"]
    state = f"XDG_STATE_HOME={store.parent / 'state'}"
    return [*environment, state, sys.executable, "-m", "flintlog.cli.main", "shell", str(store)]


def _is_at_prompt(screen: str) -> bool:
    return screen.rstrip().endswith("orders-store>")


def _wait_for_a_reader(pipe: Path) -> int:
    deadline = time.monotonic() + 60
    while True:
        try:
            return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)  # refused until a reader has it open
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_session(terminal: Terminal, store: Path) -> None:
    os.mkfifo(store.parent / "pipe")
    terminal.run(_command(store))
    screen = terminal.wait("a prompt", _is_at_prompt)
    assert "`help` lists the words, Tab completes, Ctrl-D leaves." in screen

    terminal.keys("top", "Tab", "Enter")
    terminal.wait("the topics", lambda screen: "payments        1" in screen and _is_at_prompt(screen))
    terminal.keys("cat pa", "Tab", "--bo", "Tab", "he", "Tab")
    terminal.wait("a topic, an option and its value", lambda screen: "> cat payments --body hex" in screen)
    terminal.keys("C-c")
    terminal.wait("a new line", _is_at_prompt)
    terminal.keys("g", "Tab")
    terminal.wait("what there is", lambda screen: "groups get" in screen)
    terminal.keys("C-c")
    terminal.keys("get --key nothing", "Enter")
    terminal.wait("an error", lambda screen: "there is no such message" in screen and _is_at_prompt(screen))

    terminal.keys(f"cat --config {store.parent / 'pipe'}", "Enter")
    writer = _wait_for_a_reader(store.parent / "pipe")  # it reads on until this is closed
    terminal.keys("C-c")
    terminal.wait("it was ended", lambda screen: "interrupted\norders-store>" in screen)
    os.close(writer)

    terminal.keys("Up", "Up", "Up", "Enter")
    terminal.wait("a line again", lambda screen: screen.count("payments        1") == 2 and _is_at_prompt(screen))
    terminal.keys("C-d")
    terminal.wait("the end", lambda screen: "exit code 0" in screen)


def test_the_history_lasts_and_is_for_its_owner(terminal: Terminal, store: Path) -> None:
    terminal.run([*("bash", "-c", '"$@"; "$@"', "bash"), *_command(store)])
    terminal.wait("a prompt", _is_at_prompt)
    terminal.keys("explain torn-tail", "Enter")
    terminal.wait("an answer", lambda screen: "flintlog/cut" in screen and _is_at_prompt(screen))
    terminal.keys("exit", "Enter")
    terminal.wait("the next shell", lambda screen: screen.count("Ctrl-D leaves") == 2 and _is_at_prompt(screen))
    terminal.keys("Up", "Up", "Enter")
    terminal.wait("the line of the first", lambda screen: screen.count("flintlog/cut") == 2)
    assert (store.parent / _HISTORY).stat().st_mode & 0o777 == 0o600


def test_a_history_that_cannot_be_kept_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "flintlog").write_bytes(b"")
    open_history().append_string("topics")
    (tmp_path / "flintlog").unlink()
    kept = open_history()
    history_path().unlink()
    history_path().mkdir()
    kept.append_string("topics")


def test_without_prompt_toolkit_it_is_a_missing_extra(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setitem(sys.modules, "prompt_toolkit", None)
    monkeypatch.delitem(sys.modules, "flintlog.cli.shell.prompt", raising=False)
    assert main.run(["shell", str(store)]) == 2
    error = "flintlog: missing-extra: this command needs prompt_toolkit (pip install 'flintlog[cli]')\n"
    assert capsys.readouterr().err.endswith(error)
