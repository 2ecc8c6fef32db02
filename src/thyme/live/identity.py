"""Identity: a node is who holds its key.

A node's identifier is a digest of its public key, so nobody can take another's. The key is kept in
the node's data directory. A `Passport` introduces the node to its neighbours in one life, and looks
at theirs; `sign` and `is_by` do the same for records that travel further (`notary`).
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
    """The identifier of the node that holds this key."""
    return NodeId(sha256(b"thyme node" + public_key).digest()[:NODE_ID_BYTES])


class Identity:
    """A node's key, and who it is by it."""

    def __init__(self, seed: bytes) -> None:
        """`seed` is 32 random bytes that nobody else may know."""
        self.public_key, self._key = crypto_sign_seed_keypair(seed)
        self.node_id = node_id_of(self.public_key)

    def sign(self, text: bytes) -> bytes:
        """The proof that this node said something."""
        return self.public_key + self._sign(text)

    def introduce(self, world_tag: bytes, life: bytes, born_us: int) -> Introduction:
        """Says who this node is in one life."""
        text = _introduction(world_tag, life, born_us)
        return Introduction(self.public_key, born_us, self._sign(text))

    def _sign(self, text: bytes) -> bytes:
        return crypto_sign(text, self._key)[:crypto_sign_BYTES]


def is_by(author: NodeId, proof: bytes, text: bytes | None) -> bool:
    """Whether a proof is by this author, for a text; without one, its key is all that counts."""
    public_key, signature = proof[:KEY_BYTES], proof[KEY_BYTES:]
    if node_id_of(public_key) != author:
        return False
    return text is None or _is_signed(public_key, signature, text)


class Passport:
    """Who a node is in one life of its, and whether others are who they say."""

    def __init__(self, identity: Identity, world_tag: bytes, life: bytes, born_us: int) -> None:
        self.introduction = identity.introduce(world_tag, life, born_us)
        self._world_tag = world_tag

    def believes(self, node_id: NodeId, life: bytes, introduction: Introduction) -> bool:
        """Whether an introduction is that of this node, in this life, in our world."""
        public_key = introduction.public_key
        if node_id_of(public_key) != node_id:
            return False
        text = _introduction(self._world_tag, life, introduction.born_us)
        return _is_signed(public_key, introduction.signature, text)


def keep_identity(directory: Path) -> Identity:
    """The identity kept in a directory; where there is none, a new one is made and kept."""
    path = directory / KEY_FILE
    try:
        directory.mkdir(parents=True, exist_ok=True)
        try:
            seed = path.read_bytes()
        except FileNotFoundError:
            seed = _make(path)
        if path.stat().st_mode & 0o077:
            raise StoreError(f"others can read {path}: chmod 600 it, or remove it for a new one")
    except OSError as error:
        raise StoreError(f"cannot keep the node's key in {path}: {error.strerror}") from error
    if len(seed) != SEED_BYTES:
        raise StoreError(f"{path} is damaged; without it this node is another: remove it for that")
    return Identity(seed)


def _make(path: Path) -> bytes:
    """A new key, on disk as a whole or not at all, and never readable by others."""
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
