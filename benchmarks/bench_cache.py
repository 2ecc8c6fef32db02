"""Hit ratios and speed of cache policies, against published figures, theine and libcachesim.

usage: python benchmarks/bench_cache.py [--quick] [--json-only]

Hit ratios: W-TinyLFU, with the static window of the published figures and adaptive, on GLI and OLTP
at eight sizes each; both policies on all traces and on our own workloads, with libcachesim as the
referee. Speed: accesses per CPU second, the caches and theine in turns, the best of several rounds.
Resizing: time per evicted entry for different parts of a large cache. The last line is JSON.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from collections.abc import Callable
from pathlib import Path
from platform import machine, python_version
from time import process_time

sys.path.insert(0, str(Path(__file__).parents[1]))

from caches.workloads import lecture_downloads, match_downloads
from rich.console import Console
from rich.table import Table

from tests.substrates.infra.caches.traces import (
    PUBLISHED_SIZES,
    PUBLISHED_W_TINYLFU,
    read_cache_trace,
    replay,
)
from thyme.substrates.infra.caches.policies.s3_fifo import S3FifoCache
from thyme.substrates.infra.caches.policies.w_tinylfu import WTinyLfuCache

SHARES = (0.01, 0.1)
RATE_MIN = 700_000
PUBLISHED_POINTS = 2.0
REFEREE_POINTS = 0.5
REFEREE_SIZE_MIN = 20  # libcachesim stores nothing if a tenth of the cache is one entry
SPEED_REFERENCES = 200_000
RESIZE_ENTRIES = 100_000
RESIZE_GROWTH_MAX = 3.0

try:
    import libcachesim
except ImportError:  # no wheel for this platform
    libcachesim = None
try:
    import theine
except ImportError:
    theine = None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="shorter traces, fewer sizes")
    parser.add_argument("--json-only", action="store_true", help="print the JSON line only")
    options = parser.parse_args()
    console = Console(quiet=options.json_only)
    published = measure_published(options.quick, console)
    ratios = measure_ratios(options.quick, console)
    speed = measure_speed(options.quick, console)
    resize = measure_resize(console)
    verdicts = judge(published, ratios, speed, resize)
    for target, met in verdicts.items():
        console.print(f"{'met    ' if met else 'NOT MET'}  {target}")
    figures = {
        "python": python_version(),
        "machine": machine(),
        "published": published,
        "hit_ratios": ratios,
        "accesses_per_s": speed,
        "resize_us_per_eviction": resize,
        "targets": verdicts,
    }
    print(json.dumps(figures))
    return 0 if all(verdicts.values()) else 1


# --- Hit ratios -----------------------------------------------------------------------------------


def measure_published(quick: bool, console: Console) -> list[dict[str, float | str]]:
    """W-TinyLFU on the traces with published figures."""
    rows: list[dict[str, float | str]] = []
    for name, figures in PUBLISHED_W_TINYLFU.items():
        references = read_cache_trace(name)
        for size, figure in list(zip(PUBLISHED_SIZES, figures, strict=True))[:: 4 if quick else 1]:
            static = replay(WTinyLfuCache(size, window_share=0.01), references)
            adaptive = replay(WTinyLfuCache(size), references)
            row = {"trace": name, "size": size, "published": figure}
            rows.append(row | {"static": round(static, 2), "adaptive": round(adaptive, 2)})
    _show(console, "W-TinyLFU, hit ratio in %, window of 1 % and adaptive", rows)
    return rows


def measure_ratios(quick: bool, console: Console) -> list[dict[str, float | str]]:
    """Both policies, and the referee's, on public traces and on our workloads."""
    traces: dict[str, Callable[[], list[int]]] = {
        "lecture": lambda: lecture_downloads(1),
        "match": lambda: match_downloads(1),
        "gli": lambda: read_cache_trace("gli"),
        "sprite": lambda: read_cache_trace("sprite"),
        "loop": lambda: read_cache_trace("loop")[: 50_000 if quick else 300_000],
        "oltp": lambda: read_cache_trace("oltp")[: 50_000 if quick else 300_000],
    }
    rows: list[dict[str, float | str]] = []
    for name, read in traces.items():
        references = read()
        objects = len(set(references))
        shares = (*SHARES, 0.3) if name in ("lecture", "match") else SHARES
        for size in (max(1, int(objects * share)) for share in shares):
            row: dict[str, float | str] = {"trace": name, "size": size}
            row["w_tinylfu"] = round(replay(WTinyLfuCache(size), references), 2)
            row["s3_fifo"] = round(replay(S3FifoCache(size), references), 2)
            rows.append(row | _referee(size, references))
    _show(console, "Hit ratio in %, caches of 1, 10 (and 30) % of the objects", rows)
    return rows


