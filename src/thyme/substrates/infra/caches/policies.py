"""The choice of a cache by its policy."""

from __future__ import annotations

from thyme.substrates.infra.caches.config import CachePolicy
from thyme.substrates.infra.caches.interface import Cache, EvictionListener, K, V
from thyme.substrates.infra.caches.s3_fifo import S3FifoCache
from thyme.substrates.infra.caches.w_tinylfu import WTinyLfuCache


def make_cache(
    policy: CachePolicy, capacity: int, listener: EvictionListener[K, V] | None = None
) -> Cache[K, V]:
    """Makes an empty cache."""
    match policy:
        case CachePolicy.W_TINYLFU:
            return WTinyLfuCache(capacity, listener)
        case CachePolicy.S3_FIFO:
            return S3FifoCache(capacity, listener)
