"""Message authentication: signs the records in sent messages and verifies those in received ones.

Entry points: `MessageAuthenticator.sign_message` and `verify_message`. Every signed record
(`thyme.model.signed_records`) in a received message is verified. Invalid records are removed; a
message that consists of one invalid record is dropped. All other code trusts verified records.
Clauses: B5, D15, D16, D20.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import msgspec

from thyme.model.errors import ThymeError
from thyme.model.ids import Key, NodeId, SubscriptionId
from thyme.model.metadata import Metadata
from thyme.model.records import (
    DeleteRecord,
    LocationRecord,
    Notary,
    UnsubscribeRecord,
    is_vouched,
)
from thyme.model.subscriptions import Subscription, SubscriptionKey
from thyme.protocol import cell_messages as cell_wire
from thyme.protocol import messages as wire
from thyme.protocol.cells import CellId, Grave, Indexed, Interest, Matched, Place, Proven
from thyme.protocol.node import Action, Broadcast, Send

M = TypeVar("M", bound=msgspec.Struct)
R = TypeVar("R")


class Warden:
    """Signs and verifies the messages of one node."""

    def __init__(self, node_id: NodeId, notary: Notary, *, places: bool = False) -> None:
        """`check_locations`: whether subscriptions need a signed location."""
        self._node_id = node_id
        self.notary = notary
        self._places = places
        self.dropped: Counter[str] = Counter()
        """The number of invalid records, by kind."""

    # Signing

    def sign(self, message: M, now_us: int, cell: CellId | None = None) -> M:
        """Returns the signed variant of a message; most messages are returned unchanged."""
        make = self._makers.get(type(message))
        return message if make is None else make(self, message, now_us, cell)

    def signed(self, actions: list[Action], now_us: int) -> list[Action]:
        """Replaces the messages in a list of actions by their signed variants, in place."""
        for at, action in enumerate(actions):
            if isinstance(action, Send | Broadcast) and type(action.message) in self._makers:
                said = self.sign(action.message, now_us)
                if isinstance(action, Send):
                    actions[at] = Send(action.to, said)
                else:
                    actions[at] = Broadcast(said)
        return actions

    def _sign_flood(self, message: wire.Flooded, now_us: int, _: object) -> wire.Flooded:
        if message.origin != self._node_id:
            return message
        return _with(message, message=self.sign(message.message, now_us))

    def _sign_delete(self, message: wire.DeleteObject, *_: object) -> wire.DeleteObject:
        if message.key.owner != self._node_id:
            return message
        proof = self.notary.sign(DeleteRecord(message.key))
        return wire.SignedDelete(message.request, message.key, proof)

    def _sign_stop(self, message: wire.StopSubscription, *_: object) -> wire.StopSubscription:
        if message.key.subscriber != self._node_id:
            return message
        proof = self.notary.sign(UnsubscribeRecord(message.key))
        return wire.SignedStop(message.request, message.key, proof)

    def _sign_start(
        self, message: wire.StartSubscription, now_us: int, cell: CellId | None
    ) -> wire.StartSubscription:
        subscription = message.subscription
        if cell is None or subscription.key.subscriber != self._node_id:
            return message
        place = self._place(cell, now_us)
        return wire.PlacedSubscription(message.request, subscription, message.batch, place)

    def _sign_move(
        self, message: cell_wire.NodeMoved, now_us: int, cell: CellId | None
    ) -> cell_wire.NodeMoved:
        if cell is None:
            return message
        place = self._place(cell, now_us)
        return cell_wire.SignedMove(message.request, message.sids, message.keys, place)

    def _place(self, cell: CellId, now_us: int) -> Place:
        proof = self.notary.sign(LocationRecord(self._node_id, cell, now_us))
        return Place(cell, Proven(now_us, proof))

    _makers: ClassVar[dict[type, Callable[..., Any]]] = {
        wire.DeleteObject: _sign_delete,
        wire.StopSubscription: _sign_stop,
        wire.StartSubscription: _sign_start,
        cell_wire.NodeMoved: _sign_move,
        wire.Flooded: _sign_flood,
    }

    # Verifying messages

    def admit(self, origin: NodeId, message: wire.Message) -> wire.Message | None:
        """Returns a message without its invalid records; None if nothing remains."""
        look = self._looks.get(type(message))
        if look is None:
            return message
        admitted: wire.Message | None = look(self, origin, message)
        return admitted

    def _carrier(
        self, origin: NodeId, message: wire.Letter | wire.Flooded | wire.FromCell
    ) -> wire.Message | None:
        if isinstance(message, wire.Flooded):
            origin = message.origin
        inner = self.admit(origin, message.message)
        return None if inner is None else _with(message, message=inner)

    def _one_object(self, _: NodeId, message: Any) -> wire.Message | None:
        return message if self._metadata(message.metadata) else None

    def _one_indexed(self, _: NodeId, message: Any) -> wire.Message | None:
        return message if self._indexed(message.indexed) else None

    def _status(self, _: NodeId, message: wire.ObjectStatus) -> wire.Message | None:
        metadata = message.metadata
        return message if metadata is None or self._metadata(metadata) else None

    def _cell_status(self, _: NodeId, message: cell_wire.CellStatus) -> wire.Message | None:
        indexed = message.indexed
        return message if indexed is None or self._indexed(indexed) else None

    def _page(self, _: NodeId, message: wire.Page | wire.OwnerPage) -> wire.Message | None:
        return _with(message, items=_those(message.items, self._metadata))

    def _cell_page(self, _: NodeId, message: cell_wire.CellPage) -> wire.Message | None:
        return _with(message, items=_those(message.items, self._indexed))

    def _cell_news(self, _: NodeId, message: cell_wire.CellNews) -> wire.Message | None:
        return _with(message, items=_those(message.items, self._matched))

    def _again(self, _: NodeId, message: cell_wire.IndexAgain) -> wire.Message | None:
        return _with(message, objects=_those(message.objects, self._indexed))

    def _delete(self, _: NodeId, message: wire.DeleteObject) -> wire.Message | None:
        proof = message.proof if isinstance(message, wire.SignedDelete) else b""
        return message if self._deleted(message.key, proof) else None

    def _stop(self, _: NodeId, message: wire.StopSubscription) -> wire.Message | None:
        proof = message.proof if isinstance(message, wire.SignedStop) else b""
        return message if self._ended(message.key, proof) else None

    def _start(self, _: NodeId, message: wire.StartSubscription) -> wire.Message | None:
        if not self._subscription(message.subscription):
            return None
        if not self._places:
            return message
        subscriber = message.subscription.key.subscriber
        place = message.place if isinstance(message, wire.PlacedSubscription) else None
        return message if self._is_at(subscriber, place) else None

    def _move(self, origin: NodeId, message: cell_wire.NodeMoved) -> wire.Message | None:
        place = message.place if isinstance(message, cell_wire.SignedMove) else None
        return message if self._is_at(origin, place) else None

    def _join(self, _: NodeId, message: wire.JoinReply) -> wire.Message | None:
        return _with(message, subscriptions=_those(message.subscriptions, self._subscription))

    def _state(self, _: NodeId, message: cell_wire.CellState) -> cell_wire.CellState:
        return _with(
            message,
            objects=_those(message.objects, self._indexed),
            interests=_those(message.interests, self._interest),
            buried_objects=_those(message.buried_objects, self._object_grave),
            buried_subscriptions=_those(message.buried_subscriptions, self._subscription_grave),
            held=_those(message.held, self._metadata),
        )

    def _with_state(
        self, origin: NodeId, message: cell_wire.HandOver | cell_wire.BackUp
    ) -> wire.Message | None:
        return _with(message, state=self._state(origin, message.state))

    _looks: ClassVar[dict[type, Callable[..., Any]]] = {
        **dict.fromkeys((wire.Letter, wire.Flooded, wire.FromCell), _carrier),
        **dict.fromkeys((wire.InsertObject, cell_wire.HoldObject, wire.Notify), _one_object),
        **dict.fromkeys((cell_wire.IndexObject, cell_wire.CellNotify), _one_indexed),
        wire.ObjectStatus: _status,
        cell_wire.CellStatus: _cell_status,
        **dict.fromkeys((wire.Page, wire.OwnerPage), _page),
        cell_wire.CellPage: _cell_page,
        cell_wire.CellNews: _cell_news,
        cell_wire.IndexAgain: _again,
        **dict.fromkeys((wire.DeleteObject, wire.SignedDelete), _delete),
        **dict.fromkeys((wire.StopSubscription, wire.SignedStop), _stop),
        **dict.fromkeys((wire.StartSubscription, wire.PlacedSubscription), _start),
        **dict.fromkeys((cell_wire.NodeMoved, cell_wire.SignedMove), _move),
        wire.JoinReply: _join,
        cell_wire.CellState: _state,
        **dict.fromkeys((cell_wire.HandOver, cell_wire.BackUp), _with_state),
    }
    """The verification method of every message type that contains records."""

    # Verifying records

    def _metadata(self, metadata: Metadata) -> bool:
        return self._counted("object", self.notary.is_genuine(metadata, metadata.proof))

    def _indexed(self, indexed: Indexed) -> bool:
        return self._metadata(indexed.metadata)

    def _matched(self, matched: Matched) -> bool:
        return self._metadata(matched.indexed.metadata)

    def _subscription(self, subscription: Subscription) -> bool:
        return self._counted("subscription", is_vouched(subscription, self.notary))

    def _interest(self, interest: Interest) -> bool:
        if not self._subscription(interest.subscription):
            return False
        heard = interest.heard
        place = Place(interest.cell, heard) if isinstance(heard, Proven) else None
        return self._is_at(interest.subscription.key.subscriber, place)

    def _is_at(self, node: NodeId, place: Place | None) -> bool:
        genuine = place is not None and self.notary.is_genuine(
            LocationRecord(node, place.cell, place.since.at_us), place.since.proof
        )
        return self._counted("location", genuine)

    def _deleted(self, key: Key, proof: bytes) -> bool:
        return self._counted("delete", self.notary.is_genuine(DeleteRecord(key), proof))

    def _ended(self, key: SubscriptionKey, proof: bytes) -> bool:
        return self._counted("unsubscribe", self.notary.is_genuine(UnsubscribeRecord(key), proof))

    def _object_grave(self, grave: Grave) -> bool:
        """Only a delete is signed; an expiry follows from the object's own metadata."""
        if not isinstance(grave.left, Proven):
            return self._counted("delete", genuine=False) if grave.why == "deleted" else False
        key = _written(grave)
        return key is not None and self._deleted(key, grave.left.proof)

    def _subscription_grave(self, grave: Grave) -> bool:
        key = _written(grave)
        if key is None or not isinstance(grave.left, Proven):
            return self._counted("unsubscribe", genuine=False)
        sub_key = SubscriptionKey(SubscriptionId(key.oid), key.owner)
        return self._ended(sub_key, grave.left.proof)

    def _counted(self, kind: str, genuine: bool) -> bool:
        if not genuine:
            self.dropped[f"not genuine: {kind}"] += 1
        return genuine


def admitted(warden: Warden | None, origin: NodeId, message: wire.Message) -> wire.Message | None:
    """Verifies a message; without an authenticator (no node keys), returns it unchanged."""
    return message if warden is None else warden.admit(origin, message)


def _those(some: tuple[R, ...], genuine: Callable[[R], bool]) -> tuple[R, ...]:
    """Returns the valid records; the same tuple if all are valid."""
    found = tuple(filter(genuine, some))
    return some if len(found) == len(some) else found


def _with(message: M, /, **fields: object) -> M:
    """Returns a message with other field values; the same message if none differs."""
    if all(getattr(message, name) is value for name, value in fields.items()):
        return message
    return msgspec.structs.replace(message, **fields)


def _written(grave: Grave) -> Key | None:
    try:
        return Key.parse(grave.key)
    except ThymeError:
        return None
