"""Pair keys: a key for each two nodes, by Diffie-Hellman from the keys of their identities.

Entry point: `X25519PairKeys`, which implements `thyme.protocol.answer_auth`. Two nodes that know
each other's public key have the same key without a further message. Computing it takes as long as
a signature, a code about as long as a lookup, so keys are cached.
Clauses: B5.
"""

from __future__ import annotations

from hashlib import blake2b
from hmac import compare_digest

from nacl.bindings import crypto_scalarmult, crypto_sign_ed25519_pk_to_curve25519

from thyme.live.keys.identity import Identity
from thyme.live.keys.signatures import PUBLIC_KEY_BYTES, derive_node_id
from thyme.model.bounded import BoundedDict
from thyme.model.ids import NodeId

CODE_BYTES = 8
"""A guess needs a datagram, and only the receiver tells whether it was right."""
PEERS_MAX = 4_096
_KEY_BYTES = 32


class X25519PairKeys:
    """The keys that one node shares with others in one world (a `PairKeys`)."""

    def __init__(self, identity: Identity, world_id: str) -> None:
        self.public_key = identity.public_key
        self._node_id = identity.node_id
        self._exchange_key = identity.exchange_key
        self._world = world_id.encode()
        self._public_keys: BoundedDict[NodeId, bytes] = BoundedDict(PEERS_MAX)
        self._pair_keys: BoundedDict[NodeId, bytes] = BoundedDict(PEERS_MAX)

    def learn(self, node: NodeId, public_key: bytes) -> bool:
        """Remembers the public key of a node; False if it is not the node's."""
        if node in self._public_keys:
            return self._public_keys[node] == public_key
        if len(public_key) != PUBLIC_KEY_BYTES or derive_node_id(public_key) != node:
            return False
        self._public_keys[node] = public_key
        return True

    def compute_code(self, peer: NodeId, content: bytes, *, from_peer: bool) -> bytes | None:
        """The code of a message to or from a node; None if its public key is not known."""
        key = self._pair_keys.get(peer) or self._agree(peer)
        if key is None:
            return None
        sender = peer if from_peer else self._node_id
        return blake2b(sender + content, digest_size=CODE_BYTES, key=key).digest()

    def is_code(self, peer: NodeId, content: bytes, code: bytes) -> bool:
        """Whether a node computed this code of a message to this node."""
        expected = self.compute_code(peer, content, from_peer=True)
        return expected is not None and compare_digest(expected, code)

    def _agree(self, peer: NodeId) -> bytes | None:
        public_key = self._public_keys.get(peer)
        if public_key is None:
            return None
        try:
            other = crypto_sign_ed25519_pk_to_curve25519(public_key)
            secret = crypto_scalarmult(self._exchange_key, other)
        except (RuntimeError, ValueError, TypeError):  # not a usable key
            return None
        state = blake2b(digest_size=_KEY_BYTES, key=secret, person=b"thyme pair key")
        for part in (self._world, *sorted((self._node_id, peer))):
            state.update(len(part).to_bytes(4) + part)
        key = self._pair_keys[peer] = state.digest()
        return key
