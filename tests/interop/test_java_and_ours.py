"""One directory, two stores: what one writes the other reads, cleanly stopped or killed, and they may take turns.

"The same" is strong here: every field of every record, every entry of every queue, the answers to hundreds of
questions by key, time and offset, and, where both write at the same times, every byte.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from flintlog.store.model.message import Message
from flintlog.store.open_store import open_store
from flintlog.store.options.store_config import StoreConfig
from flintlog.store.store import Store
from interop.java_store import JavaStore
from interop.questions import Answer, KeyAnswer, KeyQuestion, Question, answers_apart, ask, questions_about
from interop.store_view import StoreView, differences, view_of
from interop.workload import OPTIONS, QUEUE_TYPES, Put, workload

_PROJECT = Path(__file__).parents[2]

Digest = Callable[[Path], dict[str, str]]

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("java"), pytest.mark.timeout(600)]


def _counts(quick: int, big: int) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "count", [pytest.param(quick, id="quick"), pytest.param(big, id="big", marks=pytest.mark.slow)]
    )


def _config() -> StoreConfig:
    return StoreConfig.from_rocketmq(OPTIONS).with_changes(topic_queue_types=QUEUE_TYPES)


def _java(directory: Path) -> JavaStore:
    return JavaStore(directory, OPTIONS, topic_queue_types=QUEUE_TYPES)


def _put(store: Store, puts: Iterable[Put]) -> int:
    count = 0
    for put in puts:
        receipts = [store.put(put)] if isinstance(put, Message) else store.put_batch(list(put))
        assert all(receipts), receipts
        count += len(receipts)
    return count


def _look(directory: Path, seed: int) -> tuple[StoreView, list[Question], list[Answer]]:
    """What ours sees in a directory, without touching it."""
    with open_store(directory, _config(), read_only=True) as store:
        view = view_of(store)
        questions = questions_about(view, seed=seed)
        return view, questions, [ask(store, question) for question in questions]


@_counts(20_000, 200_000)
def test_java_sees_what_we_wrote_and_changes_nothing(count: int, tmp_path: Path, digest: Digest) -> None:
    directory = tmp_path / "store"
    with open_store(directory, _config()) as store:
        assert _put(store, workload(count, seed=1)) == count
        store.wait_dispatched()
        view = view_of(store)
        questions = questions_about(view, seed=1)
        answers = [ask(store, question) for question in questions]
    assert len(view.messages) == count
    before = digest(directory)
    java = _java(directory)
    try:
        java.verify_against(view)
        assert answers_apart(questions, answers, java.answers(questions)) == []
    finally:
        java.halt()
    assert digest(directory) == before


@_counts(20_000, 200_000)
def test_java_recovers_what_a_killed_writer_of_ours_left(count: int, tmp_path: Path) -> None:
    directory = tmp_path / "store"
    acknowledged = _write_and_kill(directory, count, seed=2)
    assert (directory / "abort").exists()
    shutil.copytree(directory, tmp_path / "ours")
    java = _java(directory)
    try:
        with open_store(tmp_path / "ours", _config()) as store:
            store.wait_dispatched()
            view = view_of(store)
            questions = questions_about(view, seed=2)
            answers = [ask(store, question) for question in questions]
        assert len(view.messages) >= acknowledged
        java.verify_against(view)
        assert _repeated(view, questions, answers) == []
        assert _apart_but_for_repeats(questions, answers, java.answers(questions)) == []
    finally:
        java.halt()
    wanted = _flags(workload(count, seed=2))[: len(view.messages)]
    assert [(message.topic, message.flag) for message in view.messages.values()] == wanted


def _repeated(view: StoreView, questions: list[Question], answers: list[Answer]) -> list[str]:
    """Answers by key that name a message more often than the message names the key."""
    return [
        f"{question}: {offset}"
        for question, answer in zip(questions, answers, strict=True)
        if isinstance(question, KeyQuestion) and isinstance(answer, KeyAnswer) and question.index_type is None
        for offset, times in Counter(answer.physical_offsets).items()
        if times > (view.messages[offset].keys or "").split(" ").count(question.key)
    ]


def _apart_but_for_repeats(questions: list[Question], ours: list[Answer], theirs: list[Answer]) -> list[str]:
    """Java's index may name a message twice after a crash, once before and once after the end of an index file.

    So answers by key are taken without repetitions, and those that were cut off at their most are left out.
    """
    kept = [
        (question, _once(mine), _once(other))
        for question, mine, other in zip(questions, ours, theirs, strict=True)
        if not (isinstance(question, KeyQuestion) and (_is_cut(question, mine) or _is_cut(question, other)))
    ]
    return answers_apart(*zip(*kept, strict=True))


def _once(answer: Answer) -> Answer:
    return KeyAnswer(sorted(set(answer.physical_offsets))) if isinstance(answer, KeyAnswer) else answer


def _is_cut(question: KeyQuestion, answer: Answer) -> bool:
    return isinstance(answer, KeyAnswer) and len(answer.physical_offsets) >= question.max_num


def _flags(puts: Iterable[Put]) -> list[tuple[str, int]]:
    messages = [message for put in puts for message in ([put] if isinstance(put, Message) else put)]
    return [(message.topic, message.flag) for message in messages]


def _write_and_kill(directory: Path, count: int, seed: int) -> int:
    """Let a process write and kill it at about nine tenths; the count of what it had acknowledged by then."""
    command = [sys.executable, "-m", "tests.interop.writer", str(directory), str(count), str(seed)]
    acknowledged = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=_PROJECT) as process:
        assert process.stdout is not None
        for line in process.stdout:
            acknowledged = int(line.split()[1]) if line.startswith("acknowledged") else acknowledged
            if acknowledged >= count * 9 // 10 or line == "done\n":
                break
        process.kill()
    assert acknowledged >= count * 9 // 10
    return acknowledged


@_counts(5_000, 100_000)
@pytest.mark.parametrize("end", ["closed", "killed"])
def test_ours_sees_what_java_wrote(count: int, end: str, tmp_path: Path) -> None:
    directory = tmp_path / "store"
    java = _java(directory)
    try:
        receipts = java.put(workload(count, seed=3))
        assert {receipt.status for receipt in receipts} == {"PUT_OK"}
        view = java.view()
        questions = questions_about(view, seed=3)
        answers = java.answers(questions)
        if end == "closed":
            java.close()
    finally:
        java.halt()
    seen, _, _ = _look(directory, seed=3)
    assert differences(view, seen) == []
    with open_store(directory, _config()) as store:
        store.wait_dispatched()
        assert differences(view, view_of(store)) == []
        assert answers_apart(questions, answers, [ask(store, question) for question in questions]) == []


def test_taking_turns(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    parts = [list(workload(2_000, seed=seed)) for seed in range(10, 14)]
    with _java(directory) as java:
        java.put(parts[0])
    with open_store(directory, _config()) as store:
        _put(store, parts[1])
    with _java(directory) as java:
        java.put(parts[2])
        view = java.view()
    with open_store(directory, _config()) as store:
        store.wait_dispatched()
        assert differences(view, view_of(store)) == []
        _put(store, parts[3])
        store.wait_dispatched()
        view = view_of(store)
        questions = questions_about(view, seed=4)
        answers = [ask(store, question) for question in questions]
    java = _java(directory)
    try:
        java.verify_against(view)
        assert answers_apart(questions, answers, java.answers(questions)) == []
    finally:
        java.halt()
    wanted = [flag for part in parts for flag in _flags(part)]
    assert [(message.topic, message.flag) for message in view.messages.values()] == wanted


def test_the_same_messages_at_the_same_times_give_the_same_bytes(tmp_path: Path, digest: Digest) -> None:
    now_ms = clock_ms = 1_700_000_000_000
    puts = list(workload(3_000, seed=5))
    with _java(tmp_path / "java") as java:
        java.put(puts, clock_ms=clock_ms)
    with open_store(tmp_path / "ours", _config(), clock=lambda: now_ms) as store:
        for put in puts:
            _put(store, [put])
            now_ms += 1
    theirs, ours = digest(tmp_path / "java"), digest(tmp_path / "ours")
    # An index file is named after the moment it was made; its place in the row is what counts.
    assert _without_index_names(ours) == _without_index_names(theirs)


def _without_index_names(files: dict[str, str]) -> list[tuple[str, str]]:
    named = [(name, content) for name, content in files.items() if not name.startswith("index/")]
    return named + [("index", content) for name, content in sorted(files.items()) if name.startswith("index/")]
