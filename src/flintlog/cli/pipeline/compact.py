"""`flintlog pipeline compact STORE INTO`: the latest message of every key."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from flintlog.cli.output import Output
from flintlog.cli.parameters import LocalPath, output_option, progress_option
from flintlog.cli.pipeline.commands import session, session_options

_GOES_ON = "run it again: it begins anew"


@click.command("compact")
@click.argument("store")
@click.argument("into", type=LocalPath(path_type=Path))
@click.option(
    "--format",
    "form",
    type=click.Choice(["store", "parquet", "delta", "iceberg"]),
    default="store",
    show_default=True,
    help="What INTO becomes.",
)
@click.option("--topic", "topics", multiple=True, help="Only this topic; may be given more than once.")
@click.option("--key", metavar="SQL", help="An SQL expression for the key, instead of the message's own.")
@click.option("--drop-tombstones", is_flag=True, help="Leave out keys whose latest message has an empty body.")
@click.option("--keep-keyless", is_flag=True, help="Keep all messages that have no key, instead of none.")
@click.option("--allow-data-loss", is_flag=True, help="Skip damage.")
@click.option(
    "--config", type=LocalPath(exists=True, dir_okay=False), help="The new store's broker.conf, or JSON or TOML."
)
@session_options
@progress_option
@output_option
def compact(
    store: str,
    into: Path,
    form: str,
    topics: tuple[str, ...],
    key: str | None,
    drop_tombstones: bool,
    keep_keyless: bool,
    allow_data_loss: bool,
    config: str | None,
    master: str | None,
    conf: dict[str, str],
    output: Output,
) -> None:
    """Write the latest message of every key of each topic of STORE (a directory, or a glob of several).

    INTO is a new store, or a new table. STORE is not changed.
    """
    from flintlog.pipeline.compact import CompactOptions
    from flintlog.pipeline.compact import compact as run
    from flintlog.pipeline.reading.logs import find_logs

    options = CompactOptions(
        topics=topics or None,
        key=key,
        drop_tombstones=drop_tombstones,
        keep_keyless=keep_keyless,
        fail_on_data_loss=not allow_data_loss,
        config=config,
    )
    find_logs((store,), strict=not allow_data_loss)  # before anyone waits for Spark to start
    with session(master, conf) as spark, output.progress("compacting", _GOES_ON, "tasks") as progress:
        report = run(spark, store, into, form=form, options=options, progress=progress)
    output.record(asdict(report))
    if report.keyless and not keep_keyless:
        output.note(f"{report.keyless} messages have no key and were left out; --keep-keyless keeps them")
