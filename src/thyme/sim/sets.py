"""Sets of numbered nodes as integers with a bit for each: small, fast, and all at once."""

from __future__ import annotations

from itertools import compress

DENSE = 24
"""A set that has more than one in so many is taken apart digit by digit, else node by node."""
_AS_NUMBERS = bytes.maketrans(b"01", b"\0\1")


def numbers(nodes: int) -> list[int]:
    """The members of a set of nodes, in order."""
    length = nodes.bit_length()
    if length < DENSE * nodes.bit_count():
        digits = f"{nodes:b}".encode().translate(_AS_NUMBERS)
        return list(compress(range(length), digits[::-1]))
    found = []
    while nodes:
        low = nodes & -nodes
        found.append(low.bit_length() - 1)
        nodes ^= low
    return found
