"""The page of errors: the tree of `flintlog.errors`, with codes and exit codes."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import flintlog
from flintlog import errors
from flintlog.cli.exit_codes import exit_code_of

_HEAD = """# Errors

Made from `flintlog.errors`; `make docs` writes it again.

Everything that flintlog raises by intent is a `FlintlogError`: `except FlintlogError` is enough. Each has a `code` that
is fixed, and says what was wrong (`what`), where (`path` and `offset`, when there is a place) and what can be done
(`advice`). `str(error)` is all of it in a line. The exit code is what a command ends with that met the error.

Those in **bold** are in `flintlog` itself, the others in `flintlog.errors`.

"""


def render() -> str:
    """The page."""
    rows = [
        f"| {_shown(kind)} | `{kind.code}` | {_exit_code(kind)} | {_about(kind)} |"
        for kind in _with_subclasses(errors.FlintlogError)
    ]
    tree = "\n".join(_tree(errors.FlintlogError, ""))
    table = "\n".join(["| error | code | exit code | raised for |", "|---|---|---|---|", *rows])
    return f"{_HEAD}```text\nFlintlogError\n{tree}\n```\n\n{table}\n"


def _children(kind: type[errors.FlintlogError]) -> list[type[errors.FlintlogError]]:
    """Its direct subclasses of this module, in the order in which they are written."""
    return [
        one
        for one in vars(errors).values()
        if isinstance(one, type) and issubclass(one, errors.FlintlogError) and one.__base__ is kind
    ]


def _with_subclasses(kind: type[errors.FlintlogError]) -> Iterator[type[errors.FlintlogError]]:
    yield kind
    for child in _children(kind):
        yield from _with_subclasses(child)


def _tree(kind: type[errors.FlintlogError], indent: str) -> Iterator[str]:
    children = _children(kind)
    for child in children:
        is_last = child is children[-1]
        yield f"{indent}{'└── ' if is_last else '├── '}{child.__name__}"
        yield from _tree(child, indent + ("    " if is_last else "│   "))


def _shown(kind: type[errors.FlintlogError]) -> str:
    return f"**`{kind.__name__}`**" if kind.__name__ in flintlog.__all__ else f"`{kind.__name__}`"


def _exit_code(kind: type[errors.FlintlogError]) -> int:
    return int(exit_code_of(kind("")))


def _about(kind: type[errors.FlintlogError]) -> str:
    return " ".join((inspect.getdoc(kind) or "").split())
