"""A network of links for routing: linked nodes receive each other's messages after a random delay.

After every input the node is checked, and so are its routes: none may have a loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from thyme.model.ids import Key, NodeId, ObjectId
from thyme.model.rng import derive_rng
from thyme.protocol.app_interface import Lookup
from thyme.protocol.messages.common import Message
from thyme.protocol.messages.requests import FetchStatus
from thyme.protocol.node import Action, AppRequested, Input, Received, Send, SendFailed, Started
from thyme.protocol.outbox import Outbox
from thyme.routing import Dsdv, DsdvConfig, RoutedNode
from thyme.sim.engine.driver import Driver, Journal
from thyme.sim.engine.kernel import make_kernel
from thyme.storage.store import MemoryStore
from thyme.wire.codec import decode, encode, size_of

SECOND_US = 1_000_000


def name(number: int) -> NodeId:
    """The identifier of node `number`."""
    return NodeId(bytes([number]))


def question(number: int, of: NodeId) -> FetchStatus:
    """A message to send."""
    return FetchStatus(number, Key(ObjectId("any"), of))


class Probe:
    """An inner node that sends to the owner of the key in a request, and records what it
    receives."""

    def __init__(self, node_id: NodeId) -> None:
        self.node_id = node_id
        self.got: list[tuple[NodeId, int]] = []
        self.started_us: int | None = None
        self.failed: list[NodeId] = []

    def handle(self, event: Input, now_us: int) -> list[Action]:
        match event:
            case Started():
                self.started_us = now_us
            case Received(sender, FetchStatus() as message):
                self.got.append((sender, message.request_id))
            case SendFailed():
                self.failed.append(event.to)
            case AppRequested(Lookup() as request):
                message = FetchStatus(request.request_id, request.key)
                return [Send(request.key.owner, message)]
        return []

    def check(self) -> None:
        assert len(set(self.got)) == len(self.got)


class Graph:
    """Nodes 0 to n-1, their links, and the messages on them."""

    def __init__(
        self,
        size: int,
        links: Iterable[tuple[int, int]],
        *,
        seed: int = 0,
        loss: float = 0.0,
        config: DsdvConfig | None = None,
        inner_starts_us: int = 0,
        journal: Journal | None = None,
    ) -> None:
        self.kernel = make_kernel()
        self.loss = loss
        self._rng = derive_rng(seed, "graph")
        self._driver = Driver(self.kernel, self, journal)
        self._links: dict[NodeId, dict[NodeId, None]] = {name(n): {} for n in range(size)}
        for one, other in links:
            self.link(one, other)
        self.relays: dict[NodeId, RoutedNode] = {}
        self.probes: list[Probe] = []
        self.routings: list[Dsdv] = []
        for number in range(size):
            outbox, probe = Outbox(), Probe(name(number))
            rng = derive_rng(seed, "dsdv", number)
            routing = Dsdv(probe.node_id, outbox, rng, config)
            relay = RoutedNode(
                probe, routing, outbox, inner_start_us=inner_starts_us, size_of=size_of
            )
            self.probes.append(probe)
            self.routings.append(routing)
            self.relays[probe.node_id] = relay
        for relay in self.relays.values():
            self._driver.add(relay, MemoryStore(), lambda told: None)

    def link(self, one: int, other: int) -> None:
        self._links[name(one)][name(other)] = None
        self._links[name(other)][name(one)] = None

    def cut(self, one: int, other: int) -> None:
        self._links[name(one)].pop(name(other), None)
        self._links[name(other)].pop(name(one), None)

    def run(self, until_s: float) -> None:
        self.kernel.run(round(until_s * SECOND_US))

    def ask(self, number: int, source: int, destination: int) -> None:
        key = Key(ObjectId("any"), name(destination))
        self._driver.send_request(name(source), Lookup(request_id=number, key=key))

    def send(self, sender: NodeId, to: NodeId, message: Message) -> None:
        if to in self._links[sender] and self._rng.random() >= self.loss:
            self._after(to, Received(sender, decode(encode(message))))
        else:
            self._after(sender, SendFailed(to, message))

    def broadcast(self, sender: NodeId, message: Message) -> None:
        for to in self._links[sender]:
            if self._rng.random() >= self.loss:
                self._after(to, Received(sender, decode(encode(message))))

    def _after(self, to: NodeId, event: Input) -> None:
        at_us = self.kernel.now_us + self._rng.randrange(100, 2_000)
        self.kernel.schedule(at_us, self._deliver, (to, event))

    def _deliver(self, argument: tuple[NodeId, Input]) -> None:
        to, event = argument
        self._driver.deliver(to, event)
        self.relays[to].check()
        self.check_ways(to)

    def check_ways(self, source: NodeId) -> None:
        """Checks that no route from a node has a loop (R1)."""
        for destination in self.relays:
            seen, at = {source}, source
            while at != destination:
                onward = self.dsdv(at).next_hop(destination)
                if onward is None:
                    break
                assert onward not in seen, f"to {destination.hex()}: a circle at {onward.hex()}"
                seen.add(onward)
                at = onward

    def dsdv(self, node: NodeId) -> Dsdv:
        return self.routings[node[0]]

    def hops(self) -> dict[tuple[int, int], int]:
        """The hop counts to each other node in each routing table."""
        return {
            (source, route.destination[0]): route.hops
            for source, routing in enumerate(self.routings)
            for route in routing.routes.values()
        }

    def way(self, source: int, destination: int) -> list[int]:
        """The nodes that a packet would pass, including the first and the last."""
        at, passed = name(source), [source]
        while at != name(destination):
            onward = self.dsdv(at).next_hop(name(destination))
            assert onward is not None
            assert onward in self._links[at]
            at = onward
            passed.append(at[0])
        return passed

    def distances(self) -> dict[tuple[int, int], int]:
        """The distances between all connected nodes."""
        found: dict[tuple[int, int], int] = {}
        for source in self._links:
            reached, waiting = {source: 0}, deque([source])
            while waiting:
                at = waiting.popleft()
                for other in self._links[at]:
                    if other not in reached:
                        reached[other] = reached[at] + 1
                        waiting.append(other)
            found.update(
                {(source[0], other[0]): far for other, far in reached.items() if other != source}
            )
        return found


def line(size: int) -> list[tuple[int, int]]:
    """The links of nodes in a row."""
    return [(number, number + 1) for number in range(size - 1)]


def circle(size: int) -> list[tuple[int, int]]:
    """The links of nodes in a ring."""
    return [*line(size), (size - 1, 0)]
