"""RocketMQ's own store as a contender: whatever runs it is handed in.

That takes a JDK, Maven, and classes in Java, which are no part of the installed package. `make bench` in a clone of the
project hands in `benchmarks/java.py`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from flintlog.errors import MissingExtra

if TYPE_CHECKING:
    from flintlog.bench.replication import Side
    from flintlog.bench.run import Contender


class Java(Protocol):
    """The real store, and its pair and group for replication, each in a directory of its own."""

    def store(self) -> Contender: ...
    def pair(self, directory: Path) -> AbstractContextManager[Side]: ...
    def group(self, directory: Path) -> AbstractContextManager[Side]: ...


def need_java(java: Java | None) -> Java:
    """Java, or the sentence that says where the comparison runs."""
    if java is None:
        advice = "in a clone of the project, run: make bench ARGS='--compare java'"
        raise MissingExtra("the installed package cannot run RocketMQ's own store", advice=advice)
    return java
