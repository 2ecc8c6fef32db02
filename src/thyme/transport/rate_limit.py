"""Rate limit: a token bucket for each neighbour, so that one sender cannot starve the others.

Entry point: `TokenBucket.consume`. `link` keeps one bucket per address.
Clauses: B5.
"""

from __future__ import annotations

from thyme.transport.link_config import RateLimit


class TokenBucket:
    """Token bucket that counts the datagrams and bytes of one address."""

    __slots__ = ("_bytes_left", "_datagrams_left", "_limit", "_refilled_us")

    def __init__(self, limit: RateLimit, now_us: int) -> None:
        self._limit = limit
        self._datagrams_left = limit.datagrams_burst
        self._bytes_left = limit.bytes_burst
        self._refilled_us = now_us

    def consume(self, size: int, now_us: int, count: int = 1) -> bool:
        """Charges `count` datagrams, of `size` bytes in all, to the bucket; False if too little is
        left."""
        if now_us != self._refilled_us:
            self._refill(now_us)
        if self._datagrams_left < count or self._bytes_left < size:
            return False
        self._datagrams_left -= count
        self._bytes_left -= size
        return True

    def is_full(self, now_us: int) -> bool:
        """Whether the bucket is full, so that it can be deleted and created again later."""
        self._refill(now_us)
        return (
            self._datagrams_left >= self._limit.datagrams_burst
            and self._bytes_left >= self._limit.bytes_burst
        )

    def _refill(self, now_us: int) -> None:
        limit, elapsed_s = self._limit, max(0, now_us - self._refilled_us) / 1e6
        self._refilled_us = now_us
        self._datagrams_left = min(
            limit.datagrams_burst, self._datagrams_left + limit.datagrams_per_second * elapsed_s
        )
        self._bytes_left = min(
            limit.bytes_burst, self._bytes_left + limit.bytes_per_second * elapsed_s
        )
