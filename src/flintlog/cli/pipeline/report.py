"""`flintlog pipeline report STORE`: what is in a store, as tables and as a page."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flintlog.cli.exit_codes import ExitCode
from flintlog.cli.names import TOPIC
from flintlog.cli.output import Output, TableOutput
from flintlog.cli.parameters import LocalPath, output_option, store_config_option
from flintlog.cli.pipeline.commands import session, session_options
from flintlog.cli.times import format_ms

if TYPE_CHECKING:
    from flintlog.pipeline.report import Report
    from flintlog.store.options.store_config import StoreConfig

_SHOWN_ROWS = 20
_TABLES = (
    ("topics", ("topic", "messages", "bytes", "size_p50", "size_p99", "delay_ms_p50", "delay_ms_p99")),
    ("queues", ("topic", "queue_id", "messages", "bytes", "skew")),
    ("keys", ("topic", "key", "messages", "share")),
    ("groups", ("group", "topic", "queue_id", "offset", "max_offset", "lag")),
)


@click.command("report")
@click.argument("store")
@click.option("--topic", "topics", multiple=True, type=TOPIC, help="Only this topic; may be given more than once.")
@click.option("--html", type=LocalPath(dir_okay=False, path_type=Path), help="Write a page with plots to this file.")
@click.option("--top", type=click.IntRange(1), default=20, show_default=True, help="How many keys are named.")
@session_options
@store_config_option
@output_option
def report(
    store: str,
    topics: tuple[str, ...],
    html: Path | None,
    top: int,
    master: str | None,
    conf: dict[str, str],
    config: StoreConfig | None,
    output: Output,
) -> ExitCode:
    """Say what is in STORE (a directory, or a glob of several): volume, rates, sizes, delays, skew, keys, lag."""
    from flintlog.errors import InvalidConfig
    from flintlog.pipeline.report import find_stores, report_on
    from flintlog.pipeline.report_page import render_report

    stores = find_stores(store)  # before anyone waits for Spark to start
    if html is not None and not html.absolute().parent.is_dir():
        raise InvalidConfig("the page's directory does not exist", path=html)
    with session(master, conf) as spark:
        found = report_on(spark, stores, config=config, topics=topics, top=top)
    if html is not None:
        from flintlog.disk.media.local import LocalMedium

        LocalMedium().replace(html.absolute(), render_report(found).encode())
        output.note(f"The page is {html.absolute()}")
    _show(found, output)
    if found.damage is not None:
        output.note(f"The log is damaged, and this covers only what could be read: {found.damage}")
        return ExitCode.PARTIAL
    return ExitCode.FINE


def _show(found: Report, output: Output) -> None:
    if not isinstance(output, TableOutput):
        output.record(asdict(found))
        return
    times = {name: format_ms(found.totals[name]) for name in ("first_ms", "last_ms")}
    output.record({"store": found.store, **found.totals, **times})
    for name, columns in _TABLES:
        rows = getattr(found, name)
        if rows:
            more = f" (the first {_SHOWN_ROWS} of {len(rows):,})" if len(rows) > _SHOWN_ROWS else ""
            output.rows(rows[:_SHOWN_ROWS], columns, f"{name}{more}")
