"""Options that every command takes: `-o` for the form of the output, `--config` for the store's options."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import click

from flintlog.cli.output import FORMATS, Output, make_output

if TYPE_CHECKING:
    from flintlog.store.config import StoreConfig

Command = TypeVar("Command", bound=Callable[..., object])


def _to_output(_context: click.Context, _parameter: click.Parameter, value: str) -> Output:
    return make_output(value, sys.stdout)


def _to_config(_context: click.Context, _parameter: click.Parameter, value: str | None) -> StoreConfig:
    from flintlog.store.config import StoreConfig

    return StoreConfig() if value is None else StoreConfig.load(value)


def output_option(command: Command) -> Command:
    """Give a command `-o`; it receives an `Output` as `output`."""
    return click.option(
        "-o",
        "--output",
        "output",
        type=click.Choice(FORMATS),
        default="table",
        show_default=True,
        callback=_to_output,
        help="Form of the output.",
    )(command)


def config_option(command: Command) -> Command:
    """Give a command `--config`; it receives a `StoreConfig` as `config`."""
    return click.option(
        "--config",
        "config",
        type=click.Path(exists=True, dir_okay=False),
        callback=_to_config,
        help="A RocketMQ broker.conf, or JSON or TOML with options of either kind.",
    )(command)
