"""`flintlog backup STORE TARGET`, `backup verify TARGET` and `restore TARGET NEW`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flintlog.cli.exit_codes import ExitCode
from flintlog.cli.output import CsvOutput, JsonLinesOutput, Output, TableOutput
from flintlog.cli.parameters import LocalPath, output_option, progress_option, store_config_option
from flintlog.cli.times import format_ms, parse_ms

if TYPE_CHECKING:
    from flintlog.store.options.store_config import StoreConfig

_FOLDER = LocalPath(path_type=Path, file_okay=False)


@click.command()
@click.argument("first", type=_FOLDER, metavar="STORE|verify")
@click.argument("target", type=_FOLDER)
@store_config_option
@progress_option
@output_option
def backup(first: Path, target: Path, config: StoreConfig | None, output: Output) -> int:
    """Copy the store in STORE to TARGET, also while it runs; a second time, only what is new.

    Files that TARGET has already are read, and copied again if they no longer match their digests.

    The member of a ledger has to be stopped.

    `backup verify TARGET` reads a whole backup and reports the files that do not match their digests.
    """
    if str(first) == "verify":
        return _verify(target, output)
    from flintlog.maintenance.backup.backup import backup as run

    goes_on = "the earlier backup in TARGET is whole, if there is one; run it again to finish this one"
    with output.progress("backup", goes_on) as progress:
        report = run(first, target, config, progress=progress)
    output.record(asdict(report))
    return ExitCode.FINE


def _verify(target: Path, output: Output) -> int:
    from flintlog.maintenance.backup.backup import verify_backup

    with output.progress("backup verify", "nothing was changed; run it again") as progress:
        manifest, damages = verify_backup(target, progress=progress)
    rows = [asdict(damage) for damage in damages]
    if isinstance(output, (TableOutput, CsvOutput, JsonLinesOutput)):
        if rows or not isinstance(output, TableOutput):
            output.rows(rows, ("file", "problem"))
        if isinstance(output, TableOutput):
            what = f"{len(manifest.files)} files of {format_ms(manifest.taken_at_ms)}"
            output.line(
                f"{len(rows) or 'nothing'} found: {what}, log from {manifest.min_offset} to {manifest.end_offset}"
            )
    else:
        head = {name: getattr(manifest, name) for name in ("taken_at_ms", "min_offset", "end_offset")}
        output.record({"findings": rows, **head, "files": len(manifest.files)})
    return ExitCode.FINDINGS if rows else ExitCode.FINE


@click.command()
@click.argument("target", type=_FOLDER)
@click.argument("new", type=_FOLDER)
@click.option(
    "--at",
    "at_ms",
    type=parse_ms,
    metavar="TIME",
    help="With the messages stored up to this time: ISO 8601 (UTC) or milliseconds.",
)
@click.option("--to", "to_offset", type=click.IntRange(0), help="With the messages that begin before this offset.")
@store_config_option
@progress_option
@output_option
def restore(
    target: Path, new: Path, at_ms: int | None, to_offset: int | None, config: StoreConfig | None, output: Output
) -> int:
    """Make a store in NEW from the backup in TARGET; queues and index are built from its log."""
    if at_ms is not None and to_offset is not None:
        raise click.UsageError("--at and --to both name an end; give one")
    from flintlog.maintenance.backup.restore import restore as run

    goes_on = "NEW was not made, and what there is of it is removed when you run it again"
    with output.progress("restore", goes_on) as progress:
        report = run(
            target, new, at_ms=at_ms, to_offset=to_offset, config=config, progress=progress, on_step=progress.part
        )
    output.record(asdict(report))
    return ExitCode.FINE
