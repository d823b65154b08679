"""The commands by name, each imported when it is called.

A command is a click command in a module of this package. The table below holds its place and the line that
`flintlog --help` shows, so that help imports no command.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module

import click
from click.shell_completion import CompletionItem

from flintlog.version import VERSION


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a command is, and a line about it."""

    module: str
    attribute: str
    about: str


PURPOSES: Mapping[str, Mapping[str, Entry]] = {
    "Look": {
        "info": Entry("flintlog.cli.look.info", "info", "Show a store on one screen."),
        "ls": Entry("flintlog.cli.look.ls", "ls", "List topics, queues, groups or files of a store."),
        "cat": Entry("flintlog.cli.look.cat", "cat", "Show the messages of a store, in log order."),
        "tail": Entry("flintlog.cli.look.cat", "tail", "Show the last messages of a store, and follow it."),
        "get": Entry("flintlog.cli.look.get", "get", "Show one message and every place that refers to it."),
        "stats": Entry("flintlog.cli.look.stats", "stats", "Show figures of a store: messages, bytes, offsets, disks."),
        "report": Entry("flintlog.cli.look.report", "report", "Say what is in a store: tables, and a page with plots."),
        "top": Entry("flintlog.cli.top.top", "top", "Watch a store while it is written: rates, topics, groups, lag."),
        "shell": Entry("flintlog.cli.shell.shell", "shell", "Look at a store word by word, with completion."),
        "dump": Entry("flintlog.cli.look.dump", "dump", "Decode any file of a store, with its byte offsets."),
        "forecast": Entry("flintlog.cli.look.forecast", "forecast", "Say how a log grows, and when its disk is full."),
        "retention": Entry(
            "flintlog.cli.mend.retention", "retention", "Say which files of a log would be deleted, and when."
        ),
    },
    "Prove": {
        "verify": Entry("flintlog.cli.mend.verify", "verify", "Prove a store, or say what is wrong with it and where."),
        "explain": Entry("flintlog.cli.mend.verify", "explain", "Say what a finding means: cause, danger, remedy."),
        "diff": Entry("flintlog.cli.look.diff", "diff", "Say where two replicas differ, and which is ahead."),
    },
    "Mend": {
        "repair": Entry(
            "flintlog.cli.mend.repair", "repair", "Mend a store by plan; what is replaced is kept beside it."
        ),
        "offsets": Entry("flintlog.cli.look.offsets", "offsets", "Show or move what groups have consumed."),
    },
    "Move": {
        "put": Entry("flintlog.cli.run.put", "put", "Put messages into a store."),
        "consume": Entry("flintlog.cli.mend.transfer", "consume", "Read a topic for a group, and acknowledge it."),
        "export": Entry("flintlog.cli.mend.transfer", "export", "Write messages as JSON lines."),
        "import": Entry("flintlog.cli.mend.transfer", "import_", "Put messages that were written as JSON lines."),
        "backup": Entry("flintlog.cli.mend.backup", "backup", "Copy a store while it runs, and prove a copy."),
        "restore": Entry("flintlog.cli.mend.backup", "restore", "Make a store from a backup, whole or cut at a point."),
    },
    "Run": {
        "serve": Entry("flintlog.cli.run.serve", "serve", "Run a store as a master or a slave until SIGTERM."),
        "replica": Entry("flintlog.cli.run.replica", "replica", "Show role, positions and lag of running nodes."),
        "doctor": Entry("flintlog.cli.run.doctor", "doctor", "Say what this machine and a configuration give a store."),
        "bench": Entry(
            "flintlog.cli.run.bench", "bench", "Measure this machine's store, beside RocketMQ's own and others."
        ),
        "completion": Entry(
            "flintlog.cli.completion", "completion", "Print what makes a shell complete these commands."
        ),
    },
    "Spark": {
        "pipeline": Entry(
            "flintlog.cli.pipeline.commands", "pipeline", "Run a job on Spark over a store: rebuild, and more."
        ),
    },
}
"""The commands by what people want to do, as `flintlog` without arguments shows them."""
COMMANDS: Mapping[str, Entry] = {name: entry for entries in PURPOSES.values() for name, entry in entries.items()}


class LazyGroup(click.Group):
    """A group whose commands are modules that are not imported before they are needed."""

    def __init__(
        self,
        name: str,
        entries: Mapping[str, Entry],
        about: str,
        purposes: Mapping[str, Mapping[str, Entry]] | None = None,
    ) -> None:
        """The help shows the commands in the order of `purposes`, under their names."""
        super().__init__(name, help=about, no_args_is_help=True)
        self.entries = entries
        self._purposes = {"Commands": dict(sorted(entries.items()))} if purposes is None else purposes

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self.entries.get(cmd_name)
        if entry is None:
            return None
        command = getattr(import_module(entry.module), entry.attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{entry.module}.{entry.attribute} is no command")
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names from the table: click would import every command to ask whether it is hidden."""
        named = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        options = [] if named and not incomplete else click.Command.shell_complete(self, ctx, incomplete)
        return [*(CompletionItem(name, help=self.entries[name].about) for name in named), *options]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self.entries))  # the same in all sections
        for purpose, entries in self._purposes.items():
            with formatter.section(purpose):
                formatter.write_dl([(name.ljust(width), entry.about) for name, entry in entries.items()])


root = LazyGroup("flintlog", COMMANDS, "Open, inspect and care for RocketMQ store directories.", PURPOSES)
root = click.version_option(VERSION, prog_name="flintlog", message="%(prog)s %(version)s")(root)
