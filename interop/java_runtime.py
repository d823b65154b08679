"""Provides what the real RocketMQ store needs to run: a JDK, its jars, and our few compiled classes.

The jars (RocketMQ 5.5.0 and what it needs, about 150 MB) are fetched once with Maven into the user's cache:

    ~/.cache/flintlog/rocketmq-5.5.0/
        lib-<stamp>/        the jars; the stamp changes with java/pom.xml
        classes-<stamp>/    java/flintlog/*.java, compiled; the stamp changes with the sources
        home/               Java's user.home, so that RocketMQ's logs don't land in the user's
        lock                held while something is made

A directory is made under another name and renamed when it is complete, so what is there can be used without a
lock; the lock only keeps two processes from fetching the same thing twice. `MissingExtra` says what is not there.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from flintlog.errors import FlintlogError, MissingExtra

ROCKETMQ_VERSION = "5.5.0"
JAVA_LEAST = 17
FETCH_TIMEOUT_S = 900

_SOURCES = Path(__file__).parent / "java"
_POM = _SOURCES / "pom.xml"

# RocketMQ unmaps its files through these internals of the JDK, which are closed by default.
_OPENED = (
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED",
)


@dataclass(frozen=True, slots=True)
class JavaRuntime:
    """Everything a command line needs to run one of our classes beside RocketMQ's."""

    java: Path
    classpath: tuple[Path, ...]
    home: Path

    def command(self, main_class: str, jvm_options: Sequence[str] = ()) -> list[str]:
        """The command line that runs `main_class`."""
        classpath = os.pathsep.join(str(part) for part in self.classpath)
        settled = ("-Dfile.encoding=UTF-8", f"-Duser.home={self.home}", *_OPENED)
        return [str(self.java), *settled, *jvm_options, "-cp", classpath, main_class]


def java_runtime(cache: Path | None = None) -> JavaRuntime:
    """Find or make everything that is needed; raises `MissingExtra` with the reason."""
    root = cache or _default_cache()
    java, javac = _find("java"), _find("javac")
    _check_version(java)
    py4j_jar = _py4j_jar()
    home = root / "home"
    home.mkdir(parents=True, exist_ok=True)
    lib = root / f"lib-{_stamp([_POM])}"
    classes = root / f"classes-{_stamp(_sources())}"
    if not (lib.is_dir() and classes.is_dir()):
        with _held(root / "lock"):
            _fetch_jars(lib)
            _compile(javac, classes, (lib / "*", py4j_jar))
    return JavaRuntime(java, (classes, lib / "*", py4j_jar), home)


def _default_cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "flintlog" / f"rocketmq-{ROCKETMQ_VERSION}"


def _find(program: str) -> Path:
    java_home = os.environ.get("JAVA_HOME")
    if java_home and (Path(java_home) / "bin" / program).exists():
        return Path(java_home) / "bin" / program
    found = shutil.which(program)
    if found is None:
        advice = f"install a JDK, version {JAVA_LEAST} or later, and Maven"
        raise MissingExtra(f"no {program} on the path", advice=advice)
    return Path(found)


def _check_version(java: Path) -> None:
    output = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
    quoted = output.partition('"')[2].partition('"')[0]
    major = quoted.split(".")[0]
    if not major.isdigit() or int(major) < JAVA_LEAST:
        raise MissingExtra(
            f"Java {quoted or 'of an unknown version'} is too old", path=java, advice=f"at least {JAVA_LEAST}"
        )


def _py4j_jar() -> Path:
    try:
        from py4j.java_gateway import find_jar_path
    except ImportError as missing:
        raise MissingExtra("the package py4j is not installed", advice="pip install py4j") from missing
    jar = Path(find_jar_path())
    if not jar.is_file():
        raise MissingExtra("the jar of the package py4j is not where it should be", path=jar)
    return jar


def _sources() -> list[Path]:
    return sorted(_SOURCES.rglob("*.java"))


def _stamp(files: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


@contextmanager
def _held(lock: Path) -> Iterator[None]:
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch_jars(lib: Path) -> None:
    if lib.is_dir():
        return
    maven = _find("mvn")
    with _made(lib) as made:
        goal = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
        command: list[str | Path] = [
            maven,
            "-q",
            "-B",
            "-f",
            _POM,
            goal,
            "-DincludeScope=runtime",
            f"-DoutputDirectory={made}",
        ]
        _run(command, MissingExtra("Maven could not fetch RocketMQ's jars"))


def _compile(javac: Path, classes: Path, classpath: Sequence[Path]) -> None:
    if classes.is_dir():
        return
    with _made(classes) as made:
        joined = os.pathsep.join(str(part) for part in classpath)
        command: list[str | Path] = [javac, "-nowarn", "-cp", joined, "-d", made, *_sources()]
        _run(command, FlintlogError("our Java classes do not compile", path=_SOURCES))


@contextmanager
def _made(directory: Path) -> Iterator[Path]:
    """A directory that gets its name only if the block succeeds."""
    draft = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    try:
        yield draft
        draft.rename(directory)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def _run(command: Sequence[str | Path], failure: FlintlogError) -> None:
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as late:
        failure.advice = f"gave up after {FETCH_TIMEOUT_S} s"
        raise failure from late
    if ended.returncode != 0:
        output = (ended.stdout + ended.stderr).strip().splitlines()
        failure.advice = "; ".join(output[:3]) or f"exit code {ended.returncode}"
        raise failure
