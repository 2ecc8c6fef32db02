"""Record signer: signs the records of a node with its Ed25519 key and verifies those of others.

Verifying a signature costs about a hundred times as much as a cache lookup, so valid signatures are
cached. Records signed in one call share a signature over the root of a Merkle tree; the proof of
each record is the public key, this signature, and the Merkle path from the record to the root.
Entry point: `Ed25519RecordSigner`. `thyme.protocol.message_auth` decides which records to verify.
Clauses: B5.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from thyme.live.keys.identity import Identity
from thyme.live.keys.signatures import verify_signature
from thyme.model.bounded import BoundedDict
from thyme.model.ids import NodeId
from thyme.model.metadata import MERKLE_PATH_BYTES_MAX, PROOF_BYTES
from thyme.model.signed_records import (
    BATCH_RECORDS_MAX,
    MERKLE_STEP_BYTES,
    Record,
    author_of,
    signing_bytes,
)

VERIFIED_MAX = 20_000
_AUTHORS_MAX = 1_000


class Ed25519RecordSigner:
    """Signs and verifies the records of one world for one node (a `RecordSigner`)."""

    def __init__(self, identity: Identity, world_id: str, verified_max: int = VERIFIED_MAX) -> None:
        self._identity = identity
        self._world_id = world_id
        self._verified: BoundedDict[bytes, None] = BoundedDict(verified_max)
        """The signed Merkle roots whose signatures were verified or made here."""
        self.rejected = 0
        """Number of records whose proof was false."""
        self.verifications: BoundedDict[NodeId, int] = BoundedDict(_AUTHORS_MAX)
        """Number of signatures that were verified, by author."""
        self.rejections: BoundedDict[NodeId, int] = BoundedDict(_AUTHORS_MAX)
        """Number of records whose proof was false, by the author that they name."""

    def sign(self, record: Record) -> bytes:
        """Makes the proof that this node is the author of a record."""
        [proof] = self.sign_all([record])
        return proof

    def sign_all(self, records: Sequence[Record]) -> list[bytes]:
        """Makes one proof per record; a batch costs little more than a single record."""
        proofs: list[bytes] = []
        for start in range(0, len(records), BATCH_RECORDS_MAX):
            batch = records[start : start + BATCH_RECORDS_MAX]
            for record in batch:
                if author_of(record) != self._identity.node_id:
                    raise ValueError(f"only {author_of(record).hex()} can sign this record")
            texts = [signing_bytes(record, self._world_id) for record in batch]
            root, paths = _merkle_tree([_hash_leaf(text) for text in texts])
            proof = self._identity.sign(_root_bytes(root))
            self._verified[proof + root] = None
            proofs += [proof + path for path in paths]
        return proofs

    def verify(self, record: Record, proof: bytes) -> bool:
        """Whether the author named in a record signed it."""
        valid = self._verify(record, proof)
        if not valid:
            self.rejected += 1
            author = author_of(record)
            self.rejections[author] = self.rejections.get(author, 0) + 1
        return valid

    def _verify(self, record: Record, proof: bytes) -> bool:
        if not PROOF_BYTES <= len(proof) <= PROOF_BYTES + MERKLE_PATH_BYTES_MAX:
            return False
        proof, path = proof[:PROOF_BYTES], proof[PROOF_BYTES:]
        root = _merkle_root(_hash_leaf(signing_bytes(record, self._world_id)), path)
        if root is None:
            return False
        cached = proof + root
        author = author_of(record)
        if cached in self._verified:
            return verify_signature(author, proof, None)
        self.verifications[author] = self.verifications.get(author, 0) + 1
        if not verify_signature(author, proof, _root_bytes(root)):
            return False
        self._verified[cached] = None
        return True


def _hash_leaf(text: bytes) -> bytes:
    return sha256(b"\x00" + text).digest()


def _hash_pair(left: bytes, right: bytes) -> bytes:
    return sha256(b"\x01" + left + right).digest()


def _root_bytes(root: bytes) -> bytes:
    """The bytes that are signed for a Merkle root."""
    return b"thyme records 2" + root


def _merkle_tree(level: list[bytes]) -> tuple[bytes, list[bytes]]:
    """Builds a Merkle tree over leaf digests; returns its root and the path of each leaf. A path
    step is one byte (0: the sibling is on the left, 1: on the right) and the sibling's digest."""
    paths = [b""] * len(level)
    leaves = [[index] for index in range(len(level))]
    while len(level) > 1:
        for index in range(0, len(level) - 1, 2):
            for leaf in leaves[index]:
                paths[leaf] += b"\x01" + level[index + 1]
            for leaf in leaves[index + 1]:
                paths[leaf] += b"\x00" + level[index]
        pairs = range(0, len(level) - 1, 2)
        # The last digest of an odd level moves up unchanged.
        last = slice(len(level) - len(level) % 2, None)
        leaves = [leaves[index] + leaves[index + 1] for index in pairs] + leaves[last]
        level = [_hash_pair(level[index], level[index + 1]) for index in pairs] + level[last]
    return level[0], paths


def _merkle_root(digest: bytes, path: bytes) -> bytes | None:
    """The root that a path leads to; None if malformed. Each path has exactly one encoding."""
    if len(path) % MERKLE_STEP_BYTES:
        return None
    for start in range(0, len(path), MERKLE_STEP_BYTES):
        side, sibling = path[start], path[start + 1 : start + MERKLE_STEP_BYTES]
        if side > 1:
            return None
        digest = _hash_pair(digest, sibling) if side else _hash_pair(sibling, digest)
    return digest
