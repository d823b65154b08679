"""What each command prints on golden stores, for people and for programs, word for word.

FLINTLOG_WRITE_TRANSCRIPTS=1 writes them again; look at the difference before it is committed. Of each command at least
one transcript shows it at its work. Jobs on Spark are shown by `tests/pipeline/spark/test_transcripts.py`, nodes, which
run until they are stopped, by `test_node_transcripts.py`.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.cells import cell_len
from tests.cli.command_tree import command_lines
from tests.cli.transcript import FOLDER, FORMS, Case, Golden, check, tell

_MESSAGES = "--topic orders --queue 5 --limit 2"
_MADE_MS = 1_794_873_600_000  # 2026-11-17: two days after the golden stores were written
_STORED_MS = 1_700_006_400_000  # 2023-11-15: what their records say
_WIDTHS = ((" {2,}", "  "), ("─{3,}", "───"))  # of columns that hold a path
_EXPORT = "export {store} {room}/lines --topic TxTopic"
_TYPED = ("topics", "cat TimerTopic --limit 2", "get rmq_sys_wheel_timer 0 2", "lag", "verify", "explain torn-tail")
_BACKUP = "backup {store} {room}/backup"

CASES = {
    "info-plain": Case("plain", "info {store}"),
    "info-torn": Case("torn", "info {store}/shortfile/before/store"),
    "ls-topics-plain": Case("plain", "ls topics {store}"),
    "ls-queues-multi": Case("multi", "ls queues {store}"),
    "ls-groups-delay": Case("delay", "ls groups {store}"),
    "ls-files-transaction": Case("transaction", "ls files {store}"),
    "cat-plain": Case("plain", f"cat {{store}} {_MESSAGES}"),
    "cat-damaged": Case("torn", "cat {store}/flip/before/store --from @661000 --limit 3 --body none"),
    "tail-transaction": Case("transaction", "tail {store} -n 2 --body hex"),
    "get-physical": Case("plain", "get {store} --physical 560"),
    "get-extension": Case("cqext", "get {store} --topic orders --queue 5 --offset 3 --body none"),
    "get-timer": Case("delay", "get {store} --topic rmq_sys_wheel_timer --queue 0 --offset 2"),
    "dump-log": Case("transaction", "dump {store}/commitlog/00000000000000000000 --limit 2"),
    "dump-queue": Case("transaction", "dump {store}/consumequeue/TxTopic/0/00000000000000000000 --limit 3"),
    "dump-batch-queue": Case("multi", "dump {store}/batchconsumequeue/BcqTopic/0/00000000000000000000 --limit 2"),
    "dump-extension": Case("cqext", "dump {store}/consumequeue_ext/orders/0/00000000000000000000 --limit 2"),
    "dump-index": Case("transaction", "dump {store}/index/20261115231753106 --limit 4"),
    "dump-checkpoint": Case("plain", "dump {store}/checkpoint"),
    "dump-checkpoint-fields": Case("plain", "dump {store}/checkpoint --fields"),
    "dump-config": Case("delay", "dump {store}/config/delayOffset.json"),
    "dump-abort": Case("torn", "dump {store}/flip/before/store/abort"),
    "dump-timer-log": Case("delay", "dump {store}/timerlog/00000000000000000000 --limit 2"),
    "dump-timer-check": Case("delay", "dump {store}/config/timercheck"),
    "verify-plain": Case("plain", "verify {store}"),
    "verify-flip": Case("torn", "verify {store}/flip/before/store"),
    "verify-quick": Case("torn", "verify {store}/truncated/before/store --quick"),
    "repair-plan-flip": Case("torn", "repair {store}/flip/before/store --plan"),
    "repair-plan-nocqindex": Case("torn", "repair {store}/nocqindex/before/store --plan"),
    "repair-plan-plain": Case("plain", "repair {store} --plan"),
    "offsets-show": Case("delay", "offsets show {store} --group CG_delay"),
    "offsets-set": Case(
        "delay",
        "offsets set {store} earliest --group CG_timer --topic TimerTopic",
        writes=True,
        masks_times=True,
    ),
    "offsets-set-dry-run": Case("delay", "offsets set {store} earliest --group CG_timer --topic TimerTopic --dry-run"),
    "stats-by-topic": Case("delay", "stats {store} --by topic"),
    "stats-by-queue": Case("multi", "stats {store} --by queue"),
    "stats-by-group": Case("delay", "stats {store} --by group"),
    "diff-torn": Case("torn", "diff {store}/truncated/before/store {store}/flip/before/store"),
    "report": Case("delay", "report {store} --top 3"),
    "explain": Case("plain", "explain torn-tail"),
    "shell": Case("delay", "shell {store}", typed=_TYPED),
    "stats": Case("transaction", "stats {store}", now_ms=_MADE_MS),
    "forecast": Case("plain", "forecast {store}", now_ms=_STORED_MS),
    "retention": Case("plain", "retention {store}", now_ms=_MADE_MS, masks=_WIDTHS),
    "top": Case(
        "delay", "top {store} --interval 0.1", now_ms=_MADE_MS, masks=((r'"span_s": [\d.e-]+', '"span_s": S'),)
    ),
    "completion": Case("plain", "completion bash"),
    "offsets-clone": Case("delay", "offsets clone {store} --from CG_delay --to new", writes=True, masks_times=True),
    "offsets-reset": Case("delay", "offsets reset {store} --group CG_timer --time 0", writes=True, masks_times=True),
    "export": Case("transaction", "export {store} {room}/lines --topic TxTopic"),
    "import": Case("transaction", "import {room}/new {room}/lines --create", before=(_EXPORT,), masks_times=True),
    "put": Case("plain", "put {room}/new --topic orders --tag paid --key o-17 --create hello"),
    "consume": Case("transaction", "consume {store} --group g --topic TxTopic --limit 2 --body hex", writes=True),
    "backup": Case("transaction", "backup {store} {room}/backup", masks_times=True),
    "backup-verify": Case("transaction", "backup verify {room}/backup", before=(_BACKUP,), masks_times=True),
    "restore": Case("transaction", "restore {room}/backup {room}/new", before=(_BACKUP,), masks_times=True),
    "repair-apply": Case("torn/flip/before/store", "repair {store} --apply", writes=True, masks_times=True),
    "doctor": Case("plain", "doctor {room}", only_form=True),
    "replica-status": Case("plain", "replica status 127.0.0.1:1"),
    "serve-refused": Case("plain", "serve {room}/new --role slave"),
    "bench": Case(
        "plain",
        'bench --quick --only "put 128 B" --directory {room}',
        only_form=True,
        masks=(("(?s)messages a second.*ours is", "TITLE"), _WIDTHS[1]),  # wrapped by how wide the figures are
    ),
    "bench-refused": Case(
        "plain", "bench --only nothing", masks=((r"(there are:).*", r"\1 …"), (r"\[store\|.*\]", "[…]"))
    ),
    "pipeline-rebuild-refused": Case("plain", "pipeline rebuild {room}/nowhere"),
    "pipeline-verify-refused": Case("plain", "pipeline verify {room}/nowhere"),
    "pipeline-export-refused": Case("plain", "pipeline export {room}/nowhere {room}/table"),
    "pipeline-report-refused": Case("plain", "pipeline report {room}/nowhere"),
    "pipeline-compact-refused": Case("plain", "pipeline compact {room}/nowhere {room}/new"),
    "pipeline-dispatch-refused": Case("plain", "pipeline dispatch {room}/nowhere"),
    "pipeline-replay-refused": Case("plain", "pipeline replay {room}/nowhere {room}/new"),
    "pipeline-sql-refused": Case("plain", "pipeline sql {room}/nowhere 'select 1'"),
}

_COUNTS = "select topic, count(*) as messages from messages group by topic order by topic"
_SECONDS = ((r'(seconds"?:? +)[\d.e-]+', r"\1S"),)
_NAME = ((r"replay-[0-9a-f]+", "replay-DIGEST"),)
_DISPATCH = "pipeline dispatch {room}/new --once --config {room}/config.json"
SPARK_CASES = {
    "pipeline-sql": Case("transaction", f'pipeline sql {{store}} "{_COUNTS}"'),
    "pipeline-verify": Case("transaction", "pipeline verify {store}"),
    "pipeline-rebuild": Case("transaction", "pipeline rebuild {store} --into {room}/new", masks=_SECONDS),
    "pipeline-export": Case("transaction", "pipeline export {store} {room}/table", masks=_SECONDS),
    "pipeline-report": Case("transaction", "pipeline report {store} --topic TxTopic --top 3"),
    "pipeline-compact": Case("transaction", "pipeline compact {store} {room}/new --topic TxTopic", masks=_SECONDS),
    "pipeline-replay": Case("transaction", "pipeline replay {store} {room}/new", masks=(*_SECONDS, *_NAME)),
    "pipeline-dispatch": Case("plain", _DISPATCH, masks=_SECONDS),
}
"""What `tests/pipeline` shows: these start Spark."""

AT_WIDTHS = (
    *("ls-queues-multi", "ls-files-transaction", "ls-groups-delay", "cat-plain", "cat-damaged"),
    *("tail-transaction", "get-physical", "dump-log", "dump-queue", "verify-flip", "verify-quick", "repair-plan-flip"),
    *("stats-by-queue", "stats-by-group", "retention", "forecast", "diff-torn", "explain", "offsets-show"),
)
"""Commands that are shown on a narrow and a wide terminal too."""
WIDTHS = (80, 200)

NODE_CASES = ("serve", "replica-status-pair")
"""What `test_node_transcripts.py` shows."""


@pytest.fixture(autouse=True)
def utc() -> Iterator[None]:
    """Hours of the day are those of this zone."""
    with pytest.MonkeyPatch.context() as changed:
        changed.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", CASES)
def test_a_command_prints_what_its_transcript_says(
    name: str,
    form: str,
    golden: Golden,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check(name, form, tell(CASES[name], form, golden, tmp_path, capsys, monkeypatch))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", AT_WIDTHS)
def test_a_terminal_shows_it_within_its_width(
    name: str,
    width: int,
    golden: Golden,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    printed = tell(CASES[name], "table", golden, tmp_path, capsys, monkeypatch, width)
    check(name, str(width), printed)
    shown = printed.partition("\n")[2].partition("(stderr)")[0].splitlines()
    assert [line for line in shown if cell_len(line) > width] == []


def test_no_transcript_is_left_over() -> None:
    names = [*CASES, *SPARK_CASES, *NODE_CASES]
    kept = {f"{name}.{form}.txt" for name in names for form in FORMS}
    kept |= {f"{name}.{width}.txt" for name in AT_WIDTHS for width in WIDTHS}
    assert {path.name for path in FOLDER.iterdir()} == kept


def test_every_command_has_a_transcript_of_its_work() -> None:
    """A new command needs one: add it to `CASES`. A refusal alone does not show what a command does."""
    shown = set()
    for path in FOLDER.glob("*.table.txt"):
        printed = path.read_text("utf-8")
        if printed.endswith(("(exit code 0)\n", "(exit code 1)\n")):  # 1: something was found, or differs
            words = shlex.split(printed.splitlines()[0])[2:]
            shown |= {tuple(words[:1]), tuple(words[:2])}
    assert [words for words in command_lines() if words not in shown] == []
