"""How fast the past is found: the most recent matches of a query in a frame, against databases.

usage: python benchmarks/bench_history.py [--objects 1000000] [--queries 2000] [--quick]

All engines hold the same objects and take turns: each answers all queries, round after round, the
slow ones less often. Of a query the best round counts, of all queries the median. Answers are
compared first. The last line of output is JSON.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from platform import machine, python_version
from resource import RUSAGE_SELF, getrusage
from statistics import median
from time import perf_counter, perf_counter_ns
from typing import Any

import msgspec
from indexes.history_rivals import (
    PAGE,
    Engine,
    PythonPostings,
    Rows,
    Tables,
    TagArray,
    TagTable,
    postgres,
    sqlite,
)
from indexes.history_workload import SPAN_US, START_US, PastQuery, objects, queries
from rich.console import Console
from rich.table import Table

from thyme.model.metadata import Metadata
from thyme.model.subscriptions import Conjunction
from thyme.model.tags import Tag
from thyme.model.time_frames import TimeFrame
from thyme.query.history_index.index import HistoryIndex

BAR = 5.0
BAR_OBJECTS = 1_000_000
# Slow engines get fewer rounds, or a run would take all day.
ROUNDS_MIN = 2
ROUNDS_MAX = 10
BUDGET_US = 5_000_000
COMPARED = 50
SOME = 100
OURS = "thyme"
KEYS_ONLY = "sqlite-rarest, numbers only"
INFORMATION = (OURS, "python-postings", KEYS_ONLY)
WHOLE = TimeFrame(START_US, START_US + SPAN_US)


class Thyme:
    """The index of history, asked like the others."""

    def __init__(self, objects: Sequence[Metadata]) -> None:
        self.index = HistoryIndex()
        for metadata in objects:
            self.index.add(metadata)

    def latest(self, query: PastQuery) -> Rows:
        return self.index.latest_matches(query.conjunctions, query.frame, PAGE)

    def tagged(self, tag: Tag, frame: TimeFrame) -> Rows:
        return self.index.latest_matches((Conjunction((tag,)),), frame, len(self.index))

    def total(self, query: PastQuery) -> int:
        return self.index.count_matches(query.conjunctions, query.frame)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What one engine takes, in microseconds."""

    latest_us_p50: float
    latest_us_p99: float
    tagged_us_p50: float
    tagged_us_p99: float
    total_us_p50: float
    total_us_p99: float
    load_s: float


# --- Measuring --------------------------------------------------------------------------------


class Race:
    """The engines, how long each took to load, and the questions put to all."""

    def __init__(self, asked: Sequence[PastQuery]) -> None:
        self.engines: dict[str, Engine] = {}
        self.load_s: dict[str, float] = {}
        self.asked = asked

    def enter(self, name: str, load: Callable[[], Engine]) -> Engine:
        """Loads an engine under a name."""
        begin = perf_counter()
        self.engines[name] = load()
        self.load_s[name] = perf_counter() - begin
        gc.collect()
        gc.freeze()
        return self.engines[name]

    def compare(self, held: Sequence[Metadata]) -> None:
        """Stops when two engines give different answers."""
        for query in self.asked[:COMPARED]:
            pages = {n: _keys(e.latest(query), held) for n, e in self.engines.items()}
            totals = {name: engine.total(query) for name, engine in self.engines.items()}
            tagged = {n: len(e.tagged(query.b, query.frame)) for n, e in self.engines.items()}
            for answers in (pages, totals, tagged):
                if any(answer != answers[OURS] for answer in answers.values()):
                    raise SystemExit(f"the engines disagree on {query}: {answers}")

    def run(self) -> dict[str, Figures]:
        """All figures of all engines."""
        some = self.asked[:SOME]
        latest = self._times(lambda engine, query: engine.latest(query), self.asked)
        tagged = self._times(lambda engine, query: engine.tagged(query.a, query.frame), some)
        total = self._times(lambda engine, query: engine.total(query), some)
        return {
            name: Figures(
                latest_us_p50=median(latest[name]),
                latest_us_p99=_p99(latest[name]),
                tagged_us_p50=median(tagged[name]),
                tagged_us_p99=_p99(tagged[name]),
                total_us_p50=median(total[name]),
                total_us_p99=_p99(total[name]),
                load_s=self.load_s[name],
            )
            for name in self.engines
        }

    def _times(
        self, ask: Callable[[Engine, PastQuery], Any], asked: Sequence[PastQuery]
    ) -> dict[str, list[float]]:
        """The microseconds that each query takes in its best round, by engine."""
        best = {name: [float("inf")] * len(asked) for name in self.engines}
        spent_us = dict.fromkeys(self.engines, 0.0)
        for done in range(ROUNDS_MAX):
            for name, engine in self.engines.items():
                if done >= ROUNDS_MIN and spent_us[name] > BUDGET_US:
                    continue
                taken_us = best[name]
                for number, query in enumerate(asked):
                    begin = perf_counter_ns()
                    ask(engine, query)
                    us = (perf_counter_ns() - begin) / 1_000
                    spent_us[name] += us
                    taken_us[number] = min(taken_us[number], us)
        return best


