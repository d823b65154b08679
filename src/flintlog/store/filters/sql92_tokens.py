"""The words of a filter expression.

    whole       0 | [1-9][0-9]* with an optional l or L      so 007 is three numbers
    fraction    digits . digits? exponent? | . digits exponent? | digits exponent
    text        '…' with '' for a quote; may span lines
    name        letter, _ or $, then also digits: ASCII only
    keyword     a name that is one of KEYWORDS in any case
    symbol      = <> > >= < <= ( , ) + -

Between words: blanks, tabs, line ends, form feeds, `/* comments */`, and `-- comments` that a line end closes.
Words are read one at a time, so text after the last word that the parser needs is not checked.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from flintlog.errors import InvalidFilter

KEYWORDS = frozenset(
    ("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH")
)

_SKIPPED = re.compile(r"(?:[ \t\n\r\f]|--[^\n\r]*[\n\r]|/\*(?s:.*?)\*/)*")
# Fraction before whole number, because the longest word wins
_WORD = re.compile(
    r"(?P<fraction>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)"
    r"|(?P<whole>0|[1-9][0-9]*[lL]?)"
    r"|(?P<text>'(?:[^']|'')*')"
    r"|(?P<name>[A-Za-z_$][A-Za-z0-9_$]*)"
    r"|(?P<symbol><>|>=|<=|[=<>(),+-])"
)


@dataclass(frozen=True, slots=True)
class Token:
    """One word: `kind` is whole, fraction, text, name, end, or the keyword or symbol itself."""

    kind: str
    text: str
    position: int


def read_token(expression: str, position: int) -> Token:
    """The first word at or after `position`; of kind "end" after the last one."""
    skipped = _SKIPPED.match(expression, position)
    start = position if skipped is None else skipped.end()
    if start == len(expression):
        return Token("end", "", start)
    match = _WORD.match(expression, start)
    if match is None or match.lastgroup is None:
        raise InvalidFilter(
            f"no word of a filter begins with {expression[start]!r}", offset=start, advice=_advice(expression[start])
        )
    text = match.group()
    kind = match.lastgroup
    if kind == "symbol":
        kind = text
    elif kind == "name" and text.upper() in KEYWORDS:
        kind = text.upper()
    return Token(kind, text, start)


def _advice(letter: str) -> str | None:
    if letter == "'":
        return "a text ends with a single quote; '' stands for a quote inside"
    if letter in '"`':
        return "texts stand in single quotes, names in none"
    if letter == "!":
        return "unequal is written <>"
    return None
