"""Records: what nodes say of themselves and of what is theirs, so that others can hold them to it.

A record is signed by its author and looked at by whoever hears of it, however it came there. What
is signed is the record in a world, not a message: so it can be passed on, kept and shown again.
Clauses: B5.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Protocol

import msgspec

from thyme.model.frames import TimeFrame
from thyme.model.ids import Key, NodeId
from thyme.model.metadata import PROOF_BYTES, Metadata
from thyme.model.subscriptions import Conjunction, SignedTerms, Subscription, SubscriptionKey

MARK_BYTES = 16


class DeleteRecord(msgspec.Struct, frozen=True, array_like=True, tag="delete"):
    """The owner deletes an object (M14)."""

    key: Key


class SubscribeRecord(msgspec.Struct, frozen=True, array_like=True, tag="subscribe"):
    """The subscriber asks for what matches some conjunctions (M15)."""

    key: SubscriptionKey
    frame: TimeFrame
    marks: bytes
    """A mark for each conjunction, see `marks_of`."""


class UnsubscribeRecord(msgspec.Struct, frozen=True, array_like=True, tag="unsubscribe"):
    """The subscriber ends a subscription (M18)."""

    key: SubscriptionKey


class LocationRecord(msgspec.Struct, frozen=True, array_like=True, tag="location"):
    """A node is in a cell since an instant (D20); of two records, the later counts."""

    node: NodeId
    cell: int
    at_us: int


Record = Metadata | DeleteRecord | SubscribeRecord | UnsubscribeRecord | LocationRecord

_encode = msgspec.msgpack.Encoder().encode


class Notary(Protocol):
    """Who signs in a node's name, and knows what others have signed."""

    def sign(self, record: Record) -> bytes:
        """The proof that this node is the author of a record."""
        ...

    def sign_all(self, records: Sequence[Record]) -> list[bytes]:
        """The proof for each of several records, for little more than that for one."""
        ...

    def is_genuine(self, record: Record, proof: bytes) -> bool:
        """Whether a record is from the one it says it is from."""
        ...


def author_of(record: Record) -> NodeId:
    """Whose signature a record needs."""
    match record:
        case Metadata():
            return record.owner
        case DeleteRecord():
            return record.key.owner
        case SubscribeRecord() | UnsubscribeRecord():
            return record.key.subscriber
        case LocationRecord():
            return record.node


def text_of(record: Record, wid: str) -> bytes:
    """What is signed: the record, and in which world."""
    plain: object = record
    if isinstance(record, Metadata):
        m = record
        plain = ("metadata", m.key, m.tags, m.summary, m.published_us, m.size, m.digest)
        plain = (*plain, m.expires_us)
    return b"thyme record 2" + _encode((wid, plain))


def seal(new: Sequence[Metadata], notary: Notary | None) -> None:
    """Puts the owner's proof into metadata that was just made, and of which nobody knows yet."""
    if notary is not None:
        for metadata, proof in zip(new, notary.sign_all(new), strict=True):
            # Made anew with another seal, all of it would be checked once more.
            msgspec.structs.force_setattr(metadata, "seal", metadata.digest + proof)


def vouched(subscription: Subscription, notary: Notary | None) -> Subscription:
    """A whole subscription with its subscriber's proof."""
    if notary is None:
        return subscription
    conjunctions = subscription.conjunctions
    marks = marks_of(conjunctions)
    record = SubscribeRecord(subscription.key, subscription.frame, marks)
    terms = SignedTerms(conjunctions, notary.sign(record) + marks)
    return Subscription(subscription.key, terms, subscription.frame)


def is_vouched(subscription: Subscription, notary: Notary) -> bool:
    """Whether a subscription, or a part of it, is what its subscriber asks for."""
    proof, marks = subscription.proof[:PROOF_BYTES], subscription.proof[PROOF_BYTES:]
    ends = range(MARK_BYTES, len(marks) + 1, MARK_BYTES)
    signed = {marks[end - MARK_BYTES : end] for end in ends}
    if any(_mark(conjunction) not in signed for conjunction in subscription.conjunctions):
        return False
    record = SubscribeRecord(subscription.key, subscription.frame, marks)
    return notary.is_genuine(record, proof)


def marks_of(conjunctions: Iterable[Conjunction]) -> bytes:
    """What stands for conjunctions in a record: digests, so that each can be shown alone."""
    return b"".join(map(_mark, conjunctions))


def _mark(conjunction: Conjunction) -> bytes:
    return sha256(_encode(conjunction)).digest()[:MARK_BYTES]
