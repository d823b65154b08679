"""`flintlog verify` and `flintlog explain`: finds what is wrong with a store, and explains findings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flintlog.cli.exit_codes import ExitCode
from flintlog.cli.names import FINDING
from flintlog.cli.output import CsvOutput, JsonLinesOutput, Output, Row, TableOutput, with_relative_file
from flintlog.cli.parameters import output_option, progress_option, store_argument, store_config_option

if TYPE_CHECKING:
    from flintlog.maintenance.verify.verify import Verification
    from flintlog.store.options.store_config import StoreConfig

_COLUMNS = ("id", "severity", "file", "offset", "physical_offset", "evidence", "remedy")


@click.command()
@store_argument
@click.option("--full", "mode", flag_value="full", default=True, help="Every record, entry and chain (the default).")
@click.option("--quick", "mode", flag_value="quick", help="The last log file, file names and lengths, side files.")
@click.option("--threads", type=click.IntRange(1, 256), help="Number of threads; one for each core by default.")
@store_config_option
@progress_option
@output_option
def verify(store: Path, mode: str, threads: int | None, config: StoreConfig | None, output: Output) -> int:
    """Prove the store in STORE, or say what is wrong with it and where. Nothing is changed."""
    from flintlog.maintenance.verify.verify import verify as run

    with output.progress("verify", "nothing was changed; run it again") as progress:
        answer = run(store, config, mode="quick" if mode == "quick" else "full", threads=threads, progress=progress)
    show_verification(answer, store, output)
    return ExitCode.FINDINGS if answer.findings else ExitCode.FINE


def show_verification(answer: Verification, store: Path, output: Output) -> None:
    """Findings, notes and counts, in the form that was asked for."""
    rows = [
        with_relative_file({name: getattr(finding, name) for name in _COLUMNS}, store) for finding in answer.findings
    ]
    if isinstance(output, TableOutput):
        output.blocks(finding_block(row) for row in rows)
        output.stream.write(_summary(answer) + "\n")
        for note in answer.notes:
            output.stream.write(f"note: {note}\n")
        for reason in answer.inferred:
            output.detail(f"inferred {reason}")
    elif isinstance(output, (CsvOutput, JsonLinesOutput)):
        output.rows(rows, _COLUMNS)
    else:
        output.record({"findings": rows, "notes": answer.notes, "inferred": answer.inferred, **_counts(answer)})


def finding_block(row: Row) -> tuple[str, Sequence[str]]:
    """A finding as a line and its details: what was seen, and what helps."""
    offset = "" if row["offset"] is None else f" at {row['offset']}"
    physical = row["physical_offset"]
    evidence = f"{row['evidence']}" if physical is None else f"{row['evidence']} (physical offset {physical})"
    line = f"{row['severity']}  {row['id']}  {row['file'] or ''}{offset}"
    return line.rstrip(), [evidence, f"remedy: {row['remedy']}"]


def _counts(answer: Verification) -> dict[str, object]:
    return {
        "mode": answer.mode,
        "records": answer.record_count,
        "queues": answer.queue_count,
        "keys": answer.key_count,
        "min_offset": answer.min_offset,
        "max_offset": answer.max_offset,
    }


def _summary(answer: Verification) -> str:
    looked = f"{answer.record_count:,} records, {answer.queue_count:,} queues, {answer.key_count:,} keys"
    where = f"log from {answer.min_offset:,} to {answer.max_offset:,}"
    count = len(answer.findings)
    verdict = "nothing found" if not count else f"{count} finding{'s' if count > 1 else ''}"
    return f"{verdict} ({answer.mode}): {looked}, {where}"


@click.command()
@click.argument("id", required=False, type=FINDING)
@output_option
def explain(id: str | None, output: Output) -> None:
    """Say what the finding ID means: cause, danger, remedy. Without ID, list all."""
    from dataclasses import asdict

    from flintlog.checks.finding_kinds import KINDS

    if id is None:
        output.rows(
            [{"id": kind.id, "title": kind.title} for kind in KINDS.values()]
            if isinstance(output, TableOutput)
            else [asdict(kind) for kind in KINDS.values()],
            ("id", "title") if isinstance(output, TableOutput) else ("id", "title", "cause", "danger", "remedy"),
        )
        return
    kind = KINDS.get(id)
    if kind is None:
        from difflib import get_close_matches

        near = get_close_matches(id, KINDS, n=3)
        hint = f"; did you mean {', '.join(near)}?" if near else "; `flintlog explain` lists all"
        raise click.UsageError(f"no finding is called {id}{hint}")
    output.record(asdict(kind))
