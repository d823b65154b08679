"""The report: figures are those of the messages, and the page stands alone."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pyarrow as pa
import pytest
from tests.pages import Golden
from tests.pipeline.conftest import COUNT, fill
from tests.pipeline.reading.test_source import own_rows

from flintlog.cli.main import run
from flintlog.errors import DamagedStore, InvalidConfig
from flintlog.pipeline.jobs.plots import bars, columns
from flintlog.pipeline.reading import logs
from flintlog.pipeline.report import Report, find_stores, report
from flintlog.pipeline.report_here import Tally, report_here
from flintlog.pipeline.report_page import render_report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SVG = "{http://www.w3.org/2000/svg}"


def test_figures_are_those_of_the_messages(spark: SparkSession, tmp_path: Path) -> None:
    store = fill(tmp_path / "store")
    offsets = {"offsetTable": {"orders@readers": {0: 10}}}
    (store / "config").mkdir(exist_ok=True)
    (store / "config" / "consumerOffset.json").write_text(json.dumps(offsets))
    rows, found = own_rows(store), report(spark, store, top=1)
    delays = sorted(int(str(row["store_timestamp"])) - int(str(row["born_timestamp"])) for row in rows)
    assert (found.totals["messages"], found.totals["topics"], found.totals["queues"]) == (COUNT, 2, 4)
    assert found.totals["bytes"] == sum(int(str(row["size"])) for row in rows)
    assert found.totals["delay_ms_max"] == delays[-1]
    assert delays[0] <= found.totals["delay_ms_p50"] <= delays[-1]  # type: ignore[operator]
    assert {row["topic"]: row["messages"] for row in found.topics} == Counter(row["topic"] for row in rows)
    assert sum(int(str(row["messages"])) for row in found.over_time) == COUNT
    assert sum(int(str(row["messages"])) for row in found.sizes) == COUNT
    assert sum(row["messages"] for row in found.queues if row["topic"] == "orders") == 200  # type: ignore[misc]
    with_all = sum(row["topic"] == "orders" and "all" in row["keys"] for row in rows)  # type: ignore[operator]
    assert found.keys == [{"topic": "orders", "key": "all", "messages": with_all, "share": with_all / 200}]
    assert found.groups == [
        {"group": "readers", "topic": "orders", "queue_id": 0, "offset": 10, "max_offset": 100, "lag": 90}
    ]


@pytest.mark.parametrize("name", ["plain", "multi", "delay", "transaction"])
def test_without_spark_the_figures_are_the_same(spark: SparkSession, golden: Golden, name: str) -> None:
    store = golden(name) / "store"
    assert report_here(find_stores(store), top=7) == report(spark, store, top=7)


def test_without_spark_a_glob_of_stores_and_one_topic_of_them_have_the_same_figures_too(
    spark: SparkSession, tmp_path: Path
) -> None:
    for broker in ("a", "b"):
        fill(tmp_path / broker)
    both = str(tmp_path / "*")
    assert report_here(find_stores(both)) == report(spark, both)
    assert report_here(find_stores(both), topics=["orders"]) == report(spark, both, topics=["orders"])


def test_without_spark_damage_is_passed_over_like_with_it(spark: SparkSession, golden: Golden) -> None:
    store = golden("torn") / "flip" / "before" / "store"
    assert report_here(find_stores(store)) == report(spark, store)


def test_counts_are_added_up_when_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flintlog.pipeline.report_here._COUNTED_AT_ONCE", 2)
    tally = Tally(("size",))
    for _ in range(10):
        tally.add(pa.table({"size": [1, 2, 3, 1], "messages": [1, 1, 1, 1]}))
    assert sorted(tally.table().to_pylist(), key=str) == [
        {"size": 1, "messages": 20},
        {"size": 2, "messages": 10},
        {"size": 3, "messages": 10},
    ]


class Reader(HTMLParser):
    """Looks whether every element is closed, and collects what the page refers to."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [f"{name}={value}" for name, value in attrs if name in ("src", "href", "onload", "onclick")]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


FIGURES = ("size_p50", "size_p90", "size_p95", "size_p99", "size_max")
DELAYS = ("delay_ms_p50", "delay_ms_p90", "delay_ms_p95", "delay_ms_p99", "delay_ms_max")


def made_up(topic: str) -> Report:
    """A report of one message every second."""
    figures: dict[str, object] = {"messages": 3, "bytes": 300, "mean_size": 100.0}
    figures |= dict.fromkeys(FIGURES, 100) | dict.fromkeys(DELAYS, 7)
    return Report(
        "store",
        1000,
        {"first_ms": 1000, "last_ms": 4000, "topics": 1, "queues": 1, **figures},
        [{"from_ms": at, "messages": 1, "bytes": 100, "per_second": 1.0} for at in (1000, 2000, 4000)],
        [{"topic": topic, **figures}],
        [{"up_to_bytes": 128, "messages": 3}],
        [{"topic": topic, "queue_id": 0, "messages": 3, "bytes": 300, "skew": 1.0}],
        [{"topic": topic, "key": "</td>", "messages": 2, "share": 0.5}],
        [{"group": "g", "topic": topic, "queue_id": 0, "offset": 1, "max_offset": 3, "lag": 2}],
    )


