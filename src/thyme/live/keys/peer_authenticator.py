"""Peer authenticator: proves the identity of this node to its neighbours, and verifies theirs.

Entry point: `Ed25519PeerAuthenticator`, which implements `thyme.transport.peer_auth` with the key
of `identity`. A proof is valid for one incarnation of a node in one world; the response to a
challenge shows that the incarnation is there now.
Clauses: B5. Decision: docs/decisions/0070-fresh-greetings.md.
"""

from __future__ import annotations

import secrets
from hashlib import blake2b

import msgspec

from thyme.live.keys.identity import Identity
from thyme.live.keys.signatures import derive_node_id, verify_key_signature
from thyme.model.ids import NodeId
from thyme.transport.datagrams import IdentityProof

_CHALLENGE_BYTES = 16
_CHALLENGE_US = 5_000_000
"""How long a challenge stays the same; it is accepted for twice that time at most."""


class Ed25519PeerAuthenticator:
    """Identity proof of one incarnation of this node; verifies the proofs of its neighbours."""

    def __init__(
        self, identity: Identity, world_digest: bytes, incarnation: bytes, started_us: int
    ) -> None:
        signature = identity.make_signature(_signing_bytes(world_digest, incarnation, started_us))
        self.own_proof = IdentityProof(identity.public_key, started_us, signature)
        self._identity = identity
        self._incarnation = incarnation
        self._world_digest = world_digest
        self._challenge_key = secrets.token_bytes(32)

    def verify(self, node_id: NodeId, incarnation: bytes, proof: IdentityProof) -> bool:
        """Whether a proof is valid for this node id and incarnation in this world."""
        public_key = proof.public_key
        if derive_node_id(public_key) != node_id:
            return False
        data = _signing_bytes(self._world_digest, incarnation, proof.started_us)
        return verify_key_signature(public_key, proof.signature, data)

    def make_challenge(self, node_id: NodeId, incarnation: bytes, now_us: int) -> bytes:
        """What a node must sign to show that it is there. It is computed again when the response
        arrives, so nothing is stored for strangers."""
        return self._challenge_of(node_id, incarnation, now_us // _CHALLENGE_US)

    def _challenge_of(self, node_id: NodeId, incarnation: bytes, period: int) -> bytes:
        data = msgspec.msgpack.encode((node_id, incarnation, period))
        return blake2b(data, digest_size=_CHALLENGE_BYTES, key=self._challenge_key).digest()

    def respond(self, challenge: bytes) -> bytes:
        """The signature of this node for the challenge of another; empty if it is no challenge."""
        if len(challenge) != _CHALLENGE_BYTES:
            return b""
        return self._identity.make_signature(
            _response_bytes(self._world_digest, self._incarnation, self.own_proof, challenge)
        )

    def verify_response(
        self,
        node_id: NodeId,
        incarnation: bytes,
        proof: IdentityProof,
        response: bytes,
        now_us: int,
    ) -> bool:
        """Whether a node with this identity signed the challenge of this time, or that before."""
        if derive_node_id(proof.public_key) != node_id:
            return False
        period = now_us // _CHALLENGE_US
        return any(
            verify_key_signature(
                proof.public_key,
                response,
                _response_bytes(
                    self._world_digest,
                    incarnation,
                    proof,
                    self._challenge_of(node_id, incarnation, earlier),
                ),
            )
            for earlier in (period, period - 1)
        )


def _response_bytes(
    world_digest: bytes, incarnation: bytes, proof: IdentityProof, challenge: bytes
) -> bytes:
    content = (world_digest, incarnation, proof.started_us, challenge)
    return b"thyme presence 1" + msgspec.msgpack.encode(content)


def _signing_bytes(world_digest: bytes, incarnation: bytes, started_us: int) -> bytes:
    return b"thyme introduction 1" + msgspec.msgpack.encode((world_digest, incarnation, started_us))
