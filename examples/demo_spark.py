"""The demo's last part: what Spark makes of the same store.

5. queues and index are built again from the log alone, and compared byte for byte with the dispatcher's
6. the store is verified
7. a question is asked in SQL
8. the messages are exported as Parquet and read back
9. a report is written as a page
"""

from __future__ import annotations

import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from flintlog import StoreConfig
from flintlog.errors import MissingExtra

if TYPE_CHECKING:
    from demo import Report
    from pyspark.sql import SparkSession
    from rich.console import Console

PAGE = Path(tempfile.gettempdir()) / "flintlog-demo-report.html"


def go_on_in_spark(path: Path, config: StoreConfig, report: Report, console: Console) -> None:
    """Run the jobs on a store that is closed; says what is missing if Spark cannot run here."""
    if find_spec("pyspark") is None:
        console.print("Spark is not installed: pip install 'flintlog[spark]' and the demo goes on")
        return
    from flintlog.pipeline.session import get_session

    try:
        with console.status("starting Spark"), report.step("Spark started") as results:
            spark = get_session("local[*]", {"spark.sql.shuffle.partitions": "4"})
            results.append(f"Spark {spark.version}")
    except MissingExtra as missing:
        console.print(f"[yellow]without Spark:[/yellow] {missing}")
        return
    try:
        for job in (_rebuild, _verify, _ask, _export, _write_page):
            with console.status(str(job.__doc__)):
                job(spark, path, config, report)
    finally:
        spark.stop()
    report.closing.append(f"the report of the store, to open in a browser: {PAGE}")


def _rebuild(spark: SparkSession, path: Path, config: StoreConfig, report: Report) -> None:
    """rebuilding queues and index"""
    from flintlog.pipeline.rebuild import rebuild

    target = path.parent / "rebuilt"
    with report.step("rebuilt on Spark") as results:
        done = rebuild(spark, path, config=config, into=target)
        for folder in ("consumequeue", "index"):
            own, built = _contents(path / folder), _contents(target / folder)
            report.expect(own == built and bool(own), f"{folder} differs from the dispatcher's")
            results.append(f"{folder}: {len(built)} files, {sum(map(len, built)) / 1e6:.1f} MB alike")
        results.append(f"{done.record_count:,} records")


def _contents(folder: Path) -> list[bytes]:
    """The bytes of all files, in order of their names. (Index files are named by when they were made.)"""
    return [file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()]


def _verify(spark: SparkSession, path: Path, config: StoreConfig, report: Report) -> None:
    """verifying"""
    from flintlog.pipeline.verify import verify

    with report.step("verified on Spark") as results:
        answer = verify(spark, path, config=config)
        results.append(f"{answer.record_count:,} records, {answer.key_count:,} keys, {len(answer.findings)} findings")
        report.expect(not answer.findings, f"verify finds {[str(finding) for finding in answer.findings[:3]]}")


def _ask(spark: SparkSession, path: Path, config: StoreConfig, report: Report) -> None:
    """asking"""
    from flintlog.pipeline.sql import query

    with report.step("asked in SQL") as results:
        text = "select tags, count(*) as messages from messages group by tags order by tags"
        rows = query(spark, str(path), text).collect()
        results += [f"{row.tags}: {row.messages:,}" for row in rows]
        report.expect(len(rows) == 3, "there are not three tags")


def _export(spark: SparkSession, path: Path, config: StoreConfig, report: Report) -> None:
    """exporting"""
    from flintlog.pipeline.export import export

    table = path.parent / "table"
    with report.step("exported as Parquet") as results:
        done = export(spark, path, table)
        again = export(spark, path, table)
        frame = spark.read.parquet(str(table))
        count, distinct = frame.count(), frame.select("physical_offset").distinct().count()
        results.append(f"{done.rows:,} rows in {done.files} files, {count:,} read back")
        report.expect(count == distinct == done.rows and again.rows == 0, "the table has not every message once")


def _write_page(spark: SparkSession, path: Path, config: StoreConfig, report: Report) -> None:
    """making the report"""
    from flintlog.pipeline.report import report as make_report
    from flintlog.pipeline.report_page import render_report

    with report.step("report") as results:
        PAGE.write_text(render_report(make_report(spark, path, config=config)))
        results.append(str(PAGE))
