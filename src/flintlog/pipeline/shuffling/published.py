"""A rebuild's result at a URI, where no directory can be renamed.

    flintlog/rebuild/begun         put first, deleted last: while it is there, the rest is not a result
    flintlog/rebuild/staged/...    whole files of tasks; no reader of a store looks here
    consumequeue/..., index/...    copied by tasks when everything is staged

A rebuild that was killed leaves `begun`. Readers refuse the place (`reading/logs.py`) until the next rebuild into it,
which removes what was left, has finished.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from flintlog.errors import InvalidConfig
from flintlog.pipeline.building.rebuild_order import DERIVED, Order
from flintlog.pipeline.reading import logs
from flintlog.pipeline.reading.logs import REBUILD_ROOM
from flintlog.pipeline.shuffling.targets import RemoteTarget

BEGUN: Final = f"{REBUILD_ROOM}/{logs.BEGUN}"
STAGED: Final = f"{REBUILD_ROOM}/staged"
FILES_A_TASK: Final = 256


@dataclass(frozen=True, slots=True)
class CopyTask:
    """Copy staged files to their final names."""

    uri: str
    names: tuple[str, ...]


@contextmanager
def new_result(uri: str) -> Iterator[str]:
    """A place for staged files below an empty URI; if the block fails, everything is removed again."""
    target = RemoteTarget(uri)
    found = target.names()
    foreign = [name for name in found if not is_of_a_rebuild(name)]
    if foreign or (found and BEGUN not in found):
        raise InvalidConfig(f"the target of a rebuild must be empty, and has {(foreign or found)[0]}", path=uri)
    remove_all(target, found)
    target.put(BEGUN, b"flintlog rebuild\n")
    try:
        yield f"{uri.rstrip('/')}/{STAGED}"
    except Exception:  # an interrupt is left to the next run, like a kill
        remove_all(target, [name for name in target.names() if is_of_a_rebuild(name)])
        raise


def is_of_a_rebuild(name: str) -> bool:
    """Whether a rebuild makes files of such a name; all others are somebody else's.

    >>> is_of_a_rebuild("index/20260101000000000"), is_of_a_rebuild("commitlog/00000000000000000000")
    (True, False)
    """
    return name.startswith(f"{REBUILD_ROOM}/") or name.partition("/")[0] in DERIVED


def remove_all(target: RemoteTarget, names: Sequence[str]) -> None:
    """Remove files, the mark last."""
    target.remove([name for name in names if name != BEGUN])
    target.remove([name for name in names if name == BEGUN])


def publish(order: Order, uri: str) -> None:
    """Give all staged files their final names, by tasks; then remove the staged ones and the mark."""
    target = RemoteTarget(uri)
    staged = target.names(STAGED)
    size = max(1, min(FILES_A_TASK, -(-len(staged) // (2 * order.cores))))
    tasks = [CopyTask(uri, tuple(staged[start : start + size])) for start in range(0, len(staged), size)]
    order.run(copy_files, tasks, "publish", "group of files")
    remove_all(target, target.names(REBUILD_ROOM))


def copy_files(task: CopyTask) -> int:
    """A task; returns how many files there are."""
    target = RemoteTarget(task.uri)
    for name in task.names:
        target.copy(name, name.removeprefix(f"{STAGED}/"))
    return len(task.names)
