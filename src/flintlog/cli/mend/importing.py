"""Reads the lines of JSON that `export` and `cat -o jsonl` write, and puts them as messages.

All lines are one closed batch: each is checked before the first is put, and an interruption leaves none of them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import IO

from flintlog.cli.messages import NO_TEXT
from flintlog.errors import FormatError, InvalidMessage, PutFailed
from flintlog.format.sys_flag import BORN_HOST_V6, COMPRESSED, COMPRESSION_MASK, STORE_HOST_V6
from flintlog.store.model.message import Message
from flintlog.store.put.closed_batch import StagedMessages
from flintlog.store.runtime.jobs import Counted, Progress
from flintlog.store.store import Store

_STORE_ADDS = frozenset({"__CRC32#"})
_LINES_A_LOOK = 1000
_READINGS = 3
"""Lines are read to be checked, to be measured, and to be put."""
_OF_AN_ARRAY = frozenset({"[", "]", "[]"})
_DECODERS: Mapping[str, Callable[[str], bytes]] = {
    "base64": lambda text: base64.b64decode(text, validate=True),
    "hex": bytes.fromhex,
    "text": str.encode,
}


class ImportedLines(StagedMessages):
    """The messages of a file; they can be iterated more than once. `line` is the number of the last line read."""

    def __init__(self, file: IO[str], topic: str | None, progress: Progress | None = None) -> None:
        self._topic = topic
        self._file = file if file.seekable() else _spooled(file)
        self._begin = self._file.tell()
        self.line = 0
        self.readings = 0
        self._counted = Counted(progress, _READINGS * _size_of(self._file))

    def __iter__(self) -> Iterator[Message]:
        self.readings += 1
        for text in self._texts():
            yield self._message(text)

    def check(self) -> tuple[int, str]:
        """The number of messages, and a digest of all lines; raises for a line that is no message."""
        digest, count = hashlib.sha256(repr(self._topic).encode()), 0
        for text in self._texts():
            self._message(text)
            digest.update(text.encode(errors="surrogatepass") + b"\n")
            count += 1
        return count, digest.hexdigest()

    def _texts(self) -> Iterator[str]:
        self._file.seek(self._begin)
        self.line = 0
        try:
            read = 0
            for line in self._file:
                self.line += 1
                read += len(line)
                if not self.line % _LINES_A_LOOK:
                    self._counted.add(read)
                    read = 0
                text = line.strip()
                if text and text not in _OF_AN_ARRAY:
                    yield text.removesuffix(",")
            self._counted.add(read)
        except UnicodeDecodeError as error:
            raise InvalidMessage(f"line {self.line + 1} is not UTF-8: {error.reason}") from error

    def _message(self, text: str) -> Message:
        try:
            row = json.loads(text)
            self._refuse_lost_bytes(row)
            form = row.get("body_form", "base64")  # older exports have no such field
            # A body in text form was exported decompressed.
            dropped = BORN_HOST_V6 | STORE_HOST_V6 | (COMPRESSED | COMPRESSION_MASK if form == "text" else 0)
            return Message(
                row["topic"] if self._topic is None else self._topic,
                _DECODERS[form](row["body"]),
                queue_id=row.get("queue_id", 0),
                properties={
                    name: value for name, value in row.get("properties", {}).items() if name not in _STORE_ADDS
                },
                flag=row.get("flag", 0),
                sys_flag=row.get("sys_flag", 0) & ~dropped,
                born_timestamp=row.get("born_timestamp"),
                born_host=row.get("born_host"),
                reconsume_times=row.get("reconsume_times", 0),
                prepared_transaction_offset=row.get("prepared_transaction_offset", 0),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise InvalidMessage(f"line {self.line} is no exported message: {error}") from error

    def _refuse_lost_bytes(self, row: Mapping[str, Mapping[str, str]]) -> None:
        """Refuse a message whose topic or properties are not UTF-8: their bytes would be put as U+FFFD."""
        no_text = row.get(NO_TEXT) or {}
        names = [str(name) for name in no_text if name != "topic" or self._topic is None]
        if names:
            raise ValueError(f"its {' and '.join(names)} are not UTF-8, and would be changed")


def put_lines(store: Store, lines: ImportedLines, writer_id: str | None) -> int:
    """Put all messages, or none; returns how many. 0 when this writer has put them before."""
    try:
        batch = store.put_closed(lines, writer_id=writer_id)
    except (FormatError, InvalidMessage, PutFailed) as error:
        if lines.readings > 1:
            raise  # the disk failed during the put; the next opening cuts the unfinished batch
        raise InvalidMessage(f"line {lines.line} cannot be put: {error.what}; nothing was put") from error
    return 0 if batch is None else batch.message_count


def _size_of(file: IO[str]) -> int:
    try:
        return os.fstat(file.fileno()).st_size
    except OSError:
        return 0


def _spooled(file: IO[str]) -> IO[str]:
    """A temporary copy: a pipe can be read only once, and its lines are read again."""
    kept = tempfile.TemporaryFile("w+", encoding="utf-8", errors="surrogateescape")  # noqa: SIM115 - read until the end
    shutil.copyfileobj(file, kept)
    kept.seek(0)
    return kept
