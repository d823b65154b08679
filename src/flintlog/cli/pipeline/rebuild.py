"""`flintlog pipeline rebuild STORE`: queues and index from the log alone."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from flintlog.cli.names import TOPIC
from flintlog.cli.output import Output
from flintlog.cli.parameters import look, output_option, progress_option, store_config_option
from flintlog.cli.pipeline.commands import session, session_options
from flintlog.disk.places import is_uri, local_path

if TYPE_CHECKING:
    from flintlog.pipeline.rebuild import Mode
    from flintlog.store.options.store_config import StoreConfig

_GOES_ON = "run it again: it begins anew"


@click.command("rebuild")
@click.argument("store")
@click.option("--topic", "topics", multiple=True, type=TOPIC, help="Only queues of this topic; may be repeated.")
@click.option("--into", help="An empty directory, or a URI, for the result; the store is not changed.")
@click.option(
    "--mode",
    type=click.Choice(["place", "shuffle"]),
    help="Place entries into shared files, or shuffle them; by the file system if not given.",
)
@session_options
@store_config_option
@progress_option
@output_option
def rebuild(
    store: str,
    topics: tuple[str, ...],
    into: str | None,
    mode: Mode | None,
    master: str | None,
    conf: dict[str, str],
    config: StoreConfig | None,
    output: Output,
) -> None:
    """Build the consume queues and the index of STORE (a directory, or a URI with --into) again, from its log alone.

    The store must not be running. Its queues and index are replaced when the new ones are complete and on disk; a crash
    at any moment leaves a store that opens.
    """
    from flintlog.pipeline.reading.logs import find_logs
    from flintlog.pipeline.rebuild import guessed_config
    from flintlog.pipeline.rebuild import rebuild as run

    find_logs((store,))  # before anyone waits for Spark to start
    if config is None and not is_uri(store):
        config = guessed_config(look(local_path(store), None, output))
    with session(master, conf) as spark, output.progress("reading the log", _GOES_ON, "tasks") as progress:
        report = run(spark, store, config=config, topics=topics, into=into, mode=mode, progress=progress)
    output.record(asdict(report))
    if report.serial_queues:
        names = ", ".join(report.serial_queues[:5])
        output.note(f"The offsets of {len(report.serial_queues)} queues do not follow each other: {names}.")
