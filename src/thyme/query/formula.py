"""Formulas: parses text into reverse Polish form.

Entry point: `parse`, which reads the text in one pass with an explicit stack and bounds depth and
length. `dnf` converts the result to disjunctive normal form.
Clauses: M5, M8, M9, M31.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import NoReturn

from thyme.model.errors import QuerySyntaxError, QueryTooLargeError, TagError, safe_repr
from thyme.model.tags import Tag, as_tag

TEXT_CHARS_MAX = 65_536
DEPTH_MAX = 500
SYMBOLS_MAX = 100_000


class Operator(Enum):
    """A logical operator; its value is its precedence."""

    OR = 1
    AND = 2
    NOT = 3


Symbol = Tag | Operator
"""One element of a formula in reverse Polish form."""

_OPEN = "("
_OPERATOR_WORDS = {"and": Operator.AND, "or": Operator.OR, "not": Operator.NOT}
_OPERATOR_SYMBOLS = {"&": Operator.AND, ",": Operator.AND, "|": Operator.OR, "!": Operator.NOT}
_TOKEN = re.compile(r"\s*([&|!(),]|[^\s&|!(),]+)")
_EXPECTED_OPERAND = "a tag, '!' or '('"
_EXPECTED_OPERATOR = "'&', '|', ',' or "


def check_length(text: str) -> None:
    """Raises `QueryTooLargeError` for a text that is too long."""
    if len(text) > TEXT_CHARS_MAX:
        raise QueryTooLargeError(
            f"a query has at most {TEXT_CHARS_MAX} characters, this one has {len(text)}"
        )


def parse(text: str) -> tuple[Symbol, ...]:
    """Parses a text; a `QuerySyntaxError` points at the first invalid character."""
    check_length(text)
    return _FormulaParser(text).parse()


class _FormulaParser:
    """Shunting-yard parser: operands are output at once, operators by precedence."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._output: list[Symbol] = []
        self._operators: list[tuple[Operator | str, int]] = []
        self._depth = 0
        self._operand_next = True

    def parse(self) -> tuple[Symbol, ...]:
        for token, position in self._tokens():
            if self._operand_next:
                self._read_operand(token, position)
            else:
                self._read_operator(token, position)
        if self._operand_next:
            self._fail(len(self._text), "the end", _EXPECTED_OPERAND)
        while self._operators:
            operator, position = self._operators.pop()
            if not isinstance(operator, Operator):
                self._fail(position, "'(' that is never closed", "a matching ')'")
            self._output.append(operator)
        return tuple(self._output)

    def _tokens(self) -> Iterator[tuple[str, int]]:
        position = 0
        while match := _TOKEN.match(self._text, position):
            yield match.group(1), match.start(1)
            position = match.end()

    def _read_operand(self, token: str, position: int) -> None:
        if token == _OPEN:
            self._depth += 1
            if self._depth > DEPTH_MAX:
                raise QueryTooLargeError(
                    f"parentheses nest at most {DEPTH_MAX} deep; they go deeper at "
                    f"character {position}"
                )
            self._operators.append((_OPEN, position))
            return
        operator = _operator(token)
        if operator is Operator.NOT:
            self._operators.append((operator, position))
        elif operator is not None or token == ")":
            self._fail(position, repr(token), _EXPECTED_OPERAND)
        else:
            self._output.append(self._parse_tag(token, position))
            self._operand_next = False

    def _read_operator(self, token: str, position: int) -> None:
        if token == ")":
            self._close_parenthesis(position)
            return
        operator = _operator(token)
        if operator is None or operator is Operator.NOT:
            self._fail(position, safe_repr(token, 40), self._expected_after_operand())
        self._pop_operators(operator.value)
        self._operators.append((operator, position))
        self._operand_next = True

    def _pop_operators(self, precedence: int) -> None:
        """Outputs the stacked operators that bind at least as tightly."""
        while self._operators:
            operator = self._operators[-1][0]
            if not isinstance(operator, Operator) or operator.value < precedence:
                return
            self._operators.pop()
            self._output.append(operator)

    def _close_parenthesis(self, position: int) -> None:
        self._pop_operators(0)
        if not self._operators:
            self._fail(position, "')' that was never opened", self._expected_after_operand())
        self._operators.pop()
        self._depth -= 1

    def _parse_tag(self, token: str, position: int) -> Tag:
        try:
            return as_tag(token)
        except TagError as error:
            at = position + (error.position or 0)
            found = safe_repr(token, 40)
            raise QuerySyntaxError(self._text, at, found, f"a tag ({error})") from None

    def _expected_after_operand(self) -> str:
        return _EXPECTED_OPERATOR + ("')'" if self._depth else "the end")

    def _fail(self, position: int, found: str, expected: str) -> NoReturn:
        raise QuerySyntaxError(self._text, position, found, expected)


def _operator(token: str) -> Operator | None:
    return _OPERATOR_SYMBOLS.get(token) or _OPERATOR_WORDS.get(token.casefold())
