"""A station with 100,000 cached objects and 10,000 subscriptions: lookups and memory (I21).

usage: python benchmarks/bench_station.py [--objects 100000] [--subscriptions 10000] [--json-only]

One station, with its caches full: half of the objects are popular in its own venue, the others came
from other venues. Tags follow Zipf's law, and so do queries: one to three tags, some excluded. Some
subscribers look their queries up, as mobile nodes do; the time is that of the station alone, from
the message to the answer. The baseline matches every cached object against the query, in the same
run. Bars: a median of 5 ms, 500 MB. The exit status says whether they were met; the last line of
output is JSON.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import sys
from pathlib import Path
from random import Random
from time import perf_counter, process_time

sys.path.insert(0, str(Path(__file__).parents[1]))

from thyme.model.ids import Key, NodeId, ObjectId
from thyme.model.metadata import Metadata, make_metadata
from thyme.model.subscriptions import Conjunction
from thyme.model.tags import Tag
from thyme.model.time_frames import TimeFrame
from thyme.protocol.messages.cell_records import CellId
from thyme.protocol.messages.common import ToStation
from thyme.protocol.messages.replies import Page
from thyme.protocol.messages.requests import FetchPage
from thyme.protocol.messages.stations import CreateWorld, TagNeed
from thyme.protocol.node import Received, Send, Started
from thyme.query.query import Query
from thyme.substrates.infra.caches.config import CachesConfig
from thyme.substrates.infra.station.cached_content import CachedContent
from thyme.substrates.infra.station.content import Item
from thyme.substrates.infra.station.node import StationNode
from thyme.substrates.infra.station.settings import StationSettings
from thyme.substrates.infra.world_numbers import world_number

WORLD = world_number("hall")
NOW_US = 1_800_000_000_000_000
OBJECT_BYTES = 1_000
TAGS = 5_000
LOOKUP_MS_MAX, MEMORY_MB_MAX = 5.0, 500.0
LOOKUPS = 1_500
"""How many of the subscribers look their query up."""
BASELINE_QUERIES = 10
PAGE = 20


def memory_mb() -> float:
    """The resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


class Workload:
    """Objects and queries whose tags follow Zipf's law."""

    def __init__(self, seed: int) -> None:
        self._rng = Random(seed)
        self._tags = [f"tag{number}" for number in range(TAGS)]
        self._weights = [1 / (rank + 1) for rank in range(TAGS)]

    def draw_tags(self, count: int) -> list[str]:
        return list(dict.fromkeys(self._rng.choices(self._tags, self._weights, k=count)))

    def make_item(self, number: int) -> Item:
        owner = NodeId(self._rng.randbytes(16))
        key = Key(ObjectId(f"object{number}"), owner)
        data = number.to_bytes(4) + self._rng.randbytes(OBJECT_BYTES - 4)
        tags = self.draw_tags(self._rng.randint(1, 4))
        metadata = make_metadata(key, data, tags, NOW_US - number * 1_000, summary=bytes(40))
        return Item(WORLD, metadata, data)

    def make_query(self) -> tuple[Conjunction, ...]:
        [first, *more] = self.draw_tags(self._rng.randint(1, 3))
        text = first + "".join(f" & {self._rng.choice(['', '!'])}{tag}" for tag in more)
        return Query(text).conjunctions


def make_station(objects: int) -> tuple[StationNode, CachedContent]:
    half = objects // 2
    caches = CachesConfig(
        local_popularity_size=objects - half,
        prefetch_metadata_size=half // 2,
        prefetch_data_size=half // 2,
        global_metadata_size=half - half // 2,
        global_data_size=half - half // 2,
    )
    content = CachedContent(caches)
    settings = StationSettings(caches=caches)
    station = StationNode(NodeId(b"station"), [], content, Random(1), settings)
    station.handle(Started(), NOW_US)
    request = ToStation(WORLD, CellId(0), CreateWorld(1, "hall"))
    station.handle(Received(NodeId(b"mobile"), request), NOW_US)
    return station, content


def fill(content: CachedContent, workload: Workload, objects: int) -> list[Metadata]:
    """Fills all caches; returns the metadata that they have."""
    half = objects // 2
    content.insert_popular([workload.make_item(number) for number in range(objects - half)])
    for number in range(objects - half, objects):
        item = workload.make_item(number)
        if number % 2:
            content.insert_prefetched(item)
        else:
            content.insert_consumed(item)
    content.drain_changes()
    return content.all_metadata()


def look_up(station: StationNode, query: tuple[Conjunction, ...]) -> tuple[float, Page]:
    """The seconds from the message of a mobile node to the answer, and the answer."""
    request = ToStation(WORLD, CellId(0), FetchPage(1, query, TimeFrame(), PAGE))
    begun = perf_counter()
    actions = station.handle(Received(NodeId(b"mobile"), request), NOW_US)
    took_s = perf_counter() - begun
    [page] = [each.message for each in actions if isinstance(each, Send)]
    assert isinstance(page, Page)
    return took_s, page


def scan(cached: list[Metadata], query: tuple[Conjunction, ...]) -> tuple[float, int]:
    """The baseline: every cached object is matched."""
    begun = perf_counter()
    found = [each for each in cached if any(one.matches(each.tags) for one in query)]
    found.sort(key=lambda each: each.published_us, reverse=True)
    return perf_counter() - begun, len(found)


def measure(objects: int, subscriptions: int) -> dict[str, float]:
    workload = Workload(1)
    before_mb = memory_mb()
    station, content = make_station(objects)
    begun = process_time()
    cached = fill(content, workload, objects)
    filled_s = process_time() - begun
    queries = [workload.make_query() for _ in range(subscriptions)]
    for query in queries:
        for tag in query[0].positive:
            station.needs.record(WORLD, TagNeed(Tag(tag), 1))
    memory = memory_mb()
    took_s = [look_up(station, query)[0] for query in queries[:LOOKUPS]]
    base_s = []
    for query in queries[:BASELINE_QUERIES]:
        seconds, total = scan(cached, query)
        base_s.append(seconds)
        assert look_up(station, query)[1].total == total, "both find the same"
    lookup_ms = 1e3 * statistics.median(took_s)
    return {
        "objects": len(cached),
        "subscriptions": subscriptions,
        "needs": len(station.needs),
        "lookup_ms_median": lookup_ms,
        "lookup_ms_p99": 1e3 * statistics.quantiles(took_s, n=100)[98],
        "lookup_ms_max": 1e3 * max(took_s),
        "scan_ms_median": 1e3 * statistics.median(base_s),
        "times_faster_than_scan": 1e3 * statistics.median(base_s) / lookup_ms,
        "memory_mb": memory,
        "memory_of_caches_mb": memory - before_mb,
        "data_mb": objects * OBJECT_BYTES / 1e6,
        "fill_us_per_object": 1e6 * filled_s / objects,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--objects", type=int, default=100_000)
    parser.add_argument("--subscriptions", type=int, default=10_000)
    parser.add_argument("--json-only", action="store_true")
    args = parser.parse_args()
    figures = measure(args.objects, args.subscriptions)
    bars = {
        "lookup median under 5 ms": figures["lookup_ms_median"] < LOOKUP_MS_MAX,
        "memory under 500 MB": figures["memory_mb"] < MEMORY_MB_MAX,
    }
    if not args.json_only:
        for name, value in figures.items():
            print(f"{name:24} {value:12,.2f}")
        for bar, met in bars.items():
            print(f"{bar}: {'yes' if met else 'NO'}")
    print(json.dumps({**figures, "bars": bars}))
    return 0 if all(bars.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
