"""Random generators: one independent generator for each purpose, derived from one seed.

A new draw for one purpose changes no other purpose's numbers. Entry point: `derive_rng`.
"""

from __future__ import annotations

from hashlib import blake2b
from random import Random


def derive_rng(seed: int, *purpose: str | int | bytes) -> Random:
    """Returns the generator for a purpose, equal in every process: `(seed, "radio", node_id)`."""
    label = "/".join(part.hex() if isinstance(part, bytes) else str(part) for part in purpose)
    digest = blake2b(f"{seed}/{label}".encode(), digest_size=16).digest()
    return Random(int.from_bytes(digest, "big"))
