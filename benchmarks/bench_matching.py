"""How fast a new object finds the standing subscriptions it matches, against other ways.

usage: python benchmarks/bench_matching.py [--sizes 1000,10000,…] [--quick] [--json-only]

Each size runs in a process of its own: the index is loaded, its memory read, the rivals are built
from the same conjunctions, answers are compared on a sample, and then all ways take turns on the
same objects for several rounds, of which the best counts. The last line of output is JSON.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from platform import machine, python_version
from random import Random
from resource import RUSAGE_SELF, getrusage
from time import perf_counter
from typing import TypeVar

from indexes.matching_rivals import RIVALS
from indexes.matching_workload import (
    Conjunctions,
    Subscribed,
    sparse_conjunctions,
    sparse_objects,
    spec_conjunctions,
    spec_objects,
)
from rich.console import Console
from rich.table import Table

from thyme.model.tags import Tag
from thyme.model.time_frames import ALWAYS, SECOND_US, TimeFrame
from thyme.query.subscription_index.index import SubscriptionIndex

SEED = 7
# Subscriptions come one by one; of five, three have no frame and two start when they come, as in
# the paper's evaluation. Objects are published when the last has been there for an hour.
BEGIN_US = 1_700_000_000_000_000
GAP_US = SECOND_US // 10
HOUR_US = 3_600 * SECOND_US
SIZES = (1_000, 10_000, 100_000, 1_000_000)
SIZES_QUICK = (1_000, 10_000)
SPARSE_SIZES = (10_000, 1_000_000)
SPARSE_SIZES_QUICK = (1_000, 20_000)
MEMORY_FROM = 100_000
CHURN_MAX = 20_000
SAMPLE = 40

RIVAL_RATIO_MIN = 1.0
INVERTED_RATIO_MIN = 5.0
INVERTED_SIZE = 100_000
SPARSE_GROWTH_MAX = 3.0
BYTES_MAX = 600

Way = Callable[[tuple[Tag, ...]], Collection[int]]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecFigures:
    """What one size of the workload `spec` gives; rates are per second."""

    size: int
    matches_mean: float
    object_rates: dict[str, float]
    late_rate: float
    add_rate: float
    remove_rate: float
    bytes_per_subscription: float

    @property
    def rival(self) -> str:
        """The fastest of the others."""
        return max(RIVALS, key=self.object_rates.__getitem__)

    def times(self, rival: str) -> float:
        """How many times as fast as a rival the index is."""
        return self.object_rates["thyme"] / self.object_rates[rival]


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseFigures:
    """What the workload `sparse` gives, by size."""

    matches_mean: dict[int, float]
    object_us: dict[int, float]

    @property
    def growth(self) -> float:
        """How many times as long an object takes at the largest size as at the smallest."""
        return self.object_us[max(self.object_us)] / self.object_us[min(self.object_us)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A target, what was measured, and whether it is met."""

    target: str
    measured: str
    met: bool


# --- Measuring --------------------------------------------------------------------------------


def measure_spec(size: int) -> SpecFigures:
    """Loads one size of `spec` and lets all ways race."""
    rows = spec_conjunctions(size, SEED)
    objects = spec_objects(_object_count(size), SEED)
    index, bytes_taken = _loaded(rows)
    now_us = _object_us(size)
    ways: dict[str, Way] = {"thyme": lambda tags: index.match(tags, now_us)}
    for name, rival in RIVALS.items():
        ways[name] = rival(rows).match
    _compare(ways, objects[:SAMPLE])
    best = _race(ways, objects, rounds=3 if size >= 1_000_000 else 8)
    late = _race({"late": lambda tags: index.match(tags, BEGIN_US)}, objects, rounds=2)
    add_rate, remove_rate = _churn(index, rows)
    return SpecFigures(
        size=size,
        matches_mean=_mean(len(index.match(tags, now_us)) for tags in objects),
        object_rates={name: len(objects) / seconds for name, seconds in best.items()},
        late_rate=len(objects) / late["late"],
        add_rate=add_rate,
        remove_rate=remove_rate,
        bytes_per_subscription=bytes_taken / size,
    )


def measure_sparse(sizes: Sequence[int]) -> SparseFigures:
    """Loads `sparse` in several sizes side by side and lets them take turns."""
    indexes = {size: _loaded(sparse_conjunctions(size, SEED))[0] for size in sizes}
    objects = {size: sparse_objects(5_000, size, SEED) for size in sizes}
    best = dict.fromkeys(sizes, float("inf"))
    for _ in range(10):
        for size in sizes:
            seconds = _match_all(indexes[size], objects[size], _object_us(size))
            best[size] = min(best[size], seconds)
    return SparseFigures(
        matches_mean={
            size: _mean(len(indexes[size].match(tags, _object_us(size))) for tags in objects[size])
            for size in sizes
        },
        object_us={size: 1e6 * best[size] / len(objects[size]) for size in sizes},
    )


