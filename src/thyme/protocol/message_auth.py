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
from thyme.model.signed_records import (
    DeleteRecord,
    LocationRecord,
    RecordSigner,
    UnsubscribeRecord,
    verify_subscription,
)
from thyme.model.subscriptions import SubscriptionKey, SubscriptionRecord
from thyme.protocol.messages import cells as cell_wire
from thyme.protocol.messages import common as wire
from thyme.protocol.messages.cell_records import (
    CellId,
    CellSubscription,
    IndexedMetadata,
    MatchedObject,
    SignedInstant,
    SignedLocation,
    TombstoneRecord,
)
from thyme.protocol.node import Action, Broadcast, Send

M = TypeVar("M", bound=msgspec.Struct)
R = TypeVar("R")


class MessageAuthenticator:
    """Signs and verifies the messages of one node."""

    def __init__(
        self, node_id: NodeId, signer: RecordSigner, *, check_locations: bool = False
    ) -> None:
        """`check_locations`: whether subscriptions need a signed location."""
        self._node_id = node_id
        self.signer = signer
        self._check_locations = check_locations
        self.dropped: Counter[str] = Counter()
        """The number of invalid records, by kind."""

    # Signing

    def sign_message(self, message: M, now_us: int, cell: CellId | None = None) -> M:
        """Returns the signed variant of a message; most messages are returned unchanged."""
        sign = self._SIGNERS.get(type(message))
        return message if sign is None else sign(self, message, now_us, cell)

    def sign_actions(self, actions: list[Action], now_us: int) -> list[Action]:
        """Replaces the messages in a list of actions by their signed variants, in place."""
        for index, action in enumerate(actions):
            if isinstance(action, Send | Broadcast) and type(action.message) in self._SIGNERS:
                signed = self.sign_message(action.message, now_us)
                if isinstance(action, Send):
                    actions[index] = Send(action.to, signed)
                else:
                    actions[index] = Broadcast(signed)
        return actions

    def _sign_flood(self, message: wire.Flooded, now_us: int, _: object) -> wire.Flooded:
        if message.origin != self._node_id:
            return message
        return _replace_fields(message, message=self.sign_message(message.message, now_us))

    def _sign_delete(self, message: wire.DeleteObject, *_: object) -> wire.DeleteObject:
        if message.key.owner != self._node_id:
            return message
        proof = self.signer.sign(DeleteRecord(message.key))
        return wire.SignedDelete(message.request_id, message.key, proof)

    def _sign_stop(self, message: wire.StopSubscription, *_: object) -> wire.StopSubscription:
        if message.key.subscriber != self._node_id:
            return message
        proof = self.signer.sign(UnsubscribeRecord(message.key))
        return wire.SignedStop(message.request_id, message.key, proof)

    def _sign_start(
        self, message: wire.StartSubscription, now_us: int, cell: CellId | None
    ) -> wire.StartSubscription:
        subscription = message.subscription
        if cell is None or subscription.key.subscriber != self._node_id:
            return message
        location = self._sign_location(cell, now_us)
        return wire.LocatedSubscription(message.request_id, subscription, message.batch, location)

    def _sign_location_update(
        self, message: cell_wire.LocationUpdate, now_us: int, cell: CellId | None
    ) -> cell_wire.LocationUpdate:
        if cell is None:
            return message
        location = self._sign_location(cell, now_us)
        return cell_wire.SignedLocationUpdate(
            message.request_id, message.sids, message.keys, location
        )

    def _sign_location(self, cell: CellId, now_us: int) -> SignedLocation:
        proof = self.signer.sign(LocationRecord(self._node_id, cell, now_us))
        return SignedLocation(cell, SignedInstant(now_us, proof))

    _SIGNERS: ClassVar[dict[type, Callable[..., Any]]] = {
        wire.DeleteObject: _sign_delete,
        wire.StopSubscription: _sign_stop,
        wire.StartSubscription: _sign_start,
        cell_wire.LocationUpdate: _sign_location_update,
        wire.Flooded: _sign_flood,
    }

    # Verifying messages

    def verify_message(self, origin: NodeId, message: wire.Message) -> wire.Message | None:
        """Returns a message without its invalid records; None if nothing remains."""
        verify = self._VERIFIERS.get(type(message))
        if verify is None:
            return message
        verified: wire.Message | None = verify(self, origin, message)
        return verified

    def _verify_carrier(
        self, origin: NodeId, message: wire.ReliableMessage | wire.Flooded | wire.ReplyFromCell
    ) -> wire.Message | None:
        if isinstance(message, wire.Flooded):
            origin = message.origin
        inner = self.verify_message(origin, message.message)
        return None if inner is None else _replace_fields(message, message=inner)

    def _verify_object(self, _: NodeId, message: Any) -> wire.Message | None:
        return message if self._is_valid_metadata(message.metadata) else None

    def _verify_indexed_object(self, _: NodeId, message: Any) -> wire.Message | None:
        return message if self._is_valid_indexed(message.indexed) else None

    def _verify_status(self, _: NodeId, message: wire.ObjectStatus) -> wire.Message | None:
        metadata = message.metadata
        return message if metadata is None or self._is_valid_metadata(metadata) else None

    def _verify_cell_status(self, _: NodeId, message: cell_wire.CellStatus) -> wire.Message | None:
        indexed = message.indexed
        return message if indexed is None or self._is_valid_indexed(indexed) else None

    def _verify_page(self, _: NodeId, message: wire.Page | wire.PastMatches) -> wire.Message | None:
        return _replace_fields(message, items=_filter_valid(message.items, self._is_valid_metadata))

    def _verify_cell_page(self, _: NodeId, message: cell_wire.CellPage) -> wire.Message | None:
        return _replace_fields(message, items=_filter_valid(message.items, self._is_valid_indexed))

    def _verify_notify_batch(
        self, _: NodeId, message: cell_wire.CellNotifyBatch
    ) -> wire.Message | None:
        return _replace_fields(message, items=_filter_valid(message.items, self._is_valid_match))

    def _verify_reindex(self, _: NodeId, message: cell_wire.ReindexObjects) -> wire.Message | None:
        return _replace_fields(
            message, objects=_filter_valid(message.objects, self._is_valid_indexed)
        )

    def _verify_delete(self, _: NodeId, message: wire.DeleteObject) -> wire.Message | None:
        proof = message.proof if isinstance(message, wire.SignedDelete) else b""
        return message if self._is_valid_delete(message.key, proof) else None

    def _verify_stop(self, _: NodeId, message: wire.StopSubscription) -> wire.Message | None:
        proof = message.proof if isinstance(message, wire.SignedStop) else b""
        return message if self._is_valid_unsubscribe(message.key, proof) else None

    def _verify_start(self, _: NodeId, message: wire.StartSubscription) -> wire.Message | None:
        if not self._is_valid_subscription(message.subscription):
            return None
        if not self._check_locations:
            return message
        subscriber = message.subscription.key.subscriber
        location = message.location if isinstance(message, wire.LocatedSubscription) else None
        return message if self._is_valid_location(subscriber, location) else None

    def _verify_location_update(
        self, origin: NodeId, message: cell_wire.LocationUpdate
    ) -> wire.Message | None:
        location = message.location if isinstance(message, cell_wire.SignedLocationUpdate) else None
        return message if self._is_valid_location(origin, location) else None

    def _verify_join_reply(self, _: NodeId, message: wire.JoinReply) -> wire.Message | None:
        return _replace_fields(
            message, subscriptions=_filter_valid(message.subscriptions, self._is_valid_subscription)
        )

    def _verify_cell_state(self, _: NodeId, message: cell_wire.CellState) -> cell_wire.CellState:
        return _replace_fields(
            message,
            objects=_filter_valid(message.objects, self._is_valid_indexed),
            subscriptions=_filter_valid(message.subscriptions, self._is_valid_cell_subscription),
            object_tombstones=_filter_valid(
                message.object_tombstones, self._is_valid_object_tombstone
            ),
            subscription_tombstones=_filter_valid(
                message.subscription_tombstones, self._is_valid_subscription_tombstone
            ),
            replicated=_filter_valid(message.replicated, self._is_valid_metadata),
        )

    def _verify_contained_state(
        self, origin: NodeId, message: cell_wire.TransferState | cell_wire.BackupState
    ) -> wire.Message | None:
        return _replace_fields(message, state=self._verify_cell_state(origin, message.state))

    _VERIFIERS: ClassVar[dict[type, Callable[..., Any]]] = {
        **dict.fromkeys((wire.ReliableMessage, wire.Flooded, wire.ReplyFromCell), _verify_carrier),
        **dict.fromkeys((wire.InsertObject, cell_wire.StoreReplica, wire.Notify), _verify_object),
        **dict.fromkeys((cell_wire.IndexObject, cell_wire.CellNotify), _verify_indexed_object),
        wire.ObjectStatus: _verify_status,
        cell_wire.CellStatus: _verify_cell_status,
        **dict.fromkeys((wire.Page, wire.PastMatches), _verify_page),
        cell_wire.CellPage: _verify_cell_page,
        cell_wire.CellNotifyBatch: _verify_notify_batch,
        cell_wire.ReindexObjects: _verify_reindex,
        **dict.fromkeys((wire.DeleteObject, wire.SignedDelete), _verify_delete),
        **dict.fromkeys((wire.StopSubscription, wire.SignedStop), _verify_stop),
        **dict.fromkeys((wire.StartSubscription, wire.LocatedSubscription), _verify_start),
        **dict.fromkeys(
            (cell_wire.LocationUpdate, cell_wire.SignedLocationUpdate), _verify_location_update
        ),
        wire.JoinReply: _verify_join_reply,
        cell_wire.CellState: _verify_cell_state,
        **dict.fromkeys((cell_wire.TransferState, cell_wire.BackupState), _verify_contained_state),
    }
    """The verification method of every message type that contains records."""

    # Verifying records

    def _is_valid_metadata(self, metadata: Metadata) -> bool:
        return self._count_invalid("object", self.signer.verify(metadata, metadata.proof))

    def _is_valid_indexed(self, indexed: IndexedMetadata) -> bool:
        return self._is_valid_metadata(indexed.metadata)

    def _is_valid_match(self, matched: MatchedObject) -> bool:
        return self._is_valid_metadata(matched.indexed.metadata)

    def _is_valid_subscription(self, subscription: SubscriptionRecord) -> bool:
        return self._count_invalid("subscription", verify_subscription(subscription, self.signer))

    def _is_valid_cell_subscription(self, record: CellSubscription) -> bool:
        if not self._is_valid_subscription(record.subscription):
            return False
        located = record.located
        location = (
            SignedLocation(record.cell, located) if isinstance(located, SignedInstant) else None
        )
        return self._is_valid_location(record.subscription.key.subscriber, location)

    def _is_valid_location(self, node: NodeId, location: SignedLocation | None) -> bool:
        valid = location is not None and self.signer.verify(
            LocationRecord(node, location.cell, location.since.at_us), location.since.proof
        )
        return self._count_invalid("location", valid)

    def _is_valid_delete(self, key: Key, proof: bytes) -> bool:
        return self._count_invalid("delete", self.signer.verify(DeleteRecord(key), proof))

    def _is_valid_unsubscribe(self, key: SubscriptionKey, proof: bytes) -> bool:
        return self._count_invalid("unsubscribe", self.signer.verify(UnsubscribeRecord(key), proof))

    def _is_valid_object_tombstone(self, tombstone: TombstoneRecord) -> bool:
        """Only a delete is signed; an expiry follows from the object's own metadata."""
        if not isinstance(tombstone.removed, SignedInstant):
            return (
                self._count_invalid("delete", valid=False)
                if tombstone.reason == "deleted"
                else False
            )
        key = _parse_key(tombstone)
        return key is not None and self._is_valid_delete(key, tombstone.removed.proof)

    def _is_valid_subscription_tombstone(self, tombstone: TombstoneRecord) -> bool:
        key = _parse_key(tombstone)
        if key is None or not isinstance(tombstone.removed, SignedInstant):
            return self._count_invalid("unsubscribe", valid=False)
        sub_key = SubscriptionKey(SubscriptionId(key.oid), key.owner)
        return self._is_valid_unsubscribe(sub_key, tombstone.removed.proof)

    def _count_invalid(self, kind: str, valid: bool) -> bool:
        if not valid:
            self.dropped[f"not genuine: {kind}"] += 1
        return valid


def verify_incoming(
    authenticator: MessageAuthenticator | None, origin: NodeId, message: wire.Message
) -> wire.Message | None:
    """Verifies a message; without an authenticator (no node keys), returns it unchanged."""
    return message if authenticator is None else authenticator.verify_message(origin, message)


def _filter_valid(records: tuple[R, ...], is_valid: Callable[[R], bool]) -> tuple[R, ...]:
    """Returns the valid records; the same tuple if all are valid."""
    valid = tuple(filter(is_valid, records))
    return records if len(valid) == len(records) else valid


def _replace_fields(message: M, /, **fields: object) -> M:
    """Returns a message with other field values; the same message if none differs."""
    if all(getattr(message, name) is value for name, value in fields.items()):
        return message
    return msgspec.structs.replace(message, **fields)


def _parse_key(tombstone: TombstoneRecord) -> Key | None:
    try:
        return Key.parse(tombstone.key)
    except ThymeError:
        return None
