"""Identity: the Ed25519 key of a node, stored in its data directory.

A node id is a digest of the node's public key, so no node can claim the id of another
(`signatures`). `peer_authenticator` proves the identity to neighbours; `record_signer` signs
records that travel further than one hop. Entry point: `load_or_create_identity`.
Clauses: B5.
"""

from __future__ import annotations

import os
from pathlib import Path

from nacl.bindings import (
    crypto_sign,
    crypto_sign_ed25519_sk_to_curve25519,
    crypto_sign_seed_keypair,
)

from thyme.live.keys.signatures import SIGNATURE_BYTES, derive_node_id
from thyme.model.errors import StoreError
from thyme.storage.private_files import make_private_directory

SEED_BYTES = 32
KEY_FILE = "node.key"


class Identity:
    """The key pair of a node and the node id derived from it."""

    def __init__(self, seed: bytes) -> None:
        """`seed` is 32 random bytes, which must stay secret."""
        self.public_key, self._private_key = crypto_sign_seed_keypair(seed)
        self.node_id = derive_node_id(self.public_key)

    @property
    def exchange_key(self) -> bytes:
        """The private key for Diffie-Hellman exchanges, which must stay secret."""
        return crypto_sign_ed25519_sk_to_curve25519(self._private_key)

    def sign(self, data: bytes) -> bytes:
        """Public key and signature of this node for some bytes."""
        return self.public_key + self.make_signature(data)

    def make_signature(self, data: bytes) -> bytes:
        """The signature of this node for some bytes."""
        return crypto_sign(data, self._private_key)[:SIGNATURE_BYTES]


def load_or_create_identity(directory: Path) -> Identity:
    """Loads the identity from a directory, or creates and stores a new one there."""
    path = directory / KEY_FILE
    try:
        make_private_directory(directory, KEY_FILE)
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
