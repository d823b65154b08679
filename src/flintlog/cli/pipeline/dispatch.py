"""`flintlog pipeline dispatch STORE`: queues and index of a store that another process writes."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flintlog.cli.output import Output
from flintlog.cli.parameters import LocalPath, Seconds, config_option, output_option, progress_option
from flintlog.cli.pipeline.commands import session, session_options
from flintlog.cli.pipeline.export import stopped_by_signals

if TYPE_CHECKING:
    from flintlog.store.options.store_config import StoreConfig

_GOES_ON = "run it again: it goes on where the last batch ended"


@click.command("dispatch")
@click.argument("store", type=LocalPath(path_type=Path))
@click.option("--once", is_flag=True, help="Dispatch what may be read now, and end.")
@click.option("--interval", type=Seconds(0.01), default=0.1, show_default=True, help="Seconds between batches.")
@session_options
@config_option
@progress_option
@output_option
def dispatch(
    store: Path,
    once: bool,
    interval: float,
    master: str | None,
    conf: dict[str, str],
    config: StoreConfig,
    output: Output,
) -> None:
    """Build the consume queues and the index of STORE while another process writes it, until interrupted.

    That process opens the store with dispatch="external" and the same options. If the job is killed at any moment and
    started again, it continues without a gap or a duplicate entry. A second dispatcher for one store is refused.
    """
    from flintlog.disk.media.local import LocalMedium
    from flintlog.pipeline.dispatch import check_given_away
    from flintlog.pipeline.dispatch import dispatch as run
    from flintlog.store.paths import StorePaths

    check_given_away(StorePaths.of(store.absolute(), config), LocalMedium())  # before anyone waits for Spark to start
    with (
        stopped_by_signals() as stop,
        session(master, conf) as spark,
        output.progress("dispatching", _GOES_ON) as progress,
    ):
        report = run(spark, store, config=config, once=once, stop=stop, interval_s=interval, progress=progress)
    output.record(asdict(report))
    if report.serial_because is not None:
        output.note(
            f"{report.serial_count} of {report.batch_count} batches were dispatched serially: {report.serial_because}."
        )
