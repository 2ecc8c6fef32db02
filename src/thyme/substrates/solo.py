"""Thyme in a world of one: a node that is its own server.

Everything an application can do works here, in memory or in a file, with nobody else around: for
tests, for writing an application before there is a network, and for the single device that keeps
its own archive.
"""

from __future__ import annotations

from random import Random

import msgspec

from thyme.model.ids import NodeId
from thyme.model.metadata import Limits
from thyme.storage.store import Store
from thyme.substrates.broker import BrokerConfig
from thyme.substrates.catalogue import Retention
from thyme.substrates.client import Guarantees
from thyme.substrates.es import EsConfig, EsNode


class SoloConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a world of one."""

    limits: Limits = Limits()
    retention: Retention = Retention()
    world_ends_us: int | None = None


def solo_node(node_id: NodeId, store: Store, rng: Random, config: SoloConfig) -> EsNode:
    """A node with nobody else; one clock, so no skew to tolerate."""
    es = EsConfig(
        limits=config.limits,
        broker=BrokerConfig(limits=config.limits, retention=config.retention),
        guarantees=Guarantees(copies_max=1, durable=store.durable),
        world_ends_us=config.world_ends_us,
    )
    return EsNode(node_id, node_id, store, rng, es)
