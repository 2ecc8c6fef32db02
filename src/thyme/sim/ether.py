"""The ether: many nodes, no radio. Every node reaches every other, perfectly or with trouble; or
those only that hear it, if somebody says who they are.

The smallest world there is, in virtual time and deterministic from a seed. Multi-node stories are
told in it, and a world of one lives in it, paced by a real clock (`thyme.app.pacing`). Messages
cross it as bytes, as they would cross a network.
Clauses: M12, S8.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec

from thyme.model.ids import NodeId
from thyme.model.streams import stream
from thyme.protocol.messages import Message
from thyme.protocol.node import Moved, Node, Received, SendFailed
from thyme.protocol.requests import Request, Told
from thyme.sim.driver import Driver, Journal
from thyme.sim.kernel import Kernel
from thyme.sim.trouble import AT_ONCE, Trouble
from thyme.storage.store import Store
from thyme.wire import decode, encode


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """What happens to messages on their way; the default is a perfect ether."""

    loss: float = 0.0
    duplication: float = 0.0
    delay_us_min: int = 1_000
    delay_us_max: int = 1_000
    """Delays drawn from a range let messages overtake each other."""


PERFECT = Conditions()


@dataclass(slots=True)
class Traffic:
    """What crossed the ether."""

    messages: int = 0
    bytes: int = 0
    lost: int = 0
    by_type: Counter[str] = field(default_factory=Counter)


class Ether:
    """Nodes, their clock, and the messages between them."""

    def __init__(
        self,
        *,
        seed: int = 0,
        conditions: Conditions = PERFECT,
        start_us: int = 0,
        journal: Journal | None = None,
        hears: Callable[[NodeId, NodeId], bool] | None = None,
    ) -> None:
        """With `hears`, which says whether a sender is heard by somebody, a node is also told of a
        message to one node that did not arrive, as a MAC would tell it."""
        self.conditions = conditions
        self._hears = hears
        self.traffic = Traffic()
        self.kernel = Kernel(start_us)
        self.start_us = start_us
        self.trouble = Trouble(seed)
        self._rng = stream(seed, "ether")
        self._driver = Driver(self.kernel, self, journal)

    @property
    def now_us(self) -> int:
        """What time it is."""
        return self.kernel.now_us

    def add(
        self, node: Node, store: Store, on_told: Callable[[Told], None], *, skew_us: int = 0
    ) -> None:
        """Brings a node up now; its clock is `skew_us` ahead of the ether's."""
        self._driver.add(node, store, on_told, skew_us)

    def remove(self, node_id: NodeId) -> None:
        """Takes a node away, as a crash would."""
        self._driver.remove(node_id)

    def ask(self, node_id: NodeId, request: Request) -> None:
        """The application of a node asks for something, now."""
        self._driver.ask(node_id, request)

    def leave(self, node_id: NodeId) -> None:
        """Tells a node that it is about to go (S7)."""
        self._driver.leave(node_id)

    def set_skew(self, node_id: NodeId, skew_us: int) -> None:
        """Sets a node's clock (S8)."""
        self._driver.set_skew(node_id, skew_us)

    def move(self, node_id: NodeId, place: tuple[float, float]) -> None:
        """Tells a node that it is at another place (D20); who hears whom is not asked here."""
        self._driver.feed(node_id, Moved(place))

    def partition(self, *groups: Iterable[NodeId]) -> None:
        """From now on only nodes of the same group hear each other; the unnamed form a last one."""
        self.trouble.partition(*groups)

    def heal(self) -> None:
        """Ends partition, loss and duplicates, as far as they are not of a schedule of faults."""
        self.trouble.heal()
        self.conditions = PERFECT

    def next_us(self) -> int | None:
        """The instant of the next thing that will happen."""
        return self.kernel.next_us()

    def run(self, until_us: int) -> None:
        """Lets everything up to an instant happen."""
        self.kernel.run(until_us)

    def send(self, sender: NodeId, to: NodeId, message: Message) -> None:
        """Takes a message to one node, if the conditions let it."""
        hears = self._hears
        in_reach = hears is None or hears(sender, to)
        arrives = in_reach and self._carry(sender, to, message, encode(message))
        if not arrives and hears is not None:
            # Not at once: the node may be in the middle of what made it send.
            self.kernel.at(self.now_us, self._fail, (sender, SendFailed(to, message)))

    def _carry(self, sender: NodeId, to: NodeId, message: Message, packet: bytes) -> bool:
        """Whether at least one copy will arrive."""
        self.traffic.messages += 1
        self.traffic.bytes += len(packet)
        self.traffic.by_type[message.label] += 1
        trouble = self.trouble
        if to not in self._driver or not (trouble.calm or trouble.reaches(sender, to)):
            self.traffic.lost += 1
            return False
        conditions = self.conditions
        arrives = False
        copies = 2 if self._rng.random() < conditions.duplication else 1
        for _ in range(copies):
            if self._rng.random() < conditions.loss:
                self.traffic.lost += 1
                continue
            delay_us = self._rng.randint(conditions.delay_us_min, conditions.delay_us_max)
            for more_us in AT_ONCE if trouble.calm else trouble.delays_us(to):
                event = (to, Received(sender, decode(packet)))
                self.kernel.at(self.now_us + delay_us + more_us, self._deliver, event)
                arrives = True
        return arrives

    def broadcast(self, sender: NodeId, message: Message) -> None:
        """Takes a message to everybody else who is in reach."""
        packet = encode(message)
        for other in list(self._driver):
            if other != sender and (self._hears is None or self._hears(sender, other)):
                self._carry(sender, other, message, packet)

    def _deliver(self, event: tuple[NodeId, Received]) -> None:
        self._driver.feed(*event)

    def _fail(self, event: tuple[NodeId, SendFailed]) -> None:
        self._driver.feed(*event)
