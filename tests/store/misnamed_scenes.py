"""Log files that somebody gave another name: what happened, and which name each should have."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from flintlog import Message, open_store
from tests.store.small_store import ASYNC

SIZE = ASYNC.mapped_file_size_commit_log
COUNT = 400
"""Messages in four files."""
FEW = 30
"""Messages in one."""

Change = Callable[[Path], object]


def name_of(number: int) -> str:
    return f"{number:020d}"


def renamed(base: int, to: int | str) -> Change:
    """`to`: another number, or a whole name."""

    def change(log: Path) -> None:
        (log / name_of(base)).rename(log / (name_of(to) if isinstance(to, int) else to))

    return change


def swapped(one: int, other: int) -> Change:
    def change(log: Path) -> None:
        renamed(one, "between")(log)
        renamed(other, one)(log)
        (log / "between").rename(log / name_of(other))

    return change


def shifted(log: Path) -> None:
    for number in (3, 2, 1, 0):
        renamed(number * SIZE, (number + 1) * SIZE)(log)


def last_to_the_front(log: Path) -> None:
    """Where the first file was before it expired."""
    (log / name_of(0)).unlink()
    renamed(3 * SIZE, 0)(log)


SCENES: dict[str, Change] = {
    "one digit off": renamed(SIZE, SIZE + 1),
    "the last, a few off": renamed(3 * SIZE, 3 * SIZE + 17),
    "the first, one off": renamed(0, 1),
    "inside of another file's range": renamed(SIZE, 2 * SIZE + 1000),
    "a middle one, now the last": renamed(SIZE, 10 * SIZE),
    "the last, further back": renamed(3 * SIZE, 7 * SIZE),
    "the first, now the last and without a gap": renamed(0, 4 * SIZE),
    "the last, now the first": last_to_the_front,
    "the first, with a digit too many": renamed(0, 10 * SIZE),
    "a suffix in the middle": renamed(SIZE, name_of(SIZE) + ".bak"),
    "a suffix at the end": renamed(3 * SIZE, name_of(3 * SIZE) + ".orig"),
    "a suffix at the begin": renamed(0, name_of(0) + "~"),
    "no zeros in front": renamed(SIZE, str(SIZE)),
    "no number at all": renamed(2 * SIZE, "the third file"),
    "greater than any offset": renamed(SIZE, "9" * 20),
    "two exchanged, the last among them": swapped(SIZE, 3 * SIZE),
    "two exchanged, the first among them": swapped(0, SIZE),
    "all moved on by one": shifted,
}

ONLY_FILE: dict[str, Change] = {
    "another number": renamed(0, SIZE),
    "one off": renamed(0, 1),
    "a suffix": renamed(0, name_of(0) + ".bak"),
}


def make(root: Path, count: int = COUNT) -> None:
    """A store after a clean stop, with no file made ahead."""
    with open_store(root, ASYNC) as store:
        for number in range(count):
            store.put(Message("orders", b"%d" % number + bytes(500), keys=[f"k{number}"])).check()
        end = store.max_physical_offset
    for path in (root / "commitlog").iterdir():
        if int(path.name) > end:
            path.unlink()


def disturbed(made: Path, root: Path, change: Change, *, is_clean: bool = True, is_locked_before: bool = True) -> Path:
    """A copy of a store in which that happened."""
    shutil.copytree(made, root)
    change(root / "commitlog")
    if not is_clean:
        (root / "abort").write_text("1")
    if not is_locked_before:
        (root / "lock").unlink()
    return root


def log_of(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (root / "commitlog").iterdir()}


def log_by_content(made: Path, root: Path) -> dict[str, bytes]:
    """The files that are there, under the names that they had in the store they were copied from."""
    there = set(log_of(root).values())
    return {name: content for name, content in log_of(made).items() if content in there}
