"""Reads the public cache traces; their sources are in data/README.md."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path

from thyme.substrates.infra.caches.policies.interface import Cache, hit_ratio

_DATA = Path(__file__).parent / "data"
PUBLISHED_SIZES = (250, 500, 750, 1_000, 1_250, 1_500, 1_750, 2_000)
PUBLISHED_W_TINYLFU = {
    "gli": (15.15, 33.08, 43.11, 50.57, 51.87, 53.57, 55.61, 57.96),
    "oltp": (22.76, 29.21, 32.97, 35.30, 37.52, 38.99, 40.37, 41.67),
}
"""Hit ratios in percent that the authors of W-TinyLFU published for their simulator."""


def read_cache_trace(name: str) -> list[int]:
    """The references of `gli`, `loop`, `sprite` or `oltp`."""
    if name == "oltp":
        with lzma.open(_DATA / "oltp.trace.xz", "rt") as lines:
            spans = [tuple(map(int, line.split())) for line in lines]
        return [block for first, count in spans for block in range(first, first + count)]
    with gzip.open(_DATA / f"{name}.trace.gz", "rt") as lines:
        return [int(line) for line in lines if line.strip().isdigit()]


def replay(cache: Cache[int, int], references: list[int]) -> float:
    """The hit ratio in percent of a cache that stores each missing reference."""
    get, put = cache.get, cache.put
    for reference in references:
        if get(reference) is None:
            put(reference, reference)
    return 100 * hit_ratio(cache)
