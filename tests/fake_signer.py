"""A record signer without cryptography, for tests of what is signed and who is believed.

Its proofs are digests over the author's name: nobody in a test who is not the author makes one.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from thyme.model.ids import NodeId
from thyme.model.metadata import Metadata
from thyme.model.signed_records import (
    Record,
    author_of,
    sign_metadata,
    sign_subscription,
    signing_bytes,
)
from thyme.model.subscriptions import SubscriptionRecord
from thyme.protocol.message_auth import MessageAuthenticator


class FakeSigner:
    """Signs for one node, knows the stamps of all."""

    def __init__(self, node_id: NodeId) -> None:
        self._node_id = node_id
        self.looked_at = 0

    def sign(self, record: Record) -> bytes:
        return _stamp(self._node_id, record)

    def sign_all(self, records: Sequence[Record]) -> list[bytes]:
        return [self.sign(record) for record in records]

    def verify(self, record: Record, proof: bytes) -> bool:
        self.looked_at += 1
        return proof == _stamp(author_of(record), record)


def _stamp(node_id: NodeId, record: Record) -> bytes:
    return 3 * sha256(b"of " + node_id + signing_bytes(record, "w")).digest()


def authenticator(node_id: NodeId, *, places: bool = False) -> MessageAuthenticator:
    return MessageAuthenticator(node_id, FakeSigner(node_id), check_locations=places)


def signed(metadata: Metadata, by: NodeId | None = None) -> Metadata:
    """Metadata as its owner, or somebody else, signs it."""
    [made] = sign_metadata([metadata], FakeSigner(by or metadata.owner))
    return made


def vouched_for(subscription: SubscriptionRecord, by: NodeId | None = None) -> SubscriptionRecord:
    """A subscription as its subscriber, or somebody else, signs it."""
    return sign_subscription(subscription, FakeSigner(by or subscription.key.subscriber))
