"""The JSON of a store's `config` folder, written as RocketMQ 5.5 writes it (fastjson2) and read as leniently.

    {                                       tabs, line feeds, nothing after ":", no line feed at the end
      "dataVersion":{
        "counter":3
      },
      "offsetTable":{
        1:15,                               integer keys are not quoted
        2:15
      },
      "bitPos":[1,2,3],                     a Java `int[]`: one line
      "topics":[                            any other array: one element a line
        "orders"
      ]
    }

In values, an integer key is an `int`, an `int[]` a `tuple`, any other array a `list`; objects keep their
order. Members that are null are left out. A text of RocketMQ's is written back with the same bytes. The
reader also accepts what fastjson accepts: quoted or unquoted integer keys, single quotes, trailing commas,
comments, a byte order mark, numbers like `+1` or `.5`. Depth is bounded in both directions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from flintlog.errors import FormatError
from flintlog.format.java import decode_text

# A mapping's key type is invariant, so text keys and integer keys are named one by one too.
JsonMapping: TypeAlias = "Mapping[str, JsonValue] | Mapping[int, JsonValue] | Mapping[str | int, JsonValue]"
JsonValue: TypeAlias = "bool | int | float | str | Sequence[JsonValue] | JsonMapping | None"
JsonObject: TypeAlias = "dict[str | int, JsonValue]"

MAX_DEPTH: Final = 200
SIMPLE_TYPE: Final = "SimpleCQ"
BATCH_TYPE: Final = "BatchCQ"
QUEUE_TYPE: Final = "queue.type"
"""The attribute of a topic that names one of the two."""

_GAP = re.compile(r"(?:[ \t\r\n\f\b\ufeff]+|/\*.*?\*/|//[^\n]*)*+", re.DOTALL)
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,60}(?:\.[0-9]{0,60})?|\.[0-9]{1,60})(?:[eE][+-]?[0-9]{1,4})?")
_INTEGER = re.compile(r"[+-]?[0-9]{1,60}")
_PLAIN = {'"': re.compile(r'[^"\\]*+'), "'": re.compile(r"[^'\\]*+")}
_HEX = re.compile(r"[0-9A-Fa-f]{4}")
_WORDS: Final[dict[str, bool | None]] = {"true": True, "false": False, "null": None}
_WORD = re.compile("true|false|null")
_SIMPLE_ESCAPES: Final = dict(zip("btnfrv0\"'\\/", "\b\t\n\f\r\v\0\"'\\/", strict=True))
_SURROGATE_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")

_NEEDS_ESCAPE = re.compile(r'[\x00-\x1f"\\]')
_ESCAPES: Final = {chr(code): f"\\u{code:04x}" for code in range(0x20)} | {
    character: "\\" + letter for character, letter in zip('"\\\b\t\n\f\r', '"\\btnfr', strict=True)
}


def encode_config_json(value: JsonValue, *, pretty: bool = True) -> bytes:
    """The UTF-8 text of a value. `pretty=False` is the form of the metrics files.

    >>> encode_config_json({"offsetTable": {1: 5}}, pretty=False)
    b'{"offsetTable":{1:5}}'
    """
    text = "".join(_write(value, "\n" if pretty else "", 0))
    # Java writes a lone surrogate (which JSON escapes can produce) as a question mark.
    return text.encode("utf-8", "replace")


def _write(value: JsonValue, line: str, depth: int) -> list[str]:
    """The pieces of a value's text; `line` is the newline and indent of the enclosing value, or nothing."""
    if depth > MAX_DEPTH:
        raise FormatError(f"JSON deeper than {MAX_DEPTH} levels")
    if isinstance(value, Mapping):
        inner = line and line + "\t"
        members = [
            [_write_key(key), ":", *_write(member, inner, depth + 1)]
            for key, member in value.items()
            if member is not None
        ]
        return _enclose("{", members, "}", line)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray | memoryview):
        # Only Java's primitive arrays are written on one line, and only they are tuples here.
        outer = "" if isinstance(value, tuple) else line
        return _enclose("[", [_write(element, outer and outer + "\t", depth + 1) for element in value], "]", outer)
    return [_write_scalar(value)]


def _enclose(start: str, elements: list[list[str]], end: str, line: str) -> list[str]:
    if not elements:
        return [start, end]
    inner = line and line + "\t"
    pieces = [start]
    for number, element in enumerate(elements):
        pieces += ("," * (number > 0), inner, *element)
    return [*pieces, line, end]


def _write_key(key: str | int) -> str:
    if isinstance(key, bool) or not isinstance(key, str | int):
        raise FormatError(f"neither text nor an integer, so no key of config JSON: {key!r:.80}")
    return str(key) if isinstance(key, int) else _quote(key)


