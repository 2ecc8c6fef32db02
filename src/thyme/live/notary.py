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

from thyme.live.identity import Identity, is_by
from thyme.model.metadata import PROOF_BYTES, WAY_BYTES_MAX
from thyme.model.records import Record, author_of, text_of

REMEMBERED_MAX = 20_000
_STEP_BYTES = 33
TOGETHER_MAX = 2 ** (WAY_BYTES_MAX // _STEP_BYTES)
"""Maximum number of records that share one signature."""


class KeyNotary:
    """Signs and verifies the records of one world for one node (a `RecordSigner`)."""

    def __init__(self, identity: Identity, wid: str, remembered_max: int = REMEMBERED_MAX) -> None:
        self._identity = identity
        self._wid = wid
        self._remembered_max = remembered_max
        self._genuine: dict[bytes, None] = {}

    def sign(self, record: Record) -> bytes:
        """Makes the proof that this node is the author of a record."""
        [proof] = self.sign_all([record])
        return proof

    def sign_all(self, records: Sequence[Record]) -> list[bytes]:
        """Makes one proof per record; a batch costs little more than a single record."""
        proofs: list[bytes] = []
        for start in range(0, len(records), TOGETHER_MAX):
            batch = records[start : start + TOGETHER_MAX]
            for record in batch:
                if author_of(record) != self._identity.node_id:
                    raise ValueError(f"only {author_of(record).hex()} can sign this record")
            texts = [text_of(record, self._wid) for record in batch]
            root, paths = _tree([_leaf(text) for text in texts])
            proof = self._identity.sign(_top(root))
            self._remember(proof + root)
            proofs += [proof + path for path in paths]
        return proofs

    def is_genuine(self, record: Record, proof: bytes) -> bool:
        """Whether the author named in a record signed it."""
        if not PROOF_BYTES <= len(proof) <= PROOF_BYTES + WAY_BYTES_MAX:
            return False
        proof, path = proof[:PROOF_BYTES], proof[PROOF_BYTES:]
        root = _follow(_leaf(text_of(record, self._wid)), path)
        if root is None:
            return False
        cached = proof + root
        if not is_by(author_of(record), proof, None if cached in self._genuine else _top(root)):
            return False
        self._remember(cached)
        return True

    def _remember(self, name: bytes) -> None:
        self._genuine[name] = None
        if len(self._genuine) > self._remembered_max:
            del self._genuine[next(iter(self._genuine))]


def _leaf(text: bytes) -> bytes:
    return sha256(b"\x00" + text).digest()


def _join(left: bytes, right: bytes) -> bytes:
    return sha256(b"\x01" + left + right).digest()


def _top(top: bytes) -> bytes:
    """The bytes that are signed for a Merkle root."""
    return b"thyme records 2" + top


def _tree(level: list[bytes]) -> tuple[bytes, list[bytes]]:
    """Builds a Merkle tree over leaf digests; returns its root and the path of each leaf. A path
    step is one byte (0: the sibling is on the left, 1: on the right) and the sibling's digest."""
    paths = [b""] * len(level)
    leaves = [[at] for at in range(len(level))]
    while len(level) > 1:
        for at in range(0, len(level) - 1, 2):
            for leaf in leaves[at]:
                paths[leaf] += b"\x01" + level[at + 1]
            for leaf in leaves[at + 1]:
                paths[leaf] += b"\x00" + level[at]
        pairs = range(0, len(level) - 1, 2)
        # The last digest of an odd level moves up unchanged.
        last = slice(len(level) - len(level) % 2, None)
        leaves = [leaves[at] + leaves[at + 1] for at in pairs] + leaves[last]
        level = [_join(level[at], level[at + 1]) for at in pairs] + level[last]
    return level[0], paths


def _follow(digest: bytes, way: bytes) -> bytes | None:
    """The root that a path leads to; None if malformed. Each path has exactly one encoding."""
    if len(way) % _STEP_BYTES:
        return None
    for start in range(0, len(way), _STEP_BYTES):
        side, other = way[start], way[start + 1 : start + _STEP_BYTES]
        if side > 1:
            return None
        digest = _join(digest, other) if side else _join(other, digest)
    return digest
