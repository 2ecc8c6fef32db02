"""Hit ratios of the cache policies on public traces."""

from __future__ import annotations

from random import Random

import pytest

from tests.substrates.infra.caches.traces import (
    PUBLISHED_SIZES,
    PUBLISHED_W_TINYLFU,
    read_cache_trace,
    replay,
)
from thyme.substrates.infra.caches.policies.s3_fifo import S3FifoCache
from thyme.substrates.infra.caches.policies.w_tinylfu import WTinyLfuCache

POINTS = 2.0
STATIC_WINDOW = 0.01  # the window of the published figures


@pytest.mark.parametrize(
    ("size", "published"), list(zip(PUBLISHED_SIZES, PUBLISHED_W_TINYLFU["gli"], strict=True))
)
def test_w_tinylfu_has_the_published_hit_ratios_on_gli(size: int, published: float) -> None:
    references = read_cache_trace("gli")
    static = replay(WTinyLfuCache(size, window_share=STATIC_WINDOW), references)
    adaptive = replay(WTinyLfuCache(size), references)
    assert abs(static - published) <= POINTS
    assert abs(adaptive - published) <= POINTS


@pytest.mark.slow
@pytest.mark.parametrize("size", [500, 2_000])
def test_w_tinylfu_has_the_published_hit_ratios_on_oltp_and_exceeds_them_if_it_adapts(
    size: int,
) -> None:
    published = PUBLISHED_W_TINYLFU["oltp"][PUBLISHED_SIZES.index(size)]
    references = read_cache_trace("oltp")
    static = replay(WTinyLfuCache(size, window_share=STATIC_WINDOW), references)
    adaptive = replay(WTinyLfuCache(size), references[:300_000])
    assert abs(static - published) <= POINTS
    assert adaptive >= published - POINTS


@pytest.mark.parametrize(
    ("name", "size", "referee"),
    [("gli", 25, 1.20), ("gli", 252, 15.96), ("sprite", 70, 21.27), ("sprite", 707, 85.96)],
)
def test_s3_fifo_has_the_hit_ratios_of_libcachesim(name: str, size: int, referee: float) -> None:
    """The referee's figures: libcachesim 0.3.5, which `./run bench cache` runs again."""
    assert abs(replay(S3FifoCache(size), read_cache_trace(name)) - referee) <= 0.5


def test_the_window_grows_where_recency_rules_and_a_static_one_loses() -> None:
    # Each key is used soon after its first use, and never later.
    rng = Random(1)
    references = [
        key for start in range(30_000) for key in (start, max(0, start - rng.randrange(90)))
    ]
    adaptive, static = WTinyLfuCache[int, int](100), WTinyLfuCache[int, int](100, window_share=0.01)
    assert replay(adaptive, references) > replay(static, references) + 10
    assert adaptive.window_capacity > 50


def test_a_loop_larger_than_the_cache_does_not_empty_it() -> None:
    references = list(range(600)) * 30
    for cache in (WTinyLfuCache[int, int](300), S3FifoCache[int, int](300)):
        assert replay(cache, references) > 30  # LRU: 0
