"""`flintlog pipeline export STORE TABLE`: messages as a table of Parquet files: plain, Delta or Iceberg."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import click

from flintlog.cli.names import TOPIC
from flintlog.cli.output import Output
from flintlog.cli.parameters import LocalPath, Seconds, output_option, progress_option
from flintlog.cli.pipeline.commands import session, session_options

_GOES_ON = "rows that were committed stay; run it again, and it goes on after them"


@click.command("export")
@click.argument("store")
@click.argument("table", type=LocalPath(path_type=Path))
@click.option(
    "--format",
    "form",
    type=click.Choice(["parquet", "delta", "iceberg"]),
    help="The kind of a new table; an existing table keeps its own.  [parquet]",
)
@click.option("--topic", "topics", multiple=True, type=TOPIC, help="Only this topic; may be given more than once.")
@click.option("--json-schema", metavar="COLUMNS", help='Parse JSON bodies into `value`, as "id bigint, sum double".')
@click.option("--no-body", is_flag=True, help="Leave the bodies out.")
@click.option("--compressed", is_flag=True, help="Keep compressed bodies as they are.")
@click.option("--allow-data-loss", is_flag=True, help="Skip damage and messages that retention deleted.")
@click.option("--follow", "is_following", is_flag=True, help="Keep the table fresh until interrupted.")
@click.option("--interval", type=Seconds(0.1), default=10.0, show_default=True, help="Seconds, with --follow.")
@click.option("--catalog", help="The Iceberg catalog, as pyiceberg knows it; else one is made in TABLE.")
@click.option("--identifier", default="rocketmq.messages", show_default=True, help="The table's name in a catalog.")
@session_options
@progress_option
@output_option
def export(
    store: str,
    table: Path,
    form: str | None,
    topics: tuple[str, ...],
    json_schema: str | None,
    no_body: bool,
    compressed: bool,
    allow_data_loss: bool,
    is_following: bool,
    interval: float,
    catalog: str | None,
    identifier: str,
    master: str | None,
    conf: dict[str, str],
    output: Output,
) -> None:
    """Add the messages of STORE (a directory, or a glob of several) to TABLE, partitioned by topic and day.

    Messages that TABLE holds already are not read again. After a kill at any moment and a new start, TABLE has every
    message once.
    """
    from flintlog.pipeline.export import ExportOptions, follow
    from flintlog.pipeline.export import export as run
    from flintlog.pipeline.reading.logs import find_logs
    from flintlog.pipeline.tables.iceberg_table import IcebergName

    options = ExportOptions(
        topics=topics or None,
        include_body=not no_body,
        decompress=not compressed,
        value_schema=json_schema,
        fail_on_data_loss=not allow_data_loss,
    )
    name = None if catalog is None else IcebergName(catalog, identifier)
    find_logs((store,), strict=not allow_data_loss)  # before anyone waits for Spark to start
    with session(master, conf) as spark, output.progress("exporting", _GOES_ON, "tasks") as progress:
        if not is_following:
            report = run(spark, store, table, form=form, name=name, options=options, progress=progress)
            output.record(asdict(report))
            if topics and not report.rows:
                output.note(f"nothing new of topic {' or '.join(topics)} was found")
            return
        with stopped_by_signals() as stop:
            rounds = follow(spark, store, table, form=form, name=name, options=options, stop=stop, interval_s=interval)
            for report in rounds:
                output.record(asdict(report))
                output.stream.flush()


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set, so that a job can stop cleanly."""
    stop = threading.Event()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
