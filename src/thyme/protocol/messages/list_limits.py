"""List limits: how many elements the lists in messages may have.

A list that is longer is refused before its elements are decoded, so that no message of a neighbour
keeps a node busy for long. Senders divide what is longer.
Entry points: the types `Records` and `Items`.
Clauses: M25, B5. Decision: docs/decisions/0065-bounded-work.md.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec

RECORDS_MAX = 1_000
"""Maximum number of signed records in a list, as many as a page has; each may need a verification,
which takes 40 microseconds."""
PART_RECORDS_MAX = 64
"""Maximum number of records of each kind in a part of the state of a cell."""
ITEMS_MAX = 16_384
"""Maximum number of other elements in a list, such as keys or numbers."""

T = TypeVar("T")
Records = Annotated[tuple[T, ...], msgspec.Meta(max_length=RECORDS_MAX)]
PartRecords = Annotated[tuple[T, ...], msgspec.Meta(max_length=PART_RECORDS_MAX)]
Items = Annotated[tuple[T, ...], msgspec.Meta(max_length=ITEMS_MAX)]
