"""Draws: chance as a function of a seed, a number and a lane, without a state.

`draw(origin, number, lane)` is one of 2⁶⁴ values, as good as random, and the same wherever and in
whatever order it is asked for: the sequence of SplitMix64 (Steele, Lea and Flood, 2014), entered at
any place. It takes only additions, products and shifts of 64 bits, so whole columns of numbers can
be drawn at once by whoever has arrays. A `Wheel` turns a draw into a choice by comparing integers.
Clause: P1.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from thyme.model.errors import InputError

LANES = 16
"""How many draws each number has."""
_MASK = 2**64 - 1
_STEP = 0x9E3779B97F4A7C15
WHEEL_BITS = 53
"""As many as a float holds exactly."""


def mixed(value: int) -> int:
    """64 bits scrambled, one to one."""
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & _MASK
    return value ^ (value >> 31)


def origin_of(seed: int) -> int:
    """Where the draws of a seed begin."""
    return mixed(seed & _MASK)


def draw(origin: int, number: int, lane: int) -> int:
    """64 random bits for one purpose (the lane) of one thing (the number)."""
    return mixed(origin + _STEP * (number * LANES + lane + 1) & _MASK)


def below(most: int, drawn: int) -> int:
    """A draw as one of 0 to `most` − 1."""
    return (drawn >> 32) * most >> 32


class Wheel:
    """Chooses among weighted things: a wheel whose sectors are as wide as the weights."""

    def __init__(self, weights: Sequence[float]) -> None:
        total = sum(weights)
        if not weights or min(weights) < 0 or not total > 0:
            raise InputError("weights are not negative, and not all are zero")
        ends = [int(end / total * 2**WHEEL_BITS) for end in accumulate(weights)]
        # Sums of floats may end beside the mark, and what has no weight must not be chosen.
        last = max(number for number, weight in enumerate(weights) if weight)
        self.ends = ends[:last] + [2**WHEEL_BITS] * (len(ends) - last)
        """Where each sector ends; the nth is chosen below the nth end."""

    def at(self, drawn: int) -> int:
        """The number of the sector that a draw points to."""
        return bisect_right(self.ends, drawn >> (64 - WHEEL_BITS))
