"""`flintlog shell STORE`: the few words that an operator types all day, on one store.

Each word runs a command of `flintlog`, which reads the files again: what another process has put since is there.
Nothing is opened or locked between two lines.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from flintlog.cli.output import Output, form_of
from flintlog.cli.parameters import LocalPath, look, output_option, store_argument


@click.command()
@store_argument
@click.option(
    "--config",
    "config_path",
    type=LocalPath(exists=True, dir_okay=False),
    help="The store's broker.conf, or JSON or TOML; without it, sizes are read from the files.",
)
@output_option
def shell(store: Path, config_path: str | None, output: Output) -> int:
    """Look at the store in STORE word by word: topics, cat, get, lag, verify, explain. Nothing is changed.

    At a terminal it completes words, topics and options on Tab, and keeps a history. Otherwise lines are read from
    standard input, and the exit code is the first one that is not 0. The options are those of every word.
    """
    from flintlog.cli.shell.session import Session
    from flintlog.cli.shell.words import Target

    flags = (("-v", output.is_verbose), ("-q", output.is_quiet))
    options = ("-o", form_of(output), *(flag for flag, is_on in flags if is_on))
    target = Target(str(store), options, config_path)
    _refuse_what_is_no_store(store, config_path, output)
    session = Session(target)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return session.run_all(sys.stdin)
    from flintlog.cli.shell.prompt import run_at_terminal

    output.note("`help` lists the words, Tab completes, Ctrl-D leaves.")
    return run_at_terminal(session, target)


def _refuse_what_is_no_store(store: Path, config_path: str | None, output: Output) -> None:
    from flintlog.store.options.store_config import StoreConfig

    look(store, None if config_path is None else StoreConfig.load(config_path), output)
