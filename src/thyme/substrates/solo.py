"""Local world: a Thyme-ES node that is its own server, without a network.

Entry point: `make_solo_node`. All operations work, in memory or in a file: for tests, for
developing an application without a network, and for an archive on a single device.
"""

from __future__ import annotations

from random import Random

import msgspec

from thyme.model.ids import NodeId
from thyme.model.metadata import Limits
from thyme.storage.store import Store
from thyme.substrates.common.broker import BrokerConfig
from thyme.substrates.common.catalogue import Retention
from thyme.substrates.common.client_interfaces import Guarantees
from thyme.substrates.es import EsConfig, EsNode


class SoloConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a local world."""

    limits: Limits = Limits()
    retention: Retention = Retention()
    world_ends_us: int | None = None


def make_solo_node(node_id: NodeId, store: Store, rng: Random, config: SoloConfig) -> EsNode:
    """Makes the node of a local world; there is one clock, and thus no clock skew."""
    es = EsConfig(
        limits=config.limits,
        broker=BrokerConfig(limits=config.limits, retention=config.retention),
        guarantees=Guarantees(durable=store.durable),
        world_ends_us=config.world_ends_us,
        in_chunks=True,
    )
    return EsNode(node_id, node_id, store, rng, es)
