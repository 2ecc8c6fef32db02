"""Settings of a station's caches, and their profiles `PAPER_CACHES` and `ROBUST_CACHES`.

Clauses: I12, I13, I14, I15, I28, B8.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from thyme.model.errors import InputError
from thyme.substrates.infra.caches.policies.factory import CachePolicy


class CacheUnit(Enum):
    """The unit of cache sizes."""

    ENTRIES = "entries"
    BYTES = "bytes"


class CachesConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes and policy of the three caches (thesis, table 4.1)."""

    policy: CachePolicy = CachePolicy.W_TINYLFU
    unit: CacheUnit = CacheUnit.ENTRIES
    local_popularity_size: int = 1_000
    prefetch_metadata_size: int = 10_000
    prefetch_data_size: int = 1_000
    global_metadata_size: int = 10_000
    global_data_size: int = 1_000
    max_puts_above_limit: int = 10
    """Puts into a full world of the full global cache after which it is divided again (I14)."""
    world_size_min: int = 0
    """The lower bound of a world's part of a cache (I15)."""
    part_change_min: int = 0
    """The smallest change of a world's part for which a cache is divided again (B8)."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, int) and value < 0:
                raise InputError(f"{name} must not be negative: {value}")
        if self.max_puts_above_limit < 1:
            raise InputError("max_puts_above_limit must be at least 1")


PAPER_CACHES = CachesConfig()
ROBUST_CACHES = CachesConfig(policy=CachePolicy.S3_FIFO, world_size_min=20, part_change_min=5)
"""The policy with the better hit ratio on our workloads: docs/infra.md, section Caches."""
