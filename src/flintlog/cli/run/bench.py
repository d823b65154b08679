"""`flintlog bench`: how fast this machine's store is, beside others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from flintlog.cli.exit_codes import ExitCode
from flintlog.cli.output import Output
from flintlog.cli.parameters import LocalPath, Seconds, output_option

if TYPE_CHECKING:
    from flintlog.bench.run import Java

OTHERS = ("java", "rocksdict", "sqlite", "lmdb", "file")


@click.command("bench")
@click.argument("suite", type=click.Choice(["store", "services", "pipeline", "replication"]), default="store")
@click.option("--compare", default="", help=f"Measure others beside: {', '.join(OTHERS)}, separated by commas.")
@click.option("--only", multiple=True, help="Only tasks whose name contains this; may be given more than once.")
@click.option("--quick", is_flag=True, help="One short round: to see that it works, not to quote.")
@click.option("--seconds", type=Seconds(0.05, 600), help="Length of one run.")
@click.option("--rounds", type=click.IntRange(1, 100), help="Runs of each task; their median counts.")
@click.option(
    "--level",
    is_flag=True,
    help="Touch all free memory before each run: steadier on a virtual machine, where it takes some 20 s a run.",
)
@click.option("--rebuild-mib", type=click.IntRange(1, 1 << 20), help="Size of the log that is rebuilt.")
@click.option("--directory", type=LocalPath(file_okay=False, path_type=Path), help="Where to write: a real disk.")
@output_option
@click.pass_obj
def bench(java: Java | None, /, output: Output, **asked: object) -> ExitCode:
    """Measure puts, synced puts, reads, rebuild and visibility; say how much CPU a message costs.

    `services` measures a store of 100,000 queues and a timer with a million messages that wait, `pipeline` the jobs on
    Spark beside the same work in one process, `replication` a master with its slave and a ledger group of three.

    RocketMQ's own store (`java`) is compared from a clone of the project, with `make bench`.
    """
    from flintlog.cli.run.bench_run import Asked, measure

    return measure(Asked(**asked), output, java)  # type: ignore[arg-type]  # click has checked them
