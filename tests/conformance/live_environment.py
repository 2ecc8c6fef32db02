"""Live environments: nodes on real sockets on loopback, in real time."""

from __future__ import annotations

import asyncio
import secrets
from abc import abstractmethod
from random import Random
from typing import Any

from msgspec.structs import replace

from tests.conformance.environment import Environment
from tests.live.nodes import free_group
from thyme.api.session import NodeSession
from thyme.live.host import Host
from thyme.live.node_factory import DSDV_CONFIG, es_config, ls_config
from thyme.live.sockets import NetworkConfig, Sockets
from thyme.model.ids import Key, NodeId
from thyme.model.worlds import WorldInfo
from thyme.protocol.node import Node
from thyme.protocol.port import NodeListener
from thyme.protocol.retry import RetryPolicy
from thyme.storage.store import MemoryStore
from thyme.substrates.common.broker import BrokerConfig
from thyme.substrates.common.subscriber import SubscriberConfig
from thyme.substrates.es import EsNode
from thyme.substrates.factory import with_dsdv
from thyme.substrates.ls.flooded_queries import CollectionConfig
from thyme.substrates.ls.node import LsNode
from thyme.transport.link import Link
from thyme.transport.link_config import LinkConfig

SECOND_US = 1_000_000
MOMENT_US = 150_000
SKEW_US = 2 * MOMENT_US
"""As many moments as in the other environments."""
RETRIES = RetryPolicy(tries_max=4, wait_us=2 * MOMENT_US, backoff=1.5)
SERVER = "server"


class LiveEnvironment(Environment):
    """Nodes on one network, one for each user."""

    moment_us = MOMENT_US
    many = True

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.new_event_loop()
        group, port = free_group().split(":")
        self._place = NetworkConfig(group=group, group_port=int(port))
        self._stores: dict[str, MemoryStore] = {}
        self._nodes: dict[str, Any] = {}
        self._hosts: dict[str, Host] = {}
        self._askers: dict[str, NodeSession] = {}

    @property
    @abstractmethod
    def _world(self) -> WorldInfo:
        """The world of this env."""

    @abstractmethod
    def _make(self, node_id: NodeId, store: MemoryStore, rng: Random) -> Node:
        """Makes a node of the substrate."""

    def open(self, name: str) -> NodeSession:
        return self._loop.run_until_complete(self._open(name))

    async def _open(self, name: str) -> NodeSession:
        sockets = Sockets(self._place)
        await sockets.open()
        node_id, rng = NodeId(name.encode()), Random(secrets.randbits(64))
        store = self._stores.setdefault(name, MemoryStore())
        node = self._nodes[name] = self._make(node_id, store, rng)
        link = Link(node_id, self._world, rng.randbytes(8), LinkConfig())

        def start(listener: NodeListener) -> Host:
            routed = with_dsdv(node, rng, config=DSDV_CONFIG)
            if isinstance(node, LsNode):
                node.ask_nodes_in_reach(lambda: routed.routing.destinations)
            host = self._hosts[name] = Host(routed, store, listener, link, sockets)
            return host

        asker = self._askers[name] = NodeSession(start)
        for _ in range(1_000):
            if len(link.neighbours) >= len(self._hosts) - 1:
                break
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)  # until all nodes have routes to each other
        return asker

    def crash(self, name: str) -> None:
        self._hosts.pop(name).close()
        del self._nodes[name], self._askers[name]

    def elapse(self, moments: float) -> None:
        self._loop.run_until_complete(asyncio.sleep(self.us(moments) / SECOND_US))

    def close(self) -> None:
        async def end() -> None:
            for host in self._hosts.values():
                host.close()
            await asyncio.sleep(0)

        self._loop.run_until_complete(end())
        self._loop.close()


class LiveEsEnvironment(LiveEnvironment):
    """A server and its clients."""

    def __init__(self) -> None:
        super().__init__()
        self.open(SERVER)

    @property
    def _world(self) -> WorldInfo:
        return WorldInfo("lisbon", "w", substrate="es", server=NodeId(SERVER.encode()))

    def _make(self, node_id: NodeId, store: MemoryStore, rng: Random) -> EsNode:
        config = replace(
            es_config(self._world),
            retries=RETRIES,
            broker=BrokerConfig(skew_us=SKEW_US),
            subscriber=SubscriberConfig(skew_us=SKEW_US),
        )
        return EsNode(node_id, NodeId(SERVER.encode()), store, rng, config)

    def tamper(self, key: Key, data: bytes) -> None:
        self._stores[SERVER].put_data(str(key), data)

    def standing(self) -> int:
        server: EsNode = self._nodes[SERVER]
        assert server.broker is not None
        server.check()
        return server.broker.subscription_count


class LiveLsEnvironment(LiveEnvironment):
    """Nodes of Thyme-LS."""

    outlives_owner = False
    total_at_once = False

    @property
    def _world(self) -> WorldInfo:
        return WorldInfo("lisbon", "w", substrate="ls")

    def _make(self, node_id: NodeId, store: MemoryStore, rng: Random) -> LsNode:
        config = replace(
            ls_config(self._world),
            collecting=CollectionConfig(
                subscribe_wait_us=2 * MOMENT_US, search_wait_us=2 * MOMENT_US
            ),
            retries=RETRIES,
            broker=BrokerConfig(skew_us=SKEW_US),
            subscriber=SubscriberConfig(skew_us=SKEW_US),
        )
        return LsNode(node_id, store, rng, config)

    def tamper(self, key: Key, data: bytes) -> None:
        self._stores[key.owner.decode()].put_data(str(key), data)

    def standing(self) -> int:
        for node in self._nodes.values():
            node.check()
        return max(node.broker.subscription_count for node in self._nodes.values())
