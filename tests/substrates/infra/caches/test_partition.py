"""Adaptive multipart caching: sizes of the worlds' parts, and algorithm 1."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thyme.model.errors import InputError
from thyme.substrates.infra.caches.adaptive_multipart import AdaptiveMultipartCache
from thyme.substrates.infra.caches.config import ROBUST_CACHES, CachesConfig
from thyme.substrates.infra.caches.partition import partition_sizes
from thyme.substrates.infra.caches.policies.factory import CachePolicy
from thyme.substrates.infra.caches.policies.interface import EvictionCause

WORLDS = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 1_000))


def a_cache(
    capacity: int, reports: list[tuple[str, int, EvictionCause]] | None = None, **settings: int
) -> AdaptiveMultipartCache[int, str]:
    config = CachesConfig(policy=CachePolicy.S3_FIFO, **settings)  # type: ignore[arg-type]
    return AdaptiveMultipartCache(
        capacity,
        config,
        lambda world, key, _, cause: (
            None if reports is None else reports.append((world, key, cause))
        ),
    )


def fill(cache: AdaptiveMultipartCache[int, str], world: str, count: int) -> None:
    for key in range(count):
        assert cache.put(world, key, world)


def test_i15_the_worked_example_of_the_thesis() -> None:
    """I15: 150 + 20 and 50 + 80 of 200 make 113 and 87."""
    assert partition_sizes({"gallery": 170, "myapp": 130}, 200) == {"gallery": 113, "myapp": 87}


def test_i12_i15_a_batch_insert_divides_the_cache_as_in_the_worked_example() -> None:
    """I12, I15: the same example with entries."""
    reports: list[tuple[str, int, EvictionCause]] = []
    cache = a_cache(200, reports)
    fill(cache, "gallery", 150)
    fill(cache, "myapp", 50)
    batch = [("gallery", 1_000 + n, "new", 1) for n in range(20)]
    batch += [("myapp", 1_000 + n, "new", 1) for n in range(80)]

    cache.put_batch(batch)

    assert cache.sizes() == {"gallery": 113, "myapp": 87}
    resized = [world for world, _, cause in reports if cause is EvictionCause.RESIZE]
    assert resized == ["gallery"] * 37
    cache.check()


@given(WORLDS, st.integers(0, 500), st.integers(0, 60))
def test_i15_sizes_use_the_capacity_exactly_and_respect_the_bound(
    demand: dict[str, int], capacity: int, size_min: int
) -> None:
    """I15: rounding never exceeds S_cache; each world with a demand gets the lower bound."""
    sizes = partition_sizes(demand, capacity, size_min)
    wanting = [world for world, wanted in demand.items() if wanted]
    assert sum(sizes.values()) == (capacity if wanting else 0)
    for world in wanting:
        assert sizes[world] >= min(size_min, capacity // len(wanting))
        if not size_min:
            assert abs(sizes[world] - demand[world] * capacity / sum(demand.values())) < 1
    assert all(sizes[world] == 0 for world in demand if world not in wanting)


def test_i14_a_world_grows_while_there_is_free_space() -> None:
    """I14, algorithm 1, lines 4 and 5."""
    cache = a_cache(10)
    fill(cache, "a", 6)
    fill(cache, "b", 4)
    assert cache.sizes() == {"a": 6, "b": 4}


def test_i14_a_full_cache_is_divided_again_after_max_puts_above_limit() -> None:
    """I14, algorithm 1, lines 6 to 10."""
    cache = a_cache(100, max_puts_above_limit=10)
    fill(cache, "a", 50)
    fill(cache, "b", 50)
    for key in range(100, 109):
        cache.put("a", key, "new")
    assert cache.sizes() == {"a": 50, "b": 50}

    cache.put("a", 109, "new")

    assert cache.sizes() == partition_sizes({"a": 60, "b": 50}, 100) == {"a": 55, "b": 45}
    cache.check()


def test_space_of_removed_entries_goes_to_the_world_that_needs_it() -> None:
    cache = a_cache(10)
    fill(cache, "a", 5)
    fill(cache, "b", 5)
    for key in range(3):
        cache.remove("a", key)
    for key in range(5, 8):
        assert cache.put("b", key, "b")
    assert cache.sizes() == {"a": 2, "b": 8}
    cache.check()


def test_a_new_world_gets_the_lower_bound_of_a_full_cache_at_once() -> None:
    """I15, B8."""
    bounded = a_cache(100, world_size_min=10)
    fill(bounded, "a", 100)
    assert bounded.put("b", 1, "b")
    assert bounded.sizes() == {"a": 90, "b": 10}

    unbounded = a_cache(100)
    fill(unbounded, "a", 100)
    assert not unbounded.put("b", 1, "b")


def test_small_changes_are_left_out() -> None:
    """B8: hysteresis."""
    cache = a_cache(100, part_change_min=10)
    fill(cache, "a", 50)
    fill(cache, "b", 50)
    cache.put_batch([("a", 1_000 + n, "new", 1) for n in range(10)])
    assert cache.sizes() == {"a": 50, "b": 50}
    cache.put_batch([("a", 2_000 + n, "new", 1) for n in range(60)])
    assert cache.sizes() == {"a": 69, "b": 31}


def test_a_world_without_entries_is_dropped() -> None:
    cache = a_cache(10)
    fill(cache, "a", 3)
    for key in range(3):
        cache.remove("a", key)
    cache.put_batch([("b", 1, "b", 1)])
    assert cache.sizes() == {"b": 10}


@given(
    st.integers(0, 30),
    st.lists(
        st.one_of(
            st.tuples(
                st.just("put"), st.sampled_from("abc"), st.integers(0, 20), st.integers(1, 9)
            ),
            st.tuples(
                st.just("batch"), st.sampled_from("abc"), st.integers(0, 20), st.integers(1, 9)
            ),
            st.tuples(st.just("remove"), st.sampled_from("abc"), st.integers(0, 20), st.just(0)),
            st.tuples(st.just("get"), st.sampled_from("abc"), st.integers(0, 20), st.just(0)),
            st.tuples(st.just("resize"), st.just(""), st.integers(0, 40), st.just(0)),
        ),
        max_size=80,
    ),
    st.integers(0, 5),
)
def test_the_parts_never_exceed_the_capacity(
    capacity: int, steps: list[tuple[str, str, int, int]], size_min: int
) -> None:
    """I14, I15."""
    cache = a_cache(capacity, world_size_min=size_min, max_puts_above_limit=3)
    for kind, world, number, weight in steps:
        match kind:
            case "put":
                stored = cache.put(world, number, "v", weight)
                assert stored == cache.contains(world, number)
            case "batch":
                cache.put_batch([(world, number + n, "v", weight) for n in range(3)])
            case "remove":
                cache.remove(world, number)
            case "get":
                assert (cache.get(world, number) is not None) == cache.contains(world, number)
            case _:
                cache.resize(number)
        cache.check()


@pytest.mark.parametrize("field", ["local_popularity_size", "world_size_min"])
def test_negative_sizes_are_rejected(field: str) -> None:
    """I28."""
    with pytest.raises(InputError, match=field):
        CachesConfig(**{field: -1})  # type: ignore[arg-type]
    with pytest.raises(InputError, match="max_puts_above_limit"):
        CachesConfig(max_puts_above_limit=0)
    assert ROBUST_CACHES.world_size_min > 0
