"""Queries: propositional formulas over tags, in disjunctive normal form.

Entry points: `Query("goal & (eder | ronaldo) & !replay")` parses text;
`tag("goal") & ~tag("replay")` builds a formula in Python. Formulas with the same normal form are
equal values and print alike. `formula` parses, `dnf` normalises.
Clauses: M5–M9, M31.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NoReturn

from thyme.model.errors import QueryError, QueryTooLargeError, safe_repr, truncate
from thyme.model.subscriptions import CONJUNCTIONS_ACCEPTED_MAX, Conjunction
from thyme.model.tags import Tag, as_tag, as_tag_texts
from thyme.query.dnf import CONJUNCTIONS_MAX, Literals, normal_form
from thyme.query.formula import SYMBOLS_MAX, Operator, Symbol, check_length, parse


class Formula:
    """An expression over tags; `Query(formula)` makes a query of it.

    A formula may be invalid as a query, e.g. the negation `~tag("replay")` without a positive tag.
    Text combined with a formula is parsed: `tag("goal") & "eder | nani"`.
    """

    def __init__(self, symbols: tuple[Symbol, ...]) -> None:
        if len(symbols) > SYMBOLS_MAX:
            raise QueryTooLargeError(
                f"a formula has at most {SYMBOLS_MAX} symbols, not {len(symbols)}"
            )
        self._symbols = symbols

    def __and__(self, other: Formula | str) -> Formula:
        return self._combine(other, Operator.AND)

    def __or__(self, other: Formula | str) -> Formula:
        return self._combine(other, Operator.OR)

    def __rand__(self, other: str) -> Formula:
        return Formula(parse(other)) & self

    def __ror__(self, other: str) -> Formula:
        return Formula(parse(other)) | self

    def __invert__(self) -> Formula:
        return Formula((*self._symbols, Operator.NOT))

    def __bool__(self) -> NoReturn:
        raise TypeError("a formula is not a truth value; combine formulas with &, | and ~")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Formula) and self._literals == other._literals

    def __hash__(self) -> int:
        return hash(self._literals)

    def __str__(self) -> str:
        return " | ".join(map(_format_conjunction, self._literals))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    @cached_property
    def _literals(self) -> tuple[Literals, ...]:
        return normal_form(self._symbols, CONJUNCTIONS_MAX)

    def _combine(self, other: Formula | str, operator: Operator) -> Formula:
        if isinstance(other, str):
            other = Formula(parse(other))
        if not isinstance(other, Formula):
            return NotImplemented
        return Formula((*self._symbols, *other._symbols, operator))


class Query(Formula):
    """A formula for subscriptions and searches: neither tautology nor contradiction, and with a
    positive tag in every conjunction, by which brokers find the conjunction (M7)."""

    def __init__(self, formula: str | Formula, *, conjunctions_max: int = CONJUNCTIONS_MAX) -> None:
        if isinstance(formula, str):
            super().__init__(parse(formula))
        elif isinstance(formula, Formula):
            super().__init__(formula._symbols)
        else:
            raise QueryError(
                f"a query is text or built from tag(…), not {type(formula).__name__}: "
                f"{safe_repr(formula)}"
            )
        literals = normal_form(self._symbols, conjunctions_max)
        _check_keyed(literals)
        check_length(" | ".join(map(_format_conjunction, literals)))
        self.__dict__["_literals"] = literals
        self.conjunctions: tuple[Conjunction, ...] = tuple(
            Conjunction(positive, negative) for positive, negative in literals
        )

    def matches(self, tags: Iterable[str]) -> bool:
        """Whether an object with these tags satisfies the query; tags are normalised first."""
        present = {as_tag(word) for word in as_tag_texts(tags)}
        return any(conjunction.matches(present) for conjunction in self.conjunctions)

    @property
    def tags(self) -> tuple[Tag, ...]:
        """All tags of the query's normal form, sorted."""
        return tuple(sorted({tag for pair in self._literals for side in pair for tag in side}))


def tag(text: str) -> Formula:
    """Makes the formula of one tag: `tag("goal") & ~tag("replay")` (M31)."""
    return Formula((as_tag(text),))


def as_query(formula: str | Formula) -> Query:
    """Converts an application's text or formula to a query."""
    return formula if isinstance(formula, Query) else Query(formula)


def query_from_conjunctions(conjunctions: Iterable[Conjunction]) -> Query:
    """Rebuilds a query from stored conjunctions."""
    symbols: list[Symbol] = []
    for number, conjunction in enumerate(conjunctions):
        symbols += _conjunction_symbols(conjunction)
        if number:
            symbols.append(Operator.OR)
    return Query(Formula(tuple(symbols)), conjunctions_max=CONJUNCTIONS_ACCEPTED_MAX)


def _conjunction_symbols(conjunction: Conjunction) -> Iterator[Symbol]:
    for number, word in enumerate(conjunction.positive):
        yield word
        if number:
            yield Operator.AND
    for word in conjunction.negative:
        yield from (word, Operator.NOT, Operator.AND)


def _check_keyed(literals: tuple[Literals, ...]) -> None:
    if not literals:
        raise QueryError("the query is a contradiction: nothing can ever match it")
    unkeyed = [pair for pair in literals if not pair[0]]
    if not unkeyed:
        return
    if literals == (((), ()),) or _is_tautology(literals):
        raise QueryError("the query is a tautology: everything matches it; name a tag you want")
    raise QueryError(
        "every conjunction needs a tag without '!', and this one has none: "
        f"{truncate(_format_conjunction(unkeyed[0]))}"
    )


def _is_tautology(literals: tuple[Literals, ...], tags_max: int = 10) -> bool:
    """Whether a truth table shows a tautology; False for formulas with too many tags."""
    tags = sorted({tag for pair in literals for side in pair for tag in side})
    if len(tags) > tags_max:
        return False
    tag_sets = (
        {tag for n, tag in enumerate(tags) if bits >> n & 1} for bits in range(1 << len(tags))
    )
    return all(
        any(present.issuperset(yes) and present.isdisjoint(no) for yes, no in literals)
        for present in tag_sets
    )


def _format_conjunction(pair: Literals) -> str:
    positive, negative = pair
    return " & ".join([*positive, *(f"!{tag}" for tag in negative)])