def _write_scalar(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return format_double(value)
    if isinstance(value, str):
        return _quote(value)
    raise FormatError(f"config JSON cannot hold a {type(value).__name__}")


def _quote(text: str) -> str:
    return '"' + _NEEDS_ESCAPE.sub(lambda found: _ESCAPES[found[0]], text) + '"'


def format_double(value: float) -> str:
    """A double as Java writes it: `1.0`, `1.5E10`, `1.0E-4`; NaN and the infinities are null."""
    if not math.isfinite(value):
        return "null"
    if value == 0:
        return "-0.0" if math.copysign(1, value) < 0 else "0.0"
    mantissa, _, exponent = _shortest(abs(value)).partition("e")
    digits, power = mantissa.replace(".", ""), int(exponent)
    sign = "-" if value < 0 else ""
    if -3 <= power < 7:
        whole, fraction = _place_point(digits, power)
        return f"{sign}{whole}.{fraction}"
    return f"{sign}{digits[0]}.{digits[1:]}E{power}"


def _shortest(value: float) -> str:
    """Scientific notation with the fewest digits that give the value again, but two at least."""
    for precision in range(1, 17):
        text = f"{value:.{precision}e}"
        if float(text) == value:
            return text
    return f"{value:.16e}"


def _place_point(digits: str, power: int) -> tuple[str, str]:
    digits = digits.rstrip("0")
    if power < 0:
        return "0", "0" * (-power - 1) + digits
    digits = digits.ljust(power + 1, "0")
    return digits[: power + 1], digits[power + 1 :] or "0"


def parse_config_json(data: bytes | str) -> JsonValue:
    """The value of a JSON text; malformed UTF-8 is replaced, as Java does."""
    text = data if isinstance(data, str) else decode_text(data)
    parser = _Parser(text)
    try:
        value = parser.value(0)
    except RecursionError:  # called from deep inside another program
        raise parser.error("deeper than the stack allows") from None
    parser.skip_gap()
    if parser.position != len(text):
        raise parser.error("more text after the value")
    return value


def parse_config_object(data: bytes | str) -> JsonObject:
    """The object that a config file holds; anything else is an error."""
    value = parse_config_json(data)
    if not isinstance(value, dict):
        raise FormatError("a config file holds a JSON object, this text holds something else")
    return value


def listed_topics(table: JsonObject) -> JsonObject:
    """The entries of `topics.json` by topic."""
    topics = table.get("topicConfigTable")
    return topics if isinstance(topics, dict) else {}


def named_queue_types(table: JsonObject) -> dict[str, str]:
    """Topics whose `topics.json` entry names a queue type."""
    found: dict[str, str] = {}
    for topic, entry in listed_topics(table).items():
        attributes = entry.get("attributes") if isinstance(entry, dict) else None
        kind = attributes.get(QUEUE_TYPE) if isinstance(attributes, dict) else None
        if isinstance(kind, str) and kind in (SIMPLE_TYPE, BATCH_TYPE):
            found[str(topic)] = kind
    return found


class _Parser:
    """Recursive descent over one text; every step consumes text or raises."""

    __slots__ = ("position", "text")

    def __init__(self, text: str) -> None:
        self.text, self.position = text, 0

    def error(self, what: str) -> FormatError:
        return FormatError(f"not JSON: {what}", offset=self.position)

    def skip_gap(self) -> str:
        """Pass blanks and comments; the next character, or nothing at the end."""
        found = _GAP.match(self.text, self.position)
        self.position = found.end() if found else self.position
        return self.text[self.position : self.position + 1]

    def value(self, depth: int) -> JsonValue:
        if depth > MAX_DEPTH:
            raise self.error(f"deeper than {MAX_DEPTH} levels")
        character = self.skip_gap()
        if character == "{":
            return self.object(depth)
        if character == "[":
            return self.array(depth)
        if character in ('"', "'") and character:
            return self.string(character)
        word = _WORD.match(self.text, self.position)
        if word:
            self.position = word.end()
            return _WORDS[word[0]]
        return self.number()

    def number(self) -> int | float:
        found = _NUMBER.match(self.text, self.position)
        if not found:
            raise self.error("no value here")
        self.position = found.end()
        return int(found[0]) if _INTEGER.fullmatch(found[0]) else float(found[0])

    def object(self, depth: int) -> JsonObject:
        self.position += 1
        members: JsonObject = {}
        while (character := self.skip_gap()) != "}":
            key = self.key(character)
            if self.skip_gap() != ":":
                raise self.error("no colon after a key")
            self.position += 1
            members[key] = self.value(depth + 1)
            self.pass_comma("}")
        self.position += 1
        return members

    def key(self, character: str) -> str | int:
        if character and character in "\"'":
            return self.string(character)
        found = _INTEGER.match(self.text, self.position)
        if not found:
            raise self.error("no key here")
        self.position = found.end()
        return int(found[0])

    def array(self, depth: int) -> JsonValue:
        start = self.position
        self.position += 1
        elements: list[JsonValue] = []
        while self.skip_gap() != "]":
            elements.append(self.value(depth + 1))
            self.pass_comma("]")
        self.position += 1
        on_one_line = "\n" not in self.text[start : self.position]
        # In a pretty text, integers on one line are an `int[]`; in a compact one it makes no difference.
        return tuple(elements) if elements and on_one_line and all(map(_is_integer, elements)) else elements

    def pass_comma(self, end: str) -> None:
        character = self.skip_gap()
        if character == ",":
            self.position += 1
        elif character != end:
            raise self.error(f"neither a comma nor {end!r}")

    def string(self, quote: str) -> str:
        self.position += 1
        pieces: list[str] = []
        while True:
            found = _PLAIN[quote].match(self.text, self.position)
            pieces.append(found[0] if found else "")
            self.position += len(pieces[-1])
            if self.position >= len(self.text):
                raise self.error("text without an end")
            if self.text[self.position] == quote:
                self.position += 1
                joined = _SURROGATE_PAIR.sub(_join_pair, "".join(pieces))
                # No file name can hold a lone surrogate, and Java's next save would write a question mark for it.
                return _LONE_SURROGATE.sub("?", joined)
            pieces.append(self.escape())

    def escape(self) -> str:
        kind = self.text[self.position + 1 : self.position + 2]
        if kind == "u":
            found = _HEX.match(self.text, self.position + 2)
            if not found:
                raise self.error("an escape without four digits")
            self.position += 6
            return chr(int(found[0], 16))
        if kind not in _SIMPLE_ESCAPES:
            raise self.error("an unknown escape")
        self.position += 2
        return _SIMPLE_ESCAPES[kind]


def _is_integer(value: JsonValue) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _join_pair(pair: re.Match[str]) -> str:
    return pair[0].encode("utf-16", "surrogatepass").decode("utf-16")
