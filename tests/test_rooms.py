"""The rooms of the package: which may import which, in what order their folders lie, and which may open files.

A room may import the rooms before it in `ROOMS`, the leaves that everyone may use, and itself. Inside a room a folder
may import the folders before it in `FOLDERS`; the modules at the top of a room have their place in the same order.
Imports for types alone cause no cycle when the program runs; they may also name a module at the top of the room.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

import pytest

ROOMS = (
    "format",
    "kernel",
    "disk",
    "derive",
    "checks",
    "store",
    "services",
    "remoting",
    "replication",
    "maintenance",
    "pipeline",
    "testing",
    "bench",
    "cli",
)
LEAVES = frozenset({"errors", "version"})
NOT_ALLOWED = {"derive": frozenset({"disk"}), "checks": frozenset({"disk"}), "cli": frozenset({"testing"})}
"""Rooms further up that a room must not touch all the same: what follows from the log is pure, and commands do without
what is for tests."""

NAMES_TYPES_OF = {"store.store": "flintlog.services."}
"""A module that may name types of a room further up, for type checkers alone: `Store.service` gives such objects."""

FOLDERS = {
    "disk": ("places", "mounts", "bell", "media", "faulty", "load_medium", "segments"),
    "store": (
        "options", "model", "runtime", "paths", "filters", "log", "queues", "index", "ledger", "settings", "dispatch",
        "stats", "flush", "components", "recovery", "engine", "read", "put", "retention", "consume",
        "member", "store", "open_store",
    ),
    "services": ("queue_reading", "rebuilding", "unique_key", "retry", "delay", "timer", "transaction"),
    "replication": ("broker_ports", "status", "loop_thread", "ha", "ledger", "prometheus"),
    "replication.ledger": ("core", "node", "store_node"),
    "maintenance": ("inspect", "verify", "repair", "backup"),
    "pipeline": (
        "reading", "views", "spark", "building", "shuffling", "tables", "sink", "source", "sql", "jobs", "session",
        "submit", "compact", "dispatch", "export", "rebuild", "replay", "report",
        "report_here", "report_page", "verify",
    ),
    "cli": (
        "exit_codes", "times", "drawing", "progress", "output", "names", "messages", "message_lines", "parameters",
        "group", "completion", "main", "look", "mend", "run", "pipeline", "top", "shell",
    ),
}  # fmt: skip
"""The folders and top modules of a room, each importing only those before it. A module that is not listed fails."""

OPENS_FILES = frozenset({"disk", "testing", "bench", "cli"})
STANDARD_LIBRARY_ONLY = frozenset({"format"})
NOT_INSTALLED = frozenset({"benchmarks", "examples", "interop", "scripts", "tests"})
"""Folders of the project that a wheel does not have."""

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


def find_violations(module: str, source: str) -> list[Violation]:
    """Every place of a module (its dotted name, without `flintlog.`) that its room or its folder forbids."""
    tree = ast.parse(source)
    room = module.split(".", maxsplit=1)[0]
    types = _type_only_lines(tree)
    found = [
        Violation(room, line, what)
        for line, name in _imports(tree)
        if not (line in types and name.startswith(NAMES_TYPES_OF.get(module, "no module")))
        for what in _judge_import(room, name)
    ]
    found += [
        Violation(room, line, what)
        for line, name in _imports(tree)
        for what in _judge_folder(module, name.removeprefix("flintlog."), for_types=line in types)
    ]
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


def _type_only_lines(tree: ast.AST) -> set[int]:
    """The lines of `if TYPE_CHECKING:`."""
    guarded = [
        node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    return {
        inner.lineno
        for node in guarded
        for part in node.body
        for inner in ast.walk(part)
        if isinstance(inner, ast.stmt)
    }


def _judge_folder(module: str, target: str, *, for_types: bool) -> Iterator[str]:
    for package, order in FOLDERS.items():
        if not (module.startswith(f"{package}.") and target.startswith(f"{package}.")):
            continue
        own, other = (name.removeprefix(f"{package}.").split(".")[0] for name in (module, target))
        if own not in order:
            yield f"{package}.{own} has no place in the order of {package}"
        elif other not in order:
            yield f"imports {package}.{other}, which has no place in the order of {package}"
        elif order.index(other) > order.index(own) and not (for_types and _is_module(f"{package}.{other}")):
            yield f"imports {package}.{other}, which comes after {package}.{own}"


def _is_module(name: str) -> bool:
    return (_PACKAGE / f"{name.replace('.', '/')}.py").exists()


def _judge_import(room: str, name: str) -> Iterator[str]:
    parts = name.split(".")
    if not parts[0]:
        yield f"relative import {name}"
    elif parts[0] in NOT_INSTALLED:
        yield f"imports {parts[0]}, which is not installed with the package"
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


_LOG_MAKERS = ("store.components", "store.paths", "store.ledger.", "store.member.", "store.flush.ledger_wait")
"""The modules that know which kind of log a store has; the others ask the log to do its part (`store/log/log.py`)."""


def find_ledger_questions(module: str, source: str) -> list[int]:
    """The lines of a module of the store that ask whether its log is a ledger."""
    if module.startswith(_LOG_MAKERS):
        return []
    return sorted({node.lineno for node in ast.walk(ast.parse(source)) if _asks_for_ledger(node)})


def _asks_for_ledger(node: ast.AST) -> TypeGuard[ast.expr]:
    if isinstance(node, ast.Compare):
        return _names_ledger(node.left) and isinstance(node.ops[0], ast.Is | ast.IsNot)
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
        return "ledger" in ast.unparse(node.args[1]).lower()
    if isinstance(node, ast.Name | ast.Attribute):
        return (
            isinstance(node.ctx, ast.Load)
            and re.search(r"is_(ledger|member)$|enable_dledger", _last_name(node)) is not None
        )
    tested = getattr(node, "test", None) or (node.operand if isinstance(node, ast.UnaryOp) else None)
    return isinstance(node, ast.expr | ast.If | ast.While) and tested is not None and _names_ledger(tested)


def _names_ledger(node: ast.expr) -> bool:
    return isinstance(node, ast.Name | ast.Attribute) and "ledger" in _last_name(node)


def _last_name(node: ast.Name | ast.Attribute) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr


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
    module = ".".join(path.relative_to(_PACKAGE).with_suffix("").parts)
    assert find_violations(module, path.read_text("utf-8")) == []


@pytest.mark.parametrize("path", sorted((_PACKAGE / "store").rglob("*.py")), ids=lambda path: path.stem)
def test_only_the_factory_knows_the_kind_of_the_log(path: Path) -> None:
    module = ".".join(path.relative_to(_PACKAGE).with_suffix("").parts)
    assert find_ledger_questions(module, path.read_text("utf-8")) == []


@pytest.mark.parametrize(
    "question",
    [
        "parts.ledger is not None",
        "paths.ledger is None",
        "not self._is_ledger",
        "Topics(table, is_member=engine.is_member)",
        "config.enable_dledger_commit_log",
        "isinstance(log, LedgerCommitLog)",
        "1 if parts.ledger else 2",
        "not ledger",
    ],
)
def test_a_question_for_the_kind_of_the_log_is_found(question: str) -> None:
    path = _PACKAGE / "store" / "engine.py"
    source = path.read_text("utf-8")
    assert find_ledger_questions("store.engine", f"{source}\nif {question}:\n    pass\n") == [source.count("\n") + 2]
    assert find_ledger_questions("store.components", question) == []


def find_strangers(package: str, names: Iterable[str]) -> list[str]:
    """The folders and modules in a room that its order does not know."""
    return sorted(set(names) - set(FOLDERS[package]))


@pytest.mark.parametrize("package", FOLDERS)
def test_every_folder_and_top_module_has_a_place(package: str) -> None:
    directory = _PACKAGE / package.replace(".", "/")
    found = [path.stem for path in directory.iterdir() if path.suffix == ".py" and path.name != "__init__.py"]
    found += [path.name for path in directory.iterdir() if path.is_dir() and path.name != "__pycache__"]
    assert find_strangers(package, found) == []
    assert set(FOLDERS[package]) <= set(found)


def test_a_new_module_at_the_top_of_the_store_is_found() -> None:
    assert find_strangers("store", [*FOLDERS["store"], "helpers"]) == ["helpers"]


_FACES = (_PACKAGE, _PACKAGE / "testing", _PACKAGE / "kernel", _PACKAGE / "kernel" / "reference")
"""Folders whose `__init__.py` names what others import from them."""
_OPENINGS = sorted(path for path in _PACKAGE.rglob("__init__.py") if path.parent not in _FACES)


@pytest.mark.parametrize("path", _OPENINGS, ids=lambda path: path.parent.relative_to(_PACKAGE).as_posix())
def test_a_folder_opens_with_a_docstring_and_has_no_code(path: Path) -> None:
    body = ast.parse(path.read_text("utf-8")).body
    assert len(body) == 1 and isinstance(body[0], ast.Expr)


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
        ("bench", "from interop.java_store import JavaStore"),
        ("store.log.commit_log", "from flintlog.store.queues.queue_table import QueueTable"),
        ("store.log.commit_log", "from flintlog.store.engine import Engine"),
        ("store.log.commit_log", "if TYPE_CHECKING:\n    from flintlog.store.put.appender import Appender"),
        ("store.helpers", "from flintlog.store.paths import StorePaths"),
        ("store.store", "from flintlog.services.timer.timer_service import TimerService"),
        ("store.engine", "if TYPE_CHECKING:\n    from flintlog.services.timer.timer_service import TimerService"),
        ("maintenance.inspect.dump", "from flintlog.maintenance.repair.repair import repair"),
        ("pipeline.reading.rows", "from flintlog.pipeline.export import export"),
        ("replication.ledger.core.core", "from flintlog.replication.ledger.node.node import LedgerNode"),
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
        ("store.queues.queue_table", "from flintlog.store.log.commit_log import CommitLog"),
        ("store.consume.consumer", "if TYPE_CHECKING:\n    from flintlog.store.store import Store"),
        ("store.store", "if TYPE_CHECKING:\n    from flintlog.services.timer.timer_service import TimerService"),
        ("disk", "import mmap, os\nos.open('x', 0)\nopen('y')"),
        ("cli", "open('x')\nfrom flintlog.store.paths import StorePaths\nfrom flintlog.version import VERSION"),
    ],
)
def test_an_allowed_line_is_not(room: str, source: str) -> None:
    assert find_violations(room, source) == []
