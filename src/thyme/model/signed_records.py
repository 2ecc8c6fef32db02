"""Signed records: statements of a node about its objects, subscriptions and location.

The author signs a record and every receiver verifies it. The signature covers the record and the
world, not the message, so that other nodes can store and forward the record with its proof.
Entry points: `sign_metadata`, `sign_subscription`, `verify_subscription`. Signatures are made by a
`RecordSigner` of a driver; records inside messages are handled by `protocol.message_auth`.
Clauses: B5.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Protocol

import msgspec

from thyme.model.ids import Key, NodeId
from thyme.model.metadata import MERKLE_PATH_BYTES_MAX, PROOF_BYTES, Metadata
from thyme.model.subscriptions import (
    Conjunction,
    SignedConjunctions,
    SubscriptionKey,
    SubscriptionRecord,
)
from thyme.model.time_frames import TimeFrame

CONJUNCTION_DIGEST_BYTES = 16
MERKLE_STEP_BYTES = 33
"""Size of a step of a Merkle path: one byte for the side, and the sibling's digest."""
BATCH_RECORDS_MAX = 2 ** (MERKLE_PATH_BYTES_MAX // MERKLE_STEP_BYTES)
"""Maximum number of records that share one signature."""


class DeleteRecord(msgspec.Struct, frozen=True, array_like=True, tag="delete"):
    """The owner deletes an object (M14)."""

    key: Key


class SubscribeRecord(msgspec.Struct, frozen=True, array_like=True, tag="subscribe"):
    """The subscriber subscribes to some conjunctions (M15)."""

    key: SubscriptionKey
    frame: TimeFrame
    conjunction_digests: bytes
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


class RecordSigner(Protocol):
    """Signs records with a node's key and verifies records of other nodes."""

    def sign(self, record: Record) -> bytes:
        """Returns the proof that this node is the author of a record."""
        ...

    def sign_all(self, records: Sequence[Record]) -> list[bytes]:
        """Returns a proof for each record; several records share one signature."""
        ...

    def verify(self, record: Record, proof: bytes) -> bool:
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


def signing_bytes(record: Record, world_id: str) -> bytes:
    """Returns the bytes to sign: the world and the record."""
    content: object = record
    if isinstance(record, Metadata):
        m = record
        content = ("metadata", m.key, m.tags, m.summary, m.published_us, m.size, m.digest)
        content = (*content, m.expires_us)
    return b"thyme record 2" + _encode((world_id, content))


def sign_metadata(drafts: Sequence[Metadata], signer: RecordSigner | None) -> Sequence[Metadata]:
    """Returns new metadata with the proofs of its owner."""
    if signer is None:
        return drafts
    return [
        msgspec.structs.replace(draft, digest_and_proof=draft.digest + proof)
        for draft, proof in zip(drafts, signer.sign_all(drafts), strict=True)
    ]


def sign_subscription(
    subscription: SubscriptionRecord, signer: RecordSigner | None
) -> SubscriptionRecord:
    """Returns a complete subscription with its subscriber's proof."""
    if signer is None:
        return subscription
    conjunctions = subscription.conjunctions
    digests = conjunction_digests(conjunctions)
    record = SubscribeRecord(subscription.key, subscription.frame, digests)
    signed = SignedConjunctions(conjunctions, signer.sign(record) + digests)
    return SubscriptionRecord(subscription.key, signed, subscription.frame)


def verify_subscription(subscription: SubscriptionRecord, signer: RecordSigner) -> bool:
    """Whether the subscriber signed all conjunctions of a subscription or of a part of it."""
    proof, digests = subscription.proof[:PROOF_BYTES], subscription.proof[PROOF_BYTES:]
    ends = range(CONJUNCTION_DIGEST_BYTES, len(digests) + 1, CONJUNCTION_DIGEST_BYTES)
    signed = {digests[end - CONJUNCTION_DIGEST_BYTES : end] for end in ends}
    if any(
        _conjunction_digest(conjunction) not in signed for conjunction in subscription.conjunctions
    ):
        return False
    record = SubscribeRecord(subscription.key, subscription.frame, digests)
    return signer.verify(record, proof)


def conjunction_digests(conjunctions: Iterable[Conjunction]) -> bytes:
    """Returns the digests of conjunctions; with them each conjunction can be verified alone."""
    return b"".join(map(_conjunction_digest, conjunctions))


def _conjunction_digest(conjunction: Conjunction) -> bytes:
    return sha256(_encode(conjunction)).digest()[:CONJUNCTION_DIGEST_BYTES]