def whole_totals_us(index: HistoryIndex, asked: Sequence[PastQuery]) -> list[float]:
    """What it takes to count the matches in all of history."""
    taken = []
    for query in asked[:SOME]:
        begin = perf_counter_ns()
        index.count_matches(query.conjunctions, WHOLE)
        taken.append((perf_counter_ns() - begin) / 1_000)
    return taken


def _keys(rows: Rows, held: Sequence[Metadata]) -> list[str]:
    """The keys in an answer: of metadata, of its bytes, or of its number."""
    keys = []
    for row in rows:
        match row:
            case Metadata():
                keys.append(str(row.key))
            case (int() as number,):
                keys.append(str(held[number].key))
            case (body,):
                keys.append(str(msgspec.msgpack.decode(body, type=Metadata).key))
    return keys


def _p99(taken: Sequence[float]) -> float:
    return sorted(taken)[int(0.99 * len(taken))]


def _resident_bytes() -> int:
    """The memory this process holds; elsewhere than on Linux, the most it ever held."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    most = getrusage(RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


# --- Showing ----------------------------------------------------------------------------------


def show(console: Console, figures: dict[str, Figures], report: dict[str, Any]) -> None:
    """The figures as a table, and the verdict."""
    table = Table(
        title=f"History: {report['objects']:,} objects, {report['queries']:,} queries, µs"
    )
    table.add_column("engine")
    for heading in ("20 newest p50", "p99", "÷ thyme", "one tag p50", "p99", "total p50", "p99"):
        table.add_column(heading, justify="right")
    table.add_column("load s", justify="right")
    ours = figures[OURS].latest_us_p50
    for name, one in figures.items():
        latest = f"{one.latest_us_p50:,.1f}", f"{one.latest_us_p99:,.0f}"
        tagged = f"{one.tagged_us_p50:,.0f}", f"{one.tagged_us_p99:,.0f}"
        total = f"{one.total_us_p50:,.0f}", f"{one.total_us_p99:,.0f}"
        ratio = f"{one.latest_us_p50 / ours:.1f}"
        table.add_row(name, *latest, ratio, *tagged, *total, f"{one.load_s:.1f}")
    console.print(table)
    console.print(
        f"{report['rows_mean']:.1f} rows on average; total over all of history "
        f"p50 {report['whole_total_us_p50']:,.0f} µs, p99 {report['whole_total_us_p99']:,.0f} µs; "
        f"{report['bytes_per_object']:.0f} bytes per object beside its metadata"
    )
    if report["postgres"] != "measured":
        console.print(f"PostgreSQL not available: {report['postgres']}")
    if report["met"] is None:
        verdict = f"(the target is for {BAR_OBJECTS:,} objects)"
    else:
        verdict = "[green]met[/]" if report["met"] else "[bold red]NOT met[/]"
    console.print(
        f"at least {BAR:g}× as fast as the best database ({report['rival']}): "
        f"{report['ratio']:.1f}× {verdict}"
    )


def report_of(race: Race, figures: dict[str, Figures], measured: dict[str, Any]) -> dict[str, Any]:
    """All figures, ready for JSON."""
    rivals = {name: one for name, one in figures.items() if name not in INFORMATION}
    rival = min(rivals, key=lambda name: rivals[name].latest_us_p50)
    ours = figures[OURS].latest_us_p50
    ratio = rivals[rival].latest_us_p50 / ours
    return {
        "benchmark": "history",
        "python": python_version(),
        "machine": machine(),
        "cpus": os.cpu_count(),
        "queries": len(race.asked),
        **measured,
        "engines": {name: asdict(one) for name, one in figures.items()},
        "rival": rival,
        "ratio": ratio,
        "ratio_numbers_only": figures[KEYS_ONLY].latest_us_p50 / ours,
        "target": BAR,
        "met": ratio >= BAR if measured["objects"] >= BAR_OBJECTS else None,
    }


# --- Running ----------------------------------------------------------------------------------


def measure(object_count: int, query_count: int, console: Console) -> dict[str, Any]:
    """Loads everything, lets the engines race, shows the figures and returns them."""
    console.print(f"making {object_count:,} objects …", style="dim")
    held = objects(object_count)
    race = Race(queries(query_count))
    gc.collect()
    gc.freeze()
    before = _resident_bytes()
    console.print("loading the index, posting lists, SQLite, PostgreSQL …", style="dim")
    ours = race.enter(OURS, lambda: Thyme(held))
    assert isinstance(ours, Thyme)
    measured: dict[str, Any] = {
        "objects": object_count,
        "bytes_per_object": (_resident_bytes() - before) / object_count,
    }
    race.enter("python-postings", lambda: PythonPostings(held))
    tables = Tables(held)
    with ExitStack() as stack:
        begin = perf_counter()
        ask = sqlite(tables)
        taken_s = perf_counter() - begin
        race.enter("sqlite", lambda: TagTable(ask, tables, rarest=False))
        race.enter("sqlite-rarest", lambda: TagTable(ask, tables, rarest=True))
        race.enter(KEYS_ONLY, lambda: TagTable(ask, tables, rarest=True, bodies=False))
        race.load_s.update({name: taken_s for name in race.engines if "sqlite" in name})
        begin = perf_counter()
        served = stack.enter_context(postgres(tables))
        if not isinstance(served, str):
            race.enter("postgres-tags", lambda: TagTable(served, tables, rarest=True))
            race.enter("postgres-gin", lambda: TagArray(served, tables))
            taken_s = perf_counter() - begin
            race.load_s.update({name: taken_s for name in race.engines if "postgres" in name})
        measured["postgres"] = served if isinstance(served, str) else "measured"
        console.print("asking …", style="dim")
        race.compare(held)
        figures = race.run()
    whole = whole_totals_us(ours.index, race.asked)
    measured["rows_mean"] = sum(len(ours.latest(query)) for query in race.asked) / query_count
    measured["whole_total_us_p50"], measured["whole_total_us_p99"] = median(whole), _p99(whole)
    report = report_of(race, figures, measured)
    show(console, figures, report)
    return report


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, shows, and ends with the line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--objects", type=int, default=1_000_000, help="how much history")
    parser.add_argument("--queries", type=int, default=2_000, help="how many questions")
    parser.add_argument("--quick", action="store_true", help="little of both, in seconds")
    parser.add_argument("--json-only", action="store_true", help="only the last line")
    options = parser.parse_args(arguments)
    if options.quick:
        options.objects, options.queries = 50_000, 300
    console = Console(quiet=options.json_only, width=None if sys.stdout.isatty() else 120)
    print(json.dumps(measure(options.objects, options.queries, console)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
