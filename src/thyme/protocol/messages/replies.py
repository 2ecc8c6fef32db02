"""Replies of brokers, and notifications.

Immutable records, declared by the rules of `messages.common`. Those of cells are in
`messages.cells`, those of large objects in `messages.chunks`.
Clauses: M13, M16–M18, M20, M34.
"""

from __future__ import annotations

from thyme.model.ids import Key, RequestId, SubscriptionId, as_subscription_id
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import SubscriptionRecord
from thyme.protocol.messages.chunks import ChunksMissing
from thyme.protocol.messages.list_limits import Items, Records
from thyme.protocol.messages.traits import BaseMessage, RecordKind


class Done(BaseMessage, frozen=True, array_like=True, tag=16):
    """The request succeeded."""

    label = "Done"
    operation = "acknowledgement"
    authenticated = True

    request_id: RequestId


class Refused(BaseMessage, frozen=True, array_like=True, tag=17):
    """The request failed: a code of `thyme.model.errors` and an explanation."""

    label = "Refused"
    operation = "acknowledgement"
    authenticated = True

    request_id: RequestId
    code: str
    detail: str


class Page(BaseMessage, frozen=True, array_like=True, tag=18):
    """Past matches, newest first, with the total number; `has_more` if older ones remain."""

    label = "Page"
    operation = "subscribe"
    authenticated = True
    records = (("items", RecordKind.METADATA),)

    request_id: RequestId
    total: int
    items: Records[Metadata]
    has_more: bool


class ObjectData(BaseMessage, frozen=True, array_like=True, tag=19):
    """The bytes of an object."""

    label = "ObjectData"
    operation = "retrieve"

    request_id: RequestId
    key: Key
    data: bytes


class ObjectStatus(BaseMessage, frozen=True, array_like=True, tag=20):
    """The status of an object at a broker, see `LookupResult`."""

    label = "ObjectStatus"
    authenticated = True
    records = (("metadata", RecordKind.METADATA),)

    request_id: RequestId
    state: str
    metadata: Metadata | None


class MissedPage(BaseMessage, frozen=True, array_like=True, tag=21):
    """Matches that the subscriber missed, oldest first (M34)."""

    label = "MissedPage"
    operation = "notification"
    authenticated = True
    records = (("items", RecordKind.METADATA),)

    request_id: RequestId
    gap: int
    round: int
    """Increases when objects with earlier timestamps arrived meanwhile and are read next."""
    items: Records[Metadata]
    ended: bool
    """Whether the subscriber has everything; from now on it is notified again."""
    lost: int
    """The number of missed objects that are no longer stored, in the whole gap."""


class Notify(BaseMessage, frozen=True, array_like=True, tag=32):
    """One object matches one or more subscriptions of the receiver. Not answered."""

    label = "Notify"
    operation = "notification"
    records = (("metadata", RecordKind.METADATA),)

    metadata: Metadata
    sids: Items[SubscriptionId]

    def __post_init__(self) -> None:
        for sid in self.sids:
            as_subscription_id(sid)


class PastMatches(BaseMessage, frozen=True, array_like=True, tag=33):
    """Past matches at the sender for a subscription of the receiver: an unsolicited `Page`."""

    label = "OwnerPage"
    operation = "subscribe"
    records = (("items", RecordKind.METADATA),)

    sid: SubscriptionId
    total: int
    items: Records[Metadata]
    has_more: bool

    def __post_init__(self) -> None:
        as_subscription_id(self.sid)


class JoinReply(BaseMessage, frozen=True, array_like=True, tag=35):
    """Some subscriptions stored by the sender: part `part` of `parts`, counted from 0."""

    label = "JoinReply"
    records = (("subscriptions", RecordKind.SUBSCRIPTION),)

    request_id: RequestId
    part: int
    parts: int
    subscriptions: Records[SubscriptionRecord]


class Missed(BaseMessage, frozen=True, array_like=True, tag=38):
    """The receiver missed notifications of its subscription (M34). Repeated until the receiver
    reads them with `FetchMissed`."""

    label = "Missed"
    operation = "notification"
    introduces = True

    sid: SubscriptionId
    gap: int

    def __post_init__(self) -> None:
        as_subscription_id(self.sid)
        if self.gap <= 0:
            raise ValueError("the number of a gap must be greater than 0")


Reply = Done | Refused | Page | MissedPage | ObjectData | ObjectStatus | ChunksMissing
NotificationMessage = Notify | PastMatches
