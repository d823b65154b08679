"""Messages as lines of JSON, made from columns: what `to_row` and JSON's encoder make of each, many times faster.

A column of printable ASCII is quoted as a whole; in others, a text that occurs often is quoted once. A batch
with a text that is not UTF-8 (rare) is written message by message, because a row then shows its bytes too.
"""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import pairwise, repeat
from json.encoder import encode_basestring as quote
from typing import TYPE_CHECKING, Final

from flintlog.cli.messages import FIELDS, to_row
from flintlog.cli.output import encode
from flintlog.errors import FlintlogError
from flintlog.format.sys_flag import is_compressed
from flintlog.store.model.compression import decompress

if TYPE_CHECKING:
    from flintlog.kernel import Column, Decoded
    from flintlog.maintenance.inspect.log_reader import LogReader, Wanted
    from flintlog.store.model.stored_message import StoredMessage

_BODY_FIELDS: Final = ("body", "body_form")
_NO_UTF8: Final = "\ufffd".encode()
_MAY_LACK_BYTES: Final = ("topic", "properties.key", "properties.value")
_MOST_QUOTED: Final = 1 << 16
_PLAIN: Final = bytes(char for char in range(0x20, 0x7F) if chr(char) not in '"\\')


class MessageLines:
    """Lines of the messages of a log that are wanted, in log order."""

    def __init__(self, reader: LogReader, body: str) -> None:
        self._reader = reader
        self._body = body
        left_out = _BODY_FIELDS if body == "none" else ("body_form",)  # the form is written with the body
        self._names = [name for name in FIELDS if name not in left_out]
        self._quoted: dict[bytes, str] = {}

    def lines(self, wanted: Wanted) -> Iterator[str]:
        """A line a message, without its end."""
        for decoded, message_at in self._reader.columns(wanted, frozenset(self._names)):
            if any(_NO_UTF8 in bytes(decoded.columns[name].data or b"") for name in _MAY_LACK_BYTES):
                yield from self._slow(decoded, message_at)
            else:
                yield from self._fast(decoded)

    def _slow(self, decoded: Decoded, message_at: Callable[[int], StoredMessage]) -> Iterator[str]:
        for physical_offset in _numbers(decoded.columns["physical_offset"]):
            yield encode(to_row(message_at(physical_offset), self._body))

    def _fast(self, decoded: Decoded) -> Iterator[str]:
        """Each column as JSON's texts, and a line of each of their rows. A column with one value becomes a constant."""
        parts: list[Iterable[str]] = []
        constant, separator = "", "{"
        for name in self._names:
            texts = self._column(name, decoded)
            constant, separator = f'{constant}{separator}"{name}": ', ", "
            if texts.count(texts[0]) == len(texts):
                constant += texts[0]
            else:
                parts += [repeat(constant, decoded.count), texts]
                constant = ""
        return map("".join, zip(*parts, repeat(constant + "}", decoded.count), strict=True))

    def _column(self, name: str, decoded: Decoded) -> list[str]:
        column = decoded.columns[name]
        if name == "body":
            return self._bodies(decoded)
        if name == "keys":
            return self._keys(decoded.columns)
        if name == "properties":
            return self._properties(decoded.columns)
        return self._texts(column) if column.kind == "utf8" else _numerals(column)

    # ------------------------------------------------------------------ columns

    def _texts(self, column: Column) -> list[str]:
        """Each text of a column in quotes, or null."""
        data = bytes(column.data or b"")
        found = _plain(column, data) if _is_plain(data) else self._quoted_texts(column, data)
        if column.null_count and column.validity is not None:
            present = bytes(column.validity)
            return [text if present[at >> 3] >> (at & 7) & 1 else "null" for at, text in enumerate(found)]
        return found

    def _quoted_texts(self, column: Column, data: bytes) -> list[str]:
        quoted, found = self._quoted, []
        if len(quoted) > _MOST_QUOTED:
            quoted.clear()
        for begin, end in _spans(column):
            part = data[begin:end]
            if (known := quoted.get(part)) is None:
                known = quoted[part] = quote(part.decode())
            found.append(known)
        return found

    def _keys(self, columns: dict[str, Column]) -> list[str]:
        items = self._texts(columns["keys.item"])
        return [f"[{', '.join(items[begin:end])}]" for begin, end in _spans(columns["keys"])]

    def _properties(self, columns: dict[str, Column]) -> list[str]:
        names, values = self._texts(columns["properties.key"]), self._texts(columns["properties.value"])
        pairs = [f"{name}: {value}" for name, value in zip(names, values, strict=True)]
        return [f"{{{', '.join(pairs[begin:end])}}}" for begin, end in _spans(columns["properties"])]

    def _bodies(self, decoded: Decoded) -> list[str]:
        """The body, and its form as the next member of the message's object."""
        column = decoded.columns["body"]
        data, flags = bytes(column.data or b""), _numbers(decoded.columns["sys_flag"])
        if self._body == "text" and _is_plain(data) and not any(map(is_compressed, set(flags))):
            return [f'{text}, "body_form": "text"' for text in _plain(column, data)]
        places = zip(_spans(column), flags, strict=True)
        return [self._body_of(data[begin:end], sys_flag) for (begin, end), sys_flag in places]

    def _body_of(self, stored: bytes, sys_flag: int) -> str:
        if self._body == "hex":
            return f'"{stored.hex()}", "body_form": "hex"'
        if self._body == "text":
            with suppress(FlintlogError, UnicodeDecodeError):  # as in `to_row`
                plain = decompress(stored, sys_flag) if is_compressed(sys_flag) else stored
                return f'{quote(plain.decode())}, "body_form": "text"'
        return f'"{b2a_base64(stored, newline=False).decode()}", "body_form": "base64"'


def _numbers(column: Column) -> list[int]:
    data = memoryview(column.data or b"").cast("B")
    numbers: list[int] = data.cast("i" if column.kind == "int32" else "q").tolist()
    return numbers


def _numerals(column: Column) -> list[str]:
    return str(_numbers(column))[1:-1].split(", ")  # twice as fast as `str` of each


def _spans(column: Column) -> Iterator[tuple[int, int]]:
    places = memoryview(column.offsets or b"").cast("B").cast("i").tolist()
    return pairwise(places)


def _is_plain(data: bytes) -> bool:
    """Whether texts are printable ASCII without anything to escape."""
    return not data.translate(None, _PLAIN)


def _plain(column: Column, data: bytes) -> list[str]:
    text = data.decode("ascii")
    return [f'"{text[begin:end]}"' for begin, end in _spans(column)]
