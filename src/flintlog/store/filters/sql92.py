"""SQL92 filters: conditions on the properties of a message, with RocketMQ's grammar and meaning.

    condition   := and ( OR and )*
    and         := equality ( AND equality )*
    equality    := comparison ( = comparison | <> comparison | IS [NOT] NULL )*
    comparison  := unary ( (> | >= | < | <=) unary
                         | [NOT] BETWEEN unary AND unary
                         | [NOT] IN ( text , … )
                         | [NOT] (CONTAINS | STARTSWITH | ENDSWITH) text )*
    unary       := + unary | - unary | NOT unary | primary
    primary     := TRUE | FALSE | NULL | number | text | name | ( condition )

A condition is true, false or unknown; a message passes only if it is true. NOT binds tighter than `=`, so
`NOT a = 1` means `(NOT a) = 1`. Like RocketMQ, the parser stops at the first word that cannot continue a
complete condition and ignores the rest (`ignored` is that text); `strict=True` makes it an error.
The parser turns each rule directly into closures; `sql92_values` compares values.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import cast

from flintlog.errors import InvalidFilter
from flintlog.store.filters import sql92_values as values
from flintlog.store.filters.sql92_tokens import Token, read_token
from flintlog.store.filters.sql92_values import Evaluate, Incomparable, Truth, Value
from flintlog.store.filters.tags import Extension, HasProperties

MAX_DEPTH = 64
"""Maximum depth of nested conditions, including the innermost comparison, and length of a chain like `a = b = c`."""

_ORDERS: dict[str, Callable[[int, int], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_TEXT_TESTS: dict[str, Callable[[str, str], bool]] = {
    "CONTAINS": lambda value, part: part in value,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


class _Kind(Enum):
    PROPERTY = auto()
    NUMBER = auto()
    TEXT = auto()
    NEGATIVE = auto()
    CONDITION = auto()
    TRUTH = auto()  # TRUE or FALSE, written out
    NULL = auto()


@dataclass(frozen=True, slots=True)
class _Node:
    """A part of the expression: how to evaluate it, and its value if that does not depend on the message."""

    kind: _Kind
    position: int
    evaluate: Evaluate
    constant: Value = None
    name: str = ""


class Sql92:
    """A compiled condition, and a filter by it.

    >>> Sql92("region = 'eu' AND amount BETWEEN 10 AND 99").evaluate({"region": "eu", "amount": "17"})
    True
    >>> print(Sql92("amount > 10").evaluate({}))
    None
    """

    __slots__ = ("_condition", "expression", "ignored")

    def __init__(self, expression: str, *, strict: bool = False) -> None:
        try:
            parser = _Parser(expression)
            self._condition = parser.parse()
            self.ignored = expression[parser.token.position :]
            if strict and self.ignored:
                raise InvalidFilter(
                    f"{parser.token.text!r} cannot follow a complete condition", offset=parser.token.position
                )
        except InvalidFilter as error:
            error.expression = expression  # so that the error can show the position
            raise
        self.expression = expression

    def __repr__(self) -> str:
        return f"Sql92({self.expression!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sql92) and other.expression == self.expression

    def __hash__(self) -> int:
        return hash(self.expression)

    def evaluate(self, properties: Mapping[str, str]) -> bool | None:
        """True, False or unknown; InvalidFilter if a value cannot be compared as the expression asks."""
        try:
            return self._condition(properties)
        except Incomparable as error:
            raise InvalidFilter(f"{self.expression!r} cannot be answered: {error}") from error

    def matches_entry(self, tags_code: int | None, ext: Extension | None = None) -> bool:
        """Always true: a queue entry has no properties."""
        return True

    def matches_message(self, stored: HasProperties) -> bool:
        """Whether the condition is true; unknown and incomparable do not match."""
        try:
            return self._condition(stored.properties) is True
        except Incomparable:
            return False


class _Parser:
    """A recursive descent parser with one word of lookahead, `token`."""

    def __init__(self, expression: str) -> None:
        if not isinstance(expression, str):
            raise InvalidFilter(f"a filter expression is a text, not {type(expression).__name__}")
        self.expression = expression
        self.depth = 0
        self.token = read_token(expression, 0)

    def parse(self) -> Truth:
        return _as_condition(self.condition())

    def advance(self) -> Token:
        token = self.token
        self.token = read_token(self.expression, token.position + len(token.text))
        return token

    def accept(self, *kinds: str) -> Token | None:
        return self.advance() if self.token.kind in kinds else None

    def expect(self, *kinds: str) -> Token:
        token = self.accept(*kinds)
        if token is None:
            found = "the end" if self.token.kind == "end" else repr(self.token.text)
            raise InvalidFilter(f"found {found} where {' or '.join(kinds)} is expected", offset=self.token.position)
        return token

    def descend(self, position: int) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise InvalidFilter(f"conditions nest deeper than {MAX_DEPTH}", offset=position)

    def condition(self) -> _Node:
        return self.chain("OR", self.conjunction, values.any_of)

    def conjunction(self) -> _Node:
        return self.chain("AND", self.equality, values.all_of)

    def chain(self, word: str, part: Callable[[], _Node], join: Callable[[list[Truth]], Truth]) -> _Node:
        first = part()
        if self.token.kind != word:
            return first
        terms = [_as_condition(first)]
        while self.accept(word):
            terms.append(_as_condition(part()))
        return _Node(_Kind.CONDITION, first.position, join(terms))

    def equality(self) -> _Node:
        node = self.comparison()
        depth = self.depth
        while word := self.accept("=", "<>", "IS"):
            self.descend(word.position)
            if word.kind == "IS":
                inverted = self.accept("NOT") is not None
                self.expect("NULL")
                truth = _is_null(node.evaluate)
            else:
                inverted = word.kind == "<>"
                truth = _equal(node, self.comparison())
            node = _condition_node(node.position, truth, inverted)
        self.depth = depth
        return node

    def comparison(self) -> _Node:
        node = self.unary()
        depth = self.depth
        while word := self.accept(">", ">=", "<", "<=", "NOT", "BETWEEN", "IN", *_TEXT_TESTS):
            self.descend(word.position)
            if word.kind in _ORDERS:
                node = _condition_node(node.position, _ordered(word.kind, node, self.unary()))
            else:
                node = self.word_test(node, word)
        self.depth = depth
        return node

    def word_test(self, node: _Node, word: Token) -> _Node:
        inverted = word.kind == "NOT"
        if inverted:
            word = self.expect("BETWEEN", "IN", *_TEXT_TESTS)
        if word.kind == "BETWEEN":
            return _condition_node(node.position, self.between(node, inverted))
        if word.kind == "IN":
            return _condition_node(node.position, _among(node, self.text_list()), inverted)
        return _condition_node(node.position, _text_test(word.kind, node, self.text(), inverted))

    def between(self, node: _Node, inverted: bool) -> Truth:
        low = self.unary()
        self.expect("AND")
        high = self.unary()
        if inverted:
            return values.any_of([_ordered("<", node, low), _ordered(">", node, high)])
        if low.kind is high.kind is _Kind.NUMBER and (values.order(low.constant, high.constant) or 0) > 0:
            raise InvalidFilter(f"no value is between {low.constant} and {high.constant}", offset=low.position)
        return values.all_of([_ordered(">=", node, low), _ordered("<=", node, high)])

    def text_list(self) -> frozenset[str]:
        self.expect("(")
        texts = [self.text()]
        while self.expect(",", ")").kind == ",":
            texts.append(self.text())
        return frozenset(texts)

    def text(self) -> str:
        return _unquote(self.expect("text"))

    def unary(self) -> _Node:
        sign = self.accept("+", "-", "NOT")
        if sign is None:
            return self.primary()
        self.descend(sign.position)
        operand = self.unary()
        self.depth -= 1
        if sign.kind == "+":
            return operand
        if sign.kind == "-":
            return _Node(_Kind.NEGATIVE, sign.position, _negative(operand.evaluate))
        return _condition_node(sign.position, _as_condition(operand), inverted=True)

    def primary(self) -> _Node:
        token = self.expect("whole", "fraction", "text", "name", "TRUE", "FALSE", "NULL", "(")
        if token.kind == "(":
            return self.parenthesis(token)
        if token.kind == "text":
            return _constant(_Kind.TEXT, token.position, _unquote(token))
        if token.kind == "name":
            name = token.text
            return _Node(_Kind.PROPERTY, token.position, lambda properties: properties.get(name), name=name)
        if token.kind == "NULL":
            return _constant(_Kind.NULL, token.position, None)
        if token.kind in ("TRUE", "FALSE"):
            return _constant(_Kind.TRUTH, token.position, token.kind == "TRUE")
        return _constant(_Kind.NUMBER, token.position, _number(token))

    def parenthesis(self, token: Token) -> _Node:
        self.descend(token.position)
        inner = self.condition()
        self.depth -= 1
        self.expect(")")
        return inner


def _unquote(token: Token) -> str:
    return token.text[1:-1].replace("''", "'")


def _number(token: Token) -> int | float:
    if token.kind == "whole":
        whole = token.text.rstrip("lL")
        # The length first: Python refuses to convert thousands of digits
        if len(whole) > 19 or int(whole) > values.LONG_MAX:
            raise InvalidFilter(f"{token.text} needs more than 64 bits", offset=token.position)
        return int(whole)
    fraction = float(token.text)
    if fraction == 0 or math.isinf(fraction):
        # Java refuses every double below the smallest positive one, and so also zero
        raise InvalidFilter(
            f"{token.text} is out of the range of a double", offset=token.position, advice="write 0 for zero"
        )
    return fraction


def _constant(kind: _Kind, position: int, value: Value) -> _Node:
    return _Node(kind, position, lambda properties: value, constant=value)


def _condition_node(position: int, truth: Truth, inverted: bool = False) -> _Node:
    return _Node(_Kind.CONDITION, position, values.inverted(truth) if inverted else truth)


def _as_condition(node: _Node) -> Truth:
    if node.kind in (_Kind.NUMBER, _Kind.TEXT, _Kind.NEGATIVE):
        raise InvalidFilter("a condition is expected here, not a value", offset=node.position)
    if node.kind is not _Kind.PROPERTY:
        return cast(Truth, node.evaluate)
    evaluate, truth_of = node.evaluate, values.truth_of
    return lambda properties: truth_of(evaluate(properties))


def _negative(evaluate: Evaluate) -> Evaluate:
    return lambda properties: values.negate(evaluate(properties))


def _is_null(evaluate: Evaluate) -> Truth:
    return lambda properties: evaluate(properties) is None


def _equal(left: _Node, right: _Node) -> Truth:
    for side in (left, right):
        if side.kind is _Kind.NULL:
            raise InvalidFilter("NULL cannot be compared", offset=side.position, advice="write IS NULL")
    if left.kind is _Kind.TRUTH and right.kind in (_Kind.NUMBER, _Kind.TEXT):
        raise InvalidFilter("a truth value cannot be compared with a number or text", offset=right.position)
    if left.kind is _Kind.PROPERTY and right.kind is _Kind.TEXT:
        return _property_is(left.name, right.constant)
    first, second, equals = left.evaluate, right.evaluate, values.equals
    return lambda properties: equals(first(properties), second(properties))


def _property_is(name: str, text: Value) -> Truth:
    """A property and a text: the most common filter, without the general comparison."""

    def evaluate(properties: Mapping[str, str]) -> bool | None:
        value = properties.get(name)
        return None if value is None else value == text

    return evaluate


def _ordered(symbol: str, left: _Node, right: _Node) -> Truth:
    for side in (left, right):
        if side.kind not in (_Kind.PROPERTY, _Kind.NUMBER, _Kind.NEGATIVE):
            raise InvalidFilter("only numbers and properties have an order", offset=side.position)
    if left.kind is _Kind.PROPERTY and isinstance(right.constant, int):
        return _property_exceeds(symbol, left.name, right.constant)
    first, second, order, holds = left.evaluate, right.evaluate, values.order, _ORDERS[symbol]

    def evaluate(properties: Mapping[str, str]) -> bool | None:
        value = first(properties)
        if value is None:  # without evaluating the right side, which may raise `Incomparable`
            return None
        sign = order(value, second(properties))
        return None if sign is None else holds(sign, 0)

    return evaluate


def _property_exceeds(symbol: str, name: str, number: int) -> Truth:
    """A property and a whole number, without the general comparison."""
    holds, parse_whole = _ORDERS[symbol], values.parse_whole

    def evaluate(properties: Mapping[str, str]) -> bool | None:
        value = properties.get(name)
        return None if value is None else holds(parse_whole(value, number), number)

    return evaluate


def _among(node: _Node, texts: frozenset[str]) -> Truth:
    if node.kind is not _Kind.PROPERTY:
        raise InvalidFilter("only a property can be IN a list", offset=node.position)
    name = node.name

    def evaluate(properties: Mapping[str, str]) -> bool | None:
        value = properties.get(name)
        return None if value is None else value in texts

    return evaluate


def _text_test(word: str, node: _Node, part: str, inverted: bool) -> Truth:
    """False if the value is no text or the part is empty, also with NOT."""
    if part == "":  # without evaluating the operand, which may raise `Incomparable`
        return lambda properties: False
    holds, operand = _TEXT_TESTS[word], node.evaluate

    def evaluate(properties: Mapping[str, str]) -> bool:
        value = operand(properties)
        return isinstance(value, str) and holds(value, part) is not inverted

    return evaluate
