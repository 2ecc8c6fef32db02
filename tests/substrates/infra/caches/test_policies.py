"""Both cache policies decide as their naive twins do, and keep within their capacity."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.substrates.infra.caches.twin_s3_fifo import S3FifoTwin
from tests.substrates.infra.caches.twin_w_tinylfu import SketchTwin, WTinyLfuTwin
from thyme.model.errors import InputError
from thyme.model.ids import Key, NodeId, ObjectId
from thyme.substrates.infra.caches.policies import window_climber
from thyme.substrates.infra.caches.policies.factory import CachePolicy, make_cache
from thyme.substrates.infra.caches.policies.frequency_sketch import FrequencySketch
from thyme.substrates.infra.caches.policies.interface import Cache, EvictionCause, hit_ratio
from thyme.substrates.infra.caches.policies.key_hash import hash_pair
from thyme.substrates.infra.caches.policies.w_tinylfu import WTinyLfuCache

Operation = tuple[str, int, int]
Report = tuple[int, str, EvictionCause]

POLICIES = pytest.mark.parametrize("policy", CachePolicy)


def operations(keys: int, weight_max: int, capacity_max: int) -> st.SearchStrategy[list[Operation]]:
    key = st.integers(0, keys)
    return st.lists(
        st.one_of(
            st.tuples(st.just("access"), key, st.integers(1, weight_max)),
            st.tuples(st.just("get"), key, st.just(0)),
            st.tuples(st.just("put"), key, st.integers(1, weight_max)),
            st.tuples(st.just("remove"), key, st.just(0)),
            st.tuples(st.just("resize"), st.integers(0, capacity_max), st.just(0)),
        ),
        max_size=300,
    )


def apply(cache: Cache[int, str] | WTinyLfuTwin | S3FifoTwin, step: int, op: Operation) -> object:
    kind, key, weight = op
    match kind:
        case "access":
            found = cache.get(key)
            return found if found is not None else cache.put(key, f"{key}/{step}", weight)
        case "get":
            return cache.get(key)
        case "put":
            return cache.put(key, f"{key}/{step}", weight)
        case "remove":
            return cache.remove(key)
        case _:
            return cache.resize(key)


def assert_equal_decisions(
    make: Callable[[list[Report]], Cache[int, str]],
    twin: WTinyLfuTwin | S3FifoTwin,
    operations: list[Operation],
) -> None:
    evictions: list[Report] = []
    cache = make(evictions)
    for step, operation in enumerate(operations):
        assert apply(cache, step, operation) == apply(twin, step, operation)
        assert evictions == twin.evictions
        assert (cache.weight, cache.capacity) == (twin.weight, twin.capacity)
        assert cache.weight <= cache.capacity
        if isinstance(cache, WTinyLfuCache):
            assert isinstance(twin, WTinyLfuTwin)
            assert cache.window_capacity == twin.window_max
    assert {key: cache.peek(key) for key in cache} == twin.values
    assert (cache.hits, cache.misses) == (twin.hits, twin.misses)


def made(policy: CachePolicy, capacity: int) -> Callable[[list[Report]], Cache[int, str]]:
    return lambda reports: make_cache(policy, capacity, lambda *report: reports.append(report))


@given(st.integers(0, 40), operations(30, 1, 40))
def test_s3_fifo_with_entries_decides_as_its_twin(capacity: int, ops: list[Operation]) -> None:
    assert_equal_decisions(made(CachePolicy.S3_FIFO, capacity), S3FifoTwin(capacity), ops)


@given(st.integers(0, 200), operations(30, 50, 200))
def test_s3_fifo_with_weights_decides_as_its_twin(capacity: int, ops: list[Operation]) -> None:
    assert_equal_decisions(made(CachePolicy.S3_FIFO, capacity), S3FifoTwin(capacity), ops)


@given(st.integers(0, 40), operations(30, 1, 40))
def test_w_tinylfu_with_entries_decides_as_its_twin(capacity: int, ops: list[Operation]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(window_climber, "SAMPLE_MIN", 10)
        assert_equal_decisions(made(CachePolicy.W_TINYLFU, capacity), WTinyLfuTwin(capacity), ops)


@given(st.integers(0, 200), operations(30, 50, 200))
def test_w_tinylfu_with_weights_decides_as_its_twin(capacity: int, ops: list[Operation]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(window_climber, "SAMPLE_MIN", 10)
        assert_equal_decisions(made(CachePolicy.W_TINYLFU, capacity), WTinyLfuTwin(capacity), ops)


@pytest.mark.parametrize("window_share", [None, 0.01, 0.5])
def test_w_tinylfu_decides_as_its_twin_through_ageing_growth_and_adaptation(
    window_share: float | None,
) -> None:
    rng = Random(3)
    ops: list[Operation] = []
    for step in range(6_000):
        key = int(rng.paretovariate(0.6)) % 900 if step % 1_000 < 700 else step % 900
        ops.append(("access", key, 1))
        if step % 1_500 == 1_499:
            ops.append(("resize", rng.choice([100, 200, 300]), 0))

    assert_equal_decisions(
        lambda reports: WTinyLfuCache(
            150, lambda *report: reports.append(report), window_share=window_share
        ),
        WTinyLfuTwin(150, window_share),
        ops,
    )


@given(st.lists(st.one_of(st.integers(0, 50), st.sampled_from(["age", "grow"])), max_size=200))
@settings(max_examples=40)
def test_the_sketch_counts_as_its_twin(steps: list[int | str]) -> None:
    sketch, twin = FrequencySketch(), SketchTwin()
    for step in steps:
        match step:
            case "age":
                assert sketch.age() == twin.age()
            case "grow" if twin.entries < 1_024:
                sketch.grow()
                twin.grow()
            case int():
                sketch.record(*hash_pair(step))
                twin.record(step)
    for key in range(60):
        assert sketch.estimate(*hash_pair(key)) == twin.estimate(key)


def test_growing_the_sketch_preserves_every_estimate() -> None:
    sketch = FrequencySketch()
    for number in range(3_000):
        sketch.record(*hash_pair(number % 700))
    before = [sketch.estimate(*hash_pair(key)) for key in range(1_000)]
    sketch.grow()
    assert [sketch.estimate(*hash_pair(key)) for key in range(1_000)] == before


def test_hashes_are_the_same_in_every_process() -> None:
    key = Key(ObjectId("photo"), NodeId(b"\x01\x02"))
    assert hash_pair(17) == (131503, 19266)
    assert hash_pair("goal") == (792275657, 804625209)
    assert hash_pair(("gallery", key)) == (436991109, 834325400)
    with pytest.raises(InputError, match="not float"):
        hash_pair(1.5)


def test_hashes_spread_numbers_with_many_trailing_zeros() -> None:
    for shift in (0, 12, 20, 40):
        pairs = {hash_pair(number << shift) for number in range(5_000)}
        low = {(first & 4095, second & 4095) for first, second in pairs}
        assert len(low) > 4_950


# --- Sizes and weights ----------------------------------------------------------------------------


@POLICIES
def test_a_cache_of_size_0_stores_nothing(policy: CachePolicy) -> None:
    reports: list[Report] = []
    cache = made(policy, 0)(reports)

    assert cache.put(1, "a") is False
    assert cache.get(1) is None
    assert (len(cache), cache.weight, hit_ratio(cache)) == (0, 0, 0.0)
    assert reports == [(1, "a", EvictionCause.TOO_LARGE)]


@POLICIES
def test_an_entry_larger_than_the_cache_is_refused_and_replaces_its_old_value(
    policy: CachePolicy,
) -> None:
    reports: list[Report] = []
    cache = made(policy, 10)(reports)
    cache.put(1, "small", 3)

    assert cache.put(1, "large", 11) is False

    assert (len(cache), cache.weight) == (0, 0)
    assert reports == [
        (1, "small", EvictionCause.REPLACED),
        (1, "large", EvictionCause.TOO_LARGE),
    ]


@POLICIES
def test_a_weight_that_grows_on_update_evicts_others(policy: CachePolicy) -> None:
    reports: list[Report] = []
    cache = made(policy, 10)(reports)
    for key in range(5):
        cache.put(key, str(key), 2)

    cache.put(4, "heavier", 7)

    assert cache.weight <= 10
    causes = [cause for _, _, cause in reports]
    assert causes[0] is EvictionCause.REPLACED
    assert set(causes[1:]) <= {EvictionCause.CAPACITY, EvictionCause.REFUSED}
    assert len(causes) > 2


@POLICIES
def test_a_cache_shrinks_to_0_and_back(policy: CachePolicy) -> None:
    reports: list[Report] = []
    cache = made(policy, 50)(reports)
    for key in range(50):
        cache.put(key, str(key))

    cache.resize(0)
    assert (len(cache), cache.weight) == (0, 0)
    assert sorted(reports) == sorted((key, str(key), EvictionCause.RESIZE) for key in range(50))

    cache.resize(50)
    for key in range(50):
        assert cache.put(key, "again")
    assert len(cache) == 50


@POLICIES
def test_a_cache_without_repeated_uses_is_filled_to_its_capacity(policy: CachePolicy) -> None:
    cache: Cache[int, int] = make_cache(policy, 100)
    for key in range(1_000):
        cache.put(key, key)
    assert (len(cache), cache.weight) == (100, 100)


@POLICIES
def test_resizing_evicts_only_what_is_too_much(policy: CachePolicy) -> None:
    reports: list[Report] = []
    cache = made(policy, 1_000)(reports)
    for key in range(1_000):
        cache.put(key, str(key))
    cache.resize(900)
    assert [cause for _, _, cause in reports] == [EvictionCause.RESIZE] * 100
    cache.resize(2_000)
    assert (len(reports), len(cache)) == (100, 900)


@POLICIES
def test_popular_entries_survive_a_resize(policy: CachePolicy) -> None:
    cache: Cache[int, int] = make_cache(policy, 200)
    for _ in range(6):
        for key in range(50):
            if cache.get(key) is None:
                cache.put(key, key)
    for key in range(1_000, 1_500):
        cache.put(key, key)
    cache.resize(60)
    assert sum(key in cache for key in range(50)) >= 30


@POLICIES
def test_a_removed_entry_is_reported_with_the_cause(policy: CachePolicy) -> None:
    reports: list[Report] = []
    cache = made(policy, 10)(reports)
    cache.put(1, "a")
    cache.put(2, "b")

    assert cache.remove(1) == "a"
    assert cache.remove(2, EvictionCause.EXPIRED) == "b"
    assert cache.remove(3) is None

    assert reports == [(1, "a", EvictionCause.REMOVED), (2, "b", EvictionCause.EXPIRED)]


@POLICIES
def test_bad_capacities_and_weights_are_rejected(policy: CachePolicy) -> None:
    with pytest.raises(InputError, match="capacity"):
        make_cache(policy, -1)
    cache: Cache[int, int] = make_cache(policy, 5)
    with pytest.raises(InputError, match="weight"):
        cache.put(1, 1, 0)
    with pytest.raises(InputError, match="capacity"):
        cache.resize(-1)
    assert (cache.capacity, len(cache)) == (5, 0)


def test_a_heavy_candidate_must_be_used_more_often_than_all_it_displaces() -> None:
    cache: WTinyLfuCache[str, int] = WTinyLfuCache(100, window_share=0.2)
    for key in "abcdefgh":
        cache.put(key, 0, 10)
        cache.get(key)
    for _ in range(3):
        cache.put("heavy", 1, 20)  # used three times; the two it would displace four times
    cache.put("next", 1, 20)
    assert "heavy" not in cache
