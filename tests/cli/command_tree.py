"""Every command of the program, by the words that call it."""

from __future__ import annotations

from collections.abc import Iterator

import click

from flintlog.cli.group import root


def command_lines() -> list[tuple[str, ...]]:
    """`("verify",)`, `("offsets", "show")` and so on: what can be called, groups left out."""
    return sorted(_below(root, ()))


def _below(command: click.Command, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if not isinstance(command, click.Group):
        yield words
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from _below(found, (*words, name))
