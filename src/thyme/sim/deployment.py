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
from thyme.model.positions import Position
from thyme.model.rng import derive_rng
from thyme.protocol.node import Node
from thyme.routing.dsdv.config import ROBUST as DSDV_ROBUST
from thyme.sim.faults.churn import OnOffChurn, permanent_crashes, transient_churn
from thyme.sim.faults.schedule import CrashMemory, FaultSchedule, make_schedule
from thyme.sim.mobility.models import RandomWaypoint, crowd_paths, random_positions
from thyme.sim.mobility.paths import Leg
from thyme.sim.scenario import Profile, Scenario, Series, Substrate, grid_over
from thyme.storage.store import Store
from thyme.substrates.dcs.config import PAPER as DCS_PAPER
from thyme.substrates.dcs.config import ROBUST as DCS_ROBUST
from thyme.substrates.dcs.config import DcsConfig
from thyme.substrates.es import PAPER as ES_PAPER
from thyme.substrates.es import ROBUST as ES_ROBUST
from thyme.substrates.es import EsNode
from thyme.substrates.factory import make_dcs_node, with_dsdv
from thyme.substrates.ls.config import PAPER as LS_PAPER
from thyme.substrates.ls.config import ROBUST as LS_ROBUST
from thyme.substrates.ls.flooded_queries import CollectionConfig
from thyme.substrates.ls.node import LsNode
from thyme.traces.operations import InsertOperation
from thyme.traces.trace import Trace

NODE_ID_BYTES = 2
"""Length of a node id; short, like the addresses in packets."""
SPEED_M_S_MIN = 0.1


def node_id_for(number: int) -> NodeId:
    """Returns the node id of the device with a number."""
    return NodeId(number.to_bytes(NODE_ID_BYTES + (number >> 8 * NODE_ID_BYTES > 0), "big"))


class Deployment:
    """The devices of a scenario. User devices come first; the server of ES is last."""

    def __init__(
        self, scenario: Scenario, trace: Trace, dcs_config: DcsConfig | None = None
    ) -> None:
        """`dcs_config` replaces the settings of the scenario's profile in nodes of DCS."""
        self._scenario = scenario
        profile = DCS_ROBUST if scenario.profile is Profile.ROBUST else DCS_PAPER
        self._dcs_config = dcs_config or profile
        self.users = scenario.nodes
        self.servers = 1 if scenario.substrate is Substrate.ES else 0
        self.node_ids = [node_id_for(number) for number in range(self.users + self.servers)]
        self.positions = self._draw_positions()
        self.joins_us = [self._draw_join_us(number) for number in range(len(self.node_ids))]
        self.fault_schedule = self._make_fault_schedule(trace)

    def make_node(self, node_id: NodeId, store: Store, incarnation: int) -> Node:
        """Makes the node of a device for one incarnation."""
        scenario = self._scenario
        number = self.node_ids.index(node_id)
        if scenario.substrate is Substrate.DCS:
            return self._make_dcs_node(number, store, incarnation)
        make_inner = _MAKE_INNER_NODE[scenario.substrate]
        inner = make_inner(scenario, node_id, self.node_ids[-1], store, incarnation)
        rng = derive_rng(scenario.seed, "dsdv", number, incarnation)
        avoids_weak_links = (
            scenario.profile is Profile.ROBUST and scenario.substrate is Substrate.LS
        )
        routing = DSDV_ROBUST if avoids_weak_links else None
        return with_dsdv(inner, rng, inner_start_us=self.joins_us[number], config=routing)

    def _make_dcs_node(self, number: int, store: Store, incarnation: int) -> Node:
        node_id, seed = self.node_ids[number], self._scenario.seed
        return make_dcs_node(
            node_id,
            grid_over(self._scenario.area),
            self.positions[number],
            store,
            cells_rng=derive_rng(seed, "cells", number, incarnation),
            rng=derive_rng(seed, "dcs", node_id, incarnation),
            config=self._dcs_config,
            join_at_us=self.joins_us[number],
        )

    def make_paths(self) -> dict[NodeId, Iterator[Leg]]:
        """Makes the paths of the nodes that move, in the mobile series only; the server stays."""
        scenario = self._scenario
        if scenario.kind is not Series.MOBILE:
            return {}
        speed_m_s = scenario.speed_m_s
        model = RandomWaypoint(
            area=scenario.area,
            speed_m_s_max=speed_m_s,
            speed_m_s_min=min(SPEED_M_S_MIN, speed_m_s),
        )
        until_us = scenario.timeline.end_us
        paths = crowd_paths(model, scenario.seed, self.positions[: self.users], until_us)
        return dict(zip(self.node_ids, paths, strict=False))

    def _draw_positions(self) -> list[Position]:
        """Draws positions uniformly from the area; the server of ES is at its centre."""
        scenario = self._scenario
        topology = scenario.seed if scenario.topology is None else scenario.topology
        positions = random_positions(derive_rng(topology, "places"), self.users, scenario.area)
        centre = scenario.area.width_m / 2, scenario.area.height_m / 2
        return [*positions, *[centre] * self.servers]

    def _draw_join_us(self, number: int) -> int:
        """Draws when a device joins: user devices at random, a server at the start."""
        timeline = self._scenario.timeline
        if number >= self.users:
            return timeline.starts_us
        rng = derive_rng(self._scenario.seed, "join", number)
        return timeline.starts_us + int(rng.random() * timeline.joins_us)

    def _make_fault_schedule(self, trace: Trace) -> FaultSchedule:
        scenario = self._scenario
        size = len(self.node_ids)
        match scenario.kind:
            case Series.CRASH:
                publishers = {op.user for op in trace.operations if isinstance(op, InsertOperation)}
                crashes = permanent_crashes(scenario.seed, publishers, scenario.failing)
                return make_schedule(crashes, nodes=size)
            case Series.TRANSIENT:
                churn = transient_churn(
                    scenario.seed,
                    range(self.users),
                    scenario.failing,
                    until_us=scenario.timeline.end_us,
                    from_us=dict(enumerate(self.joins_us)),
                    churn=OnOffChurn(memory=CrashMemory.KEPT),
                )
                return make_schedule(churn, nodes=size)
            case Series.STATIC | Series.MOBILE:
                return make_schedule(nodes=size)


MakeInnerNode = Callable[[Scenario, NodeId, NodeId, Store, int], Node]
"""Makes a node from the scenario, its node id, the server's node id, its store and incarnation."""


def _make_es_node(
    scenario: Scenario, node_id: NodeId, server_id: NodeId, store: Store, incarnation: int
) -> Node:
    config = ES_ROBUST if scenario.profile is Profile.ROBUST else ES_PAPER
    return EsNode(
        node_id, server_id, store, derive_rng(scenario.seed, "es", node_id, incarnation), config
    )


def _make_ls_node(
    scenario: Scenario, node_id: NodeId, server_id: NodeId, store: Store, incarnation: int
) -> Node:
    robust = scenario.profile is Profile.ROBUST
    config = replace(
        LS_ROBUST if robust else LS_PAPER,
        # Simulated users read their whole history, so waiting for more answers gains nothing.
        collecting=CollectionConfig(subscribe_wait_us=0),
    )
    return LsNode(node_id, store, derive_rng(scenario.seed, "ls", node_id, incarnation), config)


_MAKE_INNER_NODE: dict[Substrate, MakeInnerNode] = {
    Substrate.ES: _make_es_node,
    Substrate.LS: _make_ls_node,
}
