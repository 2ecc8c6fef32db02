"""Live analytics under load: rate, delay, and exactly once across kill -9 (P9).

    ./run bench analytics [--rate 20000] [--seconds 60]

A generator writes events of four nodes into rotating segments while `thyme analytics follow` reads
them in another process. Delay is the time from the writing of an event to the commit of its batch;
the targets are 20,000 events per second and 5 s. Then the follower is killed (SIGKILL, with its
Java) while events are written, started again, and its measures are compared with one batch job over
all files. The baseline is a plain Spark read and group-by of the same files in the same run.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from thyme.events.event import EVENT_VERSION, Event, encode_event
from thyme.events.segments import SegmentConfig, SegmentWriter

NODES = 4
TAGS = 2_000
CHUNKS_PER_S = 20
WARM_EVENTS = 20_000
WINDOW_US = 60_000_000
SECOND_US = 1_000_000
PLAIN_COLUMNS = """v long, writer string, seq long, at_us long, node string, world string,
    kind string, op string, code string, took_us long, key string, tags array<string>, size long,
    sid string, published_us long, past boolean"""


def main() -> None:
    """Parses the options and runs the parts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=int, default=20_000, help="events per second")
    parser.add_argument("--seconds", type=int, default=60, help="duration of the measurement")
    parser.add_argument("--generate", metavar="DIR", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--part", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.generate is not None:
        generate(args.generate, args.rate, args.seconds, args.part)
        return
    with tempfile.TemporaryDirectory(prefix="thyme-bench-") as folder:
        print(f"load of the machine at the start: {os.getloadavg()[0]:.1f}")
        measure(Path(folder), args.rate, args.seconds)
        print(f"load of the machine at the end: {os.getloadavg()[0]:.1f}")


# Events


def make_event(rng: random.Random, writer: str, seq: int, at_us: int) -> Event:
    """One of a mixture of events, with skewed tags."""
    node = writer[:2]
    tags = tuple(sorted({f"t{int(TAGS * rng.random() ** 3)}" for _ in range(2)}))
    common: dict[str, Any] = {"v": EVENT_VERSION, "writer": writer, "seq": seq, "at_us": at_us}
    common |= {"node": node, "world": "bench"}
    draw = rng.random()
    if seq <= 50:
        return Event(
            **common, kind="operation", op="subscribe", code="ok", took_us=900,
            sid=f"{writer}-{seq}", query=f"t{seq} & !t{seq + 900}",
        )  # fmt: skip
    if draw < 0.2:
        return Event(
            **common, kind="operation", op="insert", code="ok", took_us=int(3_000 * draw) + 500,
            key=f"o{seq}@{node}", tags=tags, size=300,
        )  # fmt: skip
    if draw < 0.75:
        took_us = int(rng.expovariate(1 / 20_000)) + 800
        return Event(
            **common, kind="notification", key=f"o{seq}@{node}", tags=tags, past=False,
            sid=f"{writer}-{seq % 50}", published_us=at_us - took_us, size=300,
        )  # fmt: skip
    if draw < 0.95:
        return Event(
            **common, kind="operation", op="retrieve", code="ok" if draw < 0.9 else "not_found",
            took_us=int(9_000 * draw), key=f"o{seq}@{node}", tags=tags, size=300,
        )  # fmt: skip
    return Event(**common, kind="load", cell=seq % 40, sent=7, received=9, neighbours=5)


def generate(folder: Path, rate: int, seconds: int, part: int) -> None:
    """Writes events at a rate; prints when each of them was written, by writer, as JSON."""
    rng = random.Random(part)
    config = SegmentConfig(segment_age_s_max=1.0, total_bytes_max=2**62, reserve_bytes=0)
    writers = [SegmentWriter(folder, f"{number:02x}-{part}", config) for number in range(NODES)]
    count = rate // CHUNKS_PER_S // NODES
    written: dict[str, list[tuple[int, int]]] = {writer.writer: [] for writer in writers}
    started_s = time.monotonic()
    for chunk in range(seconds * CHUNKS_PER_S):
        for writer in writers:
            at_us = time.time_ns() // 1_000
            numbers = range(count * chunk + 1, count * (chunk + 1) + 1)
            lines = [encode_event(make_event(rng, writer.writer, seq, at_us)) for seq in numbers]
            writer.write(lines, time.monotonic())
            written[writer.writer].append((numbers[-1], at_us))
        time.sleep(max(0.0, started_s + (chunk + 1) / CHUNKS_PER_S - time.monotonic()))
    for writer in writers:
        writer.close()
    print(json.dumps({"took_s": time.monotonic() - started_s, "written": written}))


# Processes


def start_generator(folder: Path, rate: int, seconds: int, part: int) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--generate", str(folder), "--rate", str(rate)]
    command += ["--seconds", str(seconds), "--part", str(part)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def start_follower(events: Path, out: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "thyme.cli", "analytics", "follow", str(events)]
    command += ["--out", str(out), "--json", "--window", str(WINDOW_US // SECOND_US)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)


def kill(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def cpu_seconds(session: int) -> float:
    """The processor time of all processes of a session so far."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        if int(fields[3]) == session:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


class Commits:
    """The commits of a follower, as they appear; a thread reads them before they are merged."""

    def __init__(self, out: Path) -> None:
        self._folder = out / "commits"
        self.single: dict[str, dict[str, Any]] = {}
        threading.Thread(target=self._poll, daemon=True).start()

    def _poll(self) -> None:
        while True:
            for path in self._folder.glob("[0-9]*.json"):
                first, _, last = path.stem.partition("-")
                if first == last and path.name not in self.single:
                    with suppress(FileNotFoundError):  # merged meanwhile
                        found = json.loads(path.read_bytes())
                        self.single = {**self.single, path.name: found}
            time.sleep(0.02)

    def count(self, part: int) -> int:
        """How many events of a part of the run are committed."""
        return sum(
            last - first + 1
            for commit in self.single.values()
            for writer, intervals in commit["seen"].items()
            if writer.endswith(f"-{part}")
            for first, last in intervals
        )

    def wait_for(self, part: int, events: int, process: subprocess.Popen[bytes]) -> None:
        """Waits until so many events are committed."""
        while self.count(part) < events:
            if process.poll() is not None:
                raise SystemExit("the follower ended")
            time.sleep(0.05)


# Parts


def measure(folder: Path, rate: int, seconds: int) -> None:
    """Runs all parts and prints their results."""
    events, out = folder / "events", folder / "out"
    generate_part(events, WARM_EVENTS, 1, 0)
    follower = start_follower(events, out)
    commits = Commits(out)
    try:
        commits.wait_for(0, WARM_EVENTS, follower)
        # A second warm-up: the code of a batch is compiled when it has run for a while.
        generate_part(events, rate, 15, 1)
        commits.wait_for(1, rate * 15, follower)
        before_s, started_s = cpu_seconds(follower.pid), time.monotonic()
        generator = start_generator(events, rate, seconds, 2)
        commits.wait_for(2, rate * seconds, follower)
        written = json.loads(generator.communicate()[0])
        used_s = cpu_seconds(follower.pid) - before_s
        report_delays(commits, written)
        took_s = time.monotonic() - started_s
        print(f"processor time of the follower: {used_s:.0f} s in {took_s:.0f} s, "
              f"{used_s / (rate * seconds) * SECOND_US:.0f} us per event")  # fmt: skip
        generator = start_generator(events, rate, 20, 3)
        time.sleep(8)
        kill(follower)
        follower = start_follower(events, out)
        time.sleep(10)
        kill(follower)
        generator.communicate()
    finally:
        if follower.poll() is None:
            kill(follower)
    compare(events, out, rate, seconds)


def generate_part(events: Path, rate: int, seconds: int, part: int) -> None:
    start_generator(events, rate, seconds, part).communicate()


def report_delays(commits: Commits, found: dict[str, Any]) -> None:
    """Prints rate and delays of the measured part."""
    delays: list[tuple[float, int]] = []
    ends = []
    for commit in commits.single.values():
        for writer, intervals in commit["seen"].items():
            before = 0
            for last, at_us in found["written"].get(writer, []):
                inside = sum(
                    max(0, min(last, high) - max(before + 1, low) + 1) for low, high in intervals
                )
                if inside:
                    delays.append(((commit["committed_us"] - at_us) / SECOND_US, inside))
                    ends.append(commit["committed_us"])
                before = last
    started_us = min(chunks[0][1] for chunks in found["written"].values())
    total = sum(count for _, count in delays)
    took_s = (max(ends) - started_us) / SECOND_US
    written_rate = total / found["took_s"]
    print(f"written: {total:,} events in {found['took_s']:.1f} s, {written_rate:,.0f} per second")
    print(f"committed: {total / took_s:,.0f} events per second, until the last one")
    print(f"delay: median {quantile(delays, 0.5):.2f} s, p95 {quantile(delays, 0.95):.2f} s, "
          f"max {max(delays)[0]:.2f} s (target: below 5 s)")  # fmt: skip
    batches = sum(any(w.endswith("-2") for w in c["seen"]) for c in commits.single.values())
    print(f"batches: {batches}, {total / batches:,.0f} events each on average")


def quantile(weighted: list[tuple[float, int]], share: float) -> float:
    """The quantile of weighted values."""
    total = sum(weight for _, weight in weighted)
    reached = 0
    for value, weight in sorted(weighted):
        reached += weight
        if reached >= share * total:
            return value
    return float("nan")


def compare(events: Path, out: Path, rate: int, seconds: int) -> None:
    """Resumes after the kills, compares with a batch run and with a plain loop, and prints the
    ratio to a plain read."""
    from pyspark.sql import functions as F  # noqa: N812

    from tests.pipeline.analytics_reference import measure_files
    from tests.pipeline.event_files import rows_of
    from thyme.pipeline.analytics.follow import FollowConfig, Follower
    from thyme.pipeline.session import spark_session

    spark = spark_session()
    config = FollowConfig(window_us=WINDOW_US)
    stream = Follower(spark, str(events), str(out), config)
    tables = stream.run_once()
    expected = WARM_EVENTS + rate * (15 + seconds + 20)
    print(f"after two kill -9: {tables.totals.events:,} of {expected:,} events, "
          f"{tables.totals.duplicates:,} read twice and counted once")  # fmt: skip
    started_s = time.monotonic()
    batch = Follower(spark, str(events), f"{out}-batch", config)
    of_batch = batch.run_once()
    batch_s = time.monotonic() - started_s
    streamed = rows_of(stream.measures())
    equal = streamed == rows_of(batch.measures()) and tables.recall == of_batch.recall
    print(f"tables equal to a batch run: {'yes' if equal else 'NO'} ({len(streamed):,} measures, "
          f"{len(tables.recall)} windows of lost and late notifications)")  # fmt: skip
    looped = streamed == measure_files(events, WINDOW_US)
    print(f"measures equal to a plain loop: {'yes' if looped else 'NO'}")
    started_s = time.monotonic()
    read = spark.read.schema(PLAIN_COLUMNS).json(str(events))
    read.groupBy("kind", "op").agg(F.count("*"), F.sum("took_us")).collect()
    plain_s = time.monotonic() - started_s
    print(f"plain Spark read and group-by of the same {expected:,} events: {plain_s:.1f} s, "
          f"{expected / plain_s:,.0f} per second")  # fmt: skip
    print(f"the analytics as one batch run: {batch_s:.1f} s, {batch_s / plain_s:.1f} times as long")
    print(f"stream at {rate:,} per second: {rate * plain_s / expected:.1%} of the plain rate")
    spark.stop()
    if not equal or not looped or tables.totals.events != expected:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
