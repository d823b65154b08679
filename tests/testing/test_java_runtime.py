"""Everything that the Java store needs is found or made; a missing part is named; two processes do not conflict."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from flintlog.errors import MissingExtra
from interop.java_runtime import java_runtime


def _program(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def only_these(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the whole path."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path / "bin"


def test_a_missing_java_is_reported(only_these: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingExtra, match=r"no java on the path.*install a JDK"):
        java_runtime(tmp_path / "cache")


def test_an_old_java_is_reported(only_these: Path, tmp_path: Path) -> None:
    _program(only_these, "javac", "exit 0")
    _program(only_these, "java", """echo 'openjdk version "1.8.0_402"' >&2""")
    with pytest.raises(MissingExtra, match=r"Java 1\.8\.0_402 is too old.*at least 17"):
        java_runtime(tmp_path / "cache")


def test_the_error_of_maven_is_reported_and_nothing_unfinished_is_kept(only_these: Path, tmp_path: Path) -> None:
    _program(only_these, "javac", "exit 0")
    _program(only_these, "java", """echo 'openjdk version "17.0.1"' >&2""")
    _program(only_these, "mvn", "echo 'no route to the repository'; exit 1")
    with pytest.raises(MissingExtra, match=r"could not fetch.*no route to the repository"):
        java_runtime(tmp_path / "cache")
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == ["home", "lock"]


def test_two_processes_at_once_fetch_and_compile_once(only_these: Path, tmp_path: Path) -> None:
    _program(only_these, "java", """echo 'openjdk version "21"' >&2""")
    printed = tmp_path / "printed"
    for name in ("mvn", "javac"):
        _program(only_these, name, f"echo {name} >> {printed}; /bin/sleep 0.3")
    program = "import sys, pathlib, interop.java_runtime as made; made.java_runtime(pathlib.Path(sys.argv[1]))"
    command = [sys.executable, "-c", program, str(tmp_path / "cache")]
    both = [subprocess.Popen(command, cwd=Path(__file__).parents[2]) for _ in range(2)]
    assert [process.wait(30) for process in both] == [0, 0]
    assert printed.read_text().split() == ["mvn", "javac"]
