"""The three caches of a station: contents, tags, moves between them, unpublish and expiry."""

from __future__ import annotations

from random import Random

import pytest

from thyme.model.ids import Key, NodeId, ObjectId
from thyme.model.metadata import Metadata, make_metadata
from thyme.model.subscriptions import Conjunction
from thyme.model.tags import as_tag
from thyme.model.time_frames import ALWAYS, TimeFrame
from thyme.query.cursor import cursor_at
from thyme.substrates.infra.caches.config import CachesConfig, CacheUnit
from thyme.substrates.infra.caches.local_popularity import CachedObject
from thyme.substrates.infra.caches.object_cache import CachePart, ObjectCache
from thyme.substrates.infra.caches.policies.factory import CachePolicy
from thyme.substrates.infra.caches.policies.interface import EvictionCause
from thyme.substrates.infra.caches.station_caches import CacheHit, StationCaches
from thyme.substrates.infra.station.cached_content import CachedContent
from thyme.substrates.infra.station.content import ContentPage, Item

Report = tuple[str, Key, CachePart, EvictionCause]
POLICIES = pytest.mark.parametrize("policy", CachePolicy)
OWNER = NodeId(b"\x07")


def photo(
    number: int, *tags: str, size: int = 10, at_us: int = 5, expires_us: int | None = None
) -> Metadata:
    key = Key(ObjectId(f"photo{number}"), OWNER)
    return make_metadata(key, bytes(size), tags or ("goal",), at_us, expires_us=expires_us)


def key_of(number: int) -> Key:
    return Key(ObjectId(f"photo{number}"), OWNER)


def caches(reports: list[Report] | None = None, **settings: object) -> StationCaches:
    config = CachesConfig(**settings)  # type: ignore[arg-type]
    return StationCaches(
        config, None if reports is None else lambda *report: reports.append(report)
    )


def test_i12_the_local_popularity_cache_holds_metadata_with_data() -> None:
    """I12."""
    station = caches(local_popularity_size=10)
    station.local_popularity.put_batch([CachedObject("gallery", photo(1), b"pixels")])

    assert station.download("gallery", key_of(1)) == CacheHit(b"pixels")
    assert station.local_popularity.metadata("gallery", key_of(1)) == photo(1)
    assert station.download("another", key_of(1)) is None


def test_i13_prefetched_metadata_outlives_its_data() -> None:
    """I13: separate sizes, keyed by world and object."""
    station = caches(prefetch_metadata_size=10, prefetch_data_size=1, policy=CachePolicy.S3_FIFO)
    station.prefetch.put("a", photo(1), b"one")
    station.prefetch.put("b", photo(1), b"other")

    assert station.prefetch.metadata("a", key_of(1)) == photo(1)
    assert station.prefetch.metadata("b", key_of(1)) == photo(1)
    assert station.prefetch.get_data("a", key_of(1)) is None
    assert station.prefetch.get_data("b", key_of(1)) == b"other"


def test_i13_i14_a_downloaded_object_moves_from_prefetch_to_the_global_cache() -> None:
    """I14, I19."""
    station = caches()
    station.prefetch.put("gallery", photo(1), b"pixels")

    assert station.download("gallery", key_of(1)) == CacheHit(b"pixels", consumed=photo(1))

    assert station.prefetch.metadata("gallery", key_of(1)) is None
    assert station.global_cache.metadata("gallery", key_of(1)) == photo(1)
    assert station.download("gallery", key_of(1)) == CacheHit(b"pixels")


