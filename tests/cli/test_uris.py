"""A URI where only a path works: every command refuses it by name and creates nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from tests.cli.command_tree import command_lines

from flintlog.cli.exit_codes import ExitCode
from flintlog.cli.group import root
from flintlog.cli.main import run
from flintlog.cli.parameters import LocalFile, LocalPath

URI = "s3://bucket/store"


def command_of(words: tuple[str, ...]) -> click.Command:
    found: click.Command = root
    for word in words:
        assert isinstance(found, click.Group)
        inner = found.get_command(click.Context(found), word)
        assert inner is not None
        found = inner
    return found


def places() -> Iterator[tuple[tuple[str, ...], click.Parameter]]:
    """Every parameter of every command that is a file or a directory."""
    for words in command_lines():
        for parameter in command_of(words).params:
            if isinstance(parameter.type, (click.Path, click.File)):
                yield words, parameter


PLACES = list(places())
NAMES = [" ".join((*words, str(parameter.name))) for words, parameter in PLACES]


@pytest.mark.parametrize(("words", "parameter"), PLACES, ids=NAMES)
def test_a_command_refuses_a_uri_by_name(
    words: tuple[str, ...],
    parameter: click.Parameter,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "lines").touch()
    monkeypatch.chdir(tmp_path)
    assert run([*words, *line_with_uri(words, parameter)]) == ExitCode.USAGE
    assert URI in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["lines", "there"]


def line_with_uri(words: tuple[str, ...], wrong: click.Parameter) -> Iterator[str]:
    """A command line whose places exist, apart from one that is a URI."""
    for parameter in command_of(words).params:
        is_place = isinstance(parameter.type, (click.Path, click.File))
        if not (parameter.required or parameter is wrong or (is_place and isinstance(parameter, click.Argument))):
            continue
        if isinstance(parameter, click.Option):
            yield parameter.opts[0]
        if parameter is wrong:
            yield URI
        elif isinstance(parameter.type, click.File):
            yield "lines"
        elif isinstance(parameter.type, click.Path):
            yield "there" if parameter.type.dir_okay else "lines"
        elif isinstance(parameter.type, click.Choice):
            yield str(parameter.type.choices[0])
        else:
            yield "1"


def test_there_are_places_in_most_commands() -> None:
    assert len(PLACES) > 40
    assert {type(parameter.type) for _, parameter in PLACES} == {LocalPath, LocalFile}


@pytest.mark.parametrize("before", ["file:", "file://", "file://localhost"])
def test_a_uri_of_this_machine_is_a_path(tmp_path: Path, before: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["put", f"{before}{tmp_path}/store", "--create", "--topic", "orders", "hello"]) == ExitCode.FINE
    assert run(["info", f"{before}{tmp_path}/store"]) == ExitCode.FINE
    assert (tmp_path / "store" / "commitlog").is_dir()


def test_an_empty_path_is_not_the_working_directory(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["info", ""]) == ExitCode.USAGE
