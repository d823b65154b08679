"""`flintlog pipeline replay SOURCE STORE`: messages of a table or store, put into a store again."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from flintlog.cli.output import Output
from flintlog.cli.parameters import LocalPath, output_option, progress_option, to_pairs
from flintlog.cli.pipeline.commands import session, session_options
from flintlog.cli.times import parse_ms, parse_span_ms


def _to_names(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    pairs = to_pairs(context, parameter, values)
    if not all(pairs.values()):
        raise click.BadParameter("a topic needs a new name")
    return pairs


_GOES_ON = "nothing was put; run it again"


@click.command("replay")
@click.argument("source")
@click.argument("store", type=LocalPath(path_type=Path))
@click.option(
    "--format", "form", type=click.Choice(["store", "parquet", "delta", "iceberg"]), help="What SOURCE is.  [detected]"
)
@click.option("--topic", "topics", multiple=True, help="Only this topic; may be given more than once.")
@click.option("--where", metavar="SQL", help="Only rows of which this is true.")
@click.option("--since", "since_ms", type=parse_ms, metavar="TIME", help="Stored at or after this time.")
@click.option("--until", "until_ms", type=parse_ms, metavar="TIME", help="Stored before this time.")
@click.option(
    "--rename", multiple=True, metavar="TOPIC=NEW", callback=_to_names, help="Another name for a topic; repeatable."
)
@click.option("--key", metavar="SQL", help="The new key of each message.")
@click.option("--body", metavar="SQL", help='The new body of each message, such as "to_json(value)".')
@click.option("--queues", type=click.IntRange(1), help="Spread messages over so many queues, by key.")
@click.option(
    "--shift",
    "shift_ms",
    type=parse_span_ms,
    default="0s",
    metavar="SPAN",
    help="Move the times of birth by 7d, -2h, 90s.",
)
@click.option("--order-by", metavar="SQL", help="Sort by this; else the log's own order, or by time.")
@click.option("--name", help="The replay's name: a name is replayed once.  [derived from the other options]")
@click.option("--again", is_flag=True, help="Put them again, even if this replay was done before.")
@click.option("--allow-data-loss", is_flag=True, help="Skip damage.")
@click.option("--config", type=LocalPath(exists=True, dir_okay=False), help="The store's broker.conf, or JSON or TOML.")
@session_options
@progress_option
@output_option
def replay(
    source: str,
    store: Path,
    form: str | None,
    topics: tuple[str, ...],
    name: str | None,
    again: bool,
    allow_data_loss: bool,
    config: str | None,
    master: str | None,
    conf: dict[str, str],
    output: Output,
    **chosen: object,
) -> None:
    """Put the messages of SOURCE into STORE, all of them or none, and once.

    SOURCE is a store, or a table: Parquet, Delta or Iceberg.

    \b
    flintlog pipeline replay /lake/orders STORE --since 2026-11-01 --rename orders=orders-again --shift 7d
    """
    from flintlog.pipeline.jobs.replay_source import check_source
    from flintlog.pipeline.replay import ReplayOptions
    from flintlog.pipeline.replay import replay as run

    options = ReplayOptions(topics=topics or None, fail_on_data_loss=not allow_data_loss, **chosen)  # type: ignore[arg-type]
    check_source(source, form)  # before anyone waits for Spark to start
    with session(master, conf) as spark, output.progress("replaying", _GOES_ON, "tasks") as progress:
        report = run(
            spark, source, store, form=form, options=options, name=name, again=again, config=config, progress=progress
        )
    output.record(asdict(report))
    if report.is_there_already:
        output.note("this replay was done before, and nothing was put; --again puts it once more")