def test_a_lookup_finds_each_object_once_and_only_in_its_world_and_frame() -> None:
    """I16, I21."""
    content = CachedContent(CachesConfig())
    content.insert_popular([Item(1, photo(1, "goal", "eder"), b"")])
    content.insert_prefetched(Item(1, photo(1, "goal", "eder"), b""))
    content.insert_prefetched(Item(1, photo(2, "goal", "replay"), b""))
    content.insert_consumed(Item(1, photo(3, "goal", "eder", at_us=90), b""))
    content.insert_consumed(Item(2, photo(4, "goal", "eder"), b""))
    wanted = (Conjunction((as_tag("eder"), as_tag("goal")), (as_tag("replay"),)),)

    everything = content.find_page(1, wanted, ALWAYS, 10, None)
    first = content.find_page(1, wanted, ALWAYS, 1, None)
    second = content.find_page(1, wanted, ALWAYS, 1, cursor_at(first.items[0]))
    recent = content.find_page(1, wanted, TimeFrame(start_us=50), 10, None)
    nothing = (Conjunction((as_tag("nothing"),)),)

    assert [found.oid for found in everything.items] == ["photo3", "photo1"]
    assert (everything.total, everything.has_more) == (2, False)
    assert ([found.oid for found in first.items], first.has_more) == (["photo3"], True)
    assert ([found.oid for found in second.items], second.has_more) == (["photo1"], False)
    assert [found.oid for found in recent.items] == ["photo3"]
    assert content.find_page(1, nothing, ALWAYS, 10, None) == ContentPage(0, (), has_more=False)
    assert content.find_page(3, wanted, ALWAYS, 10, None) == ContentPage(0, (), has_more=False)


@POLICIES
def test_lookups_and_announced_changes_follow_the_caches(policy: CachePolicy) -> None:
    """I11, I16, I21: whatever comes and goes, cells know what the caches have."""
    rng, announced = Random(7), dict[tuple[int, Key], None]()
    content = CachedContent(
        CachesConfig(
            policy=policy,
            local_popularity_size=8,
            prefetch_metadata_size=6,
            prefetch_data_size=3,
            global_metadata_size=6,
            global_data_size=3,
        )
    )
    tags = (Conjunction((as_tag("goal"),)),)
    for step in range(600):
        world, number = rng.randint(1, 2), rng.randrange(30)
        expires_us = 5 + step + rng.randrange(50) if rng.random() < 0.3 else None
        item = Item(world, photo(number, at_us=number, expires_us=expires_us), b"")
        rng.choice(
            [
                lambda item=item: content.insert_popular([item]),
                lambda item=item: content.insert_prefetched(item),
                lambda item=item: content.insert_consumed(item),
                lambda item=item: content.purge(item.world, item.metadata.key),
                lambda item=item: content.read(item.world, item.metadata.key),
                lambda step=step: content.remove_expired(5 + step),
            ]
        )()
        found = content.find_page(world, tags, ALWAYS, 100, None)
        cached = {
            key_of(each)
            for each in range(30)
            if content.caches.metadata(str(world), key_of(each)) is not None
        }
        assert {metadata.key for metadata in found.items} == cached
        assert found.total == len(cached)
        for change in content.drain_changes() if step % 3 == 0 else ():
            name = (change.world, change.metadata.key)
            assert (name in announced) is not change.is_stored
            if change.is_stored:
                announced[name] = None
            else:
                del announced[name]
        if step % 3 == 0:
            assert {key for of, key in announced if of == world} == cached


def test_unpublish_removes_an_object_from_all_caches_and_reports_it() -> None:
    """I23."""
    reports: list[Report] = []
    station = caches(reports)
    station.local_popularity.put_batch([CachedObject("a", photo(1), b"x")])
    station.global_cache.put("a", photo(1), b"x")
    station.prefetch.put("a", photo(1), b"x")

    assert station.remove("a", key_of(1))

    assert not station.remove("a", key_of(1))
    assert not any(cache.find("a", as_tag("goal")) for cache in station._all())
    assert station.download("a", key_of(1)) is None
    assert {(part, cause) for _, _, part, cause in reports} == {
        (part, EvictionCause.REMOVED) for part in CachePart
    }


