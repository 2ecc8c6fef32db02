"""The pipeline at scale: posts from files to a trace of 10,000 users and its oracle.

`./run bench pipeline` does it for one and for ten million posts (JSON lines, gzip, 40 files), each
in a process of its own, and holds the results against the bars: import, trace and oracle together
at most 10 times as long as a plain read and group-by of the same files; driver, executors and
Python workers below 6 GB; time per post at most 1.3 times as long for ten times the posts; no task
more than 5 times as long as the median of its stage, with a tag in 15 % of the posts and a user
with 10 % of them; adding a day of posts to ten costs at most 1.3 times as much as a day alone.
`./run bench pipeline 200000 2000000` does it for other numbers of posts.
Clauses: P4, P8, P11.
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
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POSTS = (1_000_000, 10_000_000)
USERS, TAGS, TRACE_USERS, SEED = 200_000, 50_000, 10_000, 1
MEMORY_GB_MAX, GROWTH_MAX, SKEW_MAX, PLAIN_MAX, DAY_MAX = 6.0, 1.3, 5.0, 10.0, 1.3
FILES, HOT_TAG, HOT_TAG_SHARE, HOT_USER_SHARE = 40, "final", 0.15, 0.1
DAYS, DAY_SHARE = 10, 10
"""Number of days before the one that is added, and the share of the posts that is one day."""
SAMPLE_S = 0.25
TASKS_LEAST, STAGE_MS_LEAST = 4, 2_000
"""Stages smaller than this say nothing about skew."""


def main(argv: list[str]) -> int:
    if argv[:1] == ["--one"]:
        return one(int(argv[1]), Path(argv[2]), days="--days" in argv)
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "posts", type=int, nargs="*", default=POSTS, help="how many; default: a million and ten"
    )
    sizes: Sequence[int] = parser.parse_args(argv).posts
    print(f"{TRACE_USERS:,} of {USERS:,} users, {TAGS:,} tags, seed {SEED}, {os.cpu_count()} cores")
    results = [measured(size, days=size == sizes[0]) for size in sizes]
    for each in results:
        show(each)
    growth = results[-1]["us_per_post"] / results[0]["us_per_post"]
    worst, peak_gb = (max(each[name] for each in results) for name in ("skew", "peak_gb"))
    good = [
        verdict("memory in GB, all processes", peak_gb, MEMORY_GB_MAX),
        verdict("time to that of a plain group-by", results[-1]["to_plain"], PLAIN_MAX),
        verdict("a day added to ten, to a day alone", results[0]["day_to_day"], DAY_MAX),
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
        f"\n{result['posts']:,} posts: import {result['import_s']:.0f} s, trace "
        f"{result['trace_s']:.0f} s ({result['operations']:,} operations), oracle "
        f"{result['oracle_s']:.0f} s ({result['notifications']:,} notifications)\n"
        f"  {result['us_per_post']:.1f} µs per post, start of Spark ({result['start_s']:.0f} s) "
        "not counted\n"
        f"  {result['to_plain']:.1f} times a plain group-by ({result['plain_s']:.0f} s); "
        f"at most {result['peak_gb']:.2f} GB\n"
        f"  {result['cpu_to_plain']:.1f} times its CPU time in Spark's tasks\n"
        f"  slowest task {result['skew']:.1f} times the median of its stage"
    )
    if result["day_to_day"]:
        print(f"  a day added to {DAYS} took {result['day_to_day']:.2f} times a day alone")


def measured(posts: int, *, days: bool) -> dict[str, float]:
    """Runs one size in a process of its own and watches the memory of all it starts; with `days`,
    also the import of a day into ten others."""
    with tempfile.TemporaryDirectory(prefix="thyme-bench-") as folder:
        given = ["--one", str(posts), folder, *(["--days"] if days else [])]
        process = subprocess.Popen([sys.executable, __file__, *given])
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


def one(posts: int, folder: Path, *, days: bool) -> int:
    """Plain group-by, import, trace and oracle, each timed; with `days`, also a day added to
    others."""
    from thyme.pipeline.jobs import build_trace, compute_oracle, import_posts
    from thyme.pipeline.posts.formats import PostReader
    from thyme.pipeline.session import spark_session
    from thyme.pipeline.warehouse import Warehouse

    log = folder / "events"
    log.mkdir()
    warehouse = Warehouse(folder / "w")
    begun = time.time()
    logging = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": log.as_uri()}
    spark = spark_session(settings=logging | {"spark.eventLog.compress": "false"})
    started = time.time()
    files = write_files(spark, posts, folder / "files", FILES)
    reader = PostReader(form="jsonl")
    group_by_user(spark, files)  # the first one warms the machine up for those that are timed
    marks = [time.time()]
    group_by_user(spark, files)
    marks.append(time.time())
    made = import_posts(spark, warehouse, files, reader)
    marks.append(time.time())
    trace = build_trace(spark, warehouse, made, TRACE_USERS, SEED)
    marks.append(time.time())
    oracle = compute_oracle(spark, warehouse, trace)
    marks.append(time.time())
    day_to_day = time_of_a_day(spark, posts // DAY_SHARE, folder / "days") if days else 0.0
    spark.stop()
    plain_s, import_s, trace_s, oracle_s = (after - before for before, after in pairwise(marks))
    if made.row_count("posts") != posts:
        raise SystemExit(f"{made.row_count('posts')} of {posts} posts were imported")
    whole_s = import_s + trace_s + oracle_s
    result = {
        "posts": posts,
        "start_s": started - begun,
        "plain_s": plain_s,
        "import_s": import_s,
        "trace_s": trace_s,
        "oracle_s": oracle_s,
        "us_per_post": whole_s / posts * 1e6,
        "to_plain": whole_s / plain_s,
        "operations": trace.row_count("operations"),
        "notifications": oracle.row_count("notifications"),
        "skew": skew(log, 1e3 * marks[1], 1e3 * marks[4]),
        "cpu_to_plain": cpu_s(log, marks[1], marks[4]) / cpu_s(log, marks[0], marks[1]),
        "day_to_day": day_to_day,
    }
    (folder / "result.json").write_text(json.dumps(result))
    return 0


def group_by_user(spark: SparkSession, files: list[str]) -> None:
    """The baseline: read the files and count the posts of each user."""
    plain = spark.read.schema("id string, user string, time long, text string").json(files)
    plain.groupBy("user").count().write.format("noop").mode("overwrite").save()


def write_files(
    spark: SparkSession, posts: int, folder: Path, files: int, day: int = 0
) -> list[str]:
    """Files of posts as JSON lines, with one very frequent tag and one very active user."""
    from pyspark.sql import functions as F  # noqa: N812

    from thyme.pipeline.posts.synthetic import synthetic_posts
    from thyme.traces.synthetic.football_match import FootballMatchConfig

    config = FootballMatchConfig(posts=posts, users=USERS, tags=TAGS)
    chance = F.pmod(F.xxhash64("post_id"), F.lit(1_000)) / 1_000
    hot_tag = F.when(chance < HOT_TAG_SHARE, f" #{HOT_TAG}").otherwise("")
    user = F.when(chance > 1 - HOT_USER_SHARE, "everybody").otherwise(F.col("user"))
    rows = synthetic_posts(spark, SEED, config).select(
        F.concat("post_id", F.lit(f"-{day}")).alias("id"),
        user.alias("user"),
        ((F.col("at_us") + day * 86_400_000_000) / 1_000).cast("long").alias("time"),
        F.concat("text", hot_tag).alias("text"),
    )
    lines = rows.select(F.to_json(F.struct("*")).alias("value")).repartition(files)
    lines.write.option("compression", "gzip").text(str(folder))
    return sorted(str(file) for file in folder.glob("*.gz"))


def time_of_a_day(spark: SparkSession, posts: int, folder: Path) -> float:
    """The time to add a day to ten others, in that of a day alone."""
    from thyme.pipeline.jobs import import_posts
    from thyme.pipeline.posts.formats import PostReader
    from thyme.pipeline.warehouse import Warehouse

    days = [write_files(spark, posts, folder / f"{day}", 4, day) for day in range(DAYS + 1)]
    reader = PostReader(form="jsonl")
    before = [file for day in days[:-1] for file in day]
    import_posts(spark, Warehouse(folder / "w"), before, reader)
    marks = [time.time()]
    stage = import_posts(spark, Warehouse(folder / "w"), [*before, *days[-1]], reader)
    marks.append(time.time())
    import_posts(spark, Warehouse(folder / "alone"), days[-1], reader)
    marks.append(time.time())
    added_s, alone_s = (after - before_it for before_it, after in pairwise(marks))
    if stage.row_count("posts") != posts * (DAYS + 1):
        raise SystemExit(f"{stage.row_count('posts')} posts were imported")
    return added_s / alone_s


def ended_tasks(log: Path, from_ms: float, to_ms: float) -> Iterator[dict[str, Any]]:
    """The events of all tasks that were started in a span of time."""
    for file in sorted(path for path in log.rglob("*") if path.is_file()):
        for line in file.read_text().splitlines():
            event = json.loads(line) if "SparkListenerTaskEnd" in line else {}
            if from_ms <= event.get("Task Info", {}).get("Launch Time", 0) <= to_ms:
                yield event


def cpu_s(log: Path, start_s: float, end_s: float) -> float:
    """The CPU time of all tasks of a span; it does not depend on other work of the machine."""
    tasks = ended_tasks(log, 1e3 * start_s, 1e3 * end_s)
    return sum(float(event["Task Metrics"]["Executor CPU Time"]) for event in tasks) / 1e9


def skew(log: Path, from_ms: float, to_ms: float) -> float:
    """The slowest task beside the median of its stage, the worst of all stages of a span; 0 where
    no stage is large enough to tell."""
    stages: dict[int, list[int]] = defaultdict(list)
    for event in ended_tasks(log, from_ms, to_ms):
        stages[event["Stage ID"]].append(event["Task Metrics"]["Executor Run Time"])
    ratios = [
        max(times) / max(1, statistics.median(times))
        for times in stages.values()
        if len(times) >= TASKS_LEAST and sum(times) >= STAGE_MS_LEAST
    ]
    return max(ratios, default=0.0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
