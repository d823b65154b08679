"""What each command prints on golden stores, for people and for programs, word for word.

FLINTLOG_WRITE_TRANSCRIPTS=1 writes them again; look at the difference before it is committed.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from flintlog.cli import main

Golden = Callable[[str], Path]

_FOLDER = Path(__file__).parent / "transcripts"
_MESSAGES = "--topic orders --queue 5 --limit 2"

COMMANDS = {
    "info-plain": ("plain", "info {store}"),
    "info-torn": ("torn", "info {store}/shortfile/before/store"),
    "ls-topics-plain": ("plain", "ls topics {store}"),
    "ls-queues-multi": ("multi", "ls queues {store}"),
    "ls-groups-delay": ("delay", "ls groups {store}"),
    "ls-files-transaction": ("transaction", "ls files {store}"),
    "cat-plain": ("plain", f"cat {{store}} {_MESSAGES}"),
    "cat-damaged": ("torn", "cat {store}/flip/before/store --from @661000 --limit 3 --body none"),
    "tail-transaction": ("transaction", "tail {store} -n 2 --body hex"),
    "get-physical": ("plain", "get {store} --physical 560"),
    "get-extension": ("cqext", "get {store} --topic orders --queue 5 --offset 3 --body none"),
    "get-timer": ("delay", "get {store} --topic rmq_sys_wheel_timer --queue 0 --offset 2"),
    "dump-log": ("transaction", "dump {store}/commitlog/00000000000000000000 --limit 2"),
    "dump-queue": ("transaction", "dump {store}/consumequeue/TxTopic/0/00000000000000000000 --limit 3"),
    "dump-batch-queue": ("multi", "dump {store}/batchconsumequeue/BcqTopic/0/00000000000000000000 --limit 2"),
    "dump-extension": ("cqext", "dump {store}/consumequeue_ext/orders/0/00000000000000000000 --limit 2"),
    "dump-index": ("transaction", "dump {store}/index/20261115231753106 --limit 4"),
    "dump-checkpoint": ("plain", "dump {store}/checkpoint"),
    "dump-checkpoint-fields": ("plain", "dump {store}/checkpoint --fields"),
    "dump-config": ("delay", "dump {store}/config/delayOffset.json"),
    "dump-abort": ("torn", "dump {store}/flip/before/store/abort"),
    "dump-timer-log": ("delay", "dump {store}/timerlog/00000000000000000000 --limit 2"),
    "dump-timer-check": ("delay", "dump {store}/config/timercheck"),
    "verify-plain": ("plain", "verify {store}"),
    "verify-flip": ("torn", "verify {store}/flip/before/store"),
    "verify-quick": ("torn", "verify {store}/truncated/before/store --quick"),
    "repair-plan-flip": ("torn", "repair {store}/flip/before/store --plan"),
    "repair-plan-nocqindex": ("torn", "repair {store}/nocqindex/before/store --plan"),
    "repair-plan-plain": ("plain", "repair {store} --plan"),
    "offsets-show": ("delay", "offsets show {store} --group CG_delay"),
    "offsets-set": ("delay", "offsets set {store} earliest --group CG_timer --topic TimerTopic --dry-run"),
    "stats-by-topic": ("delay", "stats {store} --by topic"),
    "stats-by-queue": ("multi", "stats {store} --by queue"),
    "stats-by-group": ("delay", "stats {store} --by group"),
    "diff-torn": ("torn", "diff {store}/truncated/before/store {store}/flip/before/store"),
    "explain": ("plain", "explain torn-tail"),
}
FORMS = ("table", "json")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_prints_what_its_transcript_says(
    name: str, form: str, golden: Golden, capsys: pytest.CaptureFixture[str]
) -> None:
    case, line = COMMANDS[name]
    store = golden(case) / "store" if case != "torn" else golden(case)
    code = main.run([*shlex.split(line.format(store=store)), "-o", form])
    captured = capsys.readouterr()
    shown = line.format(store="STORE")
    told = f"$ flintlog {shown} -o {form}\n{captured.out}"
    if captured.err:
        told += f"(stderr)\n{captured.err}"
    told += f"(exit code {code})\n"
    told = "".join(part.rstrip() + "\n" for part in told.replace(str(store), "STORE").splitlines())
    path = _FOLDER / f"{name}.{form}.txt"
    if os.environ.get("FLINTLOG_WRITE_TRANSCRIPTS"):
        path.write_text(told, "utf-8")
    assert told == path.read_text("utf-8")


def test_no_transcript_is_left_over() -> None:
    assert {path.name for path in _FOLDER.iterdir()} == {f"{name}.{form}.txt" for name in COMMANDS for form in FORMS}
