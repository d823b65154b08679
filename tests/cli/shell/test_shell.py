"""`flintlog shell` without a terminal: lines from a pipe, their output, errors and exit codes."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.look.test_reading import state_of

from flintlog.cli import main

Golden = Callable[[str], Path]
Say = Callable[..., int]
_SOURCE = Path(__file__).parents[3] / "src"


@pytest.fixture
def say(golden: Golden, monkeypatch: pytest.MonkeyPatch) -> Say:
    """Run a shell over lines."""

    def run(*lines: str, options: tuple[str, ...] = (), store: Path | None = None) -> int:
        monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        return main.run(["shell", str(store or golden("delay") / "store"), *options])

    return run


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("topics", "ls topics {store}"),
        ("groups -o json", "ls groups {store} -o json"),
        ("cat TimerTopic --limit 2", "cat {store} --topic TimerTopic --limit 2"),
        ("get rmq_sys_wheel_timer 0 2", "get {store} --topic rmq_sys_wheel_timer --queue 0 --offset 2"),
        ("lag", "stats {store} --by group"),
        ("verify", "verify {store}"),
        ("explain torn-tail", "explain torn-tail"),
    ],
)
def test_a_word_prints_what_its_command_prints(
    line: str, command: str, say: Say, golden: Golden, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main.run(command.format(store=golden("delay") / "store").split())
    printed = capsys.readouterr()
    assert (say(line), capsys.readouterr()) == (code, printed)
    assert printed.out


def test_an_error_is_one_line_and_the_next_word_runs(say: Say, capsys: pytest.CaptureFixture[str]) -> None:
    code = say("cat --foo", "topic", "cat 'x", "get", "info", "verify @1", "help nothing", "explain torn-tali")
    printed = capsys.readouterr()
    assert (code, printed.out) == (2, "")
    assert printed.err.splitlines() == [
        "flintlog: No such option '--foo'. Did you mean '--from'?",
        "flintlog: no word is called topic; did you mean topics?",
        'flintlog: No closing quotation in "cat \'x"',
        "flintlog: name one message: --id, --key, --physical, or --topic with --queue and --offset",
        "flintlog: info is no word here: run `flintlog info` outside; `help` lists the words",
        "flintlog: Got unexpected extra argument (@1)",
        "flintlog: no word is called nothing; `help` lists them",
        "flintlog: no finding is called torn-tali; did you mean torn-tail?",
    ]
    assert say("nonsense", "topics") == 2
    assert "TimerTopic" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ((), 0),
        (("", "# a remark", "topics"), 0),
        (("topics", "get --key nothing", "nonsense", "topics"), 3),
        (("topics", "exit", "nonsense"), 0),
        (("nonsense", "exit"), 2),
    ],
)
def test_the_exit_code_is_the_first_that_is_not_0(say: Say, lines: tuple[str, ...], code: int) -> None:
    assert say(*lines) == code


def test_findings_are_1(say: Say, golden: Golden) -> None:
    assert say("verify", store=golden("torn") / "flip/before/store") == 1


def test_options_of_the_shell_are_those_of_every_word(say: Say, capsys: pytest.CaptureFixture[str]) -> None:
    assert say("topics", "cat --limit 1 -o csv", options=("-o", "jsonl", "-q")) == 0
    printed = capsys.readouterr()
    *topics, head, row = printed.out.splitlines()
    assert "TimerTopic" in [json.loads(line)["topic"] for line in topics]
    assert head.startswith("topic,queue_id") and row
    assert printed.err == ""


def test_no_store_is_refused_before_a_line_is_read(
    say: Say, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert say("topics", "topics", store=tmp_path) == 3
    assert capsys.readouterr().err.count("no store here") == 1


def test_a_bad_config_is_refused_before_a_line_is_read(
    say: Say, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broker.conf").write_text("maxMesageSize=1\n", "utf-8")
    assert say("topics", "topics", options=("--config", str(tmp_path / "broker.conf"))) == 2
    assert capsys.readouterr().err.count("maxMessageSize?") == 1


def test_help_names_every_word(say: Say, capsys: pytest.CaptureFixture[str]) -> None:
    assert say("help", "help cat") == 0
    printed = capsys.readouterr().out
    words, options = printed.split("cat [TOPIC [QUEUE]]: ")
    assert [line.split()[0] for line in words.splitlines() if line[0] != " "] == [
        *("topics", "queues", "groups", "cat", "get", "lag", "verify", "explain", "help", "exit"),
    ]
    assert all(len(line) <= 80 for line in printed.splitlines())
    assert "--where" in options


def test_an_interrupted_word_ends_a_shell_over_a_pipe(
    say: Say, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object, **_named: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("flintlog.maintenance.verify.verify.verify", interrupt)
    assert say("verify", "topics") == 130
    assert capsys.readouterr().out == ""


def test_a_store_is_only_read(say: Say, golden: Golden) -> None:
    store = golden("delay") / "store"
    before = state_of(store)
    assert say("topics", "queues", "groups", "cat", "get @0", "lag", "verify", "explain", "explain @0", "help") == 0
    assert state_of(store) == before


@pytest.mark.parametrize("end", ["2>&1 | head -c 0", "> /dev/full"])
def test_an_output_that_ends_early(golden: Golden, end: str) -> None:
    program = f"{sys.executable} -m flintlog.cli.main"
    line = f"printf 'topics\\ntopics\\n' | {program} shell {golden('delay') / 'store'} {end}; echo ${{PIPESTATUS[1]}}"
    environment = {**os.environ, "PYTHONPATH": str(_SOURCE)}
    done = subprocess.run(
        ["bash", "-c", line], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert "Traceback" not in done.stderr
    assert done.stdout.splitlines()[-1] == ("0" if "head" in end else "70")
