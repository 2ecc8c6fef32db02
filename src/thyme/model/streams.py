"""Streams: randomness handed out by purpose, so that a new draw in one place moves no other."""

from __future__ import annotations

from hashlib import blake2b
from random import Random


def stream(seed: int, *purpose: str | int | bytes) -> Random:
    """A generator for one purpose, equal in every process: stream(seed, "radio", node_id)."""
    label = "/".join(part.hex() if isinstance(part, bytes) else str(part) for part in purpose)
    digest = blake2b(f"{seed}/{label}".encode(), digest_size=16).digest()
    return Random(int.from_bytes(digest, "big"))
