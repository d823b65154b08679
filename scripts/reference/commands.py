"""The page of commands: every command of `flintlog` with every option, as click knows them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from flintlog.cli.exit_codes import MEANINGS
from flintlog.cli.group import LazyGroup, root

_HEAD = """# Commands

Made from `flintlog.cli`; `make docs` writes it again.

Every command takes `--help`. Results go to standard output; progress and remarks go to standard error, progress only
to a terminal. Tables are for people: without a terminal they have no colours and whole lines. Programs ask for
`-o json`, `jsonl` or `csv`, where every value is as it is.

"""


def render() -> str:
    """The page."""
    top = click.Context(root, info_name="flintlog")
    codes = "".join(f"| {int(code)} | {meaning} |\n" for code, meaning in MEANINGS.items())
    names = root.list_commands(top)
    rows = "".join(f"| [`{name}`](#flintlog-{name}) | {root.entries[name].about} |\n" for name in names)
    sections = "".join(section for name in names for section in _command(top, root, name, level=2))
    return (
        f"{_HEAD}| exit code | says |\n|---|---|\n{codes}\n"
        f"| command | does |\n|---|---|\n{rows}{sections}"
    )  # fmt: skip


def _command(parent: click.Context, group: click.Group, name: str, level: int) -> Iterator[str]:
    command = group.get_command(parent, name)
    if command is None:
        raise LookupError(f"{name} is listed and not there")
    if command.hidden:
        return
    context = click.Context(command, info_name=name, parent=parent)
    text = [f"\n{'#' * level} {context.command_path}\n\n```text\n{_usage(context)}\n```\n\n{_about(command)}\n"]
    options = [one for one in command.params if isinstance(one, click.Option) and not one.hidden]
    if options:
        text.append("\n| option | default | about |\n|---|---|---|\n")
        text += [f"| {_option(option, context)} |\n" for option in options]
    yield "".join(text)
    if isinstance(command, click.Group):
        for child in command.list_commands(context):
            yield from _command(context, command, child, level + 1)


def _usage(context: click.Context) -> str:
    return f"{context.command_path} {' '.join(context.command.collect_usage_pieces(context))}"


def _about(command: click.Command) -> str:
    """The help of a command, in whole lines a paragraph; a block that click shows as it is stays one."""
    if isinstance(command, LazyGroup) or not command.help:
        return command.help or ""
    paragraphs = inspect.cleandoc(command.help).split("\n\n")
    return "\n\n".join(
        "```text\n" + part.removeprefix("\b\n") + "\n```" if part.startswith("\b\n") else " ".join(part.split())
        for part in paragraphs
    )


def _option(option: click.Option, context: click.Context) -> str:
    names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    value = _value(option, context)
    about = " ".join((option.help or "").split()).replace("|", "\\|")
    many = "" if not option.multiple or "more than once" in about else " May be given more than once."
    need = "needed" if option.required else _default(option)
    return f"{names}{f' {value}' if value else ''} | {need} | {about}{many}"


def _value(option: click.Option, context: click.Context) -> str:
    if option.is_flag or option.count:
        return ""
    if isinstance(option.type, click.Choice):
        return ", ".join(f"`{choice}`" for choice in option.type.choices)
    if isinstance(option.type, click.IntRange | click.FloatRange) and option.metavar is None:
        return f"*number{_bounds(option.type)}*"
    return f"*{option.make_metavar(context)}*".replace("|", "\\|")


def _bounds(kind: click.IntRange | click.FloatRange) -> str:
    if kind.min is not None and kind.max is not None:
        return f", {kind.min} to {kind.max}"
    if kind.min is not None:
        return f", {'more than ' if kind.min_open else ''}{kind.min}{'' if kind.min_open else ' or more'}"
    return "" if kind.max is None else f", {kind.max} or less"


def _default(option: click.Option) -> str:
    """What is taken when the option is not given, where that is a word or a number."""
    value = option.default
    if option.is_flag or isinstance(value, bool) or not isinstance(value, (str, int, float)) or value == "":
        return ""
    return f"`{value}`"
