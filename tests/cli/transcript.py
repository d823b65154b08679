"""A command line on a golden store, and what it prints: for people and for programs, word for word.

What differs from run to run and from machine to machine is masked, and only that: times, and the folders of a test. A
command that tells of the machine itself (`doctor`, `bench`) has only its form kept: the names of what it tells.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from flintlog.cli import main
from flintlog.disk.media.local import LocalMedium
from flintlog.disk.media.medium import DiskUsage

FOLDER = Path(__file__).parent / "transcripts"
FORMS = ("table", "json")
DISK = DiskUsage(total=1 << 30, free=1 << 28, used_ratio=0.75)

Golden = Callable[[str], Path]
_TIMES = (
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?"), "TIME"),
    (re.compile(r"\b1[789]\d{11}\b"), "TIME"),
    (re.compile(r"\b\d{8}T\d{6}\b"), "TIME"),
)


@dataclass(frozen=True, slots=True)
class Case:
    """A line with {store} and {room}: a golden store, or a copy of it where the command writes; and an empty folder.

    `before` are lines that prepare it and are not shown; `typed` are the lines of its standard input. With `now_ms` the
    clock and the disk's fill are set.
    """

    golden: str
    line: str
    writes: bool = False
    before: tuple[str, ...] = ()
    typed: tuple[str, ...] = ()
    now_ms: int | None = None
    masks: tuple[tuple[str, str], ...] = ()
    masks_times: bool = False
    only_form: bool = False

    @property
    def words(self) -> list[str]:
        return shlex.split(self.line)


def tell(
    case: Case,
    form: str,
    golden: Golden,
    room: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    width: int | None = None,
) -> str:
    """The transcript of one case, on a terminal of this width if there is one."""
    if width is not None:
        monkeypatch.setattr("flintlog.cli.output.terminal_width", lambda _stream: width)
    archive, _, inner = case.golden.partition("/")
    original = golden(archive) / (inner or ("" if archive == "torn" else "store"))
    store = room / "store" if case.writes else original
    if case.writes:
        shutil.copytree(original, store)
    if (now_ms := case.now_ms) is not None:
        monkeypatch.setattr("time.time_ns", lambda: now_ms * 1_000_000)
        monkeypatch.setattr(LocalMedium, "usage", lambda _self, _path: DISK)
    for line in case.before:
        assert main.run(shlex.split(line.format(store=store, room=room))) == 0, line
    if case.typed:
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in case.typed)))
    capsys.readouterr()
    code = main.run([*shlex.split(case.line.format(store=store, room=room)), "-o", form])
    captured = capsys.readouterr()
    out = _form_of(captured.out, form) if case.only_form else captured.out
    printed = f"$ flintlog {case.line.format(store='STORE', room='ROOM')} -o {form}\n"
    printed += "".join(f"> {line}\n" for line in case.typed) + out
    if captured.err and not case.only_form:
        printed += f"(stderr)\n{captured.err}"
    printed += f"(exit code {code})\n"
    return masked(printed, store, room, (*(_TIMES if case.masks_times else ()), *case.masks))


def masked(printed: str, store: Path, room: Path, masks: Iterable[tuple[str | re.Pattern[str], str]]) -> str:
    """The output without the parts that differ from run to run."""
    printed = printed.replace(str(store), "STORE").replace(str(room), "ROOM")
    for pattern, name in masks:
        printed = re.sub(pattern, name, printed)
    return "".join(part.rstrip() + "\n" for part in printed.splitlines())


def check(name: str, form: str, printed: str) -> None:
    """Compare with what is kept, or keep it."""
    path = FOLDER / f"{name}.{form}.txt"
    if os.environ.get("FLINTLOG_WRITE_TRANSCRIPTS"):
        path.write_text(printed, "utf-8")
    assert printed == path.read_text("utf-8")


def _form_of(out: str, form: str) -> str:
    if form == "json":
        return json.dumps(_names(json.loads(out)), indent=2) + "\n"
    return "".join(f"{line.split('  ')[0].strip()}\n" for line in out.splitlines() if line.strip())


def _names(value: object) -> object:
    """JSON with each value's kind in its place; of an array the first item stands for all."""
    if isinstance(value, dict):
        return {name: _names(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_names(part) for part in value[:1]]
    return "null" if value is None else type(value).__name__
