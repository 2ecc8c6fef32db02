"""Unpublish records: deletes of owners in all venues, as stations and mobile nodes save them.

Entry points: `UnpublishRecord.of` and `UnpublishRecord.as_message`.
Clauses: I23, M24.
"""

from __future__ import annotations

import msgspec

from thyme.model.ids import Key, RequestId
from thyme.model.tags import Tag
from thyme.protocol.messages.common import Unpublish, unpublished_key
from thyme.protocol.messages.requests import DeleteObject, SignedDelete


class UnpublishRecord(msgspec.Struct, frozen=True, array_like=True):
    """A delete of an owner."""

    world: int
    tags: tuple[Tag, ...]
    key: Key
    proof: bytes
    """The signature of the owner; empty in worlds without node keys."""

    @classmethod
    def of(cls, message: Unpublish) -> UnpublishRecord:
        """The record of a message."""
        delete = message.delete
        proof = delete.proof if isinstance(delete, SignedDelete) else b""
        return cls(message.world, message.tags, unpublished_key(message), proof)

    def as_message(self, request_id: RequestId) -> Unpublish:
        """The message of a record."""
        delete = DeleteObject(request_id, self.key)
        signed = delete.with_proof(self.proof) if self.proof else delete
        return Unpublish(request_id, self.world, self.tags, signed)
