"""Casting: the nodes of a scenario, their places and ways, and what befalls them.

One function per substrate makes a node. A node's randomness comes from the scenario's seed, its
number and its life.
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
"""Short names, as short addresses go in packets."""
MIN_SPEED_M_S = 0.1


def name_of(number: int) -> NodeId:
    """The identifier of a device."""
    return NodeId(number.to_bytes(NAME_BYTES + (number >> 8 * NAME_BYTES > 0), "big"))


class Cast:
    """Everybody in a scenario. The users' devices come first; the server of ES is the last."""

    def __init__(self, scenario: Scenario, trace: Trace) -> None:
        self._scenario = scenario
        self.users = scenario.nodes
        self.servers = 1 if scenario.substrate is Substrate.ES else 0
        self.names = [name_of(number) for number in range(self.users + self.servers)]
        self.places = self._places()
        self.joins_us = [self._join_us(number) for number in range(len(self.names))]
        self.schedule = self._schedule(trace)

    def make(self, node_id: NodeId, store: Store, life: int) -> Node:
        """The node of a device for one of its lives."""
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
        """The ways of those that move; nobody's but in the mobile series. The server stays."""
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
        """Uniform over the area; the server of ES is in the middle."""
        scenario = self._scenario
        topology = scenario.seed if scenario.topology is None else scenario.topology
        places = place(stream(topology, "places"), self.users, scenario.area)
        middle = scenario.area.width_m / 2, scenario.area.height_m / 2
        return [*places, *[middle] * self.servers]

    def _join_us(self, number: int) -> int:
        """Users' devices join at random; a server is there from the start."""
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
"""Makes the node of a scenario's device, given its name, the server's, its store and its life."""


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
        # The users of a run ask for all of their past, so nothing is gained by waiting.
        collecting=CollectingConfig(merge_us=0),
    )
    return LsNode(node_id, store, stream(scenario.seed, "ls", node_id, life), config)


_MAKERS: dict[Substrate, Maker] = {Substrate.ES: _es_node, Substrate.LS: _ls_node}
