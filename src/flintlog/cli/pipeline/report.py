"""`flintlog pipeline report STORE`: what is in a store, as tables and as a page, by a job on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from flintlog.cli.exit_codes import ExitCode
from flintlog.cli.look.report import check_page, report_options, show_report
from flintlog.cli.output import Output
from flintlog.cli.parameters import output_option, store_config_option
from flintlog.cli.pipeline.commands import session, session_options

if TYPE_CHECKING:
    from flintlog.store.options.store_config import StoreConfig


@click.command("report")
@report_options
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
    from flintlog.pipeline.report import find_stores, report_on

    stores = find_stores(store)  # before anyone waits for Spark to start
    check_page(html)
    with session(master, conf) as spark:
        found = report_on(spark, stores, config=config, topics=topics, top=top)
    return show_report(found, html, output)
