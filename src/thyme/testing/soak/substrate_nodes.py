"""Substrate nodes: the nodes of a soak run, one class for each substrate.

Entry point: `make_substrate_node`. The runs of `thyme.testing.soak.runner` use it.
Clauses: B5, B12, M12.
"""

from __future__ import annotations

from random import Random

import msgspec

from thyme.model.ids import Key, NodeId
from thyme.model.positions import Position
from thyme.protocol.retry import RetryPolicy
from thyme.routing.cells.grid import Grid
from thyme.sim.scenario import Profile, Substrate
from thyme.storage.store import Store
from thyme.substrates.common.broker import BrokerConfig
from thyme.substrates.common.subscriber import SubscriberConfig
from thyme.substrates.dcs.cell_map import GridCellMap
from thyme.substrates.dcs.config import PAPER as DCS_PAPER
from thyme.substrates.dcs.config import ROBUST as DCS_ROBUST
from thyme.substrates.dcs.node import DcsNode
from thyme.substrates.es import PAPER as ES_PAPER
from thyme.substrates.es import ROBUST as ES_ROBUST
from thyme.substrates.es import EsNode
from thyme.substrates.ls.config import PAPER as LS_PAPER
from thyme.substrates.ls.config import ROBUST as LS_ROBUST
from thyme.substrates.ls.node import LsNode
from thyme.testing.soak.faults import SKEW_US_MAX
from thyme.testing.soak.named_keys import named_authenticator

SubstrateNode = EsNode | LsNode | DcsNode


def make_substrate_node(
    node_id: NodeId,
    store: Store,
    rng: Random,
    substrate: Substrate,
    profile: Profile,
    *,
    server: NodeId,
    grid: Grid,
    position: Position,
    with_keys: bool,
) -> SubstrateNode:
    """Makes a node. Nodes have keys where one of them is hostile."""
    robust = profile is Profile.ROBUST
    has_cells = substrate is Substrate.DCS
    retries = RetryPolicy(tries_max=6, backoff=1.5)
    broker = BrokerConfig(skew_us=SKEW_US_MAX)
    subscriber = SubscriberConfig(skew_us=SKEW_US_MAX)
    replace = msgspec.structs.replace
    authenticator = None
    if with_keys:
        authenticator = named_authenticator(
            node_id, check_locations=has_cells, authenticate_answers=not has_cells
        )
    match substrate:
        case Substrate.ES:
            es = ES_ROBUST if robust else ES_PAPER
            es = replace(es, retries=retries, broker=broker, subscriber=subscriber)
            return EsNode(node_id, server, store, rng, es, authenticator)
        case Substrate.LS:
            ls = LS_ROBUST if robust else LS_PAPER
            ls = replace(ls, retries=retries, broker=broker, subscriber=subscriber)
            return LsNode(node_id, store, rng, ls, authenticator)
        case Substrate.DCS:
            dcs = replace(
                DCS_ROBUST if robust else DCS_PAPER,
                retries=retries,
                broker=replace(broker, metadata_only=True),
                subscriber=subscriber,
            )
            cell_map = GridCellMap(node_id, grid, rng, dcs.routing)
            cell = grid.cell_at(position)
            return DcsNode(node_id, cell, cell_map, store, rng, dcs, authenticator=authenticator)


def has_object(node: SubstrateNode, key: Key) -> bool:
    """Whether a node stores an object."""
    if isinstance(node, DcsNode):
        return node.replicas.get(key) is not None
    return node.broker is not None and key in node.broker.catalogue.history


def count_stored(node: SubstrateNode) -> tuple[int, int]:
    """Counts the objects and subscriptions that a node indexes."""
    broker = node.index.broker if isinstance(node, DcsNode) else node.broker
    return (0, 0) if broker is None else (len(broker.catalogue), broker.subscription_count)
