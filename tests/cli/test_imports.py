"""No command waits for what it does not need: which modules each imports, for its help and for its work.

Times are a matter of the machine; what is imported is not. A command that imports neither columns nor Spark nor, for
its help, the store has started within a fraction of the third of a second that it may take.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.cli.command_tree import command_lines

Golden = Callable[[str], Path]

HEAVY = frozenset(
    {
        "pyarrow",
        "pyspark",
        "textual",
        "numpy",
        "pandas",
        "deltalake",
        "lz4",
        "zstandard",
        "prometheus_client",
        "asyncio",
    }
)
HELP_NEEDS_NO = (
    "flintlog.store.store",
    "flintlog.maintenance.inspect.store_files",
    "flintlog.pipeline",
    "flintlog.bench",
    "rich",
)
_PROBE = Path(__file__).with_name("import_probe.py")
_SOURCE = Path(__file__).parents[2] / "src"


def modules_of(lines: Sequence[Sequence[str]]) -> list[tuple[int, set[str]]]:
    """The exit code and the imported modules of each command line."""
    printed = subprocess.run(
        [sys.executable, _PROBE],
        input=json.dumps(lines),
        env={**os.environ, "PYTHONPATH": str(_SOURCE)},
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    return [(code, set(modules)) for code, modules in json.loads(printed.stdout)]


def heavy_in(modules: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules} & HEAVY


def test_help_of_every_command_imports_no_store() -> None:
    lines = [[*words, "--help"] for words in command_lines()]
    assert len(lines) > 30
    for line, (code, modules) in zip(lines, modules_of(lines), strict=True):
        needless = [name for name in HELP_NEEDS_NO if name in modules]
        assert (code, heavy_in(modules), needless) == (0, set(), []), line


def test_the_programs_own_help_imports_no_command() -> None:
    for line, (code, modules) in zip((["--help"], ["--version"]), modules_of([["--help"], ["--version"]]), strict=True):
        commands = {name for name in modules if name.startswith("flintlog.")}
        plain = {"flintlog.cli", "flintlog.cli.main", "flintlog.cli.group", "flintlog.cli.exit_codes"}
        assert (code, commands - plain) == (0, {"flintlog.errors", "flintlog.version"}), line


def test_commands_at_work_import_neither_columns_nor_spark(golden: Golden, tmp_path: Path) -> None:
    store = str(golden("transaction") / "store")
    lines = [
        ["info", store],
        *(["ls", what, store] for what in ("topics", "queues", "groups", "files")),
        ["cat", store, "--limit", "2"],
        ["tail", store],
        ["get", store, "--physical", "0"],
        ["dump", f"{store}/checkpoint"],
        ["verify", store],
        ["verify", store, "--quick"],
        ["explain", "torn-tail"],
        ["diff", store, store],
        ["offsets", "show", store],
        ["forecast", store],
        ["top", store, "--interval", "0.1"],
        ["retention", store, "--dry-run"],
        ["stats", store],
        ["shell", store],
        ["repair", store, "--plan"],
        ["completion", "bash"],
        ["backup", store, str(tmp_path / "backup")],
        ["backup", "verify", str(tmp_path / "backup")],
        ["put", str(tmp_path / "new"), "--topic", "t", "--create", "hello"],
    ]
    for line, (code, modules) in zip(lines, modules_of(lines), strict=True):
        assert (code, heavy_in(modules)) == (0, set()), line


def test_the_probe_sees_what_is_imported(golden: Golden) -> None:
    ((code, modules),) = modules_of([["stats", str(golden("transaction") / "store"), "--by", "topic"]])
    assert code == 0
    assert heavy_in(modules) - {"numpy", "pandas"} == {"pyarrow"}, "it imports the two where they are installed"


@pytest.mark.parametrize("form", ["json", "jsonl", "csv"])
def test_programs_do_not_wait_for_the_drawing_of_tables(form: str, golden: Golden) -> None:
    store = str(golden("transaction") / "store")
    lines = [["info", store], ["ls", "queues", store], ["cat", store], ["verify", store], ["forecast", store]]
    lines += [["get", store, "--physical", "0"], ["dump", f"{store}/checkpoint"], ["diff", store, store]]
    for line, (code, modules) in zip(lines, modules_of([[*line, "-o", form] for line in lines]), strict=True):
        assert (code, "rich" in modules) == (0, False), line