def _match_all(
    index: SubscriptionIndex[int], objects: list[tuple[Tag, ...]], published_us: int
) -> float:
    return _race({"thyme": lambda tags: index.match(tags, published_us)}, objects, 1)["thyme"]


def _loaded(rows: Conjunctions) -> tuple[SubscriptionIndex[int], int]:
    """An index of all the subscriptions, and the memory it took.

    Collecting garbage is off meanwhile: there is none, and looking for it in millions of fresh
    objects is not what is measured here. Conjunctions are made on the way and let go; the numbers
    that serve as keys and values are the caller's, and there before.
    """
    numbers = list(range(rows.subscription_count))
    for _ in islice(rows.subscriptions(), 5_000):
        pass  # What making conjunctions keeps for itself is not the index's.
    gc.collect()
    before = _resident_bytes()
    gc.disable()
    index: SubscriptionIndex[int] = SubscriptionIndex()
    for number, (_, conjunctions) in zip(numbers, rows.subscriptions(), strict=True):
        _stand(index, (number, conjunctions), BEGIN_US + number * GAP_US)
    index.expire(_object_us(rows.subscription_count))
    gc.enable()
    gc.collect()
    return index, _resident_bytes() - before


def _stand(index: SubscriptionIndex[int], subscribed: Subscribed, now_us: int) -> None:
    owner, conjunctions = subscribed
    frame = ALWAYS if owner % 5 < 3 else TimeFrame(now_us, None)
    index.add(owner, owner, conjunctions, frame, now_us)


def _object_us(size: int) -> int:
    return BEGIN_US + size * GAP_US + HOUR_US


def _compare(ways: dict[str, Way], objects: Iterable[tuple[Tag, ...]]) -> None:
    """Stops when two ways disagree, or one brings a subscription twice."""
    for tags in objects:
        answers = {name: sorted(map(int, match(tags))) for name, match in ways.items()}
        if any(answer != answers["thyme"] for answer in answers.values()):
            raise SystemExit(f"the ways disagree on an object with the tags {tags}")
        if len(set(answers["thyme"])) != len(answers["thyme"]):
            raise SystemExit(f"a subscription comes twice for an object with the tags {tags}")


def _race(ways: dict[str, Way], objects: list[tuple[Tag, ...]], rounds: int) -> dict[str, float]:
    """The seconds that each way takes for all objects, in its best round; ways take turns."""
    best: dict[str, float] = {}
    for _ in range(rounds):
        for name, match in ways.items():
            begin = perf_counter()
            for tags in objects:
                match(tags)
            seconds = perf_counter() - begin
            best[name] = min(best.get(name, seconds), seconds)
    return best


def _churn(index: SubscriptionIndex[int], rows: Conjunctions) -> tuple[float, float]:
    """Subscriptions added and removed per second, in a full index; best of three rounds."""
    some = list(islice(rows.subscriptions(), CHURN_MAX))
    Random(SEED).shuffle(some)
    add_s = remove_s = float("inf")
    for _ in range(3):
        begin = perf_counter()
        for owner, _ in some:
            index.remove(owner)
        middle = perf_counter()
        for subscribed in some:
            _stand(index, subscribed, _object_us(rows.subscription_count))
        add_s = min(add_s, perf_counter() - middle)
        remove_s = min(remove_s, middle - begin)
    return len(some) / add_s, len(some) / remove_s


