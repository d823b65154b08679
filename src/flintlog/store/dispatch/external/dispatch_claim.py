"""`dispatch/owner`: the claim to write queues and index of a store that another process dispatches.

    dispatch/owner        locked by the writer: a dispatcher, or the store itself while it opens, stops or deletes
    dispatch/owner.json   the name of the last claim; the holder of an earlier one sees there that it lost it
    dispatch/wanted       locked by a store that needs the claim; a dispatcher that sees it releases the claim
    dispatch/task-…       locked by a task that writes for the holder of a claim, as long as it writes

A claim is renewed under another name (`….1`, `….2`) when the tasks that have its name must write no more. A dispatcher
keeps its claim until a store wants it. Locks end with their process, so nothing has to be cleaned up after a crash.

Tasks run in other processes, and may outlive the one that sent them. A task takes its lock, then checks that the claim
stands. A process that takes or renews a claim writes its name, then waits for the locks of tasks. Whichever comes
first, no task of an earlier name writes once the new one is taken.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

import msgspec

from flintlog.disk.media.medium import LockFile, Medium
from flintlog.errors import StoreInUse
from flintlog.store.runtime.note_file import NoteFile

Kind = Literal["dispatcher", "store", "embedded"]
TASK_PATIENCE_S: Final = 60.0
"""How long a dispatcher waits for tasks of an earlier one: they end when they see that their claim is lost."""

_LOOK_INTERVAL_S: Final = 0.01
_TASK: Final = "task-"


class Owner(msgspec.Struct, frozen=True):
    """The holder of a claim."""

    name: str
    kind: Kind
    host: str = ""
    pid: int = 0

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


class Claim:
    """A claim that was taken; it is held until `release`."""

    def __init__(self, directory: Path, medium: Medium, kind: Kind = "dispatcher", *, patience_s: float = 0.0) -> None:
        """With patience, the holder of the claim is asked to release it, and waited for."""
        medium.make_directories(directory)
        self._medium = medium
        self._directory = directory
        self._kind = kind
        self._path = directory / "owner.json"
        self._lock: LockFile = self._take(patience_s)
        self._task_patience_s = max(patience_s, TASK_PATIENCE_S) if kind == "dispatcher" else patience_s
        self._number = 0
        self.name = uuid.uuid4().hex
        try:
            self._begin()
        except BaseException:
            self.release()
            raise

    def renew(self) -> None:
        """Take another name, and wait until no task of the name before writes."""
        self.check()
        self._number += 1
        self.name = f"{_claim_of(self.name)}.{self._number}"
        self._begin()

    def _begin(self) -> None:
        owner = Owner(self.name, self._kind, socket.gethostname(), os.getpid())
        NoteFile(self._path, self._medium, Owner).save(owner)
        self._await_tasks(self._task_patience_s)

    def _take(self, patience_s: float) -> LockFile:
        wanted = None
        until = time.monotonic() + patience_s
        try:
            while True:
                try:
                    return self._medium.lock(self._directory / "owner")
                except StoreInUse:
                    if time.monotonic() >= until:
                        raise self._refused() from None
                if self._kind != "dispatcher":  # a dispatcher does not ask another one
                    wanted = wanted or self._try_to_want()
                time.sleep(_LOOK_INTERVAL_S)
        finally:
            if wanted is not None:
                wanted.release()

    def _await_tasks(self, patience_s: float) -> None:
        """Wait until no task of an earlier name writes. The files of killed tasks are deleted."""
        until = time.monotonic() + patience_s
        while True:
            names = [info.name for info in self._medium.listing(self._directory) if info.name.startswith(_TASK)]
            busy = [name for name in names if not self._remove_dead(name)]
            if not busy:
                return
            if time.monotonic() >= until:
                raise StoreInUse(
                    "a task of a dispatcher that is gone still writes queue files",
                    path=self._directory / busy[0],
                    advice="end the process that holds the lock on this file",
                )
            time.sleep(_LOOK_INTERVAL_S)

    def _remove_dead(self, name: str) -> bool:
        """Delete the file of a task that has ended; False while it runs."""
        try:
            lock = self._medium.lock(self._directory / name)
        except StoreInUse:
            return False
        self._medium.remove(self._directory / name)
        lock.release()
        return True

    def _try_to_want(self) -> LockFile | None:
        try:
            return self._medium.lock(self._directory / "wanted")
        except StoreInUse:  # a dispatcher is checking it, which takes a moment
            return None

    def _refused(self) -> StoreInUse:
        owner = load_owner(self._directory, self._medium)
        if owner is not None and owner.kind == "embedded":
            return StoreInUse(
                f"the store dispatches its messages itself ({owner})",
                path=self._directory,
                advice='open it with dispatch="external"',
            )
        who = "another dispatcher" if owner is None or owner.kind == "dispatcher" else "the store"
        advice = "one dispatcher works for a store; end the other one first"
        return StoreInUse(f"{who} holds the claim ({owner})", path=self._directory, advice=advice)

    def check(self) -> None:
        """Raise if another process has taken the claim."""
        check_claim(self._directory, self._medium, self.name)

    @property
    def is_wanted(self) -> bool:
        """Whether a store waits for it."""
        return is_wanted(self._directory, self._medium)

    def release(self) -> None:
        """Release it; a second call does nothing."""
        self._lock.release()


@contextmanager
def working_for(
    claim: str, directory: Path, medium: Medium, *, alone: str | None = None
) -> Iterator[Callable[[], None]]:
    """Hold a task's lock while it writes under a claim; yields a check that raises once the claim is lost.

    `alone` names work that one task does at a time: another attempt at it waits until this one has ended.
    """
    path = directory / f"{_TASK}{uuid.uuid4().hex if alone is None else alone}"
    lock = medium.lock(path) if alone is None else _lock_soon(path, medium)
    try:
        check_claim(directory, medium, claim)
        yield lambda: check_claim(directory, medium, claim)
    finally:
        medium.remove(path)
        lock.release()


def _lock_soon(path: Path, medium: Medium) -> LockFile:
    until = time.monotonic() + TASK_PATIENCE_S
    while True:
        try:
            return medium.lock(path)
        except StoreInUse:
            if time.monotonic() >= until:
                raise
        time.sleep(_LOOK_INTERVAL_S)


def newest_name(name: str, directory: Path, medium: Medium) -> str:
    """The name that a claim has now; the given one, which tasks refuse, if another process has taken it."""
    owner = load_owner(directory, medium)
    is_same = owner is not None and _claim_of(owner.name) == _claim_of(name)
    return owner.name if owner is not None and is_same else name


def _claim_of(name: str) -> str:
    return name.partition(".")[0]


def check_claim(directory: Path, medium: Medium, name: str) -> None:
    """Raise unless this is the last claim that was taken."""
    owner = load_owner(directory, medium)
    if owner is None or owner.name != name:
        raise StoreInUse("another dispatcher has taken over", path=directory / "owner.json")


def is_wanted(directory: Path, medium: Medium) -> bool:
    """Whether a store waits for the claim."""
    try:
        medium.lock(directory / "wanted").release()
    except StoreInUse:
        return True
    return False


def load_owner(directory: Path, medium: Medium) -> Owner | None:
    """The last holder of the claim."""
    return NoteFile(directory / "owner.json", medium, Owner).load().content
