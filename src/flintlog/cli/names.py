"""Names of topics, groups and findings on the command line: plain text that the shell completes.

The choices are read from the store that is named before the option: from the folders of its queues and one config
file. They are only offered: any other name is accepted too.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    _Text = click.ParamType[str]
else:
    _Text = click.ParamType  # in click 8.1 it takes no parameter

MOST = 1000
_OFFSETS = "consumerOffset.json"


class _Name(_Text, ABC):
    name = "text"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        found = sorted({name for name in self.choices(ctx) if name.startswith(incomplete)})
        return [CompletionItem(name) for name in found[:MOST]]

    @abstractmethod
    def choices(self, ctx: click.Context) -> Iterable[str]:
        """The names to offer, in any order."""


class TopicName(_Name):
    """A topic; completed with those that have queues in the store."""

    def choices(self, ctx: click.Context) -> Iterable[str]:
        from flintlog.format import names

        for folder in (names.CONSUME_QUEUE, names.BATCH_CONSUME_QUEUE):
            for store in _stores(ctx):
                yield from _entries(store / folder)


class GroupName(_Name):
    """A group; completed with those that have consumed something."""

    def choices(self, ctx: click.Context) -> Iterable[str]:
        from flintlog.errors import FormatError
        from flintlog.format import names
        from flintlog.format.config_json import parse_config_object

        for store in _stores(ctx):
            try:
                config = parse_config_object((store / names.CONFIG / _OFFSETS).read_bytes())
            except (OSError, FormatError):
                continue
            table = config.get("offsetTable")
            yield from (str(key).partition("@")[2] for key in (table if isinstance(table, dict) else ()))


class FindingName(_Name):
    """The id of a finding."""

    def choices(self, ctx: click.Context) -> Iterable[str]:
        from flintlog.checks.finding_kinds import KINDS

        return KINDS


TOPIC, GROUP, FINDING = TopicName(), GroupName(), FindingName()


def _stores(ctx: click.Context) -> Iterable[Path]:
    """The named store. While an option's value is incomplete, click has not parsed it yet: then any word may be it."""
    for word in (ctx.params.get("store"), *ctx.args):
        if isinstance(word, (str, Path)):
            yield Path(word).expanduser()


def _entries(folder: Path) -> Iterable[str]:
    try:
        with os.scandir(folder) as found:
            yield from (entry.name for entry in found if entry.is_dir())
    except OSError:
        return