def _object_count(size: int) -> int:
    """Fewer objects where each takes longer, so that a whole run takes minutes."""
    return max(100, min(3_000, 30_000_000 // size))


def _mean(numbers: Iterable[int]) -> float:
    found = list(numbers)
    return sum(found) / len(found)


def _resident_bytes() -> int:
    """The memory this process holds; elsewhere than on Linux, the most it ever held."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    most = getrusage(RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


# --- Judging and showing ----------------------------------------------------------------------


def verdicts(spec: list[SpecFigures], sparse: SparseFigures, quick: bool) -> list[Verdict]:
    """The targets that these sizes can be held to."""
    found = []
    for figures in spec:
        ratio = figures.times(figures.rival)
        target = f"{figures.size:,}: at least as fast as the best rival ({figures.rival})"
        found.append(Verdict(target=target, measured=f"{ratio:.2f}×", met=ratio >= RIVAL_RATIO_MIN))
        if figures.size == INVERTED_SIZE:
            ratio = figures.times("inverted")
            target = f"{figures.size:,}: at least {INVERTED_RATIO_MIN:g}× the plain inverted index"
            met = ratio >= INVERTED_RATIO_MIN
            found.append(Verdict(target=target, measured=f"{ratio:.1f}×", met=met))
        if figures.size >= MEMORY_FROM:
            taken = figures.bytes_per_subscription
            target = f"{figures.size:,}: below {BYTES_MAX} bytes a subscription"
            found.append(Verdict(target=target, measured=f"{taken:.0f}", met=taken < BYTES_MAX))
    if not quick:
        low, high = min(sparse.object_us), max(sparse.object_us)
        target = f"sparse, {low:,} to {high:,}: time grows less than {SPARSE_GROWTH_MAX:g}×"
        met = sparse.growth < SPARSE_GROWTH_MAX
        found.append(Verdict(target=target, measured=f"{sparse.growth:.2f}×", met=met))
    return found


def show(
    console: Console, spec: list[SpecFigures], sparse: SparseFigures, judged: list[Verdict]
) -> None:
    """The figures as tables."""
    ways = ["thyme", *RIVALS]
    rates = Table(title="Objects per second (spec)")
    for heading in ("subscriptions", "matches", *ways, "÷ best", "÷ inverted", "late"):
        rates.add_column(heading, justify="right")
    for one in spec:
        rates.add_row(
            f"{one.size:,}",
            f"{one.matches_mean:,.1f}",
            *(f"{one.object_rates[way]:,.0f}" for way in ways),
            f"{one.times(one.rival):.2f}",
            f"{one.times('inverted'):.1f}",
            f"{one.late_rate:,.0f}",
        )
    console.print(rates)
    containers = ", ".join(f"{name} {rival.returns}" for name, rival in RIVALS.items())
    console.print(f"Returned: thyme list of values, frames checked; {containers}, no frames.")
    console.print("late: thyme for objects from before the newest to have settled had begun.\n")

    upkeep = Table(title="Coming and going (spec)")
    for heading in ("subscriptions", "adds/s", "removes/s", "bytes each"):
        upkeep.add_column(heading, justify="right")
    for one in spec:
        cells = (one.size, one.add_rate, one.remove_rate, one.bytes_per_subscription)
        upkeep.add_row(*(f"{cell:,.0f}" for cell in cells))
    console.print(upkeep)

    sparsely = Table(title="Matches held constant (sparse)")
    for heading in ("subscriptions", "matches", "µs per object"):
        sparsely.add_column(heading, justify="right")
    for size, object_us in sparse.object_us.items():
        sparsely.add_row(f"{size:,}", f"{sparse.matches_mean[size]:.2f}", f"{object_us:.2f}")
    console.print(sparsely)

    targets = Table(title="Targets")
    for heading in ("target", "measured", "verdict"):
        targets.add_column(heading)
    for verdict in judged:
        met = "[green]met[/]" if verdict.met else "[bold red]NOT met[/]"
        targets.add_row(verdict.target, verdict.measured, met)
    console.print(targets)


def as_json(spec: list[SpecFigures], sparse: SparseFigures, judged: list[Verdict]) -> str:
    """All figures in one line."""
    figures = {
        "benchmark": "matching",
        "python": python_version(),
        "machine": machine(),
        "cpus": os.cpu_count(),
        "seed": SEED,
        "spec": [
            {
                **asdict(one),
                "rival": one.rival,
                "rival_ratio": one.times(one.rival),
                "inverted_ratio": one.times("inverted"),
            }
            for one in spec
        ],
        "sparse": {**asdict(sparse), "growth": sparse.growth},
        "targets": [asdict(verdict) for verdict in judged],
        "met": all(verdict.met for verdict in judged),
    }
    return json.dumps(figures)


# --- Running ----------------------------------------------------------------------------------


def alone(task: Callable[..., T], *arguments: object) -> T:
    """Runs a task in a fresh process, whose memory nothing else has touched."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(task, *arguments).result()


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, shows, and ends with the line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--sizes", help="numbers of subscriptions, with commas between")
    parser.add_argument("--quick", action="store_true", help="small sizes, in seconds")
    parser.add_argument("--json-only", action="store_true", help="only the last line")
    options = parser.parse_args(arguments)
    sizes: Sequence[int] = SIZES_QUICK if options.quick else SIZES
    if options.sizes:
        sizes = [int(size) for size in options.sizes.split(",")]
    console = Console(quiet=options.json_only, width=None if sys.stdout.isatty() else 120)
    spec = []
    for size in sizes:
        console.print(f"measuring {size:,} subscriptions …", style="dim")
        spec.append(alone(measure_spec, size))
    console.print("measuring with matches held constant …", style="dim")
    sparse = alone(measure_sparse, SPARSE_SIZES_QUICK if options.quick else SPARSE_SIZES)
    judged = verdicts(spec, sparse, options.quick)
    show(console, spec, sparse, judged)
    print(as_json(spec, sparse, judged))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
