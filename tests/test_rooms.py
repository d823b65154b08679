"""The rooms of the package: which may import which, and which may open files.

A room may import the rooms before it in `ROOMS`, the leaves that everyone may use, and itself.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOMS = (
    "format",
    "kernel",
    "disk",
    "derive",
    "store",
    "services",
    "remoting",
    "replication",
    "care",
    "pipeline",
    "testing",
    "bench",
    "cli",
)
LEAVES = frozenset({"errors", "version"})
NOT_ALLOWED = {"derive": frozenset({"disk"}), "cli": frozenset({"testing"})}
"""Rooms further up that a room must not touch all the same: what follows from the log is pure, and only the benchmark
runs the Java store outside of tests."""

OPENS_FILES = frozenset({"disk", "testing", "bench", "cli"})
STANDARD_LIBRARY_ONLY = frozenset({"format"})

_FILE_MODULES = frozenset({"shutil", "tempfile", "fcntl", "glob", "fileinput"})
_OS_CALLS = frozenset(
    {
        "open", "fdopen", "scandir", "listdir", "walk", "stat", "remove", "unlink", "rename", "replace", "mkdir",
        "makedirs", "rmdir", "truncate", "ftruncate", "fsync", "fdatasync", "posix_fallocate", "pread", "pwrite",
        "sync", "link", "symlink", "utime", "statvfs",
    }
)  # fmt: skip
_PATH_METHODS = frozenset(
    {"read_bytes", "read_text", "write_bytes", "write_text", "iterdir", "rglob", "unlink", "mkdir", "rmdir"}
)


@dataclass(frozen=True, slots=True)
class Violation:
    """A line that breaks a rule."""

    room: str
    line: int
    what: str


def find_violations(room: str, source: str) -> list[Violation]:
    """Every place of a module that its room forbids."""
    tree = ast.parse(source)
    found = [Violation(room, line, what) for line, name in _imports(tree) for what in _judge_import(room, name)]
    if room not in OPENS_FILES:
        found += [Violation(room, line, what) for line, what in _file_access(tree)]
    return sorted(found, key=lambda violation: violation.line)


def _imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and full name of everything imported, wherever it stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def _judge_import(room: str, name: str) -> Iterator[str]:
    parts = name.split(".")
    if not parts[0]:
        yield f"relative import {name}"
    elif parts[0] == "flintlog":
        yield from _judge_room(room, parts[1] if len(parts) > 1 else "")
    elif room in STANDARD_LIBRARY_ONLY and parts[0] not in sys.stdlib_module_names:
        yield f"imports {parts[0]}, which is not of the standard library"
    elif room not in OPENS_FILES and parts[0] in _FILE_MODULES:
        yield f"imports {parts[0]}, which only rooms that open files may"


def _judge_room(room: str, target: str) -> Iterator[str]:
    if target in LEAVES or target == room:
        return
    if target not in ROOMS:
        yield f"imports flintlog.{target}, which is no room"
    elif target in NOT_ALLOWED.get(room, ()) or ROOMS.index(target) > ROOMS.index(room):
        yield f"imports the room {target}"


def _file_access(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id == "open":
            yield node.lineno, "calls open"
        elif isinstance(called, ast.Attribute):
            owner = called.value.id if isinstance(called.value, ast.Name) else ""
            if (owner in ("os", "io") and called.attr in _OS_CALLS) or (owner == "mmap" and called.attr == "mmap"):
                yield node.lineno, f"calls {owner}.{called.attr}"
            elif called.attr in _PATH_METHODS and not _is_package_data(called.value):
                yield node.lineno, f"calls .{called.attr}"


def _is_package_data(value: ast.expr) -> bool:
    """Data that was installed with the package is no file of a store."""
    return any(isinstance(node, ast.Name) and node.id == "resources" for node in ast.walk(value))


_PACKAGE = Path(__file__).parents[1] / "src" / "flintlog"
_MODULES = sorted(path for room in ROOMS for path in (_PACKAGE / room).rglob("*.py"))


@pytest.mark.parametrize("path", _MODULES, ids=lambda path: path.relative_to(_PACKAGE).as_posix())
def test_module_keeps_to_its_room(path: Path) -> None:
    room = path.relative_to(_PACKAGE).parts[0]
    assert find_violations(room, path.read_text("utf-8")) == []


def test_every_folder_is_a_room() -> None:
    folders = {path.name for path in _PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders <= set(ROOMS)
    assert _MODULES


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("format", "import msgspec"),
        ("format", "from flintlog.kernel import scan"),
        ("kernel", "from flintlog import disk"),
        ("kernel", "def f():\n    import flintlog.store.options.store_config"),
        ("derive", "from flintlog.disk.media.local import LocalMedium"),
        ("store", "from flintlog.services.timer.timer_service import Timer"),
        ("store", "from flintlog import Message"),
        ("store", "from . import message"),
        ("store", "import flintlog"),
        ("store", "import mmap\nmmap.mmap(-1, 4096)"),
        ("store", "import shutil"),
        ("store", "open('x')"),
        ("store", "import os\nos.open('x', 0)"),
        ("store", "path.read_bytes()"),
        ("services", "Path('x').write_text('y')"),
        ("cli", "from flintlog.testing import clock"),
    ],
)
def test_a_forbidden_line_is_found(room: str, source: str) -> None:
    assert len(find_violations(room, source)) == 1


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("format", "import struct\nfrom flintlog.errors import FormatError\nfrom flintlog.format import java"),
        ("store", "from flintlog.disk.media.local import LocalMedium\nimport pyarrow"),
        ("kernel", "import mmap\nBuffer = bytearray | mmap.mmap"),
        ("store", "medium.open(path)\nmedium.read(path)\nmedium.rename(a, b)"),
        ("store", "resources.files('flintlog.store').joinpath('x').read_text('utf-8')"),
        ("disk", "import mmap, os\nos.open('x', 0)\nopen('y')"),
        ("cli", "open('x')\nfrom flintlog.store.options.store_config import StoreConfig\nfrom flintlog.version import VERSION"),
    ],
)
def test_an_allowed_line_is_not(room: str, source: str) -> None:
    assert find_violations(room, source) == []
