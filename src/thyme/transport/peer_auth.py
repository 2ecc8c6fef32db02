"""Peer authentication: the interface by which the link proves and checks node ids.

`thyme.live.keys.peer_authenticator` implements it with Ed25519 keys; a link without it accepts any
neighbour.
Clauses: B5.
"""

from __future__ import annotations

from typing import Protocol

from thyme.model.ids import NodeId
from thyme.transport.datagrams import IdentityProof


class PeerAuthenticator(Protocol):
    """Holds the identity proof of this node and verifies the proofs of its neighbours."""

    own_proof: IdentityProof

    def verify(self, node_id: NodeId, incarnation: bytes, proof: IdentityProof) -> bool:
        """Whether a proof is valid for this node id and incarnation."""
        ...

    def make_challenge(self, node_id: NodeId, incarnation: bytes, now_us: int) -> bytes:
        """What a node must sign to show that it is there: nobody knows it in advance, and it is
        another one after some seconds."""
        ...

    def respond(self, challenge: bytes) -> bytes:
        """The signature of this node for the challenge of another; empty if it is no challenge."""
        ...

    def verify_response(
        self,
        node_id: NodeId,
        incarnation: bytes,
        proof: IdentityProof,
        response: bytes,
        now_us: int,
    ) -> bool:
        """Whether a node with this identity signed a recent challenge; shows the identity, too."""
        ...
