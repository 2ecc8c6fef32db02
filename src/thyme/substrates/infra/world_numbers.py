"""World numbers: the identifier of a world, the same at every station.

Entry point: `world_number`. Two stations that create a world with the same name at the same time
create the same world.
Clauses: I3.
"""

from __future__ import annotations

from hashlib import blake2b


def world_number(name: str) -> int:
    """The number of a world: a hash of its name, 48 bits."""
    digest = blake2b(name.encode(), digest_size=6, person=b"thyme world").digest()
    return int.from_bytes(digest, "big")
