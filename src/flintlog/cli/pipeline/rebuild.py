"""`flintlog pipeline rebuild STORE`: queues and index from the log alone."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flintlog.cli.names import TOPIC
from flintlog.cli.output import Output
from flintlog.cli.parameters import LocalPath, look, output_option, store_config_option
from flintlog.cli.pipeline.commands import progress_bar, session, session_options

if TYPE_CHECKING:
    from flintlog.store.options.store_config import StoreConfig


@click.command("rebuild")
@click.argument("store", type=LocalPath(path_type=Path))
@click.option("--topic", "topics", multiple=True, type=TOPIC, help="Only queues of this topic; may be repeated.")
@click.option(
    "--into", type=LocalPath(path_type=Path), help="An empty directory for the result; the store is not changed."
)
@session_options
@store_config_option
@output_option
def rebuild(
    store: Path,
    topics: tuple[str, ...],
    into: Path | None,
    master: str | None,
    conf: dict[str, str],
    config: StoreConfig | None,
    output: Output,
) -> None:
    """Build the consume queues and the index of STORE again, from its log alone.

    The store must not be running. Its queues and index are replaced when the new ones are complete and on disk; a crash
    at any moment leaves a store that opens.
    """
    from flintlog.pipeline.reading.logs import find_logs
    from flintlog.pipeline.rebuild import guessed_config
    from flintlog.pipeline.rebuild import rebuild as run

    find_logs((str(store),))  # before anyone waits for Spark to start
    config = guessed_config(look(store, None, output)) if config is None else config
    with session(master, conf) as spark, progress_bar("reading the log") as progress:
        report = run(spark, store, config=config, topics=topics, into=into, progress=progress)
    output.record(asdict(report))
    if report.serial_queues:
        names = ", ".join(report.serial_queues[:5])
        output.note(f"The offsets of {len(report.serial_queues)} queues do not follow each other: {names}.")
