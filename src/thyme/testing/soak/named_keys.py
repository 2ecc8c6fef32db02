"""Named keys: signatures and codes without cryptography, for runs with a hostile node.

Entry points: `NamedSigner`, `NamedPairKeys`. A proof is a digest over the author's name and the
record; in a run nobody but the author makes one. So runs are quick and the same on every machine.
Clauses: B5, B12.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from thyme.model.ids import NodeId
from thyme.model.metadata import PROOF_BYTES
from thyme.model.signed_records import Record, author_of, signing_bytes
from thyme.protocol.message_auth import MessageAuthenticator

_WORLD = "soak"


class NamedSigner:
    """Signs for one node (a `RecordSigner`)."""

    def __init__(self, node_id: NodeId) -> None:
        self._node_id = node_id

    def sign(self, record: Record) -> bytes:
        """Makes the proof of this node for a record."""
        return _digest(self._node_id, signing_bytes(record, _WORLD), PROOF_BYTES)

    def sign_all(self, records: Sequence[Record]) -> list[bytes]:
        """Makes one proof per record."""
        return [self.sign(record) for record in records]

    def verify(self, record: Record, proof: bytes) -> bool:
        """Whether the author named in a record signed it."""
        return proof == _digest(author_of(record), signing_bytes(record, _WORLD), PROOF_BYTES)


class NamedPairKeys:
    """Codes between nodes (`PairKeys`); the public key of a node is its name."""

    def __init__(self, node_id: NodeId) -> None:
        self.public_key = bytes(node_id)
        self._node_id = node_id
        self._known: set[NodeId] = set()

    def learn(self, node: NodeId, public_key: bytes) -> bool:
        """Remembers the public key of a node; False if it is not the node's."""
        if node != public_key:
            return False
        self._known.add(node)
        return True

    def compute_code(self, peer: NodeId, content: bytes, *, from_peer: bool) -> bytes | None:
        """The code of a message to or from a node; None if its public key is not known."""
        if peer not in self._known:
            return None
        sender, receiver = (peer, self._node_id) if from_peer else (self._node_id, peer)
        return _digest(sender, receiver + content, 8)

    def is_code(self, peer: NodeId, content: bytes, code: bytes) -> bool:
        """Whether a node computed this code of a message to this node."""
        return self.compute_code(peer, content, from_peer=True) == code


def named_authenticator(
    node_id: NodeId, *, check_locations: bool, authenticate_answers: bool
) -> MessageAuthenticator:
    """The authenticator of a node whose keys are names."""
    return MessageAuthenticator(
        node_id,
        NamedSigner(node_id),
        check_locations=check_locations,
        pair_keys=NamedPairKeys(node_id) if authenticate_answers else None,
    )


def _digest(author: NodeId, text: bytes, size: int) -> bytes:
    proof = b"".join(
        blake2b(part + text, key=author, digest_size=min(size, 32)).digest()
        for part in (b"1", b"2", b"3")
    )
    return proof[:size]
