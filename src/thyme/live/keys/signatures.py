"""Signatures: verifies Ed25519 signatures, and that a public key belongs to a node id.

Entry points: `verify_signature` for records that travel further than one hop (`record_signer`),
`verify_key_signature` for a key that is known to belong to its node (`peer_authenticator`).
Clauses: B5.
"""

from __future__ import annotations

from hashlib import sha256

from nacl.bindings import crypto_sign_BYTES, crypto_sign_open, crypto_sign_PUBLICKEYBYTES
from nacl.exceptions import CryptoError

from thyme.model.ids import NodeId

NODE_ID_BYTES = 16
PUBLIC_KEY_BYTES = crypto_sign_PUBLICKEYBYTES
SIGNATURE_BYTES = crypto_sign_BYTES


def derive_node_id(public_key: bytes) -> NodeId:
    """The node id that belongs to a public key."""
    return NodeId(sha256(b"thyme node" + public_key).digest()[:NODE_ID_BYTES])


def verify_signature(author: NodeId, proof: bytes, data: bytes | None) -> bool:
    """Whether `proof` was made by `author` for `data`; without data, only the key is checked."""
    public_key, signature = proof[:PUBLIC_KEY_BYTES], proof[PUBLIC_KEY_BYTES:]
    if derive_node_id(public_key) != author:
        return False
    return data is None or verify_key_signature(public_key, signature, data)


def verify_key_signature(public_key: bytes, signature: bytes, data: bytes) -> bool:
    """Whether the owner of a public key signed `data`."""
    if len(public_key) != PUBLIC_KEY_BYTES or len(signature) != SIGNATURE_BYTES:
        return False
    try:
        crypto_sign_open(signature + data, public_key)
    except CryptoError:
        return False
    return True
