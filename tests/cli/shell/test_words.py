"""The words of `flintlog shell`: which command line each stands for, and what completes it."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from flintlog import Message, open_store
from flintlog.checks.finding_kinds import KINDS
from flintlog.cli.shell.words import WORDS, Target, completions, meaning

TARGET = Target("S")


@pytest.mark.parametrize(
    ("line", "runs"),
    [
        ("topics", "ls topics S"),
        ("queues -o json", "ls queues S -o json"),
        ("groups", "ls groups S"),
        ("lag", "stats --by group S"),
        ("verify --quick", "verify S --quick"),
        ("cat", "cat S"),
        ("cat orders", "cat S --topic orders"),
        ("cat orders 3 --limit 5", "cat S --topic orders --queue 3 --limit 5"),
        ("cat --limit 5 orders", "cat S --limit 5 --topic orders"),
        ("cat -o json orders", "cat S -o json --topic orders"),
        ("cat -q orders", "cat S -q --topic orders"),
        ("cat --key=@7 orders", "cat S --key=@7 --topic orders"),
        ("cat --from @7", "cat S --from @7"),
        ("get orders 0 17", "get S --topic orders --queue 0 --offset 17"),
        ("get @744 --body hex", "get S --physical 744 --body hex"),
        ("get --key o-17", "get S --key o-17"),
        ("explain", "explain"),
        ("explain torn-tail", "explain torn-tail"),
        ("explain @744", "get S --physical 744"),
        ("explain --key o-17", "get S --key o-17"),
        ("explain orders 0 17", "get S --topic orders --queue 0 --offset 17"),
        ("topics more", "ls topics S more"),
    ],
)
def test_a_word_stands_for_a_command_line(line: str, runs: str) -> None:
    name, *rest = shlex.split(line)
    assert shlex.join(TARGET.line(meaning(name, rest), rest).arguments) == runs


def test_options_of_the_shell_come_before_those_of_a_line() -> None:
    target = Target("S", ("-o", "json", "-q"), "broker.conf")
    assert target.line(WORDS["topics"], ["-o", "csv"]).arguments == [
        *("ls", "topics", "-o", "json", "-q", "S", "--config", "broker.conf", "-o", "csv"),
    ]
    assert target.line(meaning("explain", ["torn-tail"]), ["torn-tail"]).arguments == [
        *("explain", "-o", "json", "-q", "torn-tail"),
    ]


@pytest.fixture
def store(tmp_path: Path) -> Target:
    with open_store(tmp_path / "a store") as opened:
        for topic in ("orders", "order-events", "payments"):
            opened.put(Message(topic, b"x"))
        opened.wait_dispatched()
        opened.consumer_offsets.commit("billing", "orders", 0, 1)
    return Target(str(tmp_path / "a store"))


@pytest.mark.parametrize(
    ("before", "offered"),
    [
        ("", [*WORDS, "help", "exit"]),
        ("to", ["topics"]),
        ("help c", ["cat"]),
        ("cat or", ["order-events", "orders"]),
        ("cat 'or", ["order-events", "orders"]),
        ("cat --topic pay", ["payments"]),
        ("cat --limit 3 pay", ["payments"]),
        ("cat orders ", []),
        ("cat orders 0 or", []),
        ("cat --wh", ["--where"]),
        ("cat --body h", ["hex"]),
        ("get pay", ["payments"]),
        ("explain torn", ["torn-tail"]),
        ("explain orders 0 t", []),
        ("explain pay", ["payments"]),
        ("topics x", []),
        ("verify --qu", ["--quick", "--quiet"]),
        ("nonsense x", []),
    ],
)
def test_a_tab_offers_what_may_follow(before: str, offered: list[str], store: Target) -> None:
    assert [item.value for item in completions(before, store)] == offered


def test_a_tab_after_explain_offers_all_findings(store: Target) -> None:
    assert [item.value for item in completions("explain ", store)] == [
        *sorted(KINDS),
        *("order-events", "orders", "payments"),
    ]
