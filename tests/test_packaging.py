"""What `python -m build` makes works where it is installed: with and without a compiler, with msgspec alone.

Nothing is fetched: the builds use the setuptools and Cython of this environment, and each clean environment gets the
msgspec of this one. There pip installs the wheel and finds its dependencies complete.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Mapping, Sequence
from importlib.metadata import distribution
from pathlib import Path

import pytest

from tests.pages import read_blocks

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[1]
NOT_BUILT_FROM = shutil.ignore_patterns("__pycache__", "*.so", "native.c", "*.egg-info")
BUILT_FROM = (
    *("src", "pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "CHANGELOG.md", "LICENSE", "NOTICE"),
    *("requirements.lock", "Makefile"),
)
NO_COMPILER = {"CC": "/bin/false", "CXX": "/bin/false"}
MOST_CPU_S = 0.7
"""Of the second that the first lines may take: on an idle machine they wait for the disk for a part of the rest."""


def _run(command: Sequence[str | Path], folder: Path, settings: Mapping[str, str] | None = None) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment |= {"PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", **(settings or {})}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the sdist, and the wheel that was made from it."""
    folder = tmp_path_factory.mktemp("built")
    source = folder / "source"
    source.mkdir()
    for name in BUILT_FROM:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=NOT_BUILT_FROM)
        else:
            shutil.copy(ROOT / name, source)
    _run([sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, source], folder)
    return folder


@pytest.fixture(scope="module")
def plain_wheel(built: Path) -> Path:
    """The wheel that pip makes from the sdist on a machine without a compiler."""
    (sdist,) = built.glob("*.tar.gz")
    folder = built / "plain"
    make = ("pip", "wheel", "--no-build-isolation", "--no-deps", "--wheel-dir")
    _run([sys.executable, "-m", *make, folder, sdist], built, NO_COMPILER)
    (wheel,) = folder.glob("*.whl")
    return wheel


def _install(wheel: Path, folder: Path) -> Path:
    """Its Python, in an environment that has msgspec and this wheel alone."""
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    needed = distribution("msgspec")
    for name in {file.parts[0] for file in needed.files or ()} - {".."}:
        (packages / name).symlink_to(str(needed.locate_file(name)))
    python = folder / "bin" / "python"
    _run([sys.executable, "-m", "pip", "--python", python, "install", wheel], folder)
    return python


def _children_s() -> float:
    """The CPU time of the processes that have ended; it does not depend on what else the machine does."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _check_first_lines(python: Path, kernel: str, folder: Path) -> None:
    """The README's first lines give what it shows, in an empty directory, in less than a second."""
    code, output = (block.code for block in read_blocks((ROOT / "README.md").read_text("utf-8"))[:2])
    taken_s: list[float] = []
    for run in range(3):
        empty = folder / f"run-{run}"
        empty.mkdir()
        began_s = _children_s()
        assert _run([python, "-c", code], empty) == output
        taken_s.append(_children_s() - began_s)
        shutil.rmtree(empty)
    assert min(taken_s) < MOST_CPU_S
    asked = "from flintlog import kernel; from importlib.util import find_spec as find; "
    asked += "print(kernel.name, find('pyarrow'), find('pyspark'), find('click'))"
    assert _run([python, "-c", asked], folder) == f"{kernel} None None None\n"


def test_the_wheel_works_in_a_clean_environment(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    _check_first_lines(_install(wheel, tmp_path / "environment"), "native", tmp_path)


def test_the_sdist_works_without_a_compiler(plain_wheel: Path, tmp_path: Path) -> None:
    _check_first_lines(_install(plain_wheel, tmp_path / "environment"), "reference", tmp_path)


def test_both_wheels_have_every_file_of_the_packages(built: Path, plain_wheel: Path) -> None:
    (wheel,) = built.glob("*.whl")
    source = built / "source" / "src"
    written = {path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()}
    needed = {name for name in written if name.endswith((".py", ".pyi", ".json", ".properties", "py.typed"))}
    for each in (wheel, plain_wheel):
        assert needed <= set(zipfile.ZipFile(each).namelist())
    assert len(needed) > 300
