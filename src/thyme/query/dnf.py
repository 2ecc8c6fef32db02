"""Disjunctive normal form: converts a formula into conjunctions of literals.

Entry point: `normal_form`. Three passes over the reverse Polish form, none recursive: negations are
moved down to the tags; conjunctions are multiplied out as pairs of bit masks; contradictions and
absorbed conjunctions are removed. The work is bounded: too large formulas are rejected early (M8).
Clauses: M6, M7, M8.
"""

from __future__ import annotations

from collections.abc import Iterable

from thyme.model.errors import QueryTooLargeError
from thyme.model.subscriptions import LITERALS_MAX
from thyme.model.tags import Tag
from thyme.query.formula import Operator, Symbol

CONJUNCTIONS_MAX = 64
# Intermediate results may be larger than the final one, because contradictions and absorption
# remove conjunctions; these constants bound the memory and the time spent on them.
_TERMS_PER_CONJUNCTION = 4
_TERMS_LEAST = 256
_STEPS_MAX = 400_000

Term = tuple[int, int]
"""A conjunction as two masks over the formula's tags: positive tags, negative tags."""

Literals = tuple[tuple[Tag, ...], tuple[Tag, ...]]
"""A conjunction as tags: its positive and its negative tags, each sorted."""


def normal_form(formula: Iterable[Symbol], conjunctions_max: int) -> tuple[Literals, ...]:
    """Returns the conjunctions of a formula, simplified and sorted; none for a contradiction."""
    symbols = list(formula)
    tags = sorted({symbol for symbol in symbols if not isinstance(symbol, Operator)})
    if len(tags) > LITERALS_MAX:
        raise QueryTooLargeError(
            f"a query has at most {LITERALS_MAX} different tags, this one has {len(tags)}"
        )
    bits = {tag: 1 << number for number, tag in enumerate(tags)}
    terms = _Expansion(conjunctions_max).run(_negations_at_tags(symbols), bits)
    if len(terms) > conjunctions_max:
        raise _exploded(conjunctions_max)
    return tuple(
        sorted((_words(wanted, tags), _words(unwanted, tags)) for wanted, unwanted in terms)
    )


Step = Operator | tuple[Tag, bool]


def _negations_at_tags(symbols: list[Symbol]) -> list[Step]:
    """Moves negations down to the tags, reading the formula from its root."""
    steps: list[Step] = []
    negated = [False]
    for symbol in reversed(symbols):
        inverted = negated.pop()
        match symbol:
            case Operator.NOT:
                negated.append(not inverted)
            case Operator.AND | Operator.OR:
                negated += [inverted, inverted]
                swapped = Operator.OR if symbol is Operator.AND else Operator.AND
                steps.append(swapped if inverted else symbol)
            case _:
                steps.append((symbol, inverted))
    steps.reverse()
    return steps


class _Expansion:
    """Multiplies out a formula whose negations are at its tags, with a limit on the work."""

    def __init__(self, conjunctions_max: int) -> None:
        self._conjunctions_max = conjunctions_max
        self._terms_max = max(_TERMS_LEAST, _TERMS_PER_CONJUNCTION * conjunctions_max)
        self._steps_left = _STEPS_MAX

    def run(self, steps: list[Step], bits: dict[Tag, int]) -> list[Term]:
        stack: list[list[Term]] = []
        for step in steps:
            if isinstance(step, tuple):
                tag, negated = step
                stack.append([(0, bits[tag]) if negated else (bits[tag], 0)])
                continue
            right, left = stack.pop(), stack.pop()
            stack.append(
                self._either(left, right) if step is Operator.OR else self._both(left, right)
            )
        return stack.pop()

    def _either(self, left: list[Term], right: list[Term]) -> list[Term]:
        """Both sides are simplified, so only terms of different sides can absorb each other."""
        self._spend(len(left) * len(right))
        kept = [term for term in left if not _absorbed(term, right)]
        kept += [term for term in right if not _absorbed(term, kept) and term not in kept]
        self._bound(kept)
        return kept

    def _both(self, left: list[Term], right: list[Term]) -> list[Term]:
        self._spend(len(left) * len(right))
        products: set[Term] = set()
        for wanted, unwanted in left:
            for also_wanted, also_unwanted in right:
                term = (wanted | also_wanted, unwanted | also_unwanted)
                if not term[0] & term[1]:
                    products.add(term)
        return self._simplified(products)

    def _simplified(self, terms: set[Term]) -> list[Term]:
        """Returns the terms that no weaker term absorbs (a | a & b is a)."""
        kept: list[Term] = []
        for wanted, unwanted in sorted(terms, key=_literal_count):
            self._spend(len(kept))
            if not _absorbed((wanted, unwanted), kept):
                kept.append((wanted, unwanted))
                self._bound(kept)
        return kept

    def _bound(self, terms: list[Term]) -> None:
        if len(terms) > self._terms_max:
            raise _exploded(self._conjunctions_max)

    def _spend(self, steps: int) -> None:
        self._steps_left -= steps
        if self._steps_left < 0:
            raise _exploded(self._conjunctions_max)


def _absorbed(term: Term, others: list[Term]) -> bool:
    """Whether a weaker term makes this one redundant."""
    wanted, unwanted = term
    return any(w & wanted == w and u & unwanted == u for w, u in others)


def _literal_count(term: Term) -> tuple[int, int, int]:
    wanted, unwanted = term
    return wanted.bit_count() + unwanted.bit_count(), wanted, unwanted


def _words(mask: int, tags: list[Tag]) -> tuple[Tag, ...]:
    return tuple(tag for number, tag in enumerate(tags) if mask >> number & 1)


def _exploded(most: int) -> QueryTooLargeError:
    return QueryTooLargeError(
        f"the query has more than {most} conjunctions in disjunctive normal form; "
        "split it into several subscriptions"
    )
