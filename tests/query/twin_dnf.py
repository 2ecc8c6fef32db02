"""The naive implementation of `thyme.query.dnf`: formulas as trees, conjunctions as sets of
literals.

Also random trees, their meaning by truth table, and the many ways to write the same formula.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from random import Random

from hypothesis import strategies as st

from thyme.query.query import Formula, tag


@dataclass(frozen=True, slots=True)
class Leaf:
    tag: str


@dataclass(frozen=True, slots=True)
class Not:
    inner: Tree


@dataclass(frozen=True, slots=True)
class And:
    left: Tree
    right: Tree


@dataclass(frozen=True, slots=True)
class Or:
    left: Tree
    right: Tree


Tree = Leaf | Not | And | Or
Literal = tuple[str, bool]
Terms = frozenset[frozenset[Literal]]

TAGS = ("a", "b", "c", "d", "e")


def holds(tree: Tree, present: frozenset[str]) -> bool:
    """The value of the formula for an object with these tags, by definition."""
    match tree:
        case Leaf(name):
            return name in present
        case Not(inner):
            return not holds(inner, present)
        case And(left, right):
            return holds(left, present) and holds(right, present)
        case Or(left, right):
            return holds(left, present) or holds(right, present)


def assignments(tags: tuple[str, ...] = TAGS) -> Iterator[frozenset[str]]:
    """Every subset of these tags."""
    for size in range(len(tags) + 1):
        yield from map(frozenset, combinations(tags, size))


def twin_normal_form(tree: Tree) -> Terms:
    """The conjunctions of a formula, without contradictions, duplicates and absorbed ones."""
    terms = {term for term in _expanded(tree, wanted=True) if not _contradicts(term)}
    return frozenset(term for term in terms if not any(other < term for other in terms))


def _expanded(tree: Tree, *, wanted: bool) -> set[frozenset[Literal]]:
    match tree:
        case Leaf(name):
            return {frozenset({(name, wanted)})}
        case Not(inner):
            return _expanded(inner, wanted=not wanted)
        case And(left, right) | Or(left, right):
            lefts, rights = _expanded(left, wanted=wanted), _expanded(right, wanted=wanted)
            if isinstance(tree, Or) is wanted:  # De Morgan: a negated `and` is an `or`
                return lefts | rights
            return {one | other for one in lefts for other in rights}


def _contradicts(term: frozenset[Literal]) -> bool:
    return any((name, not wanted) in term for name, wanted in term)


def trees(leaves_max: int = 10) -> st.SearchStrategy[Tree]:
    """Formulas over `TAGS`, drawn at random."""
    leaves: st.SearchStrategy[Tree] = st.sampled_from(TAGS).map(Leaf)
    return st.recursive(
        leaves,
        lambda inner: (
            st.builds(Not, inner) | st.builds(And, inner, inner) | st.builds(Or, inner, inner)
        ),
        max_leaves=leaves_max,
    )


def built(tree: Tree) -> Formula:
    """The formula built in Python (M31)."""
    match tree:
        case Leaf(name):
            return tag(name)
        case Not(inner):
            return ~built(inner)
        case And(left, right):
            return built(left) & built(right)
        case Or(left, right):
            return built(left) | built(right)


_BINDS = {Or: 1, And: 2, Not: 3, Leaf: 4}


def spelled(tree: Tree, rng: Random) -> str:
    """The formula as text, in one of its many spellings, with few or many parentheses."""
    text = _spelled(tree, rng)
    return f"( {text}\n)" if rng.random() < 0.2 else text


def _spelled(tree: Tree, rng: Random) -> str:
    gap = rng.choice(["", " ", "\t ", "\n"])
    match tree:
        case Leaf(name):
            return rng.choice([name, name.upper()])
        case Not(inner):
            return rng.choice(["!", "! ", "not ", "NOT\n"]) + _operand(inner, tree, rng)
        case And(left, right):
            sign = rng.choice([f"{gap}&{gap}", f"{gap},{gap}", " and ", " AND "])
            return _operand(left, tree, rng) + sign + _operand(right, tree, rng)
        case Or(left, right):
            sign = rng.choice([f"{gap}|{gap}", " or ", " Or "])
            return _operand(left, tree, rng) + sign + _operand(right, tree, rng)


def _operand(inner: Tree, outer: Tree, rng: Random) -> str:
    text = spelled(inner, rng)
    return f"({text})" if _BINDS[type(inner)] < _BINDS[type(outer)] else text


def rewritten(tree: Tree, rng: Random) -> Tree:
    """Another formula with the same normal form."""
    same = _rewritten_inside(tree, rng)
    match rng.randrange(8):
        case 0:
            return Not(Not(same))
        case 1:
            return Or(same, same)
        case 2:
            return And(same, same)
        case 3:
            return Or(And(Leaf(rng.choice(TAGS)), same), same)
        case _:
            return same


def _rewritten_inside(tree: Tree, rng: Random) -> Tree:
    match tree:
        case Leaf():
            return tree
        case Not(And(left, right)) if rng.random() < 0.5:
            return Or(Not(rewritten(left, rng)), Not(rewritten(right, rng)))
        case Not(Or(left, right)) if rng.random() < 0.5:
            return And(Not(rewritten(left, rng)), Not(rewritten(right, rng)))
        case Not(inner):
            return Not(rewritten(inner, rng))
        case And(left, Or(one, other)) if rng.random() < 0.5:
            return Or(
                And(rewritten(left, rng), rewritten(one, rng)),
                And(rewritten(left, rng), rewritten(other, rng)),
            )
        case And(left, right):
            return And(*_shuffled(rewritten(left, rng), rewritten(right, rng), rng))
        case Or(left, right):
            return Or(*_shuffled(rewritten(left, rng), rewritten(right, rng), rng))


def _shuffled(left: Tree, right: Tree, rng: Random) -> tuple[Tree, Tree]:
    return (left, right) if rng.random() < 0.5 else (right, left)
