"""Choices: which nodes are the mobile ones, the crashing ones, the publishers, the good students.

Each node draws its own lot, so a choice hardly moves when a node is added, and the choice of a
larger share contains that of a smaller one: a sweep over shares compares like with like.
"""

from __future__ import annotations

from collections.abc import Iterable

from thyme.model.errors import InputError
from thyme.model.streams import stream


def choose(seed: int, purpose: str, nodes: Iterable[int], share: float) -> list[int]:
    """A share of the nodes, chosen at random, in order of their numbers.

    The share is kept as exactly as whole nodes allow; a half node counts as one.
    """
    check_share(share, "a share of the nodes")
    lots = sorted((stream(seed, purpose, "choice", node).random(), node) for node in set(nodes))
    count = int(share * len(lots) + 0.5)
    return sorted(node for _, node in lots[:count])


def check_share(value: float, what: str) -> None:
    """Refuses what is not between 0 and 1, both included."""
    if not 0.0 <= value <= 1.0:
        raise InputError(f"{what} is between 0 and 1, not {value}")
