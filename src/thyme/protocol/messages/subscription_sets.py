"""Messages by which neighbours of Thyme-LS compare the subscriptions that they store.

Immutable records, declared by the rules of `messages.common`. The comparison itself is
`thyme.substrates.ls.subscription_comparison`.
Clauses: L2, L5, B5. Decision: docs/decisions/0073-compared-subscriptions.md.
"""

from __future__ import annotations

from thyme.model.subscriptions import SubscriptionRecord
from thyme.protocol.messages.cell_records import TombstoneRecord
from thyme.protocol.messages.event_ranges import FINGERPRINT_BYTES, ID_BYTES, EventRange
from thyme.protocol.messages.list_limits import Items, Records
from thyme.protocol.messages.traits import BaseMessage, RecordKind

WANTED_MAX = 4_096
RANGES_MAX = 1_024


class SubscriptionDigest(BaseMessage, frozen=True, array_like=True, tag=40):
    """The sender stores the active subscriptions with this fingerprint. Broadcast; a receiver that
    stores others may answer with `CompareSubscriptions`."""

    label = "SubscriptionDigest"

    known: int
    """The number of active subscriptions and of tombstones of cancelled ones."""
    fingerprint: bytes

    def __post_init__(self) -> None:
        if self.known < 0 or len(self.fingerprint) != FINGERPRINT_BYTES:
            raise ValueError(f"a digest has a number and {FINGERPRINT_BYTES} bytes")


class CompareSubscriptions(BaseMessage, frozen=True, array_like=True, tag=41):
    """The active subscriptions of the sender as ranges, and those that it lacks. Answered by
    `MissingSubscriptions` with what the sender lacks, and by another comparison until all ranges
    are settled; not answered if nothing differs."""

    label = "CompareSubscriptions"

    ranges: Items[EventRange]
    wanted: Items[bytes]
    """Short identifiers of subscriptions that the sender lacks."""

    def __post_init__(self) -> None:
        if len(self.ranges) > RANGES_MAX or len(self.wanted) > WANTED_MAX:
            raise ValueError(
                f"a comparison has at most {RANGES_MAX} ranges and {WANTED_MAX} wanted ones"
            )
        if any(len(name) != ID_BYTES for name in self.wanted):
            raise ValueError(f"a short identifier has {ID_BYTES} bytes")


class MissingSubscriptions(BaseMessage, frozen=True, array_like=True, tag=42):
    """Subscriptions that the receiver lacks, and tombstones of those that were cancelled. Answered
    by another one if some of the subscriptions are cancelled at the receiver."""

    label = "MissingSubscriptions"
    records = (
        ("subscriptions", RecordKind.SUBSCRIPTION),
        ("tombstones", RecordKind.SUBSCRIPTION_TOMBSTONE),
    )

    subscriptions: Records[SubscriptionRecord]
    tombstones: Records[TombstoneRecord]


ComparisonMessage = SubscriptionDigest | CompareSubscriptions | MissingSubscriptions
"""Messages by which neighbours compare their subscriptions."""
