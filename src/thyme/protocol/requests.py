"""What an application asks of its node, and what the node tells it.

Every request carries a number chosen by the asker (`ask`); exactly one `Finished` or `Failed`
answers it. News of subscriptions comes unasked, as it happens. `label` is the name of each on the
way to applications in other processes, in recordings and in metrics.
Clauses: M13–M20, M27, M29, M30, M32, B5.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import msgspec

from thyme.model.frames import TimeFrame
from thyme.model.ids import Key, ObjectId, SubscriptionId
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import Conjunction, Notification
from thyme.model.tags import Tag


class Insert(msgspec.Struct, frozen=True, kw_only=True):
    """Store an object and tell whom it concerns (M13). Finished with its `Key`.

    `copies` and `durable` are guarantees: a substrate that cannot give them fails the request with
    `unsupported` rather than accept it (M30).
    """

    label: ClassVar[str] = "Insert"

    ask: int
    data: bytes
    tags: tuple[Tag, ...]
    summary: bytes = b""
    oid: ObjectId | None = None
    life_us: int | None = None
    copies: int = 1
    durable: bool = False


class Delete(msgspec.Struct, frozen=True, kw_only=True):
    """Remove an object of one's own (M14). Finished with None."""

    label: ClassVar[str] = "Delete"

    ask: int
    key: Key


class Subscribe(msgspec.Struct, frozen=True, kw_only=True):
    """Be told of what matches, from the past and from now on (M15). Finished with `Begun`."""

    label: ClassVar[str] = "Subscribe"

    ask: int
    conjunctions: tuple[Conjunction, ...]
    frame: TimeFrame
    batch: int


class Resume(msgspec.Struct, frozen=True, kw_only=True):
    """Go on with a subscription that this node holds from before (M27). Finished with `Begun`.

    What was published since the subscriber last took a notification comes first.
    """

    label: ClassVar[str] = "Resume"

    ask: int
    sid: SubscriptionId


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """The application has no room: tell nothing more of this subscription for now (M33).

    Not answered; `CatchUp` ends it.
    """

    label: ClassVar[str] = "Pause"

    sid: SubscriptionId


class CatchUp(msgspec.Struct, frozen=True, kw_only=True):
    """There is room again: tell what was held back during a pause (M33). Finished with None.

    `refused` are those told before the pause took effect.
    """

    label: ClassVar[str] = "CatchUp"

    ask: int
    sid: SubscriptionId
    refused: tuple[Key, ...]


class More(msgspec.Struct, frozen=True, kw_only=True):
    """The next batch of the past (M17). Finished with the number of notifications told."""

    label: ClassVar[str] = "More"

    ask: int
    sid: SubscriptionId
    count: int


class Unsubscribe(msgspec.Struct, frozen=True, kw_only=True):
    """End a subscription before its time (M18). Finished with None."""

    label: ClassVar[str] = "Unsubscribe"

    ask: int
    sid: SubscriptionId


class Take(msgspec.Struct, frozen=True, kw_only=True):
    """The application took a notification: a resumed subscription will not repeat it (M27).

    Not answered.
    """

    label: ClassVar[str] = "Take"

    sid: SubscriptionId
    key: Key


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """Read the catalogue once (M20). Finished with `Found`."""

    label: ClassVar[str] = "Search"

    ask: int
    conjunctions: tuple[Conjunction, ...]
    frame: TimeFrame
    count: int


class Retrieve(msgspec.Struct, frozen=True, kw_only=True):
    """Get an object whose metadata was notified (M19). Finished with its bytes."""

    label: ClassVar[str] = "Retrieve"

    ask: int
    metadata: Metadata


class LookUp(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a key (M32). Finished with `KnownObject`."""

    label: ClassVar[str] = "LookUp"

    ask: int
    key: Key


class ListSubscriptions(msgspec.Struct, frozen=True, kw_only=True):
    """The subscriptions this node holds. Finished with a tuple of `Held`."""

    label: ClassVar[str] = "ListSubscriptions"

    ask: int


class Together(msgspec.Struct, frozen=True):
    """Inserts that came at one moment: what they bring is signed at once (B5). Each is answered."""

    inserts: tuple[Insert, ...]


Answered = (
    Insert
    | Delete
    | Subscribe
    | Resume
    | CatchUp
    | More
    | Unsubscribe
    | Search
    | Retrieve
    | LookUp
    | ListSubscriptions
)
Request = Answered | Take | Pause


class Begun(msgspec.Struct, frozen=True):
    """A subscription stands: its identifier and how many stored objects match (the x of M17).

    Where that is not known yet, `total` counts those of this node; `CaughtUp` brings all (L7).
    """

    sid: SubscriptionId
    total: int


class Found(msgspec.Struct, frozen=True):
    """A search's answer: the most recent matches, newest first, and how many there are."""

    notes: tuple[Notification, ...]
    total: int

    def __iter__(self) -> Iterator[Notification]:
        return iter(self.notes)

    def __len__(self) -> int:
        return len(self.notes)


class KnownObject(msgspec.Struct, frozen=True):
    """What a broker knows of a key: `there`, `deleted`, `expired`, `evicted`
    or `unknown`."""

    state: str
    metadata: Metadata | None = None


class Held(msgspec.Struct, frozen=True):
    """A subscription of this node, as listed."""

    sid: SubscriptionId
    conjunctions: tuple[Conjunction, ...]
    frame: TimeFrame
    batch: int


Value = Key | Begun | Found | KnownObject | tuple[Held, ...] | bytes | int | None


class Finished(msgspec.Struct, frozen=True):
    """A request succeeded."""

    label: ClassVar[str] = "Finished"

    ask: int
    value: Value


class Failed(msgspec.Struct, frozen=True):
    """A request ended in a named failure."""

    label: ClassVar[str] = "Failed"

    ask: int
    code: str
    detail: str


class Notified(msgspec.Struct, frozen=True):
    """A matching object: new, or stored before the subscription (M15)."""

    label: ClassVar[str] = "Notified"

    note: Notification


class CaughtUp(msgspec.Struct, frozen=True):
    """The first batch of the past has been told, and all that was missed while away (M27).

    `code` names the failure where some of it could not be had.
    """

    label: ClassVar[str] = "CaughtUp"

    sid: SubscriptionId
    total: int
    code: str = ""


class SubscriptionOver(msgspec.Struct, frozen=True):
    """Nothing new will come for this subscription: its frame ended or it was cancelled (M18)."""

    label: ClassVar[str] = "SubscriptionOver"

    sid: SubscriptionId
    reason: str


Told = Finished | Failed | Notified | CaughtUp | SubscriptionOver
