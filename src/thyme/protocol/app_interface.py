"""Application interface: the requests of an application to its node, and the node's events.

The application chooses the `request_id` of a request; exactly one `Finished` or `Failed` answers
it. Events of subscriptions come unsolicited. `thyme.wire.app_rpc` carries both between processes
under the names in `_RPC_NAMES`; `label` is the name of each class there, in recordings and in
metrics.
Clauses: M13–M20, M27, M29, M30, M32, M34, M37, B5, B7.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import msgspec
from msgspec import UNSET, UnsetType

from thyme.model.ids import Key, ObjectId, SubscriptionId
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import Conjunction, Notification
from thyme.model.tags import Tag
from thyme.model.time_frames import TimeFrame

_RPC_NAMES = {
    "notification": "note",
    "notifications": "notes",
    "request_id": "ask",
    "ttl_us": "life_us",
}
"""Field names in the frames of `thyme.wire.app_rpc`, where they differ from the names here."""


ALL_NODES = 0
"""The value of `Insert.replicas` for all nodes of the cell."""


@dataclass(frozen=True, slots=True)
class StorageOptions:
    """How an object is to be stored: on at least `copies` nodes, on disk if `durable` (M30), and on
    `replicas` nodes of the owner's cell, if this is not left to the world (D14)."""

    copies: int = 1
    durable: bool = False
    replicas: int | None = None


AS_USUAL = StorageOptions()


class Insert(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename=_RPC_NAMES):
    """Store an object and notify its subscribers (M13). Finished with its `Key`.

    `copies` and `durable` are guarantees: a substrate that does not offer them fails the request
    with `unsupported` (M30). `replicas` is the number of nodes of the owner's cell that store the
    object, the owner included, `ALL_NODES` for all of them; left out, the world chooses (D14).
    """

    label: ClassVar[str] = "Insert"

    request_id: int
    data: bytes
    tags: tuple[Tag, ...]
    summary: bytes = b""
    oid: ObjectId | None = None
    ttl_us: int | None = None
    copies: int = 1
    durable: bool = False
    replicas: int | UnsetType = UNSET


class UploadChunk(msgspec.Struct, frozen=True, kw_only=True, rename=_RPC_NAMES):
    """Store the next chunk of a large object of this node, to be inserted later (M37). Finished
    with the number of bytes so far."""

    label: ClassVar[str] = "UploadChunk"

    request_id: int
    upload: str
    """Chosen by the application, different for each object."""
    data: bytes


class DropUpload(msgspec.Struct, frozen=True, kw_only=True, rename=_RPC_NAMES):
    """Remove the chunks of an upload that will not be inserted (M37). Finished with None."""

    label: ClassVar[str] = "DropUpload"

    request_id: int
    upload: str


class InsertUploaded(Insert, frozen=True, kw_only=True, rename=_RPC_NAMES):
    """Insert a large object whose chunks were uploaded (M37); `data` is empty. Finished with its
    key."""

    label: ClassVar[str] = "InsertUploaded"

    upload: str


class InsertAt(Insert, frozen=True, kw_only=True):
    """Insert an object with a given publication time, because it was inserted in another world
    before (B7). Applications cannot make this request. Finished with its key."""

    published_us: int


class Delete(msgspec.Struct, frozen=True, kw_only=True, rename=_RPC_NAMES):
    """Delete an object of this node (M14). Finished with None."""

    label: ClassVar[str] = "Delete"

    request_id: int
    key: Key


class Subscribe(msgspec.Struct, frozen=True, kw_only=True, rename=_RPC_NAMES):
    """Subscribe to past and future matches (M15). Finished with `SubscriptionStarted`."""

    label: ClassVar[str] = "Subscribe"

    request_id: int
    conjunctions: tuple[Conjunction, ...]
    frame: TimeFrame
    batch: int


class Resume(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename=_RPC_NAMES):
    """Continue a stored subscription (M27). Finished with `SubscriptionStarted`.

    Objects published since the last consumed notification come first. With `after`, notifications
    that were consumed after that one are emitted again: they did not reach their reader (M34).
    """

    label: ClassVar[str] = "Resume"

    request_id: int
    sid: SubscriptionId
    after: Key | None = None


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """Emit no notifications of a subscription, because the application's buffer is full (M33).

    Not answered; `CatchUp` ends the pause.
    """

    label: ClassVar[str] = "Pause"

    sid: SubscriptionId


class CatchUp(msgspec.Struct, frozen=True, kw_only=True, rename=_RPC_NAMES):
    """Emit the notifications held back during a pause (M33). Finished with None.

    `refused` are the keys of notifications that the application rejected before the pause began.
    """

    label: ClassVar[str] = "CatchUp"

    request_id: int
    sid: SubscriptionId
    refused: tuple[Key, ...]


class FetchNextPage(msgspec.Struct, frozen=True, kw_only=True, rename=_RPC_NAMES):
    """Emit the next page of past matches (M17). Finished with the number of notifications."""

    label: ClassVar[str] = "More"

    request_id: int
    sid: SubscriptionId
    count: int


class Unsubscribe(msgspec.Struct, frozen=True, kw_only=True, rename=_RPC_NAMES):
    """End a subscription before its end time (M18). Finished with None."""

    label: ClassVar[str] = "Unsubscribe"

    request_id: int
    sid: SubscriptionId


