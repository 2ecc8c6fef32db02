"""Soak networks: the ideal network or the simulated radio of a soak run.

Entry points: `SoakMedium`, `make_network`. On the ideal network every message to a node in range
arrives, unless a fault prevents it. On the radio messages also collide and fade; nodes that must
reach each other are closer together (`usable_range_m`).
Clauses: B12, S4, S6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum

from thyme.model.ids import NodeId
from thyme.model.positions import Position
from thyme.sim.mobility.paths import Leg, pause_leg
from thyme.sim.networks.ideal_network import IdealNetwork
from thyme.sim.networks.wireless_network import WirelessNetwork
from thyme.testing.soak.faults import STEP_US, MoveStep

_RADIO_SHARE = 0.8
"""The share of the radio's range within which a link hardly loses frames."""


class SoakMedium(StrEnum):
    """How messages travel in a soak run."""

    IDEAL = "ideal"
    RADIO = "radio"


def usable_range_m(medium: SoakMedium, range_m: float) -> float:
    """The distance within which nodes are sure to reach each other."""
    return range_m * _RADIO_SHARE if medium is SoakMedium.RADIO else range_m


def make_network(
    medium: SoakMedium,
    seed: int,
    positions: Mapping[NodeId, Position],
    moves: Iterable[MoveStep],
    in_range: Callable[[NodeId, NodeId], bool] | None,
) -> IdealNetwork | WirelessNetwork:
    """Makes the network of a run; on the radio, nodes follow their movements by themselves."""
    if medium is SoakMedium.IDEAL:
        return IdealNetwork(seed=seed, in_range=in_range)
    node_ids = list(positions)
    steps: dict[int, list[MoveStep]] = {}
    for step in moves:
        steps.setdefault(step.node, []).append(step)
    paths = {
        node_ids[node]: make_path(positions[node_ids[node]], own) for node, own in steps.items()
    }
    return WirelessNetwork(positions, seed=seed, paths=paths)


def make_path(start: Position, steps: Sequence[MoveStep]) -> list[Leg]:
    """The path of a node that takes these steps and pauses between them."""
    legs: list[Leg] = []
    now_us, position = 0, start
    for step in steps:
        if step.at_us - STEP_US > now_us:
            legs.append(pause_leg(now_us, step.at_us - STEP_US, position))
        legs.append(Leg(max(now_us, step.at_us - STEP_US), step.at_us, *position, *step.position))
        now_us, position = step.at_us, step.position
    return legs
