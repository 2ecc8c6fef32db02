"""Thyme-DCS node: passes inputs and messages to the components of one node.

Entry point: `DcsNode.handle`. Cell routing, below, delivers messages to this node or its cell and
sends its own messages. `composition` creates the components, `input_dispatch` and
`message_handlers` name the component that handles each input and each message.
Clauses: D7–D9, D11–D19, D23, M21.
"""

from __future__ import annotations

from collections import Counter, deque
from random import Random

from msgspec.structs import replace

from thyme.model.errors import InputError
from thyme.model.ids import NodeId
from thyme.protocol.message_auth import MessageAuthenticator
from thyme.protocol.messages import common as wire
from thyme.protocol.messages.cell_records import CellId
from thyme.protocol.messages.traits import Expanded
from thyme.protocol.node import Action, Input, Received, SendFailed, TimerFired
from thyme.protocol.quick_receiver import QuickReceiver
from thyme.routing.cells import BeaconReceived, Delivery, DeliveryFailure
from thyme.routing.cells.interface import BeaconTimer
from thyme.storage.store import Store
from thyme.substrates.dcs.cell_map import CellMap
from thyme.substrates.dcs.composition import NodeParts
from thyme.substrates.dcs.config import DcsConfig
from thyme.substrates.dcs.extension import NodeExtension
from thyme.substrates.dcs.input_dispatch import InputDispatch
from thyme.substrates.dcs.membership.cell_joining import CellJoinPhase
from thyme.substrates.dcs.message_handlers import MessageHandlers
from thyme.substrates.dcs.robust.reannounce import STAMP_BYTES
from thyme.substrates.dcs.state.cell_digest import DIGEST_BYTES

_NAMES_START = DIGEST_BYTES + STAMP_BYTES
"""Where the names of retrieved objects begin in the payload of a beacon."""


