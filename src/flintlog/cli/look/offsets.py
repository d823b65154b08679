"""`flintlog offsets show|set|reset|clone STORE`: how far groups have consumed.

All but `show` write `config/consumerOffset.json` of a store that is not running, and keep a copy of the old file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flintlog.cli.exit_codes import ExitCode
from flintlog.cli.group import Entry, LazyGroup
from flintlog.cli.names import GROUP, TOPIC
from flintlog.cli.output import Output
from flintlog.cli.parameters import look, note_offsets_damage, output_option, store_argument, store_config_option
from flintlog.cli.times import parse_ms

if TYPE_CHECKING:
    from flintlog.maintenance.inspect.store_files import StoreFiles
    from flintlog.maintenance.repair.offsets import OffsetMove, Place
    from flintlog.store.options.store_config import StoreConfig

_SHOWN = ("group", "topic", "queue_id", "offset", "max_offset", "lag")
_MOVED = ("group", "topic", "queue_id", "before", "after")

_HERE = "flintlog.cli.look.offsets"
offsets = LazyGroup(
    "offsets",
    {
        "show": Entry(_HERE, "show", "Show how far groups have consumed, and their lag."),
        "set": Entry(_HERE, "set_", "Move a group to an offset, or to the begin or end of its queues."),
        "reset": Entry(_HERE, "reset", "Move a group to the first message stored at or after a time."),
        "clone": Entry(_HERE, "clone", "Move a group to where another one is."),
    },
    "Show or move what groups have consumed. A store that runs is refused, except by `show`.",
)


@click.command()
@store_argument
@click.option("--group", type=GROUP, help="Only this group.")
@click.option("--topic", type=TOPIC, help="Only this topic.")
@store_config_option
@output_option
def show(store: Path, group: str | None, topic: str | None, config: StoreConfig | None, output: Output) -> int:
    """Show how far groups have consumed the queues of STORE."""
    from flintlog.maintenance.inspect.overview import groups

    files = look(store, config, output)
    found = groups(files)
    wanted = (each for each in found if group in (None, each.group) and topic in (None, each.topic))
    output.rows((asdict(each) for each in wanted), _SHOWN)
    return note_offsets_damage(files, output)


@click.command("set")
@store_argument
@click.argument("place", metavar="OFFSET|earliest|latest")
@click.option("--group", required=True, type=GROUP, help="The group.")
@click.option("--topic", required=True, type=TOPIC, help="The topic.")
@click.option("--queue", "queue_id", type=click.IntRange(0), help="Only this queue; all of the topic by default.")
@click.option("--create", "is_new", is_flag=True, help="The group may have no offsets yet.")
@click.option("--dry-run", is_flag=True, help="Say what would move, and write nothing.")
@store_config_option
@output_option
def set_(
    store: Path,
    place: str,
    group: str,
    topic: str,
    queue_id: int | None,
    is_new: bool,
    dry_run: bool,
    config: StoreConfig | None,
    output: Output,
) -> int:
    """Move a group in the queues of STORE to an offset, or to their begin or end."""
    from flintlog.maintenance.repair.offsets import plan_set

    files = look(store, config, output)
    offset = _parse_place(place)
    return _move(files, lambda: plan_set(files, group, topic, queue_id, offset, is_new=is_new), dry_run, output)


@click.command()
@store_argument
@click.option("--group", required=True, type=GROUP, help="The group.")
@click.option(
    "--time",
    "time_ms",
    type=parse_ms,
    metavar="TIME",
    required=True,
    help="Messages stored from then on: ISO 8601 (UTC) or milliseconds.",
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    type=TOPIC,
    help="Only this topic; may be repeated. All by default.",
)
@click.option("--dry-run", is_flag=True, help="Say what would move, and write nothing.")
@store_config_option
@output_option
def reset(
    store: Path,
    group: str,
    time_ms: int,
    topics: tuple[str, ...],
    dry_run: bool,
    config: StoreConfig | None,
    output: Output,
) -> int:
    """Move a group in STORE to the first message that was stored at or after a time."""
    from flintlog.maintenance.repair.offsets import plan_reset

    files = look(store, config, output)
    return _move(files, lambda: plan_reset(files, group, topics, time_ms), dry_run, output)


@click.command()
@store_argument
@click.option("--from", "source", required=True, help="The group whose offsets are taken.")
@click.option("--to", "target", required=True, help="The group that gets them.")
@click.option("--topic", "topics", multiple=True, type=TOPIC, help="Only this topic; may be repeated.")
@click.option("--dry-run", is_flag=True, help="Say what would move, and write nothing.")
@store_config_option
@output_option
def clone(
    store: Path,
    source: str,
    target: str,
    topics: tuple[str, ...],
    dry_run: bool,
    config: StoreConfig | None,
    output: Output,
) -> int:
    """Move one group in STORE to where another one is."""
    from flintlog.maintenance.repair.offsets import plan_clone

    files = look(store, config, output)
    return _move(files, lambda: plan_clone(files, source, target, topics), dry_run, output)


def _parse_place(text: str) -> Place:
    match text:
        case "earliest" | "latest":
            return text
    if text.isascii() and text.isdecimal():
        return int(text)
    raise click.UsageError(f"{text!r} is no offset; a number, earliest or latest is")


def _move(files: StoreFiles, plan: Callable[[], Iterable[OffsetMove]], dry_run: bool, output: Output) -> int:
    from flintlog.maintenance.repair.offsets import apply_moves, changing

    kept = None
    moves = list(plan())  # refuses a wrong request before even a lock file is made
    if not dry_run:
        with changing(files):
            moves = list(plan())
            kept = apply_moves(files, moves)
    output.rows((asdict(move) for move in moves), _MOVED)
    if kept is not None:
        output.note(f"the old file is kept as {kept}")
    return ExitCode.FINE
