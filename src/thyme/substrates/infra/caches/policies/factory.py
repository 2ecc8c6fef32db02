"""The choice of a cache by its policy."""

from __future__ import annotations

from enum import Enum

from thyme.substrates.infra.caches.policies.interface import Cache, EvictionListener, K, V
from thyme.substrates.infra.caches.policies.s3_fifo import S3FifoCache
from thyme.substrates.infra.caches.policies.w_tinylfu import WTinyLfuCache


class CachePolicy(Enum):
    """The eviction policy of the caches."""

    W_TINYLFU = "w-tinylfu"
    S3_FIFO = "s3-fifo"


def make_cache(
    policy: CachePolicy, capacity: int, listener: EvictionListener[K, V] | None = None
) -> Cache[K, V]:
    """Makes an empty cache."""
    match policy:
        case CachePolicy.W_TINYLFU:
            return WTinyLfuCache(capacity, listener)
        case CachePolicy.S3_FIFO:
            return S3FifoCache(capacity, listener)
