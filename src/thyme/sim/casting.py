"""Deployment: the nodes of a scenario, their positions, their paths and their fault schedule.

Entry point: `Deployment`. One function per substrate makes a node. The random generator of a node
depends on the scenario's seed, the node's number and its incarnation. `thyme.sim.faults.devices`
starts and stops the nodes.
Clauses: D1, E3, L4, S6, S7, S12.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from thyme.model.ids import NodeId
from thyme.model.streams import stream
from thyme.protocol.node import Node
from thyme.sim.churn import Restless, permanent_crashes, transient_churn
from thyme.sim.faults import Memory, Schedule, merge
from thyme.sim.mobility import RandomWaypoint, crowd, place
from thyme.sim.paths import Leg, Point
from thyme.sim.scenario import Kind, Profile, Scenario, Substrate, grid_over
from thyme.storage.store import Store
from thyme.substrates.assembly import dcs_node, over_dsdv
from thyme.substrates.dcs.config import PAPER as DCS_PAPER
from thyme.substrates.dcs.config import ROBUST as DCS_ROBUST
from thyme.substrates.es import PAPER as ES_PAPER
from thyme.substrates.es import ROBUST as ES_ROBUST
from thyme.substrates.es import EsNode
from thyme.substrates.ls.node import PAPER as LS_PAPER
from thyme.substrates.ls.node import ROBUST as LS_ROBUST
from thyme.substrates.ls.node import LsNode
from thyme.substrates.ls.owners import CollectingConfig
from thyme.traces.operations import Insert
from thyme.traces.trace import Trace

NAME_BYTES = 2
"""Length of a node id; short, like the addresses in packets."""
MIN_SPEED_M_S = 0.1


def name_of(number: int) -> NodeId:
    """Returns the node id of the device with a number."""
    return NodeId(number.to_bytes(NAME_BYTES + (number >> 8 * NAME_BYTES > 0), "big"))


class Cast:
    """The devices of a scenario. User devices come first; the server of ES is last."""

    def __init__(self, scenario: Scenario, trace: Trace) -> None:
        self._scenario = scenario
        self.users = scenario.nodes
        self.servers = 1 if scenario.substrate is Substrate.ES else 0
        self.names = [name_of(number) for number in range(self.users + self.servers)]
        self.places = self._places()
        self.joins_us = [self._join_us(number) for number in range(len(self.names))]
        self.schedule = self._schedule(trace)

    def make(self, node_id: NodeId, store: Store, life: int) -> Node:
        """Makes the node of a device for one incarnation."""
        scenario = self._scenario
        number = self.names.index(node_id)
        if scenario.substrate is Substrate.DCS:
            return self._dcs_node(number, store, life)
        make_inner = _MAKERS[scenario.substrate]
        inner = make_inner(scenario, node_id, self.names[-1], store, life)
        rng = stream(scenario.seed, "dsdv", number, life)
        return over_dsdv(inner, rng, inner_starts_us=self.joins_us[number])

    def _dcs_node(self, number: int, store: Store, life: int) -> Node:
        node_id, seed = self.names[number], self._scenario.seed
        return dcs_node(
            node_id,
            grid_over(self._scenario.area),
            self.places[number],
            store,
            cells_rng=stream(seed, "cells", number, life),
            rng=stream(seed, "dcs", node_id, life),
            config=DCS_ROBUST if self._scenario.profile is Profile.ROBUST else DCS_PAPER,
            joins_us=self.joins_us[number],
        )

    def paths(self) -> dict[NodeId, Iterator[Leg]]:
        """Makes the paths of the nodes that move, in the mobile series only; the server stays."""
        scenario = self._scenario
        if scenario.kind is not Kind.MOBILE:
            return {}
        speed_m_s = scenario.speed_m_s
        model = RandomWaypoint(
            area=scenario.area,
            speed_m_s_max=speed_m_s,
            speed_m_s_min=min(MIN_SPEED_M_S, speed_m_s),
        )
        until_us = scenario.timeline.end_us
        ways = crowd(model, scenario.seed, self.places[: self.users], until_us)
        return dict(zip(self.names, ways, strict=False))

    def _places(self) -> list[Point]:
        """Draws positions uniformly from the area; the server of ES is at its centre."""
        scenario = self._scenario
        topology = scenario.seed if scenario.topology is None else scenario.topology
        places = place(stream(topology, "places"), self.users, scenario.area)
        middle = scenario.area.width_m / 2, scenario.area.height_m / 2
        return [*places, *[middle] * self.servers]

    def _join_us(self, number: int) -> int:
        """Draws when a device joins: user devices at random, a server at the start."""
        timeline = self._scenario.timeline
        if number >= self.users:
            return timeline.starts_us
        rng = stream(self._scenario.seed, "join", number)
        return timeline.starts_us + int(rng.random() * timeline.joins_us)

    def _schedule(self, trace: Trace) -> Schedule:
        scenario = self._scenario
        size = len(self.names)
        match scenario.kind:
            case Kind.CRASH:
                publishers = {op.user for op in trace.operations if isinstance(op, Insert)}
                crashes = permanent_crashes(scenario.seed, publishers, scenario.failing)
                return merge(crashes, nodes=size)
            case Kind.TRANSIENT:
                churn = transient_churn(
                    scenario.seed,
                    range(self.users),
                    scenario.failing,
                    until_us=scenario.timeline.end_us,
                    from_us=dict(enumerate(self.joins_us)),
                    how=Restless(memory=Memory.KEPT),
                )
                return merge(churn, nodes=size)
            case Kind.STATIC | Kind.MOBILE:
                return merge(nodes=size)


Maker = Callable[[Scenario, NodeId, NodeId, Store, int], Node]
"""Makes a node from the scenario, its node id, the server's node id, its store and incarnation."""


def _es_node(
    scenario: Scenario, node_id: NodeId, server_id: NodeId, store: Store, life: int
) -> Node:
    config = ES_ROBUST if scenario.profile is Profile.ROBUST else ES_PAPER
    return EsNode(node_id, server_id, store, stream(scenario.seed, "es", node_id, life), config)


def _ls_node(
    scenario: Scenario, node_id: NodeId, server_id: NodeId, store: Store, life: int
) -> Node:
    robust = scenario.profile is Profile.ROBUST
    config = replace(
        LS_ROBUST if robust else LS_PAPER,
        # Simulated users read their whole history, so waiting for more answers gains nothing.
        collecting=CollectingConfig(merge_us=0),
    )
    return LsNode(node_id, store, stream(scenario.seed, "ls", node_id, life), config)


_MAKERS: dict[Substrate, Maker] = {Substrate.ES: _es_node, Substrate.LS: _ls_node}
