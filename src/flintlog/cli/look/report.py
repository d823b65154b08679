"""`flintlog report STORE`: what is in a store, as tables and as a page, without Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from flintlog.cli.exit_codes import ExitCode
from flintlog.cli.names import TOPIC
from flintlog.cli.output import Output, TableOutput
from flintlog.cli.parameters import LocalPath, output_option, progress_option, store_config_option
from flintlog.cli.times import format_ms

if TYPE_CHECKING:
    from flintlog.pipeline.report import Report
    from flintlog.store.options.store_config import StoreConfig

Command = TypeVar("Command", bound=Callable[..., object])
_SHOWN_ROWS = 20
_TABLES = (
    ("topics", ("topic", "messages", "bytes", "size_p50", "size_p99", "delay_ms_p50", "delay_ms_p99")),
    ("queues", ("topic", "queue_id", "messages", "bytes", "skew")),
    ("keys", ("topic", "key", "messages", "share")),
    ("groups", ("group", "topic", "queue_id", "offset", "max_offset", "lag")),
)


def report_options(command: Command) -> Command:
    """Give a command what a report is of, and where its page goes."""
    options = (
        click.argument("store"),
        click.option("--topic", "topics", multiple=True, type=TOPIC, help="Only this topic; may be repeated."),
        click.option(
            "--html", type=LocalPath(dir_okay=False, path_type=Path), help="Write a page with plots to this file."
        ),
        click.option("--top", type=click.IntRange(1), default=20, show_default=True, help="How many keys are named."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command("report")
@report_options
@store_config_option
@progress_option
@output_option
def report(
    store: str, topics: tuple[str, ...], html: Path | None, top: int, config: StoreConfig | None, output: Output
) -> ExitCode:
    """Say what is in STORE (a directory, or a glob of several): volume, rates, sizes, delays, skew, keys, lag.

    The log is read by this process. For a log of many GiB, `flintlog pipeline report` says the same on Spark.
    """
    import flintlog.derive.columns  # noqa: F401 - says which extra brings pyarrow
    from flintlog.pipeline.report import find_stores
    from flintlog.pipeline.report_here import report_here

    stores = find_stores(store)
    check_page(html)
    with output.progress("report", "nothing was written; run it again") as progress:
        found = report_here(stores, config=config, topics=topics, top=top, progress=progress)
    return show_report(found, html, output)


def check_page(html: Path | None) -> None:
    """Refuse a page that could not be written, before anyone waits for its figures."""
    from flintlog.errors import InvalidConfig

    if html is not None and not html.absolute().parent.is_dir():
        raise InvalidConfig("the page's directory does not exist", path=html)


def show_report(found: Report, html: Path | None, output: Output) -> ExitCode:
    """Write the page, and the tables."""
    if html is not None:
        from flintlog.disk.media.local import LocalMedium
        from flintlog.pipeline.report_page import render_report

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
