"""One remoting command on the wire, with RocketMQ's two forms of its header.

    0        4             8            8 + H
    +--------+------+------+------------+----------+
    | total  | type | H    | header     | body     |       big-endian; total counts the bytes after itself
    +--------+------+------+------------+----------+
    4        1      3      H            total - 4 - H

    type 0, JSON     {"code":21,"language":"PYTHON","version":513,"opaque":7,"flag":0,"extFields":{"a":"b"}}

    type 1, binary   0      2          3         5        9      13                17 + R
                     +------+----------+---------+--------+------+-----+-----------+-----+-----------------+
                     | code | language | version | opaque | flag | R   | remark    | E   | fields          |
                     +------+----------+---------+--------+------+-----+-----------+-----+-----------------+
                     fields: repeated length (2), name, length (4), value; an empty text means none

A reply has its request's form and opaque. Every length is checked before it is used to read or allocate.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from flintlog.errors import FormatError

MAX_FRAME_BYTES: Final = 16 * 1024 * 1024
MAX_HEADER_BYTES: Final = 128 * 1024
"""The header holds a request's fields; RocketMQ's largest are a message's properties, 32 KiB."""
JSON_FORM: Final = 0
BINARY_FORM: Final = 1
RESPONSE: Final = 1
ONE_WAY: Final = 2
VERSION: Final = 513
"""The version number that RocketMQ 5.5.0 sends."""

LANGUAGES: Final = (
    "JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS", "RUST",
    "NODE_JS",
)  # fmt: skip
_OTHER: Final = LANGUAGES.index("OTHER")

_WORD = struct.Struct(">i")
_HEAD = struct.Struct(">ii")
_BINARY = struct.Struct(">hBhiii")
_SHORT = struct.Struct(">h")
_MAX_JSON_DIGITS = 32


@dataclass(frozen=True, slots=True)
class Command:
    """A request or a reply."""

    code: int
    opaque: int = 0
    flag: int = 0
    fields: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    remark: str | None = None
    language: str = "PYTHON"
    version: int = VERSION
    form: int = JSON_FORM

    @property
    def is_response(self) -> bool:
        return bool(self.flag & RESPONSE)

    @property
    def is_one_way(self) -> bool:
        return bool(self.flag & ONE_WAY)

    def reply(
        self, code: int, body: bytes = b"", *, fields: Mapping[str, str] | None = None, remark: str | None = None
    ) -> Command:
        """The answer to this request."""
        return Command(code, self.opaque, self.flag | RESPONSE, fields or {}, body, remark, form=self.form)


def encode_frame(command: Command) -> bytes:
    """The bytes of a command.

    >>> parse_frame(encode_frame(Command(21, opaque=7, fields={"topicSeq": "0"}))).fields
    {'topicSeq': '0'}
    """
    header = _encode_binary(command) if command.form == BINARY_FORM else _encode_json(command)
    total = 4 + len(header) + len(command.body)
    if total + 4 > MAX_FRAME_BYTES:
        raise FormatError(f"a command of {total + 4} bytes; a frame has at most {MAX_FRAME_BYTES}")
    return _HEAD.pack(total, command.form << 24 | len(header)) + header + command.body


def _encode_json(command: Command) -> bytes:
    values: dict[str, object] = {
        "code": command.code,
        "language": command.language,
        "version": command.version,
        "opaque": command.opaque,
        "flag": command.flag,
        "extFields": dict(command.fields),
        "serializeTypeCurrentRPC": "JSON",
    }
    if command.remark is not None:
        values["remark"] = command.remark
    return json.dumps(values, separators=(",", ":")).encode()


def _encode_binary(command: Command) -> bytes:
    if not -(1 << 15) <= command.code < 1 << 15:
        raise FormatError(f"code {command.code} does not fit the binary form")
    language = LANGUAGES.index(command.language) if command.language in LANGUAGES else _OTHER
    remark = (command.remark or "").encode()
    parts = bytearray()
    for name, value in command.fields.items():
        text, data = name.encode(), value.encode()
        parts += _SHORT.pack(len(text)) + text + _WORD.pack(len(data)) + data
    head = _BINARY.pack(command.code, language, command.version, command.opaque, command.flag, len(remark))
    return head + remark + _WORD.pack(len(parts)) + bytes(parts)


def parse_frame(data: bytes) -> Command:
    """The command of one whole frame."""
    commands = FrameReader()
    found = commands.feed(data)
    if len(found) != 1 or commands.pending_bytes:
        raise FormatError(f"{len(data)} bytes that are not one frame")
    return found[0]


