"""Metadata: the description of an object, carried by notifications and needed to retrieve it.

Entry points: `Metadata`, `make_metadata`. The digest authenticates the bytes received from any
replica (`object_chunks`); the owner's proof authenticates the metadata (`signed_records`).
Clauses: M1, M2, M16, M19, M28, M29, M37, B5.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from thyme.model.errors import MetadataError
from thyme.model.ids import Key, NodeId, ObjectId
from thyme.model.object_chunks import content_digest, is_large
from thyme.model.tags import Tag, as_tags, check_tags
from thyme.model.time_frames import check_instant_us

DIGEST_BYTES = 32
PROOF_BYTES = 96
"""Size of an author's proof: the public key, 32 bytes, and the signature, 64 bytes (B5)."""
MERKLE_PATH_BYTES_MAX = 132
"""Size limit of the Merkle path in a proof; one signature covers up to 16 records."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Size limits of inserted objects and summaries (M1, M2); a setting of a node."""

    data_bytes_max: int = 256 * 2**20
    summary_bytes_max: int = 64 * 2**10


class Metadata(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The tuple ⟨oid, T, s, ts_pub, nid⟩ with the object's size, digest and expiry (M2)."""

    key: Key
    tags: tuple[Tag, ...]
    summary: bytes
    published_us: int
    size: int
    digest_and_proof: bytes
    """The object's digest, followed by the owner's proof in worlds with node keys (B5)."""
    expires_us: int | None = None

    def __post_init__(self) -> None:
        check_tags(self.tags)
        check_instant_us(self.published_us)
        if self.size < 0:
            raise MetadataError(f"an object's size is not negative: {self.size}")
        proof_bytes = len(self.digest_and_proof) - DIGEST_BYTES
        if proof_bytes and not PROOF_BYTES <= proof_bytes <= PROOF_BYTES + MERKLE_PATH_BYTES_MAX:
            raise MetadataError(
                f"a digest has {DIGEST_BYTES} bytes, with a proof at least "
                f"{DIGEST_BYTES + PROOF_BYTES}, not {len(self.digest_and_proof)}"
            )
        if self.expires_us is not None:
            check_instant_us(self.expires_us)
            if self.expires_us <= self.published_us:
                raise MetadataError("an object must expire after its publication")

    @property
    def oid(self) -> ObjectId:
        """The object's identifier, unique among the objects of its owner."""
        return self.key.oid

    @property
    def owner(self) -> NodeId:
        """The node that inserted the object; only this node may delete the object."""
        return self.key.owner

    @property
    def digest(self) -> bytes:
        """The digest of the object's bytes: see `object_chunks.content_digest`."""
        return self.digest_and_proof[:DIGEST_BYTES]

    @property
    def proof(self) -> bytes:
        """The owner's proof of authorship; empty in worlds without node keys (B5)."""
        return self.digest_and_proof[DIGEST_BYTES:]

    def has_expired(self, now_us: int) -> bool:
        """Whether the object has expired (M29)."""
        return self.expires_us is not None and self.expires_us <= now_us

    @property
    def is_large(self) -> bool:
        """Whether the object is divided into chunks (M37)."""
        return is_large(self.size)

    def matches_content(self, data: bytes) -> bool:
        """Whether size and digest of these bytes are those of the object (M19)."""
        return len(data) == self.size and content_digest(data) == self.digest


class Content(msgspec.Struct, frozen=True):
    """Size and digest of an object's bytes."""

    size: int
    digest: bytes


def make_metadata(
    key: Key,
    data: bytes | Content,
    tags: Iterable[str],
    published_us: int,
    *,
    summary: bytes = b"",
    expires_us: int | None = None,
    limits: Limits | None = None,
) -> Metadata:
    """Makes the metadata of a new object; raises `MetadataError` beyond the limits."""
    limits = limits or Limits()
    if not isinstance(data, Content):
        _check_bytes("an object", data)
    _check_bytes("a summary", summary)
    size = data.size if isinstance(data, Content) else len(data)
    _check_size("an object", size, limits.data_bytes_max)
    _check_size("a summary", len(summary), limits.summary_bytes_max)
    digest = data.digest if isinstance(data, Content) else content_digest(data)
    return Metadata(key, as_tags(tags), summary, published_us, size, digest, expires_us)


def _check_bytes(label: str, value: object) -> None:
    if not isinstance(value, bytes):
        raise MetadataError(f"{label} is bytes, not {type(value).__name__}")


def _check_size(label: str, size: int, bytes_max: int) -> None:
    if size > bytes_max:
        raise MetadataError(f"{label} has at most {bytes_max} bytes here, this one has {size}")
