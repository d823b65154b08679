"""Where the tasks of a shuffling rebuild put whole files: a directory, or any file system with a URI.

    directory    a file is written under a name of the attempt, and renamed; synced at the end of the task
    URI          one put: an object is there as a whole or not at all

A task that is retried, or runs twice, puts the same bytes under the same name. Nothing under these names counts before
the driver publishes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path, PurePosixPath
from typing import Protocol

from flintlog.disk.media.local import LocalMedium
from flintlog.disk.media.medium import first_line
from flintlog.disk.places import is_uri
from flintlog.errors import DiskError
from flintlog.kernel import Buffer
from flintlog.pipeline.building.staging import sync_all
from flintlog.pipeline.spark.tasks import attempt_name


class Target(Protocol):
    """See the module. Names are relative."""

    def put(self, name: str, data: Buffer) -> None:
        """Put a file of these bytes."""

    def put_file(self, name: str, made: Path) -> None:
        """Put a synced file that was made in `scratch`."""

    def finish(self) -> None:
        """Make all that was put durable."""

    def scratch(self) -> AbstractContextManager[Path]:
        """A directory on this machine, or on the target's disk, for the time of a block."""


def open_target(place: str) -> Target:
    """The target for a path or URI."""
    return RemoteTarget(place) if is_uri(place) else DirectoryTarget(Path(place))


class DirectoryTarget:
    """A directory, local or of a network file system; attempts work in `spill` beside it."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._spill = root.parent / "spill"
        self._medium = LocalMedium()
        self._files: list[Path] = []

    def put(self, name: str, data: Buffer) -> None:
        self._medium.make_directories(self._spill)
        working = self._spill / attempt_name()
        view = memoryview(data)
        raw = self._medium.create(working, view.nbytes)
        raw.write_at(0, view)
        raw.close()
        self.put_file(name, working)

    def put_file(self, name: str, made: Path) -> None:
        target = self._root / name
        self._medium.make_directories(target.parent)
        self._medium.rename(made, target)
        self._files.append(target)

    def finish(self) -> None:
        sync_all(self._medium, self._files, (), self._root)
        self._files.clear()

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        folder = self._spill / attempt_name()
        self._medium.make_directories(folder)
        try:
            yield folder
        finally:
            self._medium.remove_tree(folder)


class RemoteTarget:
    """A prefix of an object store, or a directory of another file system; works in Spark's own scratch directory."""

    def __init__(self, uri: str) -> None:
        from flintlog.disk.media.arrow_source import ArrowSource

        source, root = ArrowSource.from_uri(uri)
        self._files, self._root, self._uri = source.file_system, PurePosixPath(root), uri.rstrip("/")
        self._medium = LocalMedium()

    def put(self, name: str, data: Buffer) -> None:
        with self._errors("put the file", name), self._files.open_output_stream(self._path(name)) as stream:
            stream.write(memoryview(data))

    def put_file(self, name: str, made: Path) -> None:
        self.put(name, self._medium.open(made).buffer)

    def finish(self) -> None:
        """An object is durable when its put returns."""

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        from pyspark import SparkFiles

        folder = Path(SparkFiles.getRootDirectory()) / attempt_name()
        self._medium.make_directories(folder)
        try:
            yield folder
        finally:
            self._medium.remove_tree(folder)

    def names(self, folder: str = "") -> list[str]:
        """The files below a folder, with its name before theirs."""
        from pyarrow import fs

        selector = fs.FileSelector(self._path(folder), recursive=True, allow_not_found=True)
        with self._errors("list", folder):
            found = self._files.get_file_info(selector)
        paths = [PurePosixPath(info.path) for info in found if info.type is fs.FileType.File]
        return sorted(str(path.relative_to(self._root)) for path in paths)

    def copy(self, name: str, other: str) -> None:
        """Give a file a second name; an object store does that itself."""
        with self._errors("copy", name):
            self._files.create_dir(str(PurePosixPath(self._path(other)).parent))
            self._files.copy_file(self._path(name), self._path(other))

    def remove(self, names: Sequence[str]) -> None:
        for name in names:
            with self._errors("remove", name):
                self._files.delete_file(self._path(name))

    def _path(self, name: str) -> str:
        return str(self._root / name)

    @contextmanager
    def _errors(self, action: str, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise DiskError(f"cannot {action}: {first_line(error)}", path=f"{self._uri}/{name}") from error
