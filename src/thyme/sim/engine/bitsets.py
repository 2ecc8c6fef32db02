"""Bit sets: sets of node numbers as integers, with one bit for each node.

Entry point: `members_of`. Set operations on integers are fast and handle all nodes at once.
"""

from __future__ import annotations

from itertools import compress

DENSE_BITS_PER_MEMBER = 24
"""A set with fewer bits per member is listed digit by digit, a sparser one member by member."""
_DIGIT_VALUES = bytes.maketrans(b"01", b"\0\1")
_numbers = list(range(1_024))
"""The numbers of all nodes so far: picking from a list is faster than making integers."""


def members_of(nodes: int) -> list[int]:
    """The members of a bit set, in ascending order."""
    length = nodes.bit_length()
    if length < DENSE_BITS_PER_MEMBER * nodes.bit_count():
        while len(_numbers) < length:
            _numbers.extend(range(len(_numbers), 2 * len(_numbers)))
        digits = f"{nodes:b}".encode().translate(_DIGIT_VALUES)
        return list(compress(_numbers, digits[::-1]))
    found = []
    while nodes:
        low = nodes & -nodes
        found.append(low.bit_length() - 1)
        nodes ^= low
    return found
