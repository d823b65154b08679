"""`flintlog diff A B`: where two replicas differ, which is ahead, and how many messages a cut would lose."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flintlog.cli.exit_codes import ExitCode
from flintlog.cli.output import Output, TableOutput
from flintlog.cli.parameters import LocalPath, output_option, progress_option, store_config_option

if TYPE_CHECKING:
    from flintlog.maintenance.inspect.diff import LogDiff, Side
    from flintlog.store.options.store_config import StoreConfig

_FOLDER = LocalPath(exists=True, file_okay=False, path_type=Path)


@click.command()
@click.argument("a", type=_FOLDER)
@click.argument("b", type=_FOLDER)
@store_config_option
@progress_option
@output_option
def diff(a: Path, b: Path, config: StoreConfig | None, output: Output) -> int:
    """Compare the logs of the stores in A and B: first divergence, which is ahead, what may be cut."""
    from flintlog.maintenance.inspect.diff import diff as run

    with output.progress("diff", "nothing was changed; run it again") as progress:
        found = run(a, b, config, progress=progress)
    if isinstance(output, TableOutput):
        sides = [{**asdict(side), "store": name, "first_own": _place(side)} for name, side in _named(found)]
        output.rows(sides, ("store", "min_offset", "end_offset", "own_bytes", "own_messages", "first_own"))
        output.line(found.verdict)
    else:
        output.record(asdict(found))
    return ExitCode.FINE if found.diverges_at is None else ExitCode.FINDINGS


def _named(found: LogDiff) -> tuple[tuple[str, Side], tuple[str, Side]]:
    return ("A", found.a), ("B", found.b)


def _place(side: Side) -> str | None:
    first = side.first_own
    return None if first is None else f"{first['topic']}/{first['queue_id']}@{first['queue_offset']}"
