"""The values of a filter expression, and how Java compares them.

A property is always text. A literal is text, a whole number, a fraction or a truth value. A missing property is `None`.
Comparing two different kinds converts one of them:

    text with whole number    the text is read as Java reads an int or a long, whichever the number is
    text with fraction        the text is read as Java reads a double
    text < text               both are read as doubles (text = text compares letters)
    text with truth value     true if it spells "true" in any case, else false
    whole number, fraction    both as double
    truth value with text     not possible

A value that cannot be converted raises `Incomparable`, and the filter does not match. A whole number in the expression
is an int for Java if it fits 31 bits; a property beyond that range cannot be compared with it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

from flintlog.format.java import TRIMMED

Value = str | int | float | bool | None
Evaluate = Callable[[Mapping[str, str]], Value]
Truth = Callable[[Mapping[str, str]], bool | None]

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

_WHOLE = re.compile(r"[+-]?\d+")
_FRACTION = re.compile(
    r"[+-]?(?:(?P<special>NaN|Infinity)"
    r"|(?P<hexadecimal>0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
    r"|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)"
)
_LAST_BMP_LETTER = "\uffff"


class Incomparable(Exception):
    """Two values that Java cannot compare; no message matches by this comparison."""


def parse_whole(text: str, like: int) -> int:
    """`text` as the Java type of the number `like`: Integer.valueOf or Long.valueOf."""
    if len(text) <= 9 and text.isascii() and text.isdigit():  # the usual case, without the expression below
        return int(text)
    # Java reads UTF-16 units: it accepts the digits of every script, but only those of one unit
    if _WHOLE.fullmatch(text) is None or max(text) > _LAST_BMP_LETTER:
        raise Incomparable(f"{text!r} is not a whole number")
    try:
        number = int(text)
    except ValueError as error:  # more digits than Python converts
        raise Incomparable(f"a number of {len(text)} digits") from error
    # -2**31 can only be written as the negative of a long
    top = INT_MAX if -INT_MAX <= like <= INT_MAX else LONG_MAX
    if not -top - 1 <= number <= top:
        raise Incomparable(f"{text} needs more than {top.bit_length() + 1} bits, as the other side has")
    return number


def parse_fraction(text: str) -> float:
    """`text` as Double.valueOf reads it: trimmed, with Java's suffixes, special names and hexadecimal form."""
    trimmed = text.strip(TRIMMED)
    match = _FRACTION.fullmatch(trimmed)
    if match is None:
        raise Incomparable(f"{text!r} is not a number")
    if match["special"] is not None:
        return float(trimmed)
    if match["hexadecimal"] is None:
        return float(trimmed.rstrip("fFdD"))
    sign = -1.0 if trimmed[0] == "-" else 1.0
    try:
        return sign * float.fromhex(match["hexadecimal"])
    except OverflowError:
        return sign * math.inf


def compare_fractions(left: float, right: float) -> int:
    """Double.compare: -0.0 below 0.0, and NaN equal to itself and above everything."""
    if left < right:
        return -1
    if left > right:
        return 1
    left_key, right_key = _total_order(left), _total_order(right)
    return (left_key > right_key) - (left_key < right_key)


def _total_order(number: float) -> int:
    if math.isnan(number):
        return 2
    return 0 if math.copysign(1.0, number) < 0 else 1


def equals(left: Value, right: Value) -> bool | None:
    """`left = right`. A missing left side is unknown, unless both are missing; a missing right side is unequal."""
    if left is None:
        return True if right is None else None
    if right is None:
        return False
    left_type, right_type = type(left), type(right)
    if left_type is right_type and left_type is not float:
        return left == right
    if isinstance(left, bool):
        if isinstance(right, str):
            raise Incomparable("a truth value on the left of a text")
        return False
    if isinstance(right, bool):
        return isinstance(left, str) and (left.lower() == "true") == right
    return _order_numbers(left, right) == 0


def order(left: Value, right: Value) -> int | None:
    """The sign of `left - right`, for < <= > >=; unknown if a side is missing."""
    if left is None or right is None:
        return None
    if isinstance(left, str) and isinstance(right, str):
        return compare_fractions(parse_fraction(left), parse_fraction(right))
    return _order_numbers(left, right)


def _order_numbers(left: str | float, right: str | float) -> int:
    if isinstance(left, str):
        left = parse_fraction(left) if isinstance(right, float) else parse_whole(left, int(right))
    elif isinstance(right, str):
        right = parse_fraction(right) if isinstance(left, float) else parse_whole(right, int(left))
    assert not isinstance(right, str)
    if isinstance(left, int) and isinstance(right, int):
        return (left > right) - (left < right)
    return compare_fractions(float(left), float(right))


def negate(value: Value) -> Value:
    """`-value`: of anything but a number it is unknown."""
    if isinstance(value, (bool, str)) or value is None:
        return None
    return -value


def truth_of(value: Value) -> bool | None:
    """A property where a condition is expected: a text is never true, not even "true"."""
    return None if value is None else value is True


def all_of(terms: list[Truth]) -> Truth:
    """AND in three values, from left to right, until one is false."""
    return _first_decisive(terms, decisive=False)


def any_of(terms: list[Truth]) -> Truth:
    """OR in three values, from left to right, until one is true."""
    return _first_decisive(terms, decisive=True)


def _first_decisive(terms: list[Truth], *, decisive: bool) -> Truth:
    """The decisive value if a term has it, else unknown if a term is unknown, else the other value."""

    def evaluate(properties: Mapping[str, str]) -> bool | None:
        result: bool | None = not decisive
        for term in terms:
            value = term(properties)
            if value is decisive:
                return decisive
            if value is None:
                result = None
        return result

    return evaluate


def inverted(term: Truth) -> Truth:
    """NOT in three values."""

    def evaluate(properties: Mapping[str, str]) -> bool | None:
        value = term(properties)
        return None if value is None else not value

    return evaluate
