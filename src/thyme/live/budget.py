"""Rate limit: a token bucket for each neighbour, so that one sender cannot starve the others.

Entry point: `TokenBucket.consume`. `link` keeps one bucket per address.
Clauses: B5.
"""

from __future__ import annotations

from thyme.live.terms import Rate


class Budget:
    """Token bucket that counts the datagrams and bytes of one address."""

    __slots__ = ("_at_us", "_bytes", "_count", "_rate")

    def __init__(self, rate: Rate, now_us: int) -> None:
        self._rate = rate
        self._count = rate.burst
        self._bytes = rate.bytes_burst
        self._at_us = now_us

    def spend(self, size: int, now_us: int) -> bool:
        """Charges a datagram of `size` bytes to the bucket; False if too little is left."""
        self._earn(now_us)
        if self._count < 1 or self._bytes < size:
            return False
        self._count -= 1
        self._bytes -= size
        return True

    def is_full(self, now_us: int) -> bool:
        """Whether the bucket is full, so that it can be deleted and created again later."""
        self._earn(now_us)
        return self._count >= self._rate.burst and self._bytes >= self._rate.bytes_burst

    def _earn(self, now_us: int) -> None:
        rate, passed_s = self._rate, max(0, now_us - self._at_us) / 1e6
        self._at_us = now_us
        self._count = min(rate.burst, self._count + rate.per_second * passed_s)
        self._bytes = min(rate.bytes_burst, self._bytes + rate.bytes_per_second * passed_s)