def _referee(size: int, references: list[int]) -> dict[str, float | str]:
    if libcachesim is None:
        return {}
    policies = {
        "referee_s3_fifo": libcachesim.S3FIFO(size),
        "referee_w_tinylfu": libcachesim.WTinyLFU(size, window_size=0.1),
        "referee_lru": libcachesim.LRU(size),
    }
    request = libcachesim.Request()
    request.obj_size = 1
    found: dict[str, float | str] = {}
    for name, policy in policies.items():
        hits = 0
        for reference in references:
            request.obj_id = reference
            hits += policy.get(request)
        found[name] = round(100 * hits / len(references), 2)
    return found


# --- Speed ----------------------------------------------------------------------------------------


def measure_speed(quick: bool, console: Console) -> list[dict[str, float | str]]:
    """Accesses per CPU second; the ways take turns."""
    rows: list[dict[str, float | str]] = []
    for name, size in (("oltp", 1_000), ("sprite", 707), ("match", 300)):
        references = match_downloads(1) if name == "match" else read_cache_trace(name)
        references = references[:SPEED_REFERENCES]
        seconds: dict[str, float] = {}
        for _ in range(2 if quick else 7):
            for way, run in _ways(size, references).items():
                gc.collect()
                begin = process_time()
                run()
                seconds[way] = min(seconds.get(way, 1e9), process_time() - begin)
        rates = {way: round(len(references) / taken) for way, taken in seconds.items()}
        rows.append({"trace": name, "size": size, **rates})
    _show(console, "Accesses per CPU second", rows)
    return rows


def _ways(size: int, references: list[int]) -> dict[str, Callable[[], object]]:
    ways: dict[str, Callable[[], object]] = {
        "w_tinylfu": lambda: replay(WTinyLfuCache(size), references),
        "s3_fifo": lambda: replay(S3FifoCache(size), references),
    }
    if theine is not None:
        ways["theine"] = lambda: _replay_theine(theine.Cache(size), references)
    return ways


def _replay_theine(cache: theine.Cache[int, int], references: list[int]) -> None:
    get, put = cache.get, cache.set
    for reference in references:
        if not get(reference)[1]:
            put(reference, reference)


def measure_resize(console: Console) -> list[dict[str, float | str]]:
    """Microseconds per evicted entry, when a full cache shrinks by different amounts."""
    rows: list[dict[str, float | str]] = []
    for make in (WTinyLfuCache, S3FifoCache):
        for share in (0.01, 0.1, 0.5, 1.0):
            best = 1e9
            for _ in range(3):
                cache = make(RESIZE_ENTRIES)
                for key in range(RESIZE_ENTRIES):
                    cache.put(key, key)
                begin = process_time()
                cache.resize(int(RESIZE_ENTRIES * (1 - share)))
                best = min(best, process_time() - begin)
            evicted = RESIZE_ENTRIES - len(cache)
            each = {"cache": make.__name__, "evicted": evicted}
            rows.append(each | {"us_per_eviction": round(1e6 * best / evicted, 2)})
    _show(console, f"Resizing a cache of {RESIZE_ENTRIES:,} entries", rows)
    return rows


# --- Verdicts -------------------------------------------------------------------------------------


def judge(
    published: list[dict[str, float | str]],
    ratios: list[dict[str, float | str]],
    speed: list[dict[str, float | str]],
    resize: list[dict[str, float | str]],
) -> dict[str, bool]:
    """The targets, and whether they are met."""
    points = PUBLISHED_POINTS
    verdicts = {
        f"W-TinyLFU with a window of 1 %: within {points} points of the published figures": all(
            abs(row["static"] - row["published"]) <= points for row in published
        ),
        f"adaptive W-TinyLFU: at most {points} points below the published figures": all(
            row["adaptive"] >= row["published"] - points for row in published
        ),
        f"both policies: {RATE_MIN:,} accesses per second": all(
            min(row["w_tinylfu"], row["s3_fifo"]) >= RATE_MIN for row in speed
        ),
    }
    if theine is not None:
        verdicts["both policies: faster than theine"] = all(
            min(row["w_tinylfu"], row["s3_fifo"]) > row["theine"] for row in speed
        )
    if libcachesim is not None:
        verdicts[f"S3-FIFO: within {REFEREE_POINTS} points of libcachesim"] = all(
            abs(row["s3_fifo"] - row["referee_s3_fifo"]) <= REFEREE_POINTS
            for row in ratios
            if row["size"] >= REFEREE_SIZE_MIN
        )
    for name in ("WTinyLfuCache", "S3FifoCache"):
        each = [row["us_per_eviction"] for row in resize if row["cache"] == name]
        verdicts[f"{name}: resizing takes time in proportion to the evictions"] = max(
            each
        ) <= RESIZE_GROWTH_MAX * min(each)
    return verdicts


def _show(console: Console, title: str, rows: list[dict[str, float | str]]) -> None:
    table = Table(title=title)
    for column in rows[0]:
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            *(f"{value:,}" if isinstance(value, int) else str(value) for value in row.values())
        )
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
