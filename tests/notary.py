"""A signer without cryptography, for tests of signed records and their verification.

Its signatures are digests over the author's name.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from hashlib import sha256

from thyme.model.ids import NodeId
from thyme.model.metadata import Metadata
from thyme.model.signed_records import (
    Record,
    attach_proofs,
    author_of,
    sign_subscription,
    signing_bytes,
)
from thyme.model.subscriptions import SubscriptionRecord
from thyme.protocol.message_auth import MessageAuthenticator


class Stamps:
    """Signs for one node, and verifies the signatures of all."""

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


def warden(node_id: NodeId, *, places: bool = False) -> MessageAuthenticator:
    return MessageAuthenticator(node_id, Stamps(node_id), check_locations=places)


def signed(metadata: Metadata, by: NodeId | None = None) -> Metadata:
    """Metadata signed by its owner, or by another node."""
    made = copy(metadata)
    attach_proofs([made], Stamps(by or metadata.owner))
    return made


def vouched_for(subscription: SubscriptionRecord, by: NodeId | None = None) -> SubscriptionRecord:
    """A subscription signed by its subscriber, or by another node."""
    return sign_subscription(subscription, Stamps(by or subscription.key.subscriber))
