"""Notes of our own: small JSON files beside RocketMQ's, each with a checksum and written twice.

    flintlog/batches.json     {"opened":null,"closed":{"etl":7}} 8c7f3a01       the content, a blank, its CRC-32 in hex
                                                                                (a blank line)
                              {"opened":null,"closed":{"etl":7}} 8c7f3a01       the same line again

Notes decide what is cut from a log and which offsets come next, so a flipped bit must be detected. The first line with
the right checksum is the note, so one damaged bit or byte loses nothing.

    CHECKED       a line has the right checksum
    UNCHECKED     the whole file is one JSON value without a checksum: an earlier version wrote it
    DAMAGED       neither
    MISSING       there is no file

Each owner decides what it does in each case. Invariant: a few damaged bits cannot make a checked note look like an
unchecked one, because the file as a whole is not JSON. Saving replaces the whole file.

Reasons and costs: docs/decisions/0012.
"""

from __future__ import annotations

import logging
import zlib
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Generic, TypeVar

import msgspec

from flintlog.checks.finding import Finding
from flintlog.disk.media.medium import Medium
from flintlog.errors import DamagedStore, FormatError

log = logging.getLogger(__name__)

Content = TypeVar("Content")

Offset = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
"""An offset or a count that fits Java's `long` and is not negative."""


class Trust(Enum):
    """Whether a note that was read can be believed; see the module."""

    MISSING = "missing"
    CHECKED = "checked"
    UNCHECKED = "unchecked"
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True)
class Loaded(Generic[Content]):
    """A note that was read; it has a content if it is CHECKED or UNCHECKED."""

    content: Content | None
    trust: Trust
    problem: str = ""

    @property
    def damage(self) -> str | None:
        """Why it is not believed; None when it is, or when there was no note."""
        return self.problem if self.trust is Trust.DAMAGED else None

    @property
    def checked(self) -> Content | None:
        """The content, if its checksum is right."""
        return self.content if self.trust is Trust.CHECKED else None


class NoteFile(Generic[Content]):
    """One note, whose content has the type `kind`. Its owner makes sure that one thread at a time uses it."""

    def __init__(self, path: Path, medium: Medium, kind: type[Content]) -> None:
        self.path = path
        self._medium = medium
        self._kind = kind

    def load(self) -> Loaded[Content]:
        """Read the note. Raises only errors of the disk."""
        if not self._medium.exists(self.path):
            return Loaded(None, Trust.MISSING)
        found = parse_note(self._medium.read(self.path), self._kind)
        if found.trust is Trust.DAMAGED:
            log.warning("the note %s is not believed: %s", self.path, found.problem)
        return found

    def load_or_refuse(self, what: str, advice: str) -> Loaded[Content]:
        """Read a note that its owner needs: if it is damaged, raise `DamagedStore` in which `what` names it."""
        found = self.load()
        if found.trust is Trust.DAMAGED:
            raise DamagedStore(f"{what} is damaged: {found.problem}", path=self.path, advice=advice)
        return found

    def save(self, content: Content) -> None:
        """Replace the note, durably."""
        self._medium.make_directories(self.path.parent)
        self._medium.replace(self.path, encode_note(content))

    def remove(self) -> None:
        """Remove the note, durably, if there is one."""
        if self._medium.exists(self.path):
            self._medium.remove(self.path)
            self._medium.sync_directory(self.path.parent)


def encode_note(content: object) -> bytes:
    """The bytes of a note.

    >>> encode_note({"end": 5}).splitlines()
    [b'{"end":5} 072c38ac', b'', b'{"end":5} 072c38ac']
    """
    text = msgspec.json.encode(content)
    line = text + b" " + _checksum(text) + b"\n"
    return line + b"\n" + line  # two line feeds, so that one damaged line feed leaves the other


def parse_note(data: bytes, kind: type[Content]) -> Loaded[Content]:
    """Parse the bytes of a note.

    >>> parse_note(b'{"end":4} 072c38ac\\n{"end":5} 072c38ac\\n', dict).content
    {'end': 5}
    """
    for line in data.split(b"\n"):
        text, _, checksum = line.rpartition(b" ")
        if text and checksum == _checksum(text):
            return _decoded(text, kind, Trust.CHECKED)
    return _decoded(data, kind, Trust.UNCHECKED)


def decode_json(data: bytes | str, kind: type[Content]) -> Content:
    """Decode a JSON text of this type; raises `FormatError` for any other text."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError, OverflowError) as error:
        raise FormatError(f"not the JSON that was expected: {error}") from error


def damaged_note(path: Path, problem: str, remedy: str) -> Finding:
    """The finding for a note that is not believed."""
    return Finding("damaged-note", "warning", f"{path.name} is not believed: {problem}", remedy, file=str(path))


def _decoded(text: bytes, kind: type[Content], trust: Trust) -> Loaded[Content]:
    try:
        return Loaded(decode_json(text, kind), trust)
    except FormatError as error:
        return Loaded(None, Trust.DAMAGED, error.what)


def _checksum(text: bytes) -> bytes:
    return b"%08x" % zlib.crc32(text)
