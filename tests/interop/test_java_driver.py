"""The driver itself, against what the real store once wrote: Java opens golden directories and says what they say."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from flintlog.errors import DamagedStore, FlintlogError
from flintlog.store.model.message import Message
from interop.java_process import JavaProcess
from interop.java_runtime import JavaRuntime
from interop.java_store import JavaStore
from interop.questions import answers_apart, parse_answer, parse_question
from interop.store_view import differences, make_view, parse_message_view

_PROJECT = Path(__file__).parents[2]

Golden = Callable[[str], Path]

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("java")]


def _open_copy(case: Path, target: Path) -> JavaStore:
    shutil.copytree(case / "store", target)
    config = json.loads((case / "config.json").read_text())
    return JavaStore(target, config["set"], topic_queue_types=config["topicQueueTypes"])


@pytest.mark.parametrize("case", ["plain", "multi"])
def test_java_answers_as_the_golden_file_says(case: str, golden: Golden, tmp_path: Path) -> None:
    lines = (golden(case) / "queries.jsonl").read_bytes().splitlines()
    questions = [parse_question(line) for line in lines]
    java = _open_copy(golden(case), tmp_path / "store")
    try:
        expected = [parse_answer(question, line) for question, line in zip(questions, lines, strict=True)]
        assert answers_apart(questions, expected, java.answers(questions)) == []
        manifest = (golden(case) / "manifest.jsonl").read_bytes().splitlines()
        assert java.messages() == [parse_message_view(line) for line in manifest]
    finally:
        java.halt()


def test_a_store_that_java_closed_opens_as_it_was(tmp_path: Path) -> None:
    with JavaStore(tmp_path / "store") as java:
        (receipt,) = java.put([Message("orders", b"one", tags="paid", keys=["o-17", "o-18"])])
        before = java.view()
    assert receipt.status == "PUT_OK"
    java = JavaStore(tmp_path / "store")
    try:
        java.verify_against(before)
        assert java.query("orders", "o-18") == [receipt.physical_offset]
        assert java.get("orders", 0, 0).physical_offsets == [receipt.physical_offset]
        assert java.offset_at("orders", 0, 0) == 0
    finally:
        java.halt()


def test_a_difference_is_told(tmp_path: Path) -> None:
    java = JavaStore(tmp_path / "store", clock_ms=1_700_000_000_000)
    try:
        java.put([Message("orders", b"one"), Message("orders", b"two")])
        seen = java.view()
        without = make_view(list(seen.messages.values())[1:], seen.queues.values(), [])
        reported = differences(without, seen)
        assert reported[0] == "message at 0: only on the right"
        assert any("entries of queue" in sentence for sentence in reported)
        with pytest.raises(AssertionError, match="message at 0"):
            java.verify_against(without)
    finally:
        java.halt()


def test_a_directory_that_java_refuses_is_an_error(tmp_path: Path) -> None:
    log = tmp_path / "store" / "commitlog"
    log.mkdir(parents=True)
    (log / "00000000000000000000").write_bytes(b"short")
    (log / "00000000001073741824").write_bytes(b"short")
    with pytest.raises(DamagedStore, match="refuses"):
        JavaStore(tmp_path / "store")


def test_a_closed_store_cannot_be_asked(tmp_path: Path) -> None:
    java = JavaStore(tmp_path / "store")
    java.halt()
    java.halt()
    with pytest.raises(FlintlogError, match="closed"):
        java.info()


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def test_java_does_not_outlive_its_parent() -> None:
    program = "import os; from interop.java_process import JavaProcess; print(JavaProcess().pid, flush=True)"
    program += "; os.kill(os.getpid(), 9)"
    command = [sys.executable, "-c", program]
    reported = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=_PROJECT)
    deadline = time.monotonic() + 20
    while _is_running(int(reported.stdout)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _is_running(int(reported.stdout))


def test_a_process_that_cannot_start_quotes_java(java: JavaRuntime) -> None:
    with pytest.raises(FlintlogError, match=r"did not start.*no-such-option"):
        JavaProcess(runtime=java, jvm_options=["-XX:+no-such-option"])
