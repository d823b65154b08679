"""`flintlog retention STORE`: which files of the log would be deleted, when, and why.

One row for each file, the oldest first. `needed_by` names everything that still needs messages of the file: groups that
have not consumed them, delay levels, timers, undecided transactions. With `protect_unconsumed` they keep the file.

The store is neither opened nor locked, so the command also works on a running one. Without `--config` the answer is for
RocketMQ's defaults, because most directories come from a broker.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flintlog.cli.drawing import show_bytes
from flintlog.cli.exit_codes import ExitCode
from flintlog.cli.output import Output, Row, TableOutput, with_relative_file
from flintlog.cli.parameters import LocalPath, output_option, store_config_option

if TYPE_CHECKING:
    from flintlog.disk.media.medium import DiskUsage
    from flintlog.maintenance.inspect.forecast import Forecast
    from flintlog.maintenance.inspect.retention_report import RetentionReport
    from flintlog.store.options.store_config import StoreConfig
    from flintlog.store.retention.retention_rules import PlannedFile

_COLUMNS = ("file", "bytes", "first_stored", "last_written", "goes", "why", "needed_by")
DAY_MS = 86_400_000


@click.command()
@click.argument("store", type=LocalPath(file_okay=False, path_type=Path), metavar="STORE")
@click.option("--dry-run", is_flag=True, help="As without it: this command deletes nothing, an open store does.")
@store_config_option
@output_option
def retention(store: Path, dry_run: bool, config: StoreConfig | None, output: Output) -> int:
    """Say which files of STORE's log would be deleted, when and why, and which groups still need them."""
    from flintlog.cli.look.forecast import DEFAULT_DAYS, foresee, or_rocketmq_defaults
    from flintlog.disk.media.local import LocalMedium
    from flintlog.maintenance.inspect.retention_report import report_retention
    from flintlog.maintenance.inspect.store_files import look_at

    rules = or_rocketmq_defaults(config, output)
    now_ms = time.time_ns() // 1_000_000
    report = report_retention(store, rules, LocalMedium(), lambda: now_ms)
    rows = _rows(report, now_ms)
    if isinstance(output, TableOutput):
        rows = (with_relative_file(row, store) for row in rows)
    output.rows(rows, _COLUMNS)
    forecast, disk = foresee(look_at(store, config), rules, DEFAULT_DAYS, now_ms)
    if forecast.bytes_a_day is not None and disk is not None:
        output.note(describe_growth(forecast, disk))
    if report.damage is None:
        return ExitCode.FINE
    output.note(f"which groups still need a file is not known: {report.damage}")
    return ExitCode.PARTIAL


def _rows(report: RetentionReport, now_ms: int) -> Iterator[Row]:
    for planned, stored_ms in zip(report.files, report.first_stored_ms, strict=True):
        yield {
            "file": str(planned.file.path),
            "physical_offset": planned.file.base,
            "bytes": planned.file.size,
            "first_stored": _time(stored_ms),
            "last_written": _time(planned.file.modified_ms),
            "goes": describe_going(planned, now_ms),
            "why": planned.why,
            "needed_by": list(dict.fromkeys(each.why for each in planned.holds)),
            "unconsumed_by": sorted({each.group for each in planned.holds if each.group is not None}),
            "first_stored_ms": stored_ms,
            "last_written_ms": planned.file.modified_ms,
            "expires_at_ms": planned.expires_at_ms,
            "goes_at_ms": planned.goes_at_ms,
        }


def _time(moment_ms: int | None) -> str | None:
    return None if moment_ms is None else datetime.fromtimestamp(moment_ms / 1000).isoformat(" ", "seconds")


def describe_going(planned: PlannedFile, now_ms: int) -> str:
    """When a file will be deleted, in words relative to now."""
    if planned.goes_at_ms is None:
        return f"kept: {planned.why}"
    if planned.goes_at_ms <= now_ms:
        return "now"
    now, moment = (datetime.fromtimestamp(each / 1000) for each in (now_ms, planned.goes_at_ms))
    days = (moment.date() - now.date()) // timedelta(days=1)
    day = {0: "today", 1: "tomorrow"}.get(days, f"on {moment.date()}")
    return f"at {moment:%H:%M} {day}"


def describe_growth(forecast: Forecast, disk: DiskUsage) -> str:
    """What the log's growth means for its disk; the growth is that of `flintlog forecast`."""
    from flintlog.cli.look.forecast import DEFAULT_DAYS

    text = f"The log grows by about {show_bytes(forecast.bytes_a_day or 0)} a day, as in the last {DEFAULT_DAYS} days"
    if forecast.kept_bytes:
        text += f"; kept as configured that is about {show_bytes(forecast.kept_bytes)}"
    text += f". Its disk is {int(disk.used_ratio * 100)} % full"
    full_ms = forecast.limits[-1].at_ms if forecast.limits else None
    if full_ms is None:
        return f"{text}, and that is enough."
    return f"{text}: in about {(full_ms - forecast.until_ms) / DAY_MS:.1f} days it is nearly full."
