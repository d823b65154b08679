"""The names of the package are imported when they are used, and are the right ones."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import flintlog
from flintlog.version import VERSION


def _declared() -> dict[str, str]:
    """What type checkers see: the imports in `if TYPE_CHECKING`, name to module."""
    tree = ast.parse(Path(flintlog.__file__).read_text("utf-8"))
    (guarded,) = (node.body for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in guarded if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module or "" for node in imports for alias in node.names}


def test_each_name_is_what_type_checkers_see() -> None:
    declared = _declared()
    assert declared == flintlog._HOMES
    assert sorted(declared) == flintlog.__all__
    for name, module in declared.items():
        assert getattr(flintlog, name) is getattr(import_module(module), name)


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Mesage'"):
        getattr(flintlog, "Mesage")  # noqa: B009 - a misspelt name, as a user would write it


def test_dir_lists_the_public_names() -> None:
    assert set(flintlog.__all__) < set(dir(flintlog))
    assert flintlog.__version__ == VERSION


@pytest.mark.parametrize(
    "code",
    ["import flintlog", "from flintlog import errors, kernel", "import flintlog; hasattr(flintlog, '__wrapped__')"],
)
def test_the_package_and_its_folders_import_no_store(code: str) -> None:
    assert _run(f"import sys; {code}; sys.exit('flintlog.store' in sys.modules)") == 0


def test_a_star_imports_the_public_names() -> None:
    assert _run("from flintlog import *; import sys; sys.exit(open_store.__name__ != 'open_store')") == 0


def test_dir_is_the_first_thing_that_is_asked() -> None:
    assert _run("import flintlog, sys; sys.exit('open_store' not in dir(flintlog))") == 0


def _run(code: str) -> int:
    environment = {**os.environ, "PYTHONPATH": str(Path(flintlog.__file__).parents[1])}
    return subprocess.run([sys.executable, "-c", code], env=environment, timeout=60, check=False).returncode
