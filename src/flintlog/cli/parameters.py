"""Options that every command takes: `-o`, `-v` and `-q` for the output, `--config` for the options of the store."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeVar

import click

from flintlog.cli.exit_codes import ExitCode
from flintlog.cli.output import FORMATS, Output, make_output
from flintlog.cli.progress import MODES, Mode
from flintlog.disk.places import local_path
from flintlog.errors import DamagedStore

if TYPE_CHECKING:
    from flintlog.maintenance.inspect.store_files import StoreFiles
    from flintlog.store.options.store_config import StoreConfig
    from flintlog.store.store import Store

Command = TypeVar("Command", bound=Callable[..., object])

_VERBOSE, _QUIET, _PROGRESS = "flintlog.verbose", "flintlog.quiet", "flintlog.progress"


def _to_output(context: click.Context, _parameter: click.Parameter, value: str) -> Output:
    output = make_output(value, sys.stdout)
    output.is_verbose, output.is_quiet = (bool(context.meta.get(name)) for name in (_VERBOSE, _QUIET))
    output.progress_mode = context.meta.get(_PROGRESS, "auto")
    return output


def _note_progress(context: click.Context, _parameter: click.Parameter, value: Mode) -> None:
    context.meta[_PROGRESS] = value


def _note_flag(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    context.meta[f"flintlog.{parameter.name}"] = value


def _to_config_if_given(_context: click.Context, _parameter: click.Parameter, value: str | None) -> StoreConfig | None:
    if value is None:
        return None
    from flintlog.store.options.store_config import StoreConfig

    return StoreConfig.load(value)


def _to_config(context: click.Context, parameter: click.Parameter, value: str | None) -> StoreConfig:
    from flintlog.store.options.store_config import StoreConfig

    return _to_config_if_given(context, parameter, value) or StoreConfig()


def to_pairs(_context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """The callback of an option NAME=VALUE that may be given more than once."""
    pairs = [value.partition("=") for value in values]
    wrong = ["".join(pair) for pair in pairs if not (pair[0] and pair[1])]
    if wrong:
        raise click.BadParameter(f"{wrong[0]!r} is not {parameter.metavar}")
    return {name: value for name, _, value in pairs}


class LocalPath(click.Path):
    """A path on this machine, or its `file:` URI; the URI of another file system is refused."""

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        return super().convert(_local(value), param, ctx)


class LocalFile(click.File):
    """The same for a file that is opened."""

    def convert(
        self, value: str | os.PathLike[str] | IO[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> IO[str]:
        return super().convert(_local(value) if isinstance(value, (str, os.PathLike)) else value, param, ctx)


def _local(value: str | os.PathLike[str]) -> str:
    return str(local_path(value)) if value else ""  # not ".", which a `Path` makes of an empty text


class Seconds(click.FloatRange):
    """Seconds; rejects NaN."""

    def convert(self, value: float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds = float(super().convert(value, param, ctx))
        if math.isnan(seconds):
            self.fail("it is not a number", param, ctx)
        return seconds


def output_option(command: Command) -> Command:
    """Give a command `-o`, `-v` and `-q`; it receives an `Output` as `output`."""
    flag = partial(click.option, is_flag=True, is_eager=True, expose_value=False, callback=_note_flag)
    form = click.option(
        "-o",
        "--output",
        "output",
        type=click.Choice(FORMATS),
        default="table",
        show_default=True,
        callback=_to_output,
        help="Form of the output.",
    )
    verbose = flag("-v", "--verbose", help="Say too how the result was found.")
    quiet = flag("-q", "--quiet", help="No notes and no progress: only the result, and errors.")
    return form(verbose(quiet(command)))


def progress_option(command: Command) -> Command:
    """Give a command that may take long `--progress`; it is in its `output` already."""
    return click.option(
        "--progress",
        type=click.Choice(MODES),
        default="auto",
        show_default=True,
        expose_value=False,
        is_eager=True,
        callback=_note_progress,
        help="A bar where standard error is a terminal, or JSON lines on it wherever it goes.",
    )(command)


def config_option(command: Command) -> Command:
    """Give a command `--config`; it receives a `StoreConfig` as `config`."""
    return _add_config(_to_config, "A RocketMQ broker.conf, or JSON or TOML with options of either kind.")(command)


def store_config_option(command: Command) -> Command:
    """Give a command `--config` for a store that exists; it receives a `StoreConfig`, or None to infer it."""
    about = "The store's broker.conf, or JSON or TOML; without it, sizes are read from the files."
    return _add_config(_to_config_if_given, about)(command)


def _add_config(callback: Callable[..., StoreConfig | None], about: str) -> Callable[[Command], Command]:
    path = LocalPath(exists=True, dir_okay=False)
    return click.option("--config", "config", type=path, callback=callback, help=about)


def store_argument(command: Command) -> Command:
    """Give a command the directory of a store as `store`."""
    return click.argument("store", type=LocalPath(exists=True, file_okay=False, path_type=Path), metavar="STORE")(
        command
    )


def note_offsets_damage(files: StoreFiles, output: Output) -> ExitCode:
    """Note when the offsets of groups could not be read; the answer is partial then."""
    from flintlog.maintenance.inspect.overview import offsets_damage, offsets_restored

    damage = offsets_damage(files)
    for note in (offsets_restored(files), damage):
        if note is not None:
            output.note(note)
    return ExitCode.FINE if damage is None else ExitCode.PARTIAL


def look(store: Path, config: StoreConfig | None, output: Output) -> StoreFiles:
    """The files of a store. Notes what was inferred about them, and if their queues are in RocksDB."""
    from flintlog.maintenance.inspect.store_files import look_at

    files = look_at(store, config)
    for reason in files.inferred.reasons:
        output.detail(f"inferred {reason}")
    for finding in files.findings:
        if finding.id == "queues-in-rocksdb":
            output.note(f"{finding.evidence} [{finding.file}]; {finding.remedy}")
    return files


def open_for_writing(store: Path, config: StoreConfig | None, output: Output, create: bool | None = None) -> Store:
    """Open a store with the sizes of its files; with `create` make one. None for commands that cannot make one."""
    from flintlog.store.open_store import open_store

    try:
        fitting = look(store, config, output).config
    except DamagedStore as missing:
        if create:
            return open_store(store, config)
        advice = missing.advice if create is None else "--create makes one"
        raise DamagedStore(missing.what, path=missing.path, advice=advice) from missing
    return open_store(store, fitting)
