"""Signed records: statements of a node about its objects, subscriptions and location.

The author signs a record and every receiver verifies it. The signature covers the record and the
world, not the message, so that other nodes can store and forward the record with its proof.
Entry points: `attach_proofs`, `sign_subscription`, `verify_subscription`. Signatures are made by a
`RecordSigner` of a driver; records inside messages are handled by `protocol.message_auth`.
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
    """The subscriber subscribes to some conjunctions (M15)."""

    key: SubscriptionKey
    frame: TimeFrame
    marks: bytes
    """The digests of all conjunctions, see the function `conjunction_digests`."""


class UnsubscribeRecord(msgspec.Struct, frozen=True, array_like=True, tag="unsubscribe"):
    """The subscriber ends a subscription (M18)."""

    key: SubscriptionKey


class LocationRecord(msgspec.Struct, frozen=True, array_like=True, tag="location"):
    """A node is in a cell since an instant (D20); a later record replaces an earlier one."""

    node: NodeId
    cell: int
    at_us: int


Record = Metadata | DeleteRecord | SubscribeRecord | UnsubscribeRecord | LocationRecord

_encode = msgspec.msgpack.Encoder().encode


class Notary(Protocol):
    """Signs records with a node's key and verifies records of other nodes."""

    def sign(self, record: Record) -> bytes:
        """Returns the proof that this node is the author of a record."""
        ...

    def sign_all(self, records: Sequence[Record]) -> list[bytes]:
        """Returns a proof for each record; several records share one signature."""
        ...

    def is_genuine(self, record: Record, proof: bytes) -> bool:
        """Whether the proof shows that a record is by its stated author."""
        ...


def author_of(record: Record) -> NodeId:
    """Returns the node that must have signed a record."""
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
    """Returns the bytes to sign: the world and the record."""
    plain: object = record
    if isinstance(record, Metadata):
        m = record
        plain = ("metadata", m.key, m.tags, m.summary, m.published_us, m.size, m.digest)
        plain = (*plain, m.expires_us)
    return b"thyme record 2" + _encode((wid, plain))


def seal(new: Sequence[Metadata], notary: Notary | None) -> None:
    """Adds the owner's proofs to new metadata, in place, before the metadata is shared."""
    if notary is not None:
        for metadata, proof in zip(new, notary.sign_all(new), strict=True):
            # A new record would be validated a second time.
            msgspec.structs.force_setattr(metadata, "seal", metadata.digest + proof)


def vouched(subscription: Subscription, notary: Notary | None) -> Subscription:
    """Returns a complete subscription with its subscriber's proof."""
    if notary is None:
        return subscription
    conjunctions = subscription.conjunctions
    marks = marks_of(conjunctions)
    record = SubscribeRecord(subscription.key, subscription.frame, marks)
    terms = SignedTerms(conjunctions, notary.sign(record) + marks)
    return Subscription(subscription.key, terms, subscription.frame)


def is_vouched(subscription: Subscription, notary: Notary) -> bool:
    """Whether the subscriber signed all conjunctions of a subscription or of a part of it."""
    proof, marks = subscription.proof[:PROOF_BYTES], subscription.proof[PROOF_BYTES:]
    ends = range(MARK_BYTES, len(marks) + 1, MARK_BYTES)
    signed = {marks[end - MARK_BYTES : end] for end in ends}
    if any(_mark(conjunction) not in signed for conjunction in subscription.conjunctions):
        return False
    record = SubscribeRecord(subscription.key, subscription.frame, marks)
    return notary.is_genuine(record, proof)


def marks_of(conjunctions: Iterable[Conjunction]) -> bytes:
    """Returns the digests of conjunctions; with them each conjunction can be verified alone."""
    return b"".join(map(_mark, conjunctions))


def _mark(conjunction: Conjunction) -> bytes:
    return sha256(_encode(conjunction)).digest()[:MARK_BYTES]
