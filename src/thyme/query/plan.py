"""Plans: conjunctions arranged so that their common literals are looked at once.

`a & b & !d | a & c & !d` is evaluated as `a & (b | c) & !d`, which is how people wrote it before it
became disjunctive normal form. `chunk` carries a plan out.
Clause: M7.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from thyme.model.subscriptions import Conjunction
from thyme.model.tags import Tag


class Plan(NamedTuple):
    """Every tag of `all_of`, none of `none_of`, and, unless both are empty, one of `any_of` or what
    one of `parts` asks for."""

    all_of: Sequence[Tag] = ()
    none_of: Sequence[Tag] = ()
    any_of: Sequence[Tag] = ()
    parts: Sequence[Plan] = ()

    def accepts(self, tags: Collection[Tag]) -> bool:
        """Whether an object with these tags satisfies the plan."""
        for tag in self.all_of:
            if tag not in tags:
                return False
        for tag in self.none_of:
            if tag in tags:
                return False
        for tag in self.any_of:
            if tag in tags:
                return True
        for part in self.parts:
            if part.accepts(tags):
                return True
        return not self.any_of and not self.parts


def plan_of(conjunctions: Sequence[Conjunction]) -> Plan:
    """The plan that is satisfied when at least one of the conjunctions is."""
    first = conjunctions[0]
    if len(conjunctions) == 1:
        return Plan(first.positive, first.negative)
    all_of, none_of = list(first.positive), list(first.negative)
    for conjunction in conjunctions:
        _keep(all_of, conjunction.positive)
        _keep(none_of, conjunction.negative)
    any_of: list[Tag] = []
    parts: list[Plan] = []
    for conjunction in conjunctions:
        positive = [tag for tag in conjunction.positive if tag not in all_of]
        negative = [tag for tag in conjunction.negative if tag not in none_of]
        if not positive:
            # Nothing to find the rest by: each conjunction stands for itself.
            return Plan(parts=[Plan(each.positive, each.negative) for each in conjunctions])
        if len(positive) == 1 and not negative:
            any_of += positive
        else:
            parts.append(Plan(positive, negative))
    return Plan(all_of, none_of, any_of, parts)


def _keep(common: list[Tag], tags: Sequence[Tag]) -> None:
    for tag in tuple(common):
        if tag not in tags:
            common.remove(tag)