class MarkConsumed(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Mark a notification as consumed: a resumed subscription does not repeat it (M27).

    Not answered.
    """

    label: ClassVar[str] = "Take"

    sid: SubscriptionId
    key: Key


class Search(msgspec.Struct, frozen=True, kw_only=True, rename=_RPC_NAMES):
    """Search the catalogue once (M20). Finished with `SearchResult`."""

    label: ClassVar[str] = "Search"

    request_id: int
    conjunctions: tuple[Conjunction, ...]
    frame: TimeFrame
    count: int


class Retrieve(msgspec.Struct, frozen=True, kw_only=True, rename=_RPC_NAMES):
    """Retrieve an object by its metadata (M19). Finished with its bytes."""

    label: ClassVar[str] = "Retrieve"

    request_id: int
    metadata: Metadata


class RetrieveChunk(msgspec.Struct, frozen=True, kw_only=True, rename=_RPC_NAMES):
    """Retrieve one chunk of a large object by its metadata (M37). Finished with its bytes."""

    label: ClassVar[str] = "RetrieveChunk"

    request_id: int
    metadata: Metadata
    index: int


class Lookup(msgspec.Struct, frozen=True, kw_only=True, rename=_RPC_NAMES):
    """Return the status of an object (M32). Finished with `LookupResult`."""

    label: ClassVar[str] = "LookUp"

    request_id: int
    key: Key


class ListSubscriptions(msgspec.Struct, frozen=True, kw_only=True, rename=_RPC_NAMES):
    """List the subscriptions of this node. Finished with a tuple of `SubscriptionInfo`."""

    label: ClassVar[str] = "ListSubscriptions"

    request_id: int


class InsertBatch(msgspec.Struct, frozen=True):
    """Inserts made at the same time; one signature covers all (B5). Each is answered."""

    inserts: tuple[Insert, ...]


RequestWithReply = (
    Insert
    | InsertUploaded
    | UploadChunk
    | DropUpload
    | Delete
    | Subscribe
    | Resume
    | CatchUp
    | FetchNextPage
    | Unsubscribe
    | Search
    | Retrieve
    | RetrieveChunk
    | Lookup
    | ListSubscriptions
)
AppRequest = RequestWithReply | MarkConsumed | Pause


class SubscriptionStarted(msgspec.Struct, frozen=True):
    """A subscription is active: its identifier and the number of past matches (the x of M17).

    If that number is not known yet, `total` counts the matches at this node, and `CaughtUp` has the
    final number (L7).
    """

    sid: SubscriptionId
    total: int


class SearchResult(msgspec.Struct, frozen=True, omit_defaults=True, rename=_RPC_NAMES):
    """The result of a search: the most recent matches, newest first, and the total number.

    There may be more matches if `unanswered`, the number of nodes in reach that did not answer, is
    not 0 (L7).
    """

    notifications: tuple[Notification, ...]
    total: int
    unanswered: int = 0

    def __iter__(self) -> Iterator[Notification]:
        return iter(self.notifications)

    def __len__(self) -> int:
        return len(self.notifications)


class LookupResult(msgspec.Struct, frozen=True):
    """The state of an object at a broker: `there`, `deleted`, `expired`, `evicted`, `unknown`."""

    state: str
    metadata: Metadata | None = None


class SubscriptionInfo(msgspec.Struct, frozen=True):
    """A subscription of this node, as `ListSubscriptions` returns it."""

    sid: SubscriptionId
    conjunctions: tuple[Conjunction, ...]
    frame: TimeFrame
    batch: int


ReplyValue = (
    Key
    | SubscriptionStarted
    | SearchResult
    | LookupResult
    | tuple[SubscriptionInfo, ...]
    | bytes
    | int
    | None
)


class Finished(msgspec.Struct, frozen=True, gc=False):
    """A request succeeded."""

    label: ClassVar[str] = "Finished"

    request_id: int
    value: ReplyValue


class Failed(msgspec.Struct, frozen=True, rename=_RPC_NAMES):
    """A request failed; `code` names the failure."""

    label: ClassVar[str] = "Failed"

    request_id: int
    code: str
    detail: str


class NotificationEvent(msgspec.Struct, frozen=True, gc=False, rename=_RPC_NAMES):
    """An object matches a subscription: a new one, or one from history (M15)."""

    label: ClassVar[str] = "Notified"

    notification: Notification


class CaughtUp(msgspec.Struct, frozen=True):
    """The first page of past matches, or all matches missed while away, were emitted (M27).

    `code` names the failure if some matches could not be fetched.
    """

    label: ClassVar[str] = "CaughtUp"

    sid: SubscriptionId
    total: int
    code: str = ""


class NotificationsLost(msgspec.Struct, frozen=True):
    """Some objects matched a subscription, but were removed by retention before the application
    could be notified of them (M34)."""

    label: ClassVar[str] = "NotificationsLost"

    sid: SubscriptionId
    count: int


class SubscriptionEnded(msgspec.Struct, frozen=True):
    """The subscription has ended: its time frame ended or it was cancelled (M18)."""

    label: ClassVar[str] = "SubscriptionOver"

    sid: SubscriptionId
    reason: str


AppEvent = Finished | Failed | NotificationEvent | CaughtUp | NotificationsLost | SubscriptionEnded
