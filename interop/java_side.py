"""The common part of all Java processes that tests drive: the process, calls to it, and files for long arguments.

A call is made through Py4J. Long arguments and results are files of lines of JSON in the process's own directory: the
path is passed, and Java returns how many lines it wrote. Leaving a `with` block shuts down as RocketMQ would. Leaving
it by an exception, or `kill()`, kills the process, as a crash would.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Generic, Self, TypeVar, cast

from flintlog.errors import FlintlogError
from interop.java_process import JavaProcess

Entry = TypeVar("Entry")
Value = TypeVar("Value")


class JavaSide(ABC, Generic[Entry]):
    """One JVM and its entry point. Owned by one thread."""

    def __init__(self, main_class: str, jvm_options: Sequence[str]) -> None:
        self._name = main_class.rpartition(".")[2]
        self._process: JavaProcess | None = JavaProcess(main_class, jvm_options=jvm_options)
        self._file_count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.kill()

    def close(self) -> None:
        """A clean shutdown: everything is flushed and saved."""
        if self._process is None:
            return
        try:
            self._shut_down()
        finally:
            self.kill()

    @abstractmethod
    def _shut_down(self) -> None:
        """Shut the Java object down, as RocketMQ would."""

    def kill(self) -> None:
        """Kill the process: nothing is flushed or saved."""
        if self._process is not None:
            self._process.end()
            self._process = None

    @property
    def _java(self) -> Entry:
        return cast(Entry, self._running.entry_point)

    @property
    def _running(self) -> JavaProcess:
        if self._process is None:
            raise FlintlogError(f"the {self._name} was closed")
        return self._process

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._running.pid

    def _asked(self, lines: Iterable[bytes]) -> str:
        """The path of a file that holds these lines, for Java to read."""
        file = self._new_file()
        with file.open("wb") as out:
            out.writelines(line + b"\n" for line in lines)
        return str(file)

    def _answered(self, call: Callable[[str], int], parse: Callable[[bytes], Value]) -> list[Value]:
        """The values that Java writes into the file whose path it is called with."""
        file = self._new_file()
        count = call(str(file))
        values = [parse(line) for line in file.read_bytes().splitlines()]
        if len(values) != count:
            raise FlintlogError(f"Java wrote {count} lines, {len(values)} were read", path=file)
        file.unlink()
        return values

    def _new_file(self) -> Path:
        self._file_count += 1
        return self._running.directory / f"{self._file_count}.jsonl"
