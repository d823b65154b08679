"""Gives misnamed log files their right names, in an order in which the new name is always free.

    0 holds 1, 1 holds 2                 1 ─▶ 2, then 0 ─▶ 1
    0 holds 1, 1 holds 0                 0 ─▶ 0.moved, then 1 ─▶ 0, then 0.moved ─▶ 1

A rename is atomic, and a file under any wrong name is found again, so a killed run is simply planned afresh. A copy of
the file that has the right name is moved beside the store. If two files differ, the repair is refused: a program cannot
decide which is the right one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from flintlog import kernel
from flintlog.disk.media.medium import Medium
from flintlog.errors import DamagedStore
from flintlog.format.names import segment_name
from flintlog.maintenance.inspect.store_files import StoreFiles
from flintlog.maintenance.repair.repair_plan import MISNAMED, Step
from flintlog.store.log.misnamed import Misnamed, refuse_misnamed

COMPARED_BYTES = 4 * 1024 * 1024


def names_not_to_be_given(files: StoreFiles) -> list[Misnamed]:
    """Files that prevent a repair: another file with other contents has their right name."""
    return [each for each in files.misnamed if each.obstacle is not None and not _is_copy(each, files)]


def refuse_without_names(files: StoreFiles) -> None:
    """Raise for the first such file."""
    refuse_misnamed(names_not_to_be_given(files))


def plan_names(files: StoreFiles) -> Iterator[Step]:
    """The steps, in order, that give each log file its right name."""
    for copy in files.misnamed:
        if copy.obstacle is not None:
            what = f"move the file away: {copy.right_name} has all that it has"
            yield Step("move-away", what, MISNAMED, str(copy.path), 0, copy.base, copy.size)
    yield from _renames([each for each in files.misnamed if each.obstacle is None])


def _renames(waiting: Sequence[Misnamed]) -> Iterator[Step]:
    while waiting:
        held = {each.path.name for each in waiting}
        ready = next((each for each in waiting if each.right_name not in held), None)
        if ready is not None:
            waiting = [each for each in waiting if each is not ready]
            what = f"rename the file to {ready.right_name}"
            yield Step("rename", what, MISNAMED, str(ready.path), 0, ready.base, ready.size)
            continue
        first, *others = waiting  # they form a cycle
        aside = first.path.with_name(f"{first.path.name}.moved")
        yield Step("rename", f"rename the file to {aside.name} for now", MISNAMED, str(first.path), size=first.size)
        waiting = [*others, replace(first, path=aside)]


def rename(step: Step, medium: Medium) -> tuple[Path, Path] | None:
    """Do one of these steps; returns the old and the new path. It never replaces a file."""
    source = Path(step.file or "")
    base = step.physical_offset
    target = source.with_name(f"{source.name}.moved" if base is None else segment_name(base))
    if not medium.exists(source):
        return None
    if medium.exists(target):
        raise DamagedStore(f"this file of the log should be called {target.name}, and there is one", path=source)
    medium.rename(source, target)
    medium.sync_directory(target.parent)
    return source, target


def _is_copy(file: Misnamed, files: StoreFiles) -> bool:
    """Whether the file with the right name begins with everything that was written into this one."""
    right = next((each for each in files.log if each.base == file.base and Path(each.path) != file.path), None)
    if right is None:
        return False
    copy = files.read(str(file.path), 0, file.size)
    end = kernel.written_end(copy, 0, file.size)
    if end > right.size:
        return False
    there = files.read(right.path, 0, right.size)
    pieces = ((start, min(start + COMPARED_BYTES, end)) for start in range(0, end, COMPARED_BYTES))
    return all(bytes(copy[start:stop]) == bytes(there[start:stop]) for start, stop in pieces)
