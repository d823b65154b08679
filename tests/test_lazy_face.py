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
    """What type checkers see: the imports under TYPE_CHECKING, name to module."""
    tree = ast.parse(Path(flintlog.__file__).read_text("utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.col_offset > 0]
    return {alias.name: node.module or "" for node in imports for alias in node.names}


def test_each_name_is_what_type_checkers_see() -> None:
    declared = _declared()
    assert set(declared) == set(flintlog.__all__)
    for name, module in declared.items():
        assert getattr(flintlog, name) is getattr(import_module(module), name)


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Mesage'"):
        getattr(flintlog, "Mesage")  # noqa: B009 - a misspelt name, as a user would write it


def test_dir_lists_the_public_names() -> None:
    assert set(flintlog.__all__) < set(dir(flintlog))
    assert flintlog.__version__ == VERSION


def test_importing_the_package_imports_no_store() -> None:
    source = str(Path(flintlog.__file__).parents[1])
    code = "import sys, flintlog; sys.exit('flintlog.store' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": source}
    assert subprocess.run([sys.executable, "-c", code], env=environment, timeout=60, check=False).returncode == 0
