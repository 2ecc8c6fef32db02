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
_TERMS_MIN = 256
_WORK_MAX = 400_000

LiteralMasks = tuple[int, int]
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
    terms = _Expansion(conjunctions_max).expand(_negation_normal_form(symbols), bits)
    if len(terms) > conjunctions_max:
        raise _too_large(conjunctions_max)
    return tuple(
        sorted((_tags_in(positive, tags), _tags_in(negative, tags)) for positive, negative in terms)
    )


NnfSymbol = Operator | tuple[Tag, bool]


def _negation_normal_form(symbols: list[Symbol]) -> list[NnfSymbol]:
    """Moves negations down to the tags, reading the formula from its root."""
    result: list[NnfSymbol] = []
    negated = [False]
    for symbol in reversed(symbols):
        inverted = negated.pop()
        match symbol:
            case Operator.NOT:
                negated.append(not inverted)
            case Operator.AND | Operator.OR:
                negated += [inverted, inverted]
                swapped = Operator.OR if symbol is Operator.AND else Operator.AND
                result.append(swapped if inverted else symbol)
            case _:
                result.append((symbol, inverted))
    result.reverse()
    return result


class _Expansion:
    """Multiplies out a formula whose negations are at its tags, with a limit on the work."""

    def __init__(self, conjunctions_max: int) -> None:
        self._conjunctions_max = conjunctions_max
        self._terms_max = max(_TERMS_MIN, _TERMS_PER_CONJUNCTION * conjunctions_max)
        self._work_left = _WORK_MAX

    def expand(self, symbols: list[NnfSymbol], bits: dict[Tag, int]) -> list[LiteralMasks]:
        stack: list[list[LiteralMasks]] = []
        for symbol in symbols:
            if isinstance(symbol, tuple):
                tag, negated = symbol
                stack.append([(0, bits[tag]) if negated else (bits[tag], 0)])
                continue
            right, left = stack.pop(), stack.pop()
            stack.append(
                self._union(left, right) if symbol is Operator.OR else self._product(left, right)
            )
        return stack.pop()

    def _union(self, left: list[LiteralMasks], right: list[LiteralMasks]) -> list[LiteralMasks]:
        """Both sides are simplified, so only terms of different sides can absorb each other."""
        self._charge(len(left) * len(right))
        kept = [term for term in left if not _absorbed(term, right)]
        kept += [term for term in right if not _absorbed(term, kept) and term not in kept]
        self._check_size(kept)
        return kept

    def _product(self, left: list[LiteralMasks], right: list[LiteralMasks]) -> list[LiteralMasks]:
        self._charge(len(left) * len(right))
        products: set[LiteralMasks] = set()
        for positive, negative in left:
            for other_positive, other_negative in right:
                term = (positive | other_positive, negative | other_negative)
                if not term[0] & term[1]:
                    products.add(term)
        return self._simplified(products)

    def _simplified(self, terms: set[LiteralMasks]) -> list[LiteralMasks]:
        """Returns the terms that no weaker term absorbs (a | a & b is a)."""
        kept: list[LiteralMasks] = []
        for positive, negative in sorted(terms, key=_literal_count):
            self._charge(len(kept))
            if not _absorbed((positive, negative), kept):
                kept.append((positive, negative))
                self._check_size(kept)
        return kept

    def _check_size(self, terms: list[LiteralMasks]) -> None:
        if len(terms) > self._terms_max:
            raise _too_large(self._conjunctions_max)

    def _charge(self, work: int) -> None:
        self._work_left -= work
        if self._work_left < 0:
            raise _too_large(self._conjunctions_max)


def _absorbed(term: LiteralMasks, others: list[LiteralMasks]) -> bool:
    """Whether a weaker term makes this one redundant."""
    positive, negative = term
    return any(w & positive == w and u & negative == u for w, u in others)


def _literal_count(term: LiteralMasks) -> tuple[int, int, int]:
    positive, negative = term
    return positive.bit_count() + negative.bit_count(), positive, negative


def _tags_in(mask: int, tags: list[Tag]) -> tuple[Tag, ...]:
    return tuple(tag for number, tag in enumerate(tags) if mask >> number & 1)


def _too_large(conjunctions_max: int) -> QueryTooLargeError:
    return QueryTooLargeError(
        f"the query has more than {conjunctions_max} conjunctions in disjunctive normal form; "
        "split it into several subscriptions"
    )