def test_expired_objects_are_removed_with_that_cause() -> None:
    reports: list[Report] = []
    station = caches(reports)
    station.prefetch.put("a", photo(1, expires_us=100), b"x")
    station.prefetch.put("a", photo(2, expires_us=200), b"x")
    station.prefetch.put("a", photo(3), b"x")

    assert station.remove_expired(99) == []
    assert station.remove_expired(100) == [("a", photo(1, expires_us=100))]

    assert [found.oid for found in station.prefetch.find("a", as_tag("goal"))] == [
        "photo2",
        "photo3",
    ]
    assert {cause for *_, cause in reports} == {EvictionCause.EXPIRED}


def test_the_queue_of_expiries_does_not_grow_with_evicted_objects() -> None:
    station = caches(prefetch_metadata_size=10)
    for number in range(2_000):
        station.prefetch.put("a", photo(number, expires_us=10**9), None)
    assert len(station.prefetch._index._queue) < 100


def test_an_update_with_other_tags_is_found_by_the_new_tags_only() -> None:
    """I16."""
    station = caches()
    station.prefetch.put("a", photo(1, "old", "both"), None)
    station.prefetch.put("a", photo(1, "new", "both"), None)
    counts = [station.prefetch.count("a", as_tag(tag)) for tag in ("old", "new", "both")]
    assert counts == [0, 1, 1]


@pytest.mark.parametrize("unit", CacheUnit)
@POLICIES
def test_i16_the_tag_index_is_exact_after_inserts_removals_and_evictions(
    policy: CachePolicy, unit: CacheUnit
) -> None:
    """I16: whatever happened, the index has exactly the cached metadata."""
    rng = Random(5)
    scale = 1 if unit is CacheUnit.ENTRIES else 300
    station = caches(
        policy=policy,
        unit=unit,
        local_popularity_size=20 * scale,
        prefetch_metadata_size=20 * scale,
        prefetch_data_size=5 * scale,
        global_metadata_size=20 * scale,
        global_data_size=5 * scale,
        max_puts_above_limit=3,
    )
    tags = ["goal", "eder", "replay", "crowd"]
    for step in range(1_500):
        world = rng.choice("abc")
        number = rng.randrange(60)
        metadata = photo(number, *rng.sample(tags, rng.randint(1, 3)), size=rng.randrange(900))
        match rng.randrange(7):
            case 0:
                objects = [
                    CachedObject(rng.choice("abc"), photo(number + n), b"x") for n in range(4)
                ]
                station.local_popularity.put_batch(objects)
            case 1 | 2:
                station.prefetch.put(world, metadata, bytes(metadata.size))
            case 3:
                station.global_cache.put(world, metadata, bytes(metadata.size))
            case 4:
                station.remove(world, key_of(number))
            case 5:
                station.download(world, key_of(number))
            case _ if step % 50 == 0:
                size = rng.choice([0, 10, 20]) * scale
                station.local_popularity.objects.resize(size)
                station.prefetch.metadata_cache.resize(size)
                station.global_cache.metadata_cache.resize(size)
    cached = {
        "local": [(w, k) for w in "abc" for k in station.local_popularity.objects.keys(w)],
        "prefetch": list(station.prefetch.metadata_cache),
        "global": [(w, k) for w in "abc" for k in station.global_cache.metadata_cache.keys(w)],
    }
    assert_index_is_exact(station.local_popularity, cached["local"], tags)
    assert_index_is_exact(station.prefetch, cached["prefetch"], tags)
    assert_index_is_exact(station.global_cache, cached["global"], tags)


def assert_index_is_exact(
    cache: ObjectCache, cached: list[tuple[str, Key]], tags: list[str]
) -> None:
    for world in "abc":
        for tag in map(as_tag, tags):
            expected = {
                key
                for place, key in cached
                if place == world
                and (metadata := cache.metadata(world, key)) is not None
                and tag in metadata.tags
            }
            assert {found.key for found in cache.find(world, tag)} == expected
            assert cache.count(world, tag) == len(expected)
