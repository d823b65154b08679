"""`flintlog repair STORE --plan|--apply`: shows the steps of a repair, or applies them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flintlog.cli.exit_codes import ExitCode
from flintlog.cli.mend.verify import finding_block
from flintlog.cli.output import CsvOutput, JsonLinesOutput, Output, Row, TableOutput, with_relative_file
from flintlog.cli.parameters import output_option, progress_option, store_argument, store_config_option

if TYPE_CHECKING:
    from flintlog.checks.finding import Finding
    from flintlog.maintenance.repair.repair import RepairReport
    from flintlog.maintenance.repair.repair_plan import LostMessage, RepairPlan, Step
    from flintlog.store.options.store_config import StoreConfig

_STEPS = ("action", "why", "file", "offset", "physical_offset", "size", "what")
_LOST = ("physical_offset", "size", "topic", "queue_id", "queue_offset", "message_count", "message_id", "why")
_LEFT = ("id", "severity", "file", "offset", "physical_offset", "evidence", "remedy")
_ROWS = (
    *("kind", "action", "why", "file", "offset", "physical_offset", "size"),
    *("topic", "queue_id", "queue_offset", "message_count", "message_id", "what", "remedy"),
)
"""The columns of CSV and JSON lines: one table for steps, messages and findings; `kind` says which a row is."""


@click.command()
@store_argument
@click.option("--plan", "is_plan", is_flag=True, help="Show the steps and what would be lost; write nothing.")
@click.option("--apply", "is_apply", is_flag=True, help="Apply the steps. Replaced files are kept beside the store.")
@store_config_option
@progress_option
@output_option
def repair(store: Path, is_plan: bool, is_apply: bool, config: StoreConfig | None, output: Output) -> int:
    """Mend the store in STORE: cut, build again, restore. Replaced files are moved to STORE.repaired-TIME.

    It may be interrupted at any time and run again. A store that runs is refused.

    With `-o csv` and `-o jsonl` each row has a kind: step, kept (how many records of the log stay), lost (a message),
    or left (a finding that no step helps against).
    """
    if is_plan == is_apply:
        both = "not both" if is_plan else "one of them"
        raise click.UsageError(f"say --plan to see what would be done, or --apply to do it; {both}")
    if is_plan:
        from flintlog.maintenance.repair.repair import plan_repair

        with output.progress("repair: verify", "nothing was changed; run it again") as progress:
            plan = plan_repair(store, config, progress=progress)
        _show(output, store, "plan", plan, None)
        return ExitCode.FINDINGS if plan.steps or plan.left else ExitCode.FINE
    from flintlog.maintenance.repair.repair import repair as run

    with output.progress(
        "repair", "run it again: it finishes, and keeps what it replaces in the same place"
    ) as progress:
        report = run(store, config, on_step=progress.part, progress=progress.of_part("verify"))
    _show(output, store, "apply", report, report.kept_in)
    return ExitCode.FINDINGS if report.left else ExitCode.FINE


def _show(output: Output, store: Path, mode: str, report: RepairPlan | RepairReport, kept_in: Path | None) -> None:
    done = [_row(step, _STEPS, store) for step in report.steps]
    gone = [_row(message, _LOST, store) for message in report.lost]
    stays = [_row(finding, _LEFT, store) for finding in report.left]
    if isinstance(output, (CsvOutput, JsonLinesOutput)):
        output.rows(_rows(done, gone, stays, report.kept_count), _ROWS)
    elif isinstance(output, TableOutput):
        _show_tables(output, mode, done, gone, stays)
        if gone:
            lost_count = sum(message.message_count for message in report.lost)
            output.line(f"{report.kept_count} records of the log are kept; lost messages: {lost_count}")
    else:
        place = None if kept_in is None else str(kept_in)
        plan = {"mode": mode, "steps": done, "kept": report.kept_count, "lost": gone, "left": stays}
        output.record({**plan, "notes": list(report.notes), "kept_in": place})
    for note in report.notes if isinstance(output, TableOutput) else ():
        output.note(f"note: {note}")
    if kept_in is not None:
        output.note(f"replaced files are in {kept_in}")


def _rows(
    steps: list[dict[str, object]], lost: list[dict[str, object]], left: list[dict[str, object]], kept_count: int
) -> list[dict[str, object]]:
    empty: dict[str, object] = dict.fromkeys(_ROWS)
    rows = [{**empty, "kind": "step", **step} for step in steps]
    rows.append({**empty, "kind": "kept", "message_count": kept_count})
    rows += [{**empty, "kind": "lost", **message} for message in lost]
    for finding in left:
        place = {name: finding[name] for name in ("file", "offset", "physical_offset", "remedy")}
        rows.append({**empty, "kind": "left", "why": finding["id"], "what": finding["evidence"], **place})
    return rows


def _show_tables(
    output: TableOutput,
    mode: str,
    steps: list[dict[str, object]],
    lost: list[dict[str, object]],
    left: list[dict[str, object]],
) -> None:
    tables: Iterable[tuple[str, list[tuple[str, Sequence[str]]]]] = (
        ({"plan": "to be done", "apply": "done"}[mode], [_step_block(step) for step in steps]),
        ("lost", [_lost_block(message) for message in lost]),
        ("left as it is", [finding_block(finding) for finding in left]),
    )
    for title, blocks in tables:
        if blocks:
            output.blocks(blocks, f"{title}:")
    if not steps and not left:
        output.line("nothing to repair")


def _step_block(step: Row) -> tuple[str, Sequence[str]]:
    offset = "" if step["offset"] is None else f" at {step['offset']}"
    parts = (step["action"], step["why"], f"{step['file'] or ''}{offset}")
    return f"  {'  '.join(str(part) for part in parts if part)}", [str(step["what"])]


def _lost_block(message: Row) -> tuple[str, Sequence[str]]:
    count = message["message_count"]
    what = f"{message['size']} bytes, {message['why']}" + ("" if count == 1 else f", {count} messages")
    if message["topic"] is None:
        return f"  at {message['physical_offset']}", [what]
    queue = f"{message['topic']}/{message['queue_id']}@{message['queue_offset']}"
    return f"  at {message['physical_offset']}  {queue}", [f"{what}, id {message['message_id']}"]


def _row(value: Step | LostMessage | Finding, columns: Sequence[str], store: Path) -> dict[str, object]:
    return with_relative_file({name: getattr(value, name) for name in columns}, store)
