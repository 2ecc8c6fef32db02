"""Identity: the Ed25519 key of a node, and the checks of other nodes' keys.

A node id is a digest of the node's public key, so no node can claim the id of another. The private
key is stored in the node's data directory. `PeerAuthenticator` proves the identity of this node to
its neighbours, for one incarnation, and verifies theirs; `Identity.sign` and `verify_signature` are
for records that travel further than one hop (`record_signer`).
Entry point: `load_or_create_identity`.
Clauses: B5.
"""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

import msgspec
from nacl.bindings import (
    crypto_sign,
    crypto_sign_BYTES,
    crypto_sign_open,
    crypto_sign_PUBLICKEYBYTES,
    crypto_sign_seed_keypair,
)
from nacl.exceptions import CryptoError

from thyme.model.errors import StoreError
from thyme.model.ids import NodeId
from thyme.transport.datagrams import IdentityProof

NODE_ID_BYTES = 16
SEED_BYTES = 32
PUBLIC_KEY_BYTES = crypto_sign_PUBLICKEYBYTES
KEY_FILE = "node.key"


def derive_node_id(public_key: bytes) -> NodeId:
    """The node id that belongs to a public key."""
    return NodeId(sha256(b"thyme node" + public_key).digest()[:NODE_ID_BYTES])


class Identity:
    """The key pair of a node and the node id derived from it."""

    def __init__(self, seed: bytes) -> None:
        """`seed` is 32 random bytes, which must stay secret."""
        self.public_key, self._private_key = crypto_sign_seed_keypair(seed)
        self.node_id = derive_node_id(self.public_key)

    def sign(self, data: bytes) -> bytes:
        """Public key and signature of this node for some bytes."""
        return self.public_key + self._sign(data)

    def make_proof(self, world_digest: bytes, incarnation: bytes, started_us: int) -> IdentityProof:
        """Makes the proof that this node owns its id, for one incarnation."""
        data = _signing_bytes(world_digest, incarnation, started_us)
        return IdentityProof(self.public_key, started_us, self._sign(data))

    def _sign(self, data: bytes) -> bytes:
        return crypto_sign(data, self._private_key)[:crypto_sign_BYTES]


def verify_signature(author: NodeId, proof: bytes, data: bytes | None) -> bool:
    """Whether `proof` was made by `author` for `data`; without data, only the key is checked."""
    public_key, signature = proof[:PUBLIC_KEY_BYTES], proof[PUBLIC_KEY_BYTES:]
    if derive_node_id(public_key) != author:
        return False
    return data is None or _verify(public_key, signature, data)


class PeerAuthenticator:
    """Identity proof of one incarnation of this node; verifies the proofs of its neighbours."""

    def __init__(
        self, identity: Identity, world_digest: bytes, incarnation: bytes, started_us: int
    ) -> None:
        self.own_proof = identity.make_proof(world_digest, incarnation, started_us)
        self._world_digest = world_digest

    def verify(self, node_id: NodeId, incarnation: bytes, proof: IdentityProof) -> bool:
        """Whether a proof is valid for this node id and incarnation in this world."""
        public_key = proof.public_key
        if derive_node_id(public_key) != node_id:
            return False
        data = _signing_bytes(self._world_digest, incarnation, proof.started_us)
        return _verify(public_key, proof.signature, data)


def load_or_create_identity(directory: Path) -> Identity:
    """Loads the identity from a directory, or creates and stores a new one there."""
    path = directory / KEY_FILE
    try:
        directory.mkdir(parents=True, exist_ok=True)
        try:
            seed = path.read_bytes()
        except FileNotFoundError:
            seed = _create_seed_file(path)
        if path.stat().st_mode & 0o077:
            raise StoreError(f"others can read {path}: chmod 600 it, or remove it to get a new key")
    except OSError as error:
        raise StoreError(f"cannot read or write the node's key {path}: {error.strerror}") from error
    if len(seed) != SEED_BYTES:
        raise StoreError(f"{path} is damaged: restore it, or remove it to start with a new node id")
    return Identity(seed)


def _create_seed_file(path: Path) -> bytes:
    """Creates a key file atomically, never readable by other users."""
    seed = os.urandom(SEED_BYTES)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(handle, seed)
        os.fsync(handle)
    finally:
        os.close(handle)
    os.replace(draft, path)
    return seed


def _signing_bytes(world_digest: bytes, incarnation: bytes, started_us: int) -> bytes:
    return b"thyme introduction 1" + msgspec.msgpack.encode((world_digest, incarnation, started_us))


def _verify(public_key: bytes, signature: bytes, data: bytes) -> bool:
    if len(public_key) != PUBLIC_KEY_BYTES or len(signature) != crypto_sign_BYTES:
        return False
    try:
        crypto_sign_open(signature + data, public_key)
    except CryptoError:
        return False
    return True
