"""Time slots: when each station may answer the needs of the others, so that no two do so at once.

Entry point: `next_slot_us`. Every station computes its slots alone, from the set of all stations:
time is divided into windows, and the windows go to the stations in turn, in the order of their ids.
Stations with the same list and window agree; each station that joins or leaves changes the list.
Clauses: I20, B8.
"""

from __future__ import annotations

from collections.abc import Iterable

from thyme.model.ids import NodeId


def slot_number(stations: Iterable[NodeId], own: NodeId) -> tuple[int, int]:
    """The number of a station's slot, from 0, and the number of slots in a round."""
    ordered = sorted({*stations, own})
    return ordered.index(own), len(ordered)


def next_slot_us(stations: Iterable[NodeId], own: NodeId, window_us: int, after_us: int) -> int:
    """The start of the station's first slot after an instant."""
    number, slots = slot_number(stations, own)
    round_us = slots * window_us
    start_us = after_us // round_us * round_us + number * window_us
    return start_us if start_us > after_us else start_us + round_us


def owner_of_slot(stations: Iterable[NodeId], window_us: int, at_us: int) -> NodeId:
    """The station in whose slot an instant lies."""
    ordered = sorted(set(stations))
    return ordered[at_us // window_us % len(ordered)]
