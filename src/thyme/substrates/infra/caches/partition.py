"""Division of a cache among worlds in proportion to their demand.

Clause: I15.
"""

from __future__ import annotations

from collections.abc import Mapping


def partition_sizes(demand: Mapping[str, int], capacity: int, size_min: int = 0) -> dict[str, int]:
    """The size of each world's part (thesis, formula 4.1).

    The demand of a world is the weight of its entries and of its next puts. The sizes add up to the
    capacity, unless no world has a demand: fractions go to the worlds with the largest remainders,
    the first of equal ones. A world with a demand gets at least `size_min`, or an equal part if not
    all can.
    """
    free = {world: wanted for world, wanted in demand.items() if wanted > 0}
    sizes = dict.fromkeys(demand, 0)
    bound = min(size_min, capacity // max(1, len(free)))
    while free:
        total = sum(free.values())
        small = [world for world, wanted in free.items() if wanted * capacity < bound * total]
        if not small:
            break
        for world in small:
            sizes[world] = bound
            capacity -= bound
            del free[world]
    if not free:
        return sizes
    total = sum(free.values())
    for world, wanted in free.items():
        sizes[world] = wanted * capacity // total
    left = capacity - sum(sizes[world] for world in free)
    by_remainder = sorted(free, key=lambda world: -(free[world] * capacity % total))
    for world in by_remainder[:left]:
        sizes[world] += 1
    return sizes
