"""The notary of a live node: signs its records with its key, and looks at those of others.

To look at a signature costs about a hundred times what it costs to find that it was looked at
before: what was found to be genuine is remembered. Records that come together share a signature,
over the top of a tree of digests; each has the way from itself to the top with it.
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
"""How many records share a signature at most."""


class KeyNotary:
    """The records of one world, seen from one node; a `Notary`."""

    def __init__(self, identity: Identity, wid: str, remembered_max: int = REMEMBERED_MAX) -> None:
        self._identity = identity
        self._wid = wid
        self._remembered_max = remembered_max
        self._genuine: dict[bytes, None] = {}

    def sign(self, record: Record) -> bytes:
        """The proof that this node is the author of a record."""
        [proof] = self.sign_all([record])
        return proof

    def sign_all(self, records: Sequence[Record]) -> list[bytes]:
        """The proof for each of several records, for little more than that for one."""
        proofs: list[bytes] = []
        for start in range(0, len(records), TOGETHER_MAX):
            some = records[start : start + TOGETHER_MAX]
            for record in some:
                if author_of(record) != self._identity.node_id:
                    raise ValueError(f"only {author_of(record).hex()} can sign this")
            leaves = [text_of(record, self._wid) for record in some]
            top, ways = _tree([_leaf(text) for text in leaves])
            proof = self._identity.sign(_top(top))
            self._remember(proof + top)
            proofs += [proof + way for way in ways]
        return proofs

    def is_genuine(self, record: Record, proof: bytes) -> bool:
        """Whether a record is from the one it says it is from."""
        if not PROOF_BYTES <= len(proof) <= PROOF_BYTES + WAY_BYTES_MAX:
            return False
        proof, way = proof[:PROOF_BYTES], proof[PROOF_BYTES:]
        top = _follow(_leaf(text_of(record, self._wid)), way)
        if top is None:
            return False
        name = proof + top
        if not is_by(author_of(record), proof, None if name in self._genuine else _top(top)):
            return False
        self._remember(name)
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
    """What is signed."""
    return b"thyme records 2" + top


def _tree(level: list[bytes]) -> tuple[bytes, list[bytes]]:
    """The top of a tree over some digests, and the way there from each of them: for each step a
    byte, 0 if what is joined stands to the left and 1 to the right, and its digest."""
    ways = [b""] * len(level)
    under = [[at] for at in range(len(level))]
    while len(level) > 1:
        for at in range(0, len(level) - 1, 2):
            for leaf in under[at]:
                ways[leaf] += b"\x01" + level[at + 1]
            for leaf in under[at + 1]:
                ways[leaf] += b"\x00" + level[at]
        pairs = range(0, len(level) - 1, 2)
        # One that is left over goes up as it is.
        last = slice(len(level) - len(level) % 2, None)
        under = [under[at] + under[at + 1] for at in pairs] + under[last]
        level = [_join(level[at], level[at + 1]) for at in pairs] + level[last]
    return level[0], ways


def _follow(digest: bytes, way: bytes) -> bytes | None:
    """Where a way leads. There is one way of writing it, so that nobody makes two of a proof."""
    if len(way) % _STEP_BYTES:
        return None
    for start in range(0, len(way), _STEP_BYTES):
        side, other = way[start], way[start + 1 : start + _STEP_BYTES]
        if side > 1:
            return None
        digest = _join(digest, other) if side else _join(other, digest)
    return digest
