"""`flintlog pipeline sql STORE "select …"`: SQL over a store."""

from __future__ import annotations

from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flintlog.cli.output import Output, TableOutput
from flintlog.cli.parameters import LocalPath, output_option, to_pairs
from flintlog.cli.pipeline.commands import session, session_options
from flintlog.cli.times import format_moment

if TYPE_CHECKING:
    from pyspark.sql import Row

_SHOWN_ROWS = 1000


@click.command("sql")
@click.argument("store")
@click.argument("query")
@click.option("--into", type=LocalPath(path_type=Path), help="A new directory for the answer, written by all tasks.")
@click.option("--as", "form", type=click.Choice(["parquet", "csv"]), default="parquet", help="Its form.  [parquet]")
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    callback=to_pairs,
    help="An option of the source; repeatable.",
)
@click.option("--limit", type=click.IntRange(1), help=f"At most so many rows; a table shows {_SHOWN_ROWS} by default.")
@session_options
@output_option
def sql(
    store: str,
    query: str,
    into: Path | None,
    form: str,
    options: dict[str, str],
    limit: int | None,
    master: str | None,
    conf: dict[str, str],
    output: Output,
) -> None:
    """Ask a question about the messages of STORE (a directory, or a glob of several): the view is `messages`.

    \b
    flintlog pipeline sql STORE "select topic, count(*) from messages group by topic"
    """
    from flintlog.pipeline.reading.logs import find_logs
    from flintlog.pipeline.spark.failures import plain_errors
    from flintlog.pipeline.spark.tasks import watched
    from flintlog.pipeline.sql import query as ask
    from flintlog.pipeline.sql import write_answer

    find_logs((store,), strict=False)  # before anyone waits for Spark to start
    with session(master, conf) as spark:
        answer = ask(spark, store, query, options=options)
        if limit is not None:
            answer = answer.limit(limit)
        if into is not None:
            write_answer(answer, into, form)
            output.record({"written": str(into), "form": form, "columns": answer.columns})
            return
        is_cut = isinstance(output, TableOutput) and limit is None
        with plain_errors("the query"), watched(spark, doing=f"sql: {query}"):
            rows = iter((answer.limit(_SHOWN_ROWS + 1) if is_cut else answer).toLocalIterator())
            times = frozenset(name for name, kind in answer.dtypes if kind == "timestamp")
            shown = (_plain(row, times) for row in (islice(rows, _SHOWN_ROWS) if is_cut else rows))
            output.rows(shown, answer.columns)
            if is_cut and next(rows, None) is not None:
                output.cut(_SHOWN_ROWS, "rows", "--limit, --into or another form shows more")


def _plain(row: Row, times: frozenset[str]) -> dict[str, object]:
    found: dict[str, object] = row.asDict(recursive=True)
    for name, value in found.items():
        if isinstance(value, bytearray):
            found[name] = bytes(value)
        elif isinstance(value, datetime) and name in times:
            found[name] = format_moment(value)
    return found
