"""Makes pyiceberg's metadata durable: a file is complete and synced before a catalog can point at it.

pyiceberg writes through pyarrow, which does not sync: after a power failure a catalog could name metadata that was
never on disk. Remote file systems make their files durable themselves.
"""

from __future__ import annotations

import io
from pathlib import Path

from pyiceberg.io import OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from flintlog.disk.media.local import LocalMedium


class _Durable(io.BytesIO):
    """Bytes that become a file when it is closed."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def close(self) -> None:
        if not self.closed:
            medium = LocalMedium()
            medium.make_directories(self._path.parent)
            medium.replace(self._path, self.getvalue())
        super().close()

    def __exit__(self, kind: type[BaseException] | None, *others: object) -> None:
        if kind is not None:
            super().close()  # an unfinished file is not written
            return
        self.close()


class DurableFile(PyArrowFile):
    """A local file."""

    def create(self, overwrite: bool = False) -> OutputStream:
        if not overwrite and self.exists():
            raise FileExistsError(f"there is such a file already: {self.location}")
        return _Durable(Path(self._path))


class DurableFileIO(PyArrowFileIO):
    """The file access that tables of ours name in pyiceberg's options."""

    def new_output(self, location: str) -> PyArrowFile:
        made = super().new_output(location)
        scheme, _, path = self.parse_location(location, self.properties)
        if scheme != "file":
            return made
        return DurableFile(location=location, path=path, fs=made._filesystem)
