"""Metadata: what is known of an object without having it.

It is what a notification carries and what a retrieve needs. The digest in it is what makes a
replica's bytes trustworthy, whoever sent them.
Clauses: M1, M2, M16, M19, M28, M29.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

import msgspec

from thyme.model.errors import MetadataError
from thyme.model.frames import check_instant_us
from thyme.model.ids import Key, NodeId, ObjectId
from thyme.model.tags import Tag, as_tags, check_tags

DIGEST_BYTES = 32


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How large what an application inserts may be (M1, M2); a node's setting."""

    data_bytes_max: int = 256 * 2**20
    summary_bytes_max: int = 64 * 2**10


class Metadata(msgspec.Struct, frozen=True, array_like=True):
    """The tuple ⟨oid, T, s, ts_pub, nid⟩ with the object's size, digest and life span (M2)."""

    key: Key
    tags: tuple[Tag, ...]
    summary: bytes
    published_us: int
    size: int
    digest: bytes
    expires_us: int | None = None

    def __post_init__(self) -> None:
        check_tags(self.tags)
        check_instant_us(self.published_us)
        if self.size < 0:
            raise MetadataError(f"an object's size is not negative: {self.size}")
        if len(self.digest) != DIGEST_BYTES:
            raise MetadataError(f"a digest has {DIGEST_BYTES} bytes, not {len(self.digest)}")
        if self.expires_us is not None:
            check_instant_us(self.expires_us)
            if self.expires_us <= self.published_us:
                raise MetadataError("an object's life span ends after its publication")

    @property
    def oid(self) -> ObjectId:
        """The object's identifier, unique with its owner."""
        return self.key.oid

    @property
    def owner(self) -> NodeId:
        """The node that inserted the object, and may delete it."""
        return self.key.owner

    def expired(self, now_us: int) -> bool:
        """Whether the object's life span is over (M29)."""
        return self.expires_us is not None and self.expires_us <= now_us

    def describes(self, data: bytes) -> bool:
        """Whether these bytes are the object (M19)."""
        return len(data) == self.size and sha256(data).digest() == self.digest


def describe(
    key: Key,
    data: bytes,
    tags: Iterable[str],
    published_us: int,
    *,
    summary: bytes = b"",
    expires_us: int | None = None,
    limits: Limits | None = None,
) -> Metadata:
    """The metadata of a new object; refuses what is over the limits."""
    limits = limits or Limits()
    for what, given, most in (
        ("an object", data, limits.data_bytes_max),
        ("a summary", summary, limits.summary_bytes_max),
    ):
        if not isinstance(given, bytes):
            raise MetadataError(f"{what} is bytes, not {type(given).__name__}")
        if len(given) > most:
            raise MetadataError(f"{what} has at most {most} bytes here, this one has {len(given)}")
    return Metadata(
        key, as_tags(tags), summary, published_us, len(data), sha256(data).digest(), expires_us
    )