class FrameReader:
    """Splits a stream into commands. It cannot be used after a FormatError: close the connection."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    @property
    def pending_bytes(self) -> int:
        """Bytes of an incomplete frame."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[Command]:
        """Add received bytes; returns the commands that are now complete."""
        buffer = self._buffer
        buffer += data
        found: list[Command] = []
        place = 0
        while len(buffer) - place >= _HEAD.size:
            total, word = _HEAD.unpack_from(buffer, place)
            _check_lengths(total, word)
            end = place + 4 + total
            if len(buffer) < end:
                break
            found.append(_parse(bytes(buffer[place:end])))
            place = end
        del buffer[:place]
        return found


def _check_lengths(total: int, word: int) -> None:
    if not 4 <= total <= MAX_FRAME_BYTES - 4:
        raise FormatError(f"a frame of {total} bytes")
    if word >> 24 not in (JSON_FORM, BINARY_FORM):
        raise FormatError(f"a header in the unknown form {word >> 24 & 0xFF}")
    if word & 0xFFFFFF > total - 4:
        raise FormatError("a header that is longer than its frame")
    if word & 0xFFFFFF > MAX_HEADER_BYTES:
        raise FormatError(f"a header of {word & 0xFFFFFF} bytes")


def _parse(frame: bytes) -> Command:
    _, word = _HEAD.unpack_from(frame, 0)
    stop = _HEAD.size + (word & 0xFFFFFF)
    header, body = frame[_HEAD.size : stop], frame[stop:]
    return _parse_binary(header, body) if word >> 24 == BINARY_FORM else _parse_json(header, body)


def _parse_json(header: bytes, body: bytes) -> Command:
    try:
        values = json.loads(header, parse_int=_bounded_int)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"a header that is no JSON: {error}") from None
    if not isinstance(values, dict):
        raise FormatError("a header that is no JSON object")
    fields = values.get("extFields") or {}
    if not isinstance(fields, dict):
        raise FormatError("extFields is no object")
    remark = values.get("remark")
    return Command(
        code=_number(values, "code"),
        opaque=_number(values, "opaque"),
        flag=_number(values, "flag"),
        fields={name: _text(value) for name, value in fields.items() if value is not None},
        body=body,
        remark=remark if isinstance(remark, str) and remark else None,
        language=str(values.get("language", "OTHER")),
        version=_number(values, "version"),
    )


def _bounded_int(digits: str) -> int:
    if len(digits) > _MAX_JSON_DIGITS:
        raise ValueError("a number of too many digits")
    return int(digits)


def _number(values: Mapping[str, object], name: str) -> int:
    value = values.get(name, 0)
    if not isinstance(value, int) or not -(1 << 31) <= value < 1 << 31:
        raise FormatError(f"{name} is no 32-bit number")
    return int(value)


def _text(value: object) -> str:
    """A field's value as text: some clients send numbers and booleans."""
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def _parse_binary(header: bytes, body: bytes) -> Command:
    if len(header) < _BINARY.size + 4:
        raise FormatError(f"a binary header of {len(header)} bytes")
    code, language, version, opaque, flag, remark_size = _BINARY.unpack_from(header, 0)
    remark, place = _take(header, _BINARY.size, remark_size)
    if len(header) - place < 4:
        raise FormatError("a binary header that ends in its remark")
    fields_size = _WORD.unpack_from(header, place)[0]
    if fields_size != len(header) - place - 4:
        raise FormatError("the fields of a binary header do not fill it")
    name = LANGUAGES[language] if language < len(LANGUAGES) else "OTHER"
    fields = _parse_fields(header, place + 4)
    return Command(code, opaque, flag, fields, body, remark or None, name, version, BINARY_FORM)


def _parse_fields(header: bytes, place: int) -> dict[str, str]:
    fields: dict[str, str] = {}
    while place < len(header):
        if len(header) - place < 2:
            raise FormatError("a field of a binary header is cut")
        name, place = _take(header, place + 2, _SHORT.unpack_from(header, place)[0])
        if len(header) - place < 4:
            raise FormatError("a field of a binary header is cut")
        value, place = _take(header, place + 4, _WORD.unpack_from(header, place)[0])
        if name and value:
            fields[name] = value
    return fields


def _take(header: bytes, start: int, size: int) -> tuple[str, int]:
    if not 0 <= size <= len(header) - start:
        raise FormatError("a text of a binary header goes past it")
    try:
        return header[start : start + size].decode(), start + size
    except UnicodeDecodeError:
        raise FormatError("a text of a binary header is no UTF-8") from None
