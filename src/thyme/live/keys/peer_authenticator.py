"""Peer authenticator: proves the identity of this node to its neighbours, and verifies theirs.

Entry point: `Ed25519PeerAuthenticator`, which implements `thyme.transport.peer_auth` with the key
of `identity`. A proof is valid for one incarnation of a node in one world.
Clauses: B5.
"""

from __future__ import annotations

import msgspec

from thyme.live.keys.identity import Identity
from thyme.live.keys.signatures import derive_node_id, verify_key_signature
from thyme.model.ids import NodeId
from thyme.transport.datagrams import IdentityProof


class Ed25519PeerAuthenticator:
    """Identity proof of one incarnation of this node; verifies the proofs of its neighbours."""

    def __init__(
        self, identity: Identity, world_digest: bytes, incarnation: bytes, started_us: int
    ) -> None:
        signature = identity.make_signature(_signing_bytes(world_digest, incarnation, started_us))
        self.own_proof = IdentityProof(identity.public_key, started_us, signature)
        self._world_digest = world_digest

    def verify(self, node_id: NodeId, incarnation: bytes, proof: IdentityProof) -> bool:
        """Whether a proof is valid for this node id and incarnation in this world."""
        public_key = proof.public_key
        if derive_node_id(public_key) != node_id:
            return False
        data = _signing_bytes(self._world_digest, incarnation, proof.started_us)
        return verify_key_signature(public_key, proof.signature, data)


def _signing_bytes(world_digest: bytes, incarnation: bytes, started_us: int) -> bytes:
    return b"thyme introduction 1" + msgspec.msgpack.encode((world_digest, incarnation, started_us))
