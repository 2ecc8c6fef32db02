"""The pipeline at scale: synthetic posts to a trace of 10,000 users and its oracle.

`./run bench pipeline` does it for one and for ten million posts, each in a process of its own, and
holds the results against the bars: driver, executors and Python workers together below 6 GB; time
per post at most 1.3 times as long for ten times the posts; no task of the oracle more than 5 times
as long as the median of its stage, with a tag that is in a tenth of all posts.
`./run bench pipeline 200000 2000000` does it for other numbers of posts.
Clauses: P4, P8.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

POSTS = (1_000_000, 10_000_000)
USERS, TAGS, TRACE_USERS, SEED = 200_000, 50_000, 10_000, 1
MEMORY_GB_MAX, GROWTH_MAX, SKEW_MAX, HOT_SHARE = 6.0, 1.3, 5.0, 0.1
SAMPLE_S = 0.25
TASKS_LEAST, STAGE_MS_LEAST = 4, 2_000
"""Stages smaller than this say nothing about skew."""


def main(argv: list[str]) -> int:
    if argv[:1] == ["--one"]:
        return one(int(argv[1]), Path(argv[2]))
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "posts", type=int, nargs="*", default=POSTS, help="how many; default: a million and ten"
    )
    sizes: Sequence[int] = parser.parse_args(argv).posts
    print(f"{TRACE_USERS:,} of {USERS:,} users, {TAGS:,} tags, seed {SEED}, {os.cpu_count()} cores")
    results = [measured(size) for size in sizes]
    for each in results:
        show(each)
    growth = results[-1]["us_per_post"] / results[0]["us_per_post"]
    worst, peak_gb = (max(each[name] for each in results) for name in ("skew", "peak_gb"))
    good = [
        verdict("memory in GB, all processes", peak_gb, MEMORY_GB_MAX),
        verdict("share of posts with the hottest tag, at least", -results[-1]["hot"], -HOT_SHARE),
    ]
    if len(results) > 1:
        good.append(verdict("time per post, last to first", growth, GROWTH_MAX))
    if worst:
        good.append(verdict("slowest task to median", worst, SKEW_MAX))
    else:
        print(f"     no stage of the oracle had {TASKS_LEAST} tasks: too few posts to tell of skew")
    print(json.dumps({"runs": results, "growth": growth, "good": all(good)}))
    return 0 if all(good) else 1


def verdict(what: str, value: float, most: float) -> bool:
    good = value <= most
    print(f"{'ok  ' if good else 'MISS'} {what}: {abs(value):.2f} (bar: {abs(most):g})")
    return good


def show(result: dict[str, float]) -> None:
    print(
        f"\n{result['posts']:,} posts: posts {result['synth_s']:.0f} s, trace "
        f"{result['trace_s']:.0f} s ({result['operations']:,} operations), oracle "
        f"{result['oracle_s']:.0f} s ({result['notifications']:,} notifications)\n"
        f"  {result['us_per_post']:.1f} µs per post, start of Spark ({result['start_s']:.0f} s) "
        f"not counted; at most {result['peak_gb']:.2f} GB; hottest tag in {result['hot']:.1%} "
        f"of the posts; slowest task {result['skew']:.1f} times the median of its stage"
    )


def measured(posts: int) -> dict[str, float]:
    """Runs one size in a process of its own and watches the memory of all it starts."""
    with tempfile.TemporaryDirectory(prefix="thyme-bench-") as folder:
        process = subprocess.Popen([sys.executable, __file__, "--one", str(posts), folder])
        peak = 0
        while process.poll() is None:
            peak = max(peak, memory_of(process.pid))
            time.sleep(SAMPLE_S)
        if process.returncode:
            sys.exit(process.returncode)
        result: dict[str, float] = json.loads(Path(folder, "result.json").read_text())
    return {**result, "peak_gb": peak / 1e9}


def memory_of(root: int) -> int:
    """The resident bytes of a process and all below it; pages that they share count each time."""
    parents: dict[int, list[int]] = defaultdict(list)
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.read_text().rpartition(")")[2].split()[1])].append(
                int(path.parent.name)
            )
        except (OSError, ValueError):
            continue
    total, waiting = 0, [root]
    while waiting:
        process = waiting.pop()
        waiting += parents[process]
        try:
            pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
        except (OSError, ValueError):
            continue
        total += pages * os.sysconf("SC_PAGE_SIZE")
    return total


def one(posts: int, folder: Path) -> int:
    """Posts, trace and oracle, each timed."""
    from pyspark.sql import functions as F  # noqa: N812

    from thyme.pipeline.jobs import build_trace, compute_oracle, generate_posts
    from thyme.pipeline.session import spark_session
    from thyme.pipeline.warehouse import Warehouse
    from thyme.traces.football_match import FootballMatchConfig

    log = folder / "events"
    log.mkdir()
    warehouse = Warehouse(folder / "w")
    marks = [time.time()]
    logging = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": log.as_uri()}
    spark = spark_session(settings=logging | {"spark.eventLog.compress": "false"})
    marks.append(time.time())
    config = FootballMatchConfig(posts=posts, users=USERS, tags=TAGS)
    made = generate_posts(spark, warehouse, SEED, config)
    marks.append(time.time())
    trace = build_trace(spark, warehouse, made, TRACE_USERS, SEED)
    marks.append(time.time())
    oracle = compute_oracle(spark, warehouse, trace)
    marks.append(time.time())
    tags = spark.read.parquet(made.table_path("posts")).select(F.explode("tags").alias("tag"))
    hottest = tags.groupBy("tag").count().agg(F.max("count")).collect()[0][0]
    spark.stop()
    start_s, synth_s, trace_s, oracle_s = (after - before for before, after in pairwise(marks))
    result = {
        "posts": posts,
        "start_s": start_s,
        "synth_s": synth_s,
        "trace_s": trace_s,
        "oracle_s": oracle_s,
        "us_per_post": (synth_s + trace_s + oracle_s) / posts * 1e6,
        "operations": trace.row_count("operations"),
        "notifications": oracle.row_count("notifications"),
        "skew": skew(log, 1e3 * marks[3], 1e3 * marks[4]),
        "hot": hottest / posts,
    }
    (folder / "result.json").write_text(json.dumps(result))
    return 0


def skew(log: Path, from_ms: float, to_ms: float) -> float:
    """The slowest task beside the median of its stage, the worst of all stages of a span; 0 where
    no stage is large enough to tell."""
    stages: dict[int, list[int]] = defaultdict(list)
    for file in sorted(path for path in log.rglob("*") if path.is_file()):
        for line in file.read_text().splitlines():
            event = json.loads(line) if "SparkListenerTaskEnd" in line else {}
            info = event.get("Task Info", {})
            if from_ms <= info.get("Launch Time", 0) <= to_ms:
                stages[event["Stage ID"]].append(event["Task Metrics"]["Executor Run Time"])
    ratios = [
        max(times) / max(1, statistics.median(times))
        for times in stages.values()
        if len(times) >= TASKS_LEAST and sum(times) >= STAGE_MS_LEAST
    ]
    return max(ratios, default=0.0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
