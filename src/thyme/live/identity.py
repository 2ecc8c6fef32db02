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

from thyme.live.datagrams import Introduction
from thyme.model.errors import StoreError
from thyme.model.ids import NodeId

NODE_ID_BYTES = 16
SEED_BYTES = 32
KEY_BYTES = crypto_sign_PUBLICKEYBYTES
KEY_FILE = "node.key"


def node_id_of(public_key: bytes) -> NodeId:
    """The node id that belongs to a public key."""
    return NodeId(sha256(b"thyme node" + public_key).digest()[:NODE_ID_BYTES])


class Identity:
    """The key pair of a node and the node id derived from it."""

    def __init__(self, seed: bytes) -> None:
        """`seed` is 32 random bytes, which must stay secret."""
        self.public_key, self._key = crypto_sign_seed_keypair(seed)
        self.node_id = node_id_of(self.public_key)

    def sign(self, text: bytes) -> bytes:
        """Public key and signature of this node for some bytes."""
        return self.public_key + self._sign(text)

    def introduce(self, world_tag: bytes, life: bytes, born_us: int) -> Introduction:
        """Makes the proof that this node owns its id, for one incarnation."""
        text = _introduction(world_tag, life, born_us)
        return Introduction(self.public_key, born_us, self._sign(text))

    def _sign(self, text: bytes) -> bytes:
        return crypto_sign(text, self._key)[:crypto_sign_BYTES]


def is_by(author: NodeId, proof: bytes, text: bytes | None) -> bool:
    """Whether `proof` was made by `author` for `data`; without data, only the key is checked."""
    public_key, signature = proof[:KEY_BYTES], proof[KEY_BYTES:]
    if node_id_of(public_key) != author:
        return False
    return text is None or _is_signed(public_key, signature, text)


class Passport:
    """Identity proof of one incarnation of this node; verifies the proofs of its neighbours."""

    def __init__(self, identity: Identity, world_tag: bytes, life: bytes, born_us: int) -> None:
        self.introduction = identity.introduce(world_tag, life, born_us)
        self._world_tag = world_tag

    def believes(self, node_id: NodeId, life: bytes, introduction: Introduction) -> bool:
        """Whether a proof is valid for this node id and incarnation in this world."""
        public_key = introduction.public_key
        if node_id_of(public_key) != node_id:
            return False
        text = _introduction(self._world_tag, life, introduction.born_us)
        return _is_signed(public_key, introduction.signature, text)


def keep_identity(directory: Path) -> Identity:
    """Loads the identity from a directory, or creates and stores a new one there."""
    path = directory / KEY_FILE
    try:
        directory.mkdir(parents=True, exist_ok=True)
        try:
            seed = path.read_bytes()
        except FileNotFoundError:
            seed = _make(path)
        if path.stat().st_mode & 0o077:
            raise StoreError(f"others can read {path}: chmod 600 it, or remove it to get a new key")
    except OSError as error:
        raise StoreError(f"cannot read or write the node's key {path}: {error.strerror}") from error
    if len(seed) != SEED_BYTES:
        raise StoreError(f"{path} is damaged: restore it, or remove it to start with a new node id")
    return Identity(seed)


def _make(path: Path) -> bytes:
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


def _introduction(world_tag: bytes, life: bytes, born_us: int) -> bytes:
    return b"thyme introduction 1" + msgspec.msgpack.encode((world_tag, life, born_us))


def _is_signed(public_key: bytes, signature: bytes, text: bytes) -> bool:
    if len(public_key) != KEY_BYTES or len(signature) != crypto_sign_BYTES:
        return False
    try:
        crypto_sign_open(signature + text, public_key)
    except CryptoError:
        return False
    return True
