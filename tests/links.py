"""A network of links: linked nodes receive each other's messages after a delay. Several hops, no
radio."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import pairwise

from thyme.model.ids import NodeId
from thyme.model.rng import derive_rng
from thyme.protocol.app_interface import AppEvent, AppRequest
from thyme.protocol.messages.common import Message
from thyme.protocol.node import Input, Node, Received, SendFailed
from thyme.sim.engine.driver import Driver, Journal
from thyme.sim.engine.kernel import make_kernel
from thyme.storage.store import MemoryStore
from thyme.wire.codec import decode, encode


class Links:
    """Nodes, the links between them, and the messages on the links."""

    def __init__(
        self,
        links: Iterable[tuple[NodeId, NodeId]],
        *,
        seed: int = 0,
        loss: float = 0.0,
        journal: Journal | None = None,
    ) -> None:
        self.loss = loss
        self.delays_us: dict[NodeId, int] = {}
        """How much longer messages to a slow node take."""
        self.broadcasts: Counter[NodeId] = Counter()
        self.kernel = make_kernel()
        self._rng = derive_rng(seed, "links")
        self._driver = Driver(self.kernel, self, journal)
        self._linked: dict[NodeId, dict[NodeId, None]] = {}
        self._nodes: dict[NodeId, Node] = {}
        for one, other in links:
            self._linked.setdefault(one, {})[other] = None
            self._linked.setdefault(other, {})[one] = None

    def relink(self, node_id: NodeId, others: Iterable[NodeId]) -> None:
        """Replaces the links of a node."""
        for other in self._linked.pop(node_id, {}):
            self._linked[other].pop(node_id, None)
        for other in others:
            self._linked.setdefault(node_id, {})[other] = None
            self._linked.setdefault(other, {})[node_id] = None

    def feed(self, node_id: NodeId, event: Input) -> None:
        """Gives a node an input."""
        self._driver.deliver(node_id, event)
        self._nodes[node_id].check()

    def add(
        self, node: Node, on_told: Callable[[AppEvent], None] = lambda told: None, skew_us: int = 0
    ) -> None:
        self._nodes[node.node_id] = node
        self._driver.add(node, MemoryStore(), on_told, skew_us)

    def remove(self, node_id: NodeId) -> None:
        self._driver.remove(node_id)

    def ask(self, node_id: NodeId, request: AppRequest) -> None:
        self._driver.send_request(node_id, request)

    def run(self, seconds: float) -> None:
        """Lets time pass."""
        self.kernel.run(self.kernel.now_us + round(seconds * 1_000_000))

    def send(self, sender: NodeId, to: NodeId, message: Message) -> None:
        if to in self._linked.get(sender, ()) and to in self._driver and self._arrives():
            self._deliver_later(sender, to, message)
        else:
            self._driver.deliver(sender, SendFailed(to, message))

    def broadcast(self, sender: NodeId, message: Message) -> None:
        self.broadcasts[sender] += 1
        for to in self._linked.get(sender, ()):
            if to in self._driver and self._arrives():
                self._deliver_later(sender, to, message)

    def _arrives(self) -> bool:
        return self._rng.random() >= self.loss

    def _deliver_later(self, sender: NodeId, to: NodeId, message: Message) -> None:
        delay_us = self._rng.randint(200, 2_000) + self.delays_us.get(to, 0)
        at_us = self.kernel.now_us + delay_us
        self.kernel.schedule(at_us, self._deliver, (to, Received(sender, decode(encode(message)))))

    def _deliver(self, event: tuple[NodeId, Received]) -> None:
        to, received = event
        if to in self._driver:
            self._driver.deliver(to, received)
            self._nodes[to].check()


def a_row(names: Iterable[NodeId]) -> list[tuple[NodeId, NodeId]]:
    """The links of nodes in a row."""
    return list(pairwise(names))
