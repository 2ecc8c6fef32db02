"""Location topics: places as topics, cells of a multilevel grid (U5).

A cell of level 0 is about one metre wide; each cell of a higher level covers 10 × 10 cells of the
level below. An event has the topic of its level-0 cell; a subscription may name a cell of any
level, and `topics_of` says which topics an event has.
Entry points: `cell_at_degrees`, `cell_at_metres`, `location_topic`, `topics_of`.
Clauses: U4, U5.
"""

from __future__ import annotations

import re
from decimal import ROUND_DOWN, Decimal
from functools import lru_cache

from thyme.model.errors import InputError
from thyme.model.positions import Position
from thyme.model.tags import Tag

LEVELS = 8
"""Levels 0 to 7: from about 1 m to about 11,000 km."""
DEGREES_STEP = Decimal("0.00001")
"""The precision to which coordinates are truncated for level 0."""
_TOPIC = re.compile(r"geo:([0-7]):(-?[0-9]{1,9}):(-?[0-9]{1,9})")

Cell = tuple[int, int]


def cell_at_degrees(latitude: float, longitude: float) -> Cell:
    """The level-0 cell of GPS coordinates: truncated to 0.00001°, without the dot."""
    if not (-90 <= latitude <= 90 and -180 <= longitude <= 180):
        raise InputError(
            f"coordinates are a latitude from -90 to 90 and a longitude from -180 to 180, "
            f"not {latitude},{longitude}"
        )
    return _truncate(latitude), _truncate(longitude)


def _truncate(degrees: float) -> int:
    # The shortest decimal of a float: 38.73676 must not become 3873675 by binary rounding.
    steps = Decimal(repr(float(degrees))) / DEGREES_STEP
    return int(steps.to_integral_value(ROUND_DOWN))


def cell_at_metres(position: Position) -> Cell:
    """The level-0 cell of a position in metres, where coordinates are relative to the world."""
    return int(position[0] // 1), int(position[1] // 1)


def location_topic(cell: Cell, level: int = 0) -> Tag:
    """The topic of the cell of a level that contains a level-0 cell."""
    if not 0 <= level < LEVELS:
        raise InputError(f"a grid level is from 0 to {LEVELS - 1}, not {level}")
    side = 10**level
    return Tag(f"geo:{level}:{cell[0] // side}:{cell[1] // side}")


def parse_location_topic(topic: str) -> tuple[int, Cell] | None:
    """The level and the cell that a topic names; None for a semantic topic."""
    found = _TOPIC.fullmatch(topic)
    return None if found is None else (int(found[1]), (int(found[2]), int(found[3])))


@lru_cache(maxsize=65_536)
def topics_of(tags: tuple[Tag, ...]) -> frozenset[Tag]:
    """The topics of an event: its tags, and the cells of all levels around its location (U5)."""
    topics = set(tags)
    for tag in tags:
        parsed = parse_location_topic(tag)
        if parsed is not None:
            level, (x, y) = parsed
            for higher in range(level + 1, LEVELS):
                side = 10 ** (higher - level)
                topics.add(Tag(f"geo:{higher}:{x // side}:{y // side}"))
    return frozenset(topics)


def has_semantic_topic(tags: tuple[Tag, ...]) -> bool:
    """Whether some tag is not a location (U4)."""
    return any(parse_location_topic(tag) is None for tag in tags)