class DcsNode:
    """One node of a Thyme-DCS world."""

    def __init__(
        self,
        node_id: NodeId,
        cell: CellId,
        cell_map: CellMap,
        store: Store,
        rng: Random,
        config: DcsConfig,
        *,
        join_at_us: int = 0,
        authenticator: MessageAuthenticator | None = None,
        extension: NodeExtension | None = None,
    ) -> None:
        """Until `join_at_us` the node receives beacons but does not join its cell."""
        self._node_id = node_id
        self._cell_map = cell_map
        self._authenticator = authenticator
        self.extension = extension
        self._inbox: deque[Delivery | DeliveryFailure] = deque()
        self.parts = parts = NodeParts(
            node_id,
            cell,
            cell_map,
            store,
            rng,
            config,
            self,
            join_at_us,
            authenticator,
            extension,
        )
        self._outbox = parts.outbox
        self.dropped: Counter[str] = parts.dropped
        self.routing = parts.routing
        self.requests = parts.requests
        self.index = parts.index
        self.replicas = parts.replicas
        self.service = parts.service
        self.joining = parts.joining
        self.membership = parts.membership
        self.subscriber = parts.client.subscriber
        self._anti_entropy = parts.anti_entropy
        self._neighbour_replicas = parts.neighbour_replicas
        self._inputs = InputDispatch(parts)
        self.handlers = MessageHandlers(parts)

    @property
    def node_id(self) -> NodeId:
        return self._node_id

    @property
    def broker_subscriptions(self) -> int:
        """The number of active subscriptions stored on this node."""
        return self.index.broker.subscription_count

    @property
    def quick_receiver(self) -> QuickReceiver | None:
        """The layer that recognises messages which cause no action, for drivers."""
        routing = self.routing
        return routing if isinstance(routing, QuickReceiver) else None

    def handle(self, event: Input, now_us: int) -> list[Action]:
        """Processes one input at its instant; returns the actions to carry out, in order."""
        # Most inputs are beacons, the times to send them, and messages to forward, which do not
        # change this node's state.
        if isinstance(event, Received):
            changed = not self.routing.on_received(event.sender, event.message, now_us)
            if changed:
                self._on_other_message(event.sender, event.message, now_us)
        elif isinstance(event, TimerFired) and isinstance(event.timer, BeaconTimer):
            self.routing.on_timer(event.timer, now_us)
            changed = False
        else:
            self._inputs.dispatch(event, now_us)
            changed = not isinstance(event, SendFailed)
        if changed or self._inbox:
            self._process_inbox(now_us)
            self.service.set_expiry_timer()
        return self._outbox.drain_actions()

    def _on_other_message(self, sender: NodeId, message: wire.Message, now_us: int) -> None:
        """Passes a message that is not of cell routing to the extension."""
        extension = self.extension
        if extension is None or not extension.on_received(sender, message, now_us):
            self.dropped["not spoken here"] += 1

    def _process_inbox(self, now_us: int) -> None:
        while self._inbox:
            queued = self._inbox.popleft()
            if isinstance(queued, Delivery):
                self._process_delivery(queued, now_us)
            else:
                self._process_failure(queued, now_us)

    def check(self) -> None:
        """Asserts the invariants that hold between any two inputs."""
        self.parts.check()
        assert not self._inbox

    def _process_failure(self, failure: DeliveryFailure, now_us: int) -> None:
        if not (
            self.requests.on_delivery_failure(failure, now_us)
            or self.service.notification_delivery.on_delivery_failure(failure, now_us)
        ):
            self.dropped["answer to nobody"] += 1  # the requester retries

    def _process_delivery(self, delivery: Delivery, now_us: int) -> None:
        try:
            expanded = delivery.message.expanded()
        except InputError:
            self.dropped["invalid compact message"] += 1
            return
        if expanded is not None:
            delivery = self._on_expanded(delivery, expanded)
        message = delivery.message
        if not all(cell in self._cell_map for cell in message.cells_referenced()):
            self.dropped["no such cell"] += 1
            return
        if self._authenticator is not None:
            verified = self._authenticator.verify_message(delivery.origin, message)
            if verified is None:
                return
            if verified is not message:
                delivery = replace(delivery, message=verified)
                message = verified
        if not delivery.is_unicast:
            self.membership.before_cell_message(delivery, now_us)
        handler = self.handlers.find(delivery)
        if handler is not None:
            handler(delivery, message, now_us)
        else:
            self.dropped["not for a node" if delivery.is_unicast else "not for a cell"] += 1

    def _on_expanded(self, delivery: Delivery, expanded: Expanded) -> Delivery:
        """Keeps the small objects of a compact message; returns its full form (D28)."""
        for metadata, data in expanded.small_objects:
            self.parts.received_objects.add(metadata, data)
        return replace(delivery, message=expanded.message, ack_delay_us=expanded.ack_delay_us)

    # Callbacks of cell routing

    def on_delivery(self, delivery: Delivery, now_us: int) -> None:
        """Queues a delivered message; it is processed once the current input has been handled."""
        self._inbox.append(delivery)

    def on_delivery_failure(self, failure: DeliveryFailure, now_us: int) -> None:
        """Queues the failure of a message to a node that was not in its cell."""
        self._inbox.append(failure)

    def on_beacon(self, beacon: BeaconReceived, now_us: int) -> None:
        """Passes a neighbour's beacon to the components that use it."""
        if self.extension is not None:
            own, payload = _split_payload(beacon.payload)
            self.extension.on_beacon(beacon, own, now_us)
            beacon = replace(beacon, payload=payload)
        self.service.notification_delivery.gaps.on_subscriber_active(
            beacon.node, now_us, answered=False
        )
        if self.joining.phase is CellJoinPhase.LISTENING:
            self.joining.on_beacon(beacon, now_us)
        self.membership.on_beacon(beacon, now_us)
        anti_entropy = self._anti_entropy
        if anti_entropy is not None and (
            beacon.cell == self.routing.cell or anti_entropy.is_suspect(beacon.node)
        ):
            anti_entropy.on_beacon(beacon, now_us)

    def beacon_payload(self, now_us: int) -> bytes:
        """The payload of the next beacon: the digest of this node's cell state, the stamp of the
        latest topology change, and the names of retrieved objects."""
        payload = b"" if self._anti_entropy is None else self._anti_entropy.beacon_digest()
        stamp = self.membership.change_stamp
        if stamp and self.routing.serving:
            payload = payload.ljust(DIGEST_BYTES, b"\0") + stamp
        if self._neighbour_replicas is not None and self.routing.serving:
            names = self._neighbour_replicas.beacon_part()
            payload = payload.ljust(_NAMES_START, b"\0") + names if names else payload
        if self.extension is None:
            return payload
        own = self.extension.beacon_part(now_us)
        return bytes((len(own),)) + own + payload

    def is_redundant(self, origin: NodeId, origin_cell: CellId, message: wire.Message) -> bool:
        """Whether a message to the cell contains nothing new for this node."""
        return message.is_redundant(self.index, origin, origin_cell)

    def on_payload(self, node: NodeId, cell: CellId, payload: bytes) -> None:
        """Remembers the objects that a neighbour has retrieved."""
        if self._neighbour_replicas is not None and len(payload) > _NAMES_START:
            self._neighbour_replicas.on_names(node, cell, payload[_NAMES_START:])

    def is_new_payload(self, payload: bytes) -> bool:
        """Whether a beacon's payload reports a topology change that is new to this node."""
        stamp = self._change_stamp_in(payload)
        return bool(stamp) and stamp != self.membership.change_stamp

    def may_become_new(self, payload: bytes) -> bool:
        """Whether a beacon's payload reports a topology change at all."""
        return bool(self._change_stamp_in(payload))

    def _change_stamp_in(self, payload: bytes) -> bytes:
        start = DIGEST_BYTES
        if self.extension is not None and payload:
            start += 1 + payload[0]
        return payload[start : start + STAMP_BYTES]


def _split_payload(payload: bytes) -> tuple[bytes, bytes]:
    """The part of the extension, which begins with its length, and the rest of a payload."""
    end = 1 + payload[0] if payload else 0
    return payload[1:end], payload[end:]
