"""Requests of clients to brokers and cells, and the variants that are signed (B5).

Immutable records, declared by the rules of `messages.common`. Those of DCS only are in
`messages.cells`, those of large objects in `messages.chunks`.
Clauses: M13–M20, M25, M34, E2, B5.
"""

from __future__ import annotations

from collections.abc import Iterable

from thyme.model.ids import Key, NodeId, RequestId
from thyme.model.metadata import Metadata
from thyme.model.signed_records import DeleteRecord, UnsubscribeRecord
from thyme.model.subscriptions import (
    Conjunction,
    SubscriptionKey,
    SubscriptionRecord,
    check_conjunctions,
)
from thyme.model.time_frames import TimeFrame
from thyme.protocol.messages.cell_records import CellId, SignedLocation
from thyme.protocol.messages.chunks import InsertLargeObject
from thyme.protocol.messages.list_limits import Items
from thyme.protocol.messages.traits import (
    UPKEEP,
    BaseMessage,
    KnownRecords,
    LocationMessage,
    RecordKind,
    StatementMessage,
)
from thyme.query.cursor import Cursor


class InsertObject(BaseMessage, frozen=True, array_like=True, tag=1):
    """Store this object and notify its subscribers. Answered by `Done` or `Refused`."""

    label = "InsertObject"
    operation = "insert"
    introduces = True
    records = (("metadata", RecordKind.METADATA),)

    request_id: RequestId
    metadata: Metadata
    data: bytes


class DeleteObject(StatementMessage, frozen=True, array_like=True, tag=2):
    """Delete an object; sent by its owner only. Answered by `Done` or `Refused`."""

    label = "DeleteObject"
    operation = "delete"
    introduces = True
    changes_index = True

    request_id: RequestId
    key: Key

    def author(self, sender: NodeId) -> NodeId:
        return self.key.owner

    def statement(self) -> DeleteRecord:
        return DeleteRecord(self.key)

    def with_proof(self, proof: bytes) -> SignedDelete:
        return SignedDelete(self.request_id, self.key, proof)

    def is_redundant(self, known: KnownRecords, origin: NodeId, origin_cell: CellId) -> bool:
        return known.is_deleted(self.key)


class StartSubscription(LocationMessage, frozen=True, array_like=True, tag=3):
    """Activate a subscription. Answered by a `Page` of past matches."""

    label = "StartSubscription"
    long_reply = True
    operation = "subscribe"
    introduces = True
    changes_index = True
    records = (("subscription", RecordKind.SUBSCRIPTION),)
    location_required = False

    request_id: RequestId
    subscription: SubscriptionRecord
    batch: int

    def author(self, sender: NodeId) -> NodeId:
        return self.subscription.key.subscriber

    def with_location(self, location: SignedLocation) -> LocatedSubscription:
        return LocatedSubscription(self.request_id, self.subscription, self.batch, location)


class StopSubscription(StatementMessage, frozen=True, array_like=True, tag=4):
    """Remove a subscription; sent by its subscriber only. Answered by `Done`."""

    label = "StopSubscription"
    operation = "unsubscribe"
    introduces = True
    changes_index = True

    request_id: RequestId
    key: SubscriptionKey

    def author(self, sender: NodeId) -> NodeId:
        return self.key.subscriber

    def statement(self) -> UnsubscribeRecord:
        return UnsubscribeRecord(self.key)

    def with_proof(self, proof: bytes) -> SignedStop:
        return SignedStop(self.request_id, self.key, proof)


class SignedDelete(DeleteObject, frozen=True, array_like=True, tag=8):
    """A `DeleteObject` with the owner's proof (B5)."""

    label = "SignedDelete"
    operation = UPKEEP

    proof: bytes


class SignedStop(StopSubscription, frozen=True, array_like=True, tag=9):
    """A `StopSubscription` with the subscriber's proof (B5)."""

    label = "SignedStop"
    operation = UPKEEP

    proof: bytes


class LocatedSubscription(StartSubscription, frozen=True, array_like=True, tag=10):
    """A `StartSubscription` with the subscriber's signed location (D16, B5)."""

    label = "PlacedSubscription"
    operation = UPKEEP

    location: SignedLocation

    def cells_referenced(self) -> Iterable[CellId]:
        return (self.location.cell,)


class FetchPage(BaseMessage, frozen=True, array_like=True, tag=5):
    """Return the most recent matches before a cursor. Answered by `Page`; changes no state."""

    label = "FetchPage"
    long_reply = True
    operation = "subscribe"
    introduces = True
    reads_only = True

    request_id: RequestId
    conjunctions: Items[Conjunction]
    frame: TimeFrame
    count: int
    before: Cursor | None = None

    def __post_init__(self) -> None:
        check_conjunctions(self.conjunctions)


class FetchObject(BaseMessage, frozen=True, array_like=True, tag=6):
    """Return the bytes of an object. Answered by `ObjectData` or `Refused`."""

    label = "FetchObject"
    operation = "retrieve"
    introduces = True
    reads_only = True

    request_id: RequestId
    key: Key


class FetchStatus(BaseMessage, frozen=True, array_like=True, tag=7):
    """Return the status of an object. Answered by `ObjectStatus`."""

    label = "FetchStatus"
    introduces = True
    reads_only = True

    request_id: RequestId
    key: Key


class FetchMissed(BaseMessage, frozen=True, array_like=True, tag=11):
    """Return the matches of a subscription that its subscriber missed, after a cursor (M34).
    Answered by `MissedPage` or `Refused`."""

    label = "FetchMissed"
    long_reply = True
    operation = "notification"
    authenticated = True
    introduces = True
    reads_only = True

    request_id: RequestId
    key: SubscriptionKey
    gap: int
    """The gap from `Missed`; 0 if the subscriber itself dropped notifications."""
    round: int
    """The round from the latest `MissedPage` of the gap; 0 at first."""
    after: Cursor | None
    """Everything up to here arrived in this round; None at the beginning of a gap."""
    count: int
    lost: int
    """The number of lost objects that the subscriber knows of."""


class JoinRequest(BaseMessage, frozen=True, array_like=True, tag=34):
    """Return the subscriptions you store. Some receivers answer with `JoinReply`."""

    label = "JoinRequest"

    request_id: RequestId
    attempt: int


CommonRequest = (
    DeleteObject
    | StartSubscription
    | StopSubscription
    | FetchPage
    | FetchMissed
    | FetchObject
    | FetchStatus
)
"""Requests that both brokers and cells answer."""
BrokerRequest = InsertObject | InsertLargeObject | CommonRequest
