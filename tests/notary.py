"""A notary without cryptography, for tests of what is signed and who is believed.

Its proofs are digests over the author's name: nobody in a test who is not the author makes one.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from hashlib import sha256

from thyme.model.ids import NodeId
from thyme.model.metadata import Metadata
from thyme.model.records import Record, author_of, seal, text_of, vouched
from thyme.model.subscriptions import Subscription
from thyme.protocol.warden import Warden


class Stamps:
    """Signs for one node, knows the stamps of all."""

    def __init__(self, node_id: NodeId) -> None:
        self._node_id = node_id
        self.looked_at = 0

    def sign(self, record: Record) -> bytes:
        return _stamp(self._node_id, record)

    def sign_all(self, records: Sequence[Record]) -> list[bytes]:
        return [self.sign(record) for record in records]

    def is_genuine(self, record: Record, proof: bytes) -> bool:
        self.looked_at += 1
        return proof == _stamp(author_of(record), record)


def _stamp(node_id: NodeId, record: Record) -> bytes:
    return 3 * sha256(b"of " + node_id + text_of(record, "w")).digest()


def warden(node_id: NodeId, *, places: bool = False) -> Warden:
    return Warden(node_id, Stamps(node_id), places=places)


def signed(metadata: Metadata, by: NodeId | None = None) -> Metadata:
    """Metadata as its owner, or somebody else, signs it."""
    made = copy(metadata)
    seal([made], Stamps(by or metadata.owner))
    return made


def vouched_for(subscription: Subscription, by: NodeId | None = None) -> Subscription:
    """A subscription as its subscriber, or somebody else, signs it."""
    return vouched(subscription, Stamps(by or subscription.key.subscriber))
