"""`flintlog forecast STORE`: how the log has grown in the last days, and when its disk is full if that goes on.

The store is not opened, and its log is not read through: a few records of each file show when it was written. Without
`--config` the answer is for RocketMQ's defaults, because most directories come from a broker.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flintlog.cli.drawing import bar, can_draw, show_bytes
from flintlog.cli.output import Output, TableOutput
from flintlog.cli.parameters import look, output_option, progress_option, store_argument, store_config_option
from flintlog.cli.times import format_ms

if TYPE_CHECKING:
    from flintlog.cli.progress import Progress
    from flintlog.disk.media.medium import DiskUsage
    from flintlog.maintenance.inspect.forecast import Forecast, Limit
    from flintlog.maintenance.inspect.store_files import StoreFiles
    from flintlog.store.options.store_config import StoreConfig

DAY_MS = 86_400_000
DEFAULT_DAYS = 7
_BAR_WIDTH = 40


@click.command()
@store_argument
@click.option(
    "--days",
    type=click.IntRange(1, 3650),
    default=DEFAULT_DAYS,
    show_default=True,
    help="How many of the last days are looked at.",
)
@store_config_option
@progress_option
@output_option
def forecast(store: Path, days: int, config: StoreConfig | None, output: Output) -> None:
    """Say how STORE's log grows, when its disk reaches each limit, and for how long messages could be kept."""
    files = look(store, config, output)
    config = or_rocketmq_defaults(config, output)
    now_ms = time.time_ns() // 1_000_000
    with output.progress("forecast", "nothing was changed; run it again", "files") as progress:
        found, disk = foresee(files, config, days, now_ms, progress)
    if isinstance(output, TableOutput):
        _write(found, disk, config, output)
    else:
        output.record({"path": str(files.root), **_plain(found, disk)})


def or_rocketmq_defaults(config: StoreConfig | None, output: Output) -> StoreConfig:
    """The configuration that was named, or RocketMQ's defaults, with a note."""
    from flintlog.store.options.store_config import StoreConfig

    if config is None:
        config = StoreConfig.from_rocketmq({})
        output.note(f"no --config: RocketMQ's defaults ({config.file_reserved_time} hours, deleted at 04:00)")
    return config


def foresee(
    files: StoreFiles, config: StoreConfig, days: int, now_ms: int, progress: Progress | None = None
) -> tuple[Forecast, DiskUsage | None]:
    """Look at a store's files, and forecast."""
    from flintlog.maintenance.inspect.forecast import forecast as calculate
    from flintlog.maintenance.inspect.log_samples import derived_bytes, sample_log
    from flintlog.maintenance.inspect.overview import log_disk
    from flintlog.store.retention.retention_rules import RetentionRules

    samples = sample_log(files, now_ms - days * DAY_MS, progress)
    length = samples[-1].physical_offset - samples[0].physical_offset if samples else 0
    queues = progress.of_part("queues") if progress is not None else None
    disk, rules = log_disk(files), RetentionRules.of(config)
    found = calculate(
        samples,
        disk,
        _limits(config),
        now_ms=now_ms,
        days=days,
        reserved_ms=None if rules is None else rules.reserved_ms,
        derived_ratio=derived_bytes(files, queues) / length if length else 0.0,
    )
    return found, disk


def _limits(config: StoreConfig) -> list[Limit]:
    """What happens at which disk usage, by the rules of retention; without retention, nothing is deleted."""
    from flintlog.maintenance.inspect.forecast import Limit
    from flintlog.store.retention.retention_rules import RetentionRules

    rules = RetentionRules.of(config)
    if rules is None:
        plain = "nothing is deleted by this configuration"
        return [Limit(75, plain), Limit(85, plain), Limit(90, plain)]
    forced = "files are deleted at any age" if rules.may_force else "expired files are deleted"
    return [
        Limit(rules.expired_above_percent, "expired files are deleted at any hour"),
        Limit(rules.forced_above_percent, forced),
        Limit(rules.refused_above_percent, "puts are refused"),
    ]


def _plain(found: Forecast, disk: DiskUsage | None) -> dict[str, object]:
    record = asdict(found)
    record["disk_used_ratio"] = None if disk is None else disk.used_ratio
    record["disk_free_bytes"] = None if disk is None else disk.free
    return record


# ---------------------------------------------------------------------- for people


def _write(found: Forecast, disk: DiskUsage | None, config: StoreConfig, output: TableOutput) -> None:
    greatest = max((day.bytes for day in found.days), default=0)
    rows = [
        {
            "day": f"{_date(day.begin_ms)}{_part(found, day.begin_ms)}",
            "volume": show_bytes(day.bytes),
            "": bar(day.bytes / greatest, _BAR_WIDTH, can_draw=can_draw(output.stream))[0] if greatest else "",
        }
        for day in found.days
    ]
    if rows:
        output.rows(rows, ("day", "volume", ""))
    output.record(_summary(found, disk, config))
    limits = [
        {
            "disk at": f"{limit.percent} %",
            "then": limit.means,
            "reached": _moment(limit.at_ms, found.until_ms),
            "at the busiest day's pace": _moment(limit.at_busiest_ms, found.until_ms),
            "never, if messages are kept": "not even a day" if limit.holds_hours is None else _hours(limit.holds_hours),
        }
        for limit in found.limits
    ]
    if limits:
        output.stream.write("\n")
        output.rows(limits, tuple(limits[0]))


def _summary(found: Forecast, disk: DiskUsage | None, config: StoreConfig) -> dict[str, object]:
    summary: dict[str, object] = {"log": show_bytes(found.log_bytes)}
    if found.bytes_a_day is None:
        summary["growth"] = "not known: what the log holds was written within a minute"
    else:
        summary["growth"] = (
            f"{show_bytes(found.bytes_a_day)} a day, and {found.derived_ratio:.1%} of it for queues and index"
        )
    if found.kept_bytes:
        summary["kept"] = f"{show_bytes(found.kept_bytes)} once messages are {config.file_reserved_time} hours old"
    if disk is not None:
        summary["disk"] = f"{disk.used_ratio:.0%} full, {show_bytes(disk.free)} free"
    return summary


def _date(moment_ms: int) -> str:
    return f"{datetime.fromtimestamp(moment_ms / 1000, UTC):%Y-%m-%d}"


def _part(found: Forecast, begin_ms: int) -> str:
    """The first and the last day are seldom whole."""
    if begin_ms // DAY_MS == found.until_ms // DAY_MS:
        return " so far"
    return " in part" if begin_ms % DAY_MS else ""


def _moment(moment_ms: int | None, now_ms: int) -> str:
    if moment_ms is None:
        return "never"
    if moment_ms <= now_ms:
        return "now"
    days = (moment_ms - now_ms) / DAY_MS
    if days > 3650:
        return "in more than ten years"
    far = f"in {days:.0f} days" if days >= 2 else f"in {days * 24:.0f} hours"
    return f"{str(format_ms(moment_ms))[:10]}, {far}"


def _hours(hours: int) -> str:
    return f"{hours:,} hours" if hours < 72 else f"{hours:,} hours ({hours // 24:,} days)"