def test_the_page_stands_alone_and_holds_strange_names() -> None:
    text = render_report(made_up("a<b>&c"))
    reader = Reader()
    reader.feed(text)
    assert reader.open == []
    assert reader.links == []
    assert "a&lt;b&gt;&amp;c" in text
    assert "a<b>" not in text
    assert "prefers-color-scheme: dark" in text
    assert not re.search(r"url\(|@import|<script", text)
    drawings = [ET.fromstring(each) for each in re.findall(r"<svg.*?</svg>", text, re.DOTALL)]
    assert len(drawings) == 2 * 6  # each for a wide page, and for a narrow one
    assert len(list(drawings[0].iter(f"{SVG}rect"))) == 4  # a second without messages has its place


def test_a_store_without_messages_has_a_page_too_and_a_topic_without_any_is_named(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    page = tmp_path / "report.html"
    assert run(["pipeline", "report", str(tmp_path / "store"), "--html", str(page)]) == 0
    assert str(page) in capsys.readouterr().err
    assert "The log holds no messages." in page.read_text()
    with pytest.raises(InvalidConfig, match="no messages of topic nobodys"):
        report(spark, tmp_path / "store", topics=["nobodys"])


def test_a_damaged_log_is_reported_and_the_readable_messages_are_counted(
    spark: SparkSession, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = shutil.copytree(store, tmp_path / "store")
    cut = sorted((copy / "commitlog").iterdir())[1]
    os.truncate(cut, cut.stat().st_size // 2)
    page = tmp_path / "report.html"
    assert run(["pipeline", "report", str(copy), "--html", str(page)]) == 5
    reported = capsys.readouterr().err
    assert "The log is damaged" in reported
    assert f"a file of the log has {cut.stat().st_size} bytes" in reported
    assert cut.name in page.read_text()
    counted, whole = report(spark, copy).totals["messages"], report(spark, store).totals["messages"]
    assert 0 < int(str(counted)) < int(str(whole))


def test_the_files_are_listed_once(
    spark: SparkSession, store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the driver; the source, which is another process, lists them for itself."""
    listed: list[str] = []
    find_log = logs._find_log

    def counted(uri: str, broker: str, strict: bool) -> logs.Log | None:
        listed.append(uri)
        return find_log(uri, broker, strict)

    monkeypatch.setattr(logs, "_find_log", counted)
    assert run(["pipeline", "report", str(store)]) == 0
    assert listed == [str(store)]
    report(spark, store)
    assert listed == [str(store)] * 2


@pytest.mark.parametrize("way", ["whole", "shorter", "missing", "inside of another"])
def test_the_damage_is_what_a_strict_reader_is_refused_for(store: Path, tmp_path: Path, way: str) -> None:
    copy = shutil.copytree(store, tmp_path / "store")
    file = sorted((copy / "commitlog").iterdir())[1]
    if way == "shorter":
        os.truncate(file, 100)
    elif way == "missing":
        file.rename(file.with_name(f"{2 * int(file.name):020d}"))
    elif way == "inside of another":
        file.rename(file.with_name(f"{int(file.name) - 1:020d}"))
    try:
        logs.find_logs((str(copy),))
        refused = None
    except DamagedStore as damage:
        refused = str(damage)
    reported = logs.find_damage(logs.find_logs((str(copy),), strict=False))
    assert (None if reported is None else str(reported)) == refused
    assert (refused is None) == (way == "whole")


def test_bad_input_is_one_sentence(tmp_path: Path, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pipeline", "report", str(tmp_path / "nowhere")]) == 3
    assert "there is no store here" in capsys.readouterr().err
    assert run(["pipeline", "report", str(store), "--html", str(tmp_path / "no" / "page.html")]) == 2
    assert "does not exist" in capsys.readouterr().err


def test_marks_are_as_high_as_their_values() -> None:
    drawing = ET.fromstring(columns([1.0, 2.0, 0.0], ["a", "b", "c"], "t", str))
    heights = [float(mark.attrib["height"]) for mark in drawing.iter(f"{SVG}rect")]
    assert heights[1] == pytest.approx(2 * heights[0], rel=0.01) and heights[2] == 0
    widths = [
        float(mark.attrib["width"])
        for mark in ET.fromstring(bars([("a", 10.0), ("b", 5.0)], "t", str)).iter(f"{SVG}rect")
    ]
    assert widths[0] == pytest.approx(2 * widths[1], rel=0.01)
