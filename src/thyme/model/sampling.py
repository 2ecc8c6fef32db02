"""Sampling: selects a random share of the nodes, e.g. the mobile, crashing or publishing ones.

Entry point: `sample_nodes`. Each node gets a random rank from its own generator. Adding a node
therefore changes a sample little, and the sample of a larger share contains that of a smaller one,
which keeps the points of a sweep over shares comparable.
"""

from __future__ import annotations

from collections.abc import Iterable

from thyme.model.errors import InputError
from thyme.model.rng import derive_rng


def sample_nodes(seed: int, purpose: str, nodes: Iterable[int], share: float) -> list[int]:
    """Selects a random share of the nodes and returns them in ascending order.

    The number of nodes is rounded to the nearest integer, half up.
    """
    check_share(share, "a share of the nodes")
    ranked = sorted(
        (derive_rng(seed, purpose, "choice", node).random(), node) for node in set(nodes)
    )
    count = int(share * len(ranked) + 0.5)
    return sorted(node for _, node in ranked[:count])


def check_share(value: float, label: str) -> None:
    """Raises `InputError` unless a value is between 0 and 1, both included."""
    if not 0.0 <= value <= 1.0:
        raise InputError(f"{label} is between 0 and 1, not {value}")
