"""`flintlog repair STORE --plan|--apply`: what would be done, or doing it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flintlog.cli.exit_codes import ExitCode
from flintlog.cli.output import CsvOutput, JsonLinesOutput, Output, TableOutput
from flintlog.cli.parameters import output_option, store_argument, store_config_option

if TYPE_CHECKING:
    from flintlog.care.repair_plan import LostMessage, Step
    from flintlog.derive.finding import Finding
    from flintlog.store.config import StoreConfig

_STEPS = ("action", "why", "file", "offset", "physical_offset", "size", "what")
_LOST = ("physical_offset", "size", "topic", "queue_id", "queue_offset", "message_id", "why")
_LEFT = ("id", "severity", "file", "offset", "physical_offset", "evidence", "remedy")


@click.command()
@store_argument
@click.option("--plan", "is_plan", is_flag=True, help="Say what would be done and what is lost; write nothing.")
@click.option("--apply", "is_apply", is_flag=True, help="Do it. What is replaced is kept beside the store.")
@store_config_option
@output_option
def repair(store: Path, is_plan: bool, is_apply: bool, config: StoreConfig | None, output: Output) -> int:
    """Mend the store in STORE: cut, build again, restore. What it replaces goes to STORE.repaired-TIME.

    It may be interrupted at any time and run again. A store that runs is refused.
    """
    if is_plan == is_apply:
        both = "not both" if is_plan else "one of them"
        raise click.UsageError(f"say --plan to see what would be done, or --apply to do it; {both}")
    if is_plan:
        from flintlog.care.repair import plan_repair

        plan = plan_repair(store, config)
        _show(output, store, "plan", plan.steps, plan.lost, plan.left, plan.notes, None)
        return ExitCode.FINDINGS if plan.steps or plan.left else ExitCode.FINE
    from flintlog.care.repair import repair as run

    report = run(store, config)
    _show(output, store, "apply", report.steps, report.lost, report.left, report.notes, report.kept_in)
    return ExitCode.FINDINGS if report.left else ExitCode.FINE


def _show(
    output: Output,
    store: Path,
    mode: str,
    steps: Sequence[Step],
    lost: Sequence[LostMessage],
    left: Sequence[Finding],
    notes: Sequence[str],
    kept_in: Path | None,
) -> None:
    done = [_row(step, _STEPS, store) for step in steps]
    gone = [_row(message, _LOST, store) for message in lost]
    stays = [_row(finding, _LEFT, store) for finding in left]
    if isinstance(output, (CsvOutput, JsonLinesOutput)):
        output.rows(done, _STEPS)
    elif isinstance(output, TableOutput):
        _show_tables(output, mode, done, gone, stays)
    else:
        kept = None if kept_in is None else str(kept_in)
        output.record({"mode": mode, "steps": done, "lost": gone, "left": stays, "notes": list(notes), "kept_in": kept})
    for note in notes if isinstance(output, TableOutput) else ():
        output.note(f"note: {note}")
    if kept_in is not None:
        output.note(f"what was replaced is in {kept_in}")


def _show_tables(
    output: TableOutput,
    mode: str,
    steps: list[dict[str, object]],
    lost: list[dict[str, object]],
    left: list[dict[str, object]],
) -> None:
    titles = {"plan": ("to be done", "lost"), "apply": ("done", "lost")}[mode]
    tables: Iterable[tuple[str, list[dict[str, object]], Sequence[str]]] = (
        (titles[0], steps, ("action", "why", "file", "offset", "what")),
        (titles[1], lost, _LOST),
        ("left as it is", left, ("id", "file", "offset", "evidence", "remedy")),
    )
    for title, rows, columns in tables:
        if rows:
            output.rows(rows, columns, title)
    if not steps and not left:
        output.line("nothing to repair")


def _row(value: Step | LostMessage | Finding, columns: Sequence[str], store: Path) -> dict[str, object]:
    all_of_it = asdict(value)
    row = {name: all_of_it[name] for name in columns}
    file = row.get("file")
    if isinstance(file, str) and Path(file).is_relative_to(store):
        row["file"] = str(Path(file).relative_to(store))
    return row
