"""Shells complete commands, options, topics, groups and findings; bash is asked for real."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.terminal import Terminal, terminal

from flintlog import Message, open_store
from flintlog.cli import main

__all__ = ["terminal"]

_SOURCE = Path(__file__).parents[2] / "src"
SHELLS = ("bash", "zsh", "fish")
Ask = Callable[..., list[str]]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A folder with a program `flintlog`, as an installation has it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "flintlog"
    script.write_text(f'#!/bin/sh\nPYTHONPATH="{_SOURCE}" exec "{sys.executable}" -m flintlog.cli.main "$@"\n')
    script.chmod(0o755)
    return folder


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "a store"
    with open_store(path) as opened:
        for topic in ("orders", "order-events", "payments"):
            opened.put(Message(topic, b"x"))
        opened.wait_dispatched()
        opened.consumer_offsets.commit("billing", "orders", 0, 1)
    return path


@pytest.fixture
def ask(program: Path) -> Ask:
    """The words that the program offers after others, as one shell's script asks for them."""

    def call(*words: str, shell: str = "bash") -> list[str]:
        # Each shell hands over the line in its own way; an argument with a space is quoted on it.
        line = ["flintlog", *(f"'{word}'" if " " in word else word for word in words)]
        environment = {
            **os.environ,
            "_FLINTLOG_COMPLETE": f"{shell}_complete",
            "COMP_WORDS": "\n".join(line),
            "COMP_CWORD": line[-1] if shell == "fish" else str(len(line) - 1),
        }
        printed = subprocess.run(
            [program / "flintlog"], env=environment, capture_output=True, text=True, timeout=60, check=True
        )
        assert printed.stderr == ""
        if shell == "zsh":
            return printed.stdout.split("\n")[1::3]
        return [row.partition(",")[2].partition("\t")[0] for row in printed.stdout.splitlines() if row]

    return call


@pytest.mark.parametrize("shell", SHELLS)
def test_commands_and_their_parts(ask: Ask, shell: str) -> None:
    assert ask("ver", shell=shell) == ["verify"]
    assert ask("offsets", "s", shell=shell) == ["set", "show"]
    assert "rebuild" in ask("pipeline", "re", shell=shell)


@pytest.mark.parametrize("shell", SHELLS)
def test_topics_and_groups_of_the_store(ask: Ask, store: Path, shell: str) -> None:
    assert ask("cat", str(store), "--topic", "order", shell=shell) == ["order-events", "orders"]
    assert ask("offsets", "show", str(store), "--group", "b", shell=shell) == ["billing"]


def test_options_values_and_findings(ask: Ask, store: Path) -> None:
    assert ask("cat", str(store), "--to") == ["--topic"]
    assert ask("cat", str(store), "--body", "h") == ["hex"]
    assert ask("explain", "torn") == ["torn-tail"]
    assert ask("ls", "") == ["topics", "queues", "groups", "files"]
    assert ask("completion", "") == list(SHELLS)
    assert "--version" in ask("--")


def test_a_missing_store_offers_nothing(ask: Ask, tmp_path: Path, store: Path) -> None:
    assert ask("cat", str(tmp_path / "none"), "--topic", "") == []
    assert ask("nonsense", "x") == []
    (store / "config" / "consumerOffset.json").write_bytes(b"{")
    assert ask("offsets", "show", str(store), "--group", "") == []


def test_a_tab_imports_neither_store_nor_other_commands(store: Path) -> None:
    code = (
        "import os, sys; from flintlog.cli import completion; completion.answer('bash_complete'); "
        "unwanted = ('pyarrow', 'flintlog.store', 'flintlog.cli.run.bench'); "
        "print([name for name in sys.modules if name.startswith(unwanted)])"
    )
    words = {"COMP_WORDS": f"flintlog\ncat\n'{store}'\n--topic\n", "COMP_CWORD": "4", "PYTHONPATH": str(_SOURCE)}
    command = [sys.executable, "-c", code]
    printed = subprocess.run(
        command, env={**os.environ, **words}, capture_output=True, text=True, timeout=60, check=True
    ).stdout.splitlines()
    assert printed == ["plain,order-events", "plain,orders", "plain,payments", "[]"]


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_says_how_it_is_installed(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert f"flintlog completion {shell}" in script.split("_flintlog_completion")[0]
    assert script.startswith("#compdef flintlog\n" if shell == "zsh" else "# Completion of flintlog")
    assert script.count("#compdef") == (shell == "zsh")


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_takes_its_script(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    main.run(["completion", shell])
    script = tmp_path / "script"
    script.write_text(capsys.readouterr().out, "utf-8")
    result = subprocess.run([shell, "-n", script], capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stderr) == (0, "")


def test_a_shell_that_is_not_known_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["completion", "tcsh"]) == 2
    assert "bash" in capsys.readouterr().err


def test_tabs_in_a_real_bash(terminal: Terminal, program: Path, store: Path) -> None:
    prepare = f'PS1="> "; PATH="{program}:$PATH"; cd "{store.parent}"; bind "set bell-style none"; clear; '
    rc = program / "rc"
    rc.write_text(f'{prepare}eval "$(flintlog completion bash)"\n')
    terminal.run(["bash", "--noprofile", "--rcfile", str(rc), "-i"])
    terminal.wait("a prompt", lambda screen: screen.startswith(">"))
    terminal.keys("flintlog ver", "Tab")
    terminal.wait("the command", lambda screen: "> flintlog verify" in screen)
    terminal.keys("C-u", "flintlog ls top", "Tab", "a\\ st", "Tab")
    terminal.wait("the folder", lambda screen: "> flintlog ls topics a\\ store/" in screen)
    terminal.keys("C-u", "flintlog cat a\\ store --topic pay", "Tab", "--lim", "Tab")
    terminal.wait("topic and option", lambda screen: "--topic payments --limit" in screen)
