"""Speed of simulated venues with base stations.

usage: python benchmarks/bench_venue_simulation.py [--stations N] [--mobiles N] [--seconds S]
                                                   [--whole] [--json-only]

Simulates the lecture of the thesis, at its original pace, in several venues at once. The bar is an
hour with 10 stations and 100 mobile nodes each in 30 minutes on one core. Without --whole, a part
of the hour is simulated and compared with one venue, measured in the same run. The rest is
extrapolated from the second half of this part, which is too little: users subscribe to more and
more tags, so that each minute has more downloads. Progress goes to the standard error stream. The
last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
from platform import machine, python_version
from time import process_time

from thyme.model.time_frames import SECOND_US
from thyme.pipeline.infra.workloads import StationWorkload, WorkloadKind
from thyme.sim.progress import RunProgress
from thyme.sim.scenario import Timeline
from thyme.sim.users import Users
from thyme.sim.venues.run import run_venues
from thyme.sim.venues.scenario import VenueScenario

HOUR_S, BAR_S = 3_600, 1_800
JOIN_S = 10
PROGRESS_US = 60 * SECOND_US


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stations", type=int, default=10)
    parser.add_argument("--mobiles", type=int, default=100, help="mobile nodes of each venue")
    parser.add_argument("--seconds", type=int, default=60, help="simulated seconds of operations")
    parser.add_argument("--whole", action="store_true", help="simulate the whole hour")
    parser.add_argument("--json-only", action="store_true", help="print the JSON line only")
    options = parser.parse_args()
    seconds = HOUR_S if options.whole else options.seconds
    all_s, operations = measure(options.stations, options.mobiles, seconds)
    hour_s, flat = all_s, None
    if not options.whole:
        flat = all_s / options.stations / measure(1, options.mobiles, seconds)[0]
        half_s, _ = measure(options.stations, options.mobiles, seconds // 2)
        per_second = (all_s - half_s) / (seconds - seconds // 2)
        hour_s = all_s + per_second * (HOUR_S - seconds)
    figures = {
        "python": python_version(),
        "machine": machine(),
        "stations": options.stations,
        "mobiles": options.mobiles,
        "simulated_s": seconds + JOIN_S,
        "cpu_s": round(all_s, 1),
        "operations": operations,
        "hour_cpu_s": round(hour_s),
        "extrapolated": not options.whole,
        "cost_per_venue": None if flat is None else round(flat, 2),
        "targets": {"an hour in 30 minutes on one core": hour_s <= BAR_S},
    }
    if not options.json_only:
        how = "measured" if flat is None else f"extrapolated from {seconds} s"
        print(
            f"{options.stations} stations × {options.mobiles} mobile nodes: an hour takes "
            f"{hour_s / 60:.1f} minutes of CPU time ({how})"
        )
        if flat is not None:
            print(f"a venue costs {flat:.2f} times what it costs alone")
    print(json.dumps(figures))
    return 0 if all(figures["targets"].values()) else 1


def measure(stations: int, mobiles: int, seconds: int) -> tuple[float, int]:
    """The CPU time of a run, and its number of operations."""
    users = stations * mobiles
    timeline = Timeline(
        starts_us=0,
        joins_us=JOIN_S * SECOND_US,
        operations_us=seconds * SECOND_US,
        quiet_us=0,
    )
    scenario = VenueScenario(stations=stations, nodes=users, timeline=timeline)
    workload = StationWorkload(
        kind=WorkloadKind.LECTURE_UNCOMPRESSED,
        seed=1,
        users=users,
        lasts_us=timeline.operations_us,
    )
    trace = workload.make()
    begin_s = process_time()

    def show(progress: RunProgress, users: Users) -> None:
        if progress.done_us % PROGRESS_US == 0:
            cpu_s = process_time() - begin_s
            print(f"{progress}, {cpu_s:.0f} s of CPU time", file=sys.stderr, flush=True)

    found = run_venues(scenario, trace, on_progress=show)
    return process_time() - begin_s, len(found.run.attempts)


if __name__ == "__main__":
    raise SystemExit(main())
