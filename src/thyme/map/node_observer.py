"""Node observer: makes the events of the map from the inputs and actions of one live node.

The node knows itself, its neighbours, its messages and its replicas, so that is what a map of one
node shows; `stream_merger` joins the maps of several. While nobody watches, the observer does
nothing.
Entry points: `NodeObserver.wrap`, `NodeObserver.sample`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from thyme.map.hub import MapHub
from thyme.map.recording import (
    MessageDroppedEvent,
    MessageReceivedEvent,
    MessageSentEvent,
    MoveEvent,
    NeighbourEvent,
    NodeEvent,
    OperationLog,
    PowerEvent,
    ReplicaEvent,
)
from thyme.model.bounded import BoundedDict
from thyme.model.ids import NodeId
from thyme.model.positions import Position
from thyme.protocol.messages.common import CellBroadcast, Flooded, Message
from thyme.protocol.messages.description import is_perimeter, kind_of, objects_of
from thyme.protocol.node import (
    Action,
    AppRequested,
    Broadcast,
    Emit,
    Input,
    Node,
    PositionChanged,
    Received,
    Send,
    SendFailed,
)
from thyme.wire.codec import size_of

SENT_MAX = 2_000
"""Number of sent messages that are remembered in case they are not acknowledged."""
_log = logging.getLogger("thyme")
OWN = 0
"""The number of the node itself."""


class NeighbourFacts:
    """What a node knows of another one."""

    def __init__(self, node_id: NodeId, place: Position, role: str = "") -> None:
        self.node_id = node_id
        self.place = place
        self.role = role


class NodeObserver:
    """The events of one live node."""

    def __init__(self, hub: MapHub, node_id: NodeId, place: Position, role: str = "") -> None:
        self._hub = hub
        self._numbers: dict[NodeId, int] = {node_id: OWN}
        self._serial = 0
        self._operations = OperationLog()
        self._sent: BoundedDict[int, tuple[int, Message]] = BoundedDict(SENT_MAX)
        self._place = place
        hub.publish(NodeEvent(0, OWN, node_id.hex(), place, role))
        hub.publish(PowerEvent(0, OWN, True))

    def wrap(self, node: Node) -> Node:
        """A node that does the same as `node` and is observed."""
        return _ObservedNode(node, self)

    def sample(
        self, neighbours: Iterable[NeighbourFacts], replicas: dict[str, str], now_us: int
    ) -> None:
        """Compares neighbours and replicas (object ids and their roles) with those before."""
        state, publish = self._hub.state, self._hub.publish
        present = {self._number(facts, now_us) for facts in neighbours}
        known = {peer for one, peer in state.neighbours if one == OWN}
        for number in sorted(present - known):
            publish(PowerEvent(now_us, number, True))
            publish(NeighbourEvent(now_us, OWN, number, True))
        for number in sorted(known - present):
            publish(NeighbourEvent(now_us, OWN, number, False))
            publish(PowerEvent(now_us, number, False))
        held = {oid: role for (node, oid), role in state.replicas.items() if node == OWN}
        for oid in sorted(held.keys() | replicas.keys()):
            if (role := replicas.get(oid, "")) != held.get(oid, ""):
                publish(ReplicaEvent(now_us, OWN, oid, role))

    def _move(self, place: Position, now_us: int) -> None:
        if place != self._place:
            publish = self._hub.publish
            publish(MoveEvent(now_us, OWN, now_us, self._place, place))
            self._place = place

    def _number(self, facts: NeighbourFacts, now_us: int) -> int:
        number = self._numbers.get(facts.node_id)
        if number is None:
            number = self._numbers[facts.node_id] = len(self._numbers)
            name = facts.node_id.hex()
            self._hub.publish(NodeEvent(now_us, number, name, facts.place, facts.role))
        elif (before := self._hub.state.nodes[number].place) != facts.place:
            self._hub.publish(MoveEvent(now_us, number, now_us, before, facts.place))
        return number

    def observe(self, event: Input, actions: list[Action], now_us: int) -> None:
        """Publishes what an input and the actions that followed it tell."""
        if not self._hub.watched:
            return
        match event:
            case Received():
                self._on_received(event, now_us)
            case SendFailed():
                if (sent := self._sent.pop(id(event.message), None)) is not None:
                    self._hub.publish(MessageDroppedEvent(now_us, sent[0], "unacknowledged"))
            case AppRequested():
                for record in self._operations.on_request(now_us, OWN, event.request):
                    self._hub.publish(record)
            case PositionChanged():
                self._move(event.position, now_us)
            case _:
                pass
        for action in actions:
            match action:
                case Send() if action.to in self._numbers:
                    serial = self._publish_sent(
                        OWN, self._numbers[action.to], action.message, now_us
                    )
                    self._sent[id(action.message)] = serial, action.message
                case Broadcast():
                    self._publish_sent(OWN, None, action.message, now_us)
                case Emit():
                    record_of = self._operations.on_event
                    self._hub.publish(record_of(now_us, OWN, action.event))
                case _:
                    pass

    def _on_received(self, event: Received, now_us: int) -> None:
        """A message that arrived is also the only sign that a neighbour sent it."""
        number = self._numbers.get(event.sender)
        if number is None:
            return
        message = event.message
        is_broadcast = isinstance(message, CellBroadcast | Flooded) or message.routing_control
        serial = self._publish_sent(number, None if is_broadcast else OWN, message, now_us)
        self._hub.publish(MessageReceivedEvent(now_us, serial, (OWN,)))

    def _publish_sent(self, node: int, to: int | None, message: Message, now_us: int) -> int:
        self._serial += 1
        perimeter, objects = is_perimeter(message), objects_of(message)
        kind, size = kind_of(message), size_of(message)
        event = MessageSentEvent(now_us, self._serial, node, to, kind, size, perimeter, objects)
        self._hub.publish(event)
        return self._serial


class _ObservedNode:
    """A node that is observed."""

    def __init__(self, node: Node, observer: NodeObserver) -> None:
        self._node = node
        self._observer = observer
        self._failed = False

    @property
    def node_id(self) -> NodeId:
        return self._node.node_id

    def handle(self, event: Input, now_us: int) -> list[Action]:
        actions = self._node.handle(event, now_us)
        if not self._failed:
            try:
                self._observer.observe(event, actions, now_us)
            except Exception:  # a mistake in the map must not stop the node
                self._failed = True
                _log.exception("the map stops: an input could not be observed")
        return actions

    def check(self) -> None:
        self._node.check()
