"""Counter-based random numbers: a stateless function of a seed, a number and a purpose.

Entry point: `draw(origin, number, purpose)`, 64 pseudo-random bits that depend on its arguments
only: the SplitMix64 sequence (Steele, Lea and Flood, 2014) with random access. It uses only 64-bit
additions, products and shifts, so whole columns can be computed at once (`pipeline.posts`).
`WeightedChoice` turns a draw into a weighted choice by comparing integers.
Clause: P1.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from thyme.model.errors import InputError

PURPOSES = 16
"""Number of purposes, that is, of draws per number."""
_MASK = 2**64 - 1
_INCREMENT = 0x9E3779B97F4A7C15
WEIGHT_BITS = 53
"""Precision of weights: the bits of an integer that a float represents exactly."""


def mix64(value: int) -> int:
    """Mixes 64 bits: a bijection."""
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & _MASK
    return value ^ (value >> 31)


def origin_from_seed(seed: int) -> int:
    """The origin of the draws of a seed."""
    return mix64(seed & _MASK)


def draw(origin: int, number: int, purpose: int) -> int:
    """64 random bits for one number and one purpose."""
    return mix64(origin + _INCREMENT * (number * PURPOSES + purpose + 1) & _MASK)


def scale_below(limit: int, drawn: int) -> int:
    """Scales a draw to an integer from 0 to `most` − 1."""
    return (drawn >> 32) * limit >> 32


class WeightedChoice:
    """Weighted random choice of an index."""

    def __init__(self, weights: Sequence[float]) -> None:
        total = sum(weights)
        if not weights or min(weights) < 0 or not total > 0:
            raise InputError("weights must not be negative, and one must be positive")
        ends = [int(end / total * 2**WEIGHT_BITS) for end in accumulate(weights)]
        # Float sums may miss the exact total, and an index with weight 0 must not be chosen.
        last = max(number for number, weight in enumerate(weights) if weight)
        self.ends = ends[:last] + [2**WEIGHT_BITS] * (len(ends) - last)
        """Cumulative weights; a draw below the n-th (and not below the previous) chooses n."""

    def choose(self, drawn: int) -> int:
        """The index chosen by a draw."""
        return bisect_right(self.ends, drawn >> (64 - WEIGHT_BITS))
