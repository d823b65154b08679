"""`flintlog top` without a terminal: one frame, as text or for programs; what it draws, and in which order."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flintlog.cli import main
from flintlog.cli.top import top
from flintlog.cli.top.top_frame import print_frame
from flintlog.cli.top.top_view import SORTS, View
from flintlog.maintenance.inspect.live import GroupSnapshot, Snapshot, TopicSnapshot

Golden = Callable[[str], Path]
_WRITER = Path(__file__).parents[1] / "top_writer.py"


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Path]:
    """A store that another process is writing."""
    store = tmp_path / "store"
    command = [sys.executable, str(_WRITER), str(store)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None and writer.stdin is not None
        assert writer.stdout.readline() == b"running\n"
        yield store
        writer.stdin.close()
        assert writer.wait(60) == 0


def snapshot(**changes: object) -> Snapshot:
    topics = (
        TopicSnapshot("a", 4, 100, 1.0, 9000.0, 7, 1_700_000_000_000),
        TopicSnapshot("b", 2, 900, 5.0, 50.0, None, None),
        TopicSnapshot("%RETRY%c", 1, 0, 0.0, 0.0, 0, None),
    )
    groups = (GroupSnapshot("near", "b", 2, 0, 2.0), GroupSnapshot("far", "a", 4, 7, 0.5))
    printed: dict[str, object] = {
        "path": "orders-store", "at_ms": 1_700_000_000_000, "span_s": 1.0, "is_running": True,
        "messages_a_second": 6.0, "bytes_a_second": 9050.0, "min_offset": 0, "max_offset": 123_456, "messages": 1000,
        "files": 12, "bytes": 5 << 20, "disk_bytes": 100 << 30, "disk_free_bytes": 20 << 30, "disk_used_ratio": 0.8,
        "topics": topics, "groups": groups,
    }  # fmt: skip
    return Snapshot(**{**printed, **changes})  # type: ignore[arg-type]


def names(sort: str, filter: str = "") -> list[str]:
    return [topic.topic for topic in View(sort=sort, filter=filter).topics(snapshot())]


def test_a_frame_in_a_pipe(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["top", str(written), "--interval", "0.5"]) == 0
    shown = capsys.readouterr().out
    head, *rest = shown.splitlines()
    assert head.startswith("flintlog top  running  20") and head.endswith(str(written))
    topics = [line.split()[0] for line in rest if line.strip().startswith(("orders", "payments", "returns"))]
    assert topics == ["orders", "payments", "returns"]
    assert "billing" in shown and "\x1b" not in shown


def test_a_frame_for_programs(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["top", str(written), "--interval", "0.5", "-o", "json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    orders, payments, returns = printed["topics"]
    assert (orders["topic"], payments["topic"], returns["topic"]) == ("orders", "payments", "returns")
    assert orders["messages_a_second"] > payments["messages_a_second"] > 0
    assert (returns["messages"], returns["queues"], returns["messages_a_second"]) == (20, 2, 0)
    assert printed["messages_a_second"] == pytest.approx(sum(each["messages_a_second"] for each in printed["topics"]))
    assert printed["groups"][0]["group"] == "billing"
    assert (printed["is_running"], printed["min_offset"]) == (True, 0)


def test_a_store_that_nobody_runs(golden: Golden, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["top", str(golden("plain") / "store"), "--interval", "0.1", "-o", "csv"]) == 0
    (row,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (row["is_running"], row["messages"], row["messages_a_second"]) == ("false", "3000", "0.0")


def test_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["top", str(tmp_path)]) == 3
    assert "no store here" in capsys.readouterr().err
    assert main.run(["top", str(tmp_path / "none")]) == 2
    assert main.run(["top", str(tmp_path), "--interval", "0"]) == 2


def test_without_textual_the_screen_is_a_missing_extra(
    golden: Golden, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(top, "_is_terminal", lambda: True)
    monkeypatch.setitem(sys.modules, "textual", None)
    monkeypatch.delitem(sys.modules, "flintlog.cli.top.top_app", raising=False)
    for name in [name for name in sys.modules if name.startswith("textual.")]:
        monkeypatch.setitem(sys.modules, name, None)
    assert main.run(["top", str(golden("plain") / "store")]) == 2
    assert "pip install 'flintlog[top]', or add --once" in capsys.readouterr().err


def test_orders() -> None:
    assert tuple(SORTS) == top._SORTS
    assert names("rate") == ["b", "a", "%RETRY%c"]
    assert names("bytes") == ["a", "b", "%RETRY%c"]
    assert names("messages") == ["b", "a", "%RETRY%c"]
    assert names("lag") == ["a", "%RETRY%c", "b"]
    assert names("name") == ["%RETRY%c", "a", "b"]
    view = View()
    seen = []
    for _ in range(6):
        seen.append(view.sort)
        view.next_sort()
    assert seen == ["rate", "bytes", "messages", "lag", "name", "rate"]


def test_a_filter_takes_topics_and_groups_by_a_part_of_a_name() -> None:
    assert names("name", "retry") == ["%RETRY%c"]
    groups = View(filter="FAR").groups(snapshot())
    assert [group.group for group in groups] == ["far"]
    assert [group.group for group in View().groups(snapshot())] == ["far", "near"]


def test_a_frame_word_for_word() -> None:
    view = View()
    for rate in (1.0, 3.0, 6.0):
        view.add(snapshot(messages_a_second=rate))
    stream = io.StringIO()
    print_frame(snapshot(), view, stream)
    lines = [line.rstrip() for line in stream.getvalue().splitlines()]
    assert lines[0] == "flintlog top  running  2023-11-14 22:13:20Z  orders-store"
    assert lines[3].split("  ")[0] == "6 msg/s" and lines[3].split()[-4:] == ["123,456", "80", "%", "━━━━━━━━──"]
    assert [line[-3:] for line in lines[5:8]] == ["  █", " ▄█", "▄██"]
    assert any(line.split() == ["far", "a", "4", "7", "0.5", "falling", "behind"] for line in lines)
    assert any(line.split() == ["near", "b", "2", "0", "2", "caught", "up"] for line in lines)


def test_a_terminal_without_blocks_gets_plain_marks() -> None:
    view = View(can_draw=False)
    for rate in (1.0, 6.0):
        view.add(snapshot(messages_a_second=rate))
    stream = io.StringIO()
    print_frame(snapshot(groups=()), view, stream)
    drawn = "".join(line for line in stream.getvalue().splitlines() if "msg/s" in line or "%" in line)
    assert "########.." in drawn and "@" in drawn and "█" not in drawn and "━" not in drawn


def test_names_that_would_act_on_a_terminal_do_not() -> None:
    stream = io.StringIO()
    print_frame(snapshot(topics=(TopicSnapshot("\x1b[31mred", 1, 1, 1.0, 1.0, None, None),)), View(), stream)
    assert "?[31mred" in stream.getvalue() and "\x1b" not in stream.getvalue()


def test_a_long_list_is_cut_and_says_so() -> None:
    topics = tuple(TopicSnapshot(f"t{number}", 1, 1, 1.0, 1.0, None, None) for number in range(60))
    stream = io.StringIO()
    print_frame(snapshot(topics=topics), View(), stream, rows=50)
    assert "and 10 topics more" in stream.getvalue()


@pytest.mark.parametrize(
    ("topic", "is_dim"),
    [("TBW102", True), ("rmq_sys_wheel_timer", True), ("%DLQ%g", True), ("SCHEDULE_TOPIC_OF_MINE", False)],
)
def test_only_topics_that_are_not_the_users_are_dim(topic: str, is_dim: bool) -> None:
    name = View().topic_cells(TopicSnapshot(topic, 1, 0, 0.0, 0.0, 0, None), 0)[0]
    assert (name.style == "dim") is is_dim
