"""What follows from the thesis's description of a station's cache (C25, C26), without radio.

usage: python benchmarks/bench_station_model.py [--users N] [--seeds N] [--json-only]

One station, with the cache and the choice of popular items of Thyme-Infrastructure, receives the
downloads of the lecture workloads directly: no message is lost or late. Shown are the part of the
cache that the busiest of three worlds gets when it publishes as often as the others, twice and five
times as often (C26), and hit ratios with and without ranking by popularity (C25), in two readings
of the thesis: decisions every 30 s in the first quarter of an hour, and 25 decisions over the
whole lecture. Takes about a minute. The last line is JSON.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
from collections import defaultdict
from collections.abc import Callable
from statistics import mean

from thyme.model.time_frames import SECOND_US
from thyme.pipeline.infra.workloads import StationWorkload, WorkloadKind
from thyme.substrates.infra.caches.adaptive_multipart import AdaptiveMultipartCache
from thyme.substrates.infra.caches.config import PAPER_CACHES
from thyme.substrates.infra.station.popularity import PopularityTable, choose_popular
from thyme.traces.operations import InsertOperation, SubscribeOperation

DECISION_US, WINDOW_CYCLES, TABLE_CYCLES = 30 * SECOND_US, 3, 10
LECTURE_US, LONG_DECISION_US = 6_000 * SECOND_US, 240 * SECOND_US
DOWNLOAD_SHARE, DOWNLOAD_WITHIN_US, REST_US = 0.7, 30 * SECOND_US, 60 * SECOND_US
Item = tuple[int, str]


class StationModel:
    """A station and the crowd around it; events run in order of time."""

    def __init__(
        self,
        workload: StationWorkload,
        entries: int,
        items_max: int | None,
        decision_us: int = DECISION_US,
    ) -> None:
        self.entries, self.items_max, self._decision_us = entries, items_max, decision_us
        self.worlds = max(1, len(workload.rates))
        self.cache = AdaptiveMultipartCache(entries, PAPER_CACHES)
        self.downloads: dict[int, int] = defaultdict(int)
        self.hits = 0
        self._table = PopularityTable(TABLE_CYCLES)
        self._counts: dict[Item, int] = defaultdict(int)
        self._objects: dict[str, list[tuple[int, str]]] = defaultdict(list)
        self._subscribers: dict[str, set[int]] = defaultdict(set)
        self._random = random.Random(workload.seed)
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._added = self._now_us = self._cycle = 0
        for operation in workload.make().operations:
            if isinstance(operation, InsertOperation):
                self._at(operation.at_us, lambda it=operation: self._insert(it))
            elif isinstance(operation, SubscribeOperation):
                self._at(operation.at_us, lambda it=operation: self._subscribe(it))
        end_us = workload.lasts_us + REST_US
        report_us = decision_us // 3
        for at_us in range(report_us, end_us, report_us):
            self._at(at_us, self._report)
        for at_us in range(decision_us, end_us, decision_us):
            self._at(at_us + 1, self._decide)

    def run(self) -> StationModel:
        while self._events:
            self._now_us, _, event = heapq.heappop(self._events)
            event()
        return self

    def part_of_first(self) -> float:
        """The part of the cache that the first world has, in per cent."""
        return 100 * self.cache.sizes().get("0", 0) / self.entries

    def hit_ratio(self) -> float:
        return 100 * self.hits / sum(self.downloads.values())

    def _at(self, at_us: int, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (at_us, self._added, event))
        self._added += 1

    def _insert(self, operation: InsertOperation) -> None:
        [tag] = operation.tags[:1]
        self._objects[tag].append((operation.user, operation.oid))
        for user in sorted(self._subscribers[tag] - {operation.user}):
            self._notify(user, operation.oid)

    def _subscribe(self, operation: SubscribeOperation) -> None:
        self._subscribers[operation.query].add(operation.user)
        for owner, oid in self._objects[operation.query]:
            if owner != operation.user:
                self._notify(operation.user, oid)

    def _notify(self, user: int, oid: str) -> None:
        if self._random.random() < DOWNLOAD_SHARE:
            delay_us = self._random.randrange(DOWNLOAD_WITHIN_US)
            self._at(self._now_us + delay_us, lambda: self._download(user % self.worlds, oid))

    def _download(self, world: int, oid: str) -> None:
        self.downloads[world] += 1
        self.hits += self.cache.get(str(world), oid) is not None
        self._counts[world, oid] += 1

    def _report(self) -> None:
        for item, count in self._counts.items():
            self._table.record(item, count, (), self._cycle)
        self._counts.clear()

    def _decide(self) -> None:
        self._cycle += 1
        if self._cycle == 1:
            return
        if self.items_max is None:
            chosen = [item for item in self._table.all_items() if not self._has(item)]
        else:
            active = self._table.active_items(self._cycle, WINDOW_CYCLES)
            chosen = choose_popular(active, self.items_max, self._has)
        self._at(self._now_us + 3 * self._decision_us // 10, lambda: self._store(chosen))

    def _has(self, item: Item) -> bool:
        return self.cache.contains(str(item[0]), item[1])

    def _store(self, items: list[Item]) -> None:
        self.cache.put_batch((str(world), oid, 1, 1) for world, oid in items)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--json-only", action="store_true", help="print the JSON line only")
    options = parser.parse_args()
    parts = [shares(options.users, options.seeds, rate) for rate in (1.0, 2.0, 5.0)]
    ratios = [
        ranking(options.users, options.seeds, entries, DECISION_US)
        for entries in (20, 50, 100, 200)
    ]
    ratios += [
        ranking(options.users, options.seeds, entries, LONG_DECISION_US)
        for entries in (100, 200, 400, 800)
    ]
    if not options.json_only:
        print("publishes of the first world   part of the cache   part of the downloads")
        for row in parts:
            print(
                f"{row['rate']:>10g} times {row['least']:>17.0f} to {row['most']:.0f} % "
                f"{row['downloads']:>17.0f} %"
            )
        print("decision every   entries   hits with ranking   without")
        for row in ratios:
            print(
                f"{row['decision_s']:>12g} s {row['entries']:>9} {row['ranked']:>16.1f} % "
                f"{row['unranked']:>9.1f} %"
            )
    print(json.dumps({"parts": parts, "ranking": ratios}))
    return 0


def shares(users: int, seeds: int, rate: float) -> dict[str, float]:
    """C26: the parts of the first of three worlds, over sizes, item limits and seeds."""
    models = [
        StationModel(
            StationWorkload(
                kind=WorkloadKind.WORLDS,
                seed=seed,
                users=users,
                lasts_us=600 * SECOND_US,
                rates=(rate, 1.0, 1.0),
            ),
            entries,
            items_max,
        ).run()
        for entries in (50, 500)
        for items_max in (20, 100)
        for seed in range(1, seeds + 1)
    ]
    parts = [model.part_of_first() for model in models]
    downloads = mean(100 * model.downloads[0] / sum(model.downloads.values()) for model in models)
    return {"rate": rate, "least": min(parts), "most": max(parts), "downloads": downloads}


def ranking(users: int, seeds: int, entries: int, decision_us: int) -> dict[str, float]:
    """C25: hit ratios of the lecture at its original pace, with and without ranking."""
    lasts_us = 960 * SECOND_US if decision_us == DECISION_US else LECTURE_US

    def ratio(items_max: int | None) -> float:
        return mean(
            StationModel(
                StationWorkload(
                    kind=WorkloadKind.LECTURE_UNCOMPRESSED,
                    seed=seed,
                    users=users,
                    lasts_us=lasts_us,
                ),
                entries,
                items_max,
                decision_us,
            )
            .run()
            .hit_ratio()
            for seed in range(1, seeds + 1)
        )

    decision_s = decision_us / SECOND_US
    ranked, unranked = ratio(70), ratio(None)
    return {
        "decision_s": decision_s,
        "entries": entries,
        "ranked": ranked,
        "unranked": unranked,
    }


if __name__ == "__main__":
    raise SystemExit(main())
