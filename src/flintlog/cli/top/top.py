"""`flintlog top`: a live view of a store that another process writes.

At a terminal it fills the screen until `q`. With `--once`, or into a pipe, it prints one frame: as text, or as one
record for programs. A rate needs two looks, so a frame takes as long as the interval.
"""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flintlog.cli.drawing import can_draw
from flintlog.cli.output import Output, TableOutput
from flintlog.cli.parameters import Seconds, output_option, store_argument, store_config_option
from flintlog.errors import MissingExtra

if TYPE_CHECKING:
    from flintlog.cli.top.top_view import View
    from flintlog.maintenance.inspect.live import Watch
    from flintlog.store.options.store_config import StoreConfig

_SORTS = ("rate", "bytes", "messages", "lag", "name")
LEAST_INTERVAL_S = 0.1


@click.command()
@store_argument
@click.option(
    "--interval",
    "interval_s",
    type=Seconds(LEAST_INTERVAL_S, 3600),
    default=1.0,
    show_default=True,
    help="Seconds between two looks.",
)
@click.option("--once", is_flag=True, help="One frame instead of the full screen; always so in a pipe.")
@click.option("--sort", type=click.Choice(_SORTS), default="rate", show_default=True, help="Order of the topics.")
@click.option("--filter", "part", default="", help="Only topics and groups with this in their name.")
@store_config_option
@output_option
def top(
    store: Path, interval_s: float, once: bool, sort: str, part: str, config: StoreConfig | None, output: Output
) -> None:
    """Watch the store in STORE while another process writes it: rates, topics, groups and their lag.

    Nothing is opened, locked or written. Keys: q quits, s sorts, / filters, p pauses, ? shows help.
    """
    from flintlog.cli.top.top_view import View
    from flintlog.maintenance.inspect.live import Watch

    watch = Watch(store, config, now_ms=lambda: time.time_ns() // 1_000_000, monotonic=time.monotonic)
    view = View(sort=sort, filter=part, can_draw=can_draw(output.stream))
    if once or not isinstance(output, TableOutput) or not _is_terminal():
        _show_once(watch, view, interval_s, output)
    else:
        _fill_the_screen(watch, view, interval_s)


def _show_once(watch: Watch, view: View, interval_s: float, output: Output) -> None:
    watch.look()
    time.sleep(interval_s)
    snapshot = watch.look()
    view.add(snapshot)
    if isinstance(output, TableOutput):
        from flintlog.cli.top.top_frame import print_frame

        print_frame(snapshot, view, output.stream)
        return
    record = asdict(snapshot)
    record["topics"] = [asdict(topic) for topic in view.topics(snapshot)]
    record["groups"] = [asdict(group) for group in view.groups(snapshot)]
    output.record(record)


def _fill_the_screen(watch: Watch, view: View, interval_s: float) -> None:
    watch.look()  # raises an error before the screen is taken
    try:
        from flintlog.cli.top.top_app import TopApp
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "textual":
            raise
        advice = "pip install 'flintlog[top]', or add --once for one frame of text"
        raise MissingExtra("the full screen of `flintlog top` needs textual", advice=advice) from error
    TopApp(watch, view, interval_s).run()


def _is_terminal() -> bool:
    """All three streams are needed: textual reads keys from standard input and draws on standard error."""
    return all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
