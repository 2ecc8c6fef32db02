"""The sweep: how much longer it takes than its simulations alone.

`./run bench sweep` carries out the quick preset as `thyme evaluate` does, in a process of its own,
and then one of twice as many runs, about three minutes of simulation. What is measured: the
sweep by the clock, from when it is asked for to its last result, against what its simulations took
each by the clock, added up and divided by the cores. Each simulation has a process of its own. The
bar: less than 15 % more. Where the
cores are shared with others, simulations take longer by the clock than of their cores: the
last number says how much.
Clause: P5.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

OVERHEAD_MAX = 0.15
TOPOLOGIES = (2, 4)


def main(argv: list[str]) -> int:
    if argv[:1] == ["--one"]:
        return one(int(argv[1]), Path(argv[2]))
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "topologies", type=int, nargs="*", default=TOPOLOGIES,
        help="of the quick preset; default: its own two, and four",
    )  # fmt: skip
    results = [measured(each) for each in parser.parse_args(argv).topologies]
    good = all(each["overhead"] < OVERHEAD_MAX for each in results)
    print(json.dumps({"sweeps": results, "good": good}))
    return 0 if good else 1


def measured(topologies: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="thyme-bench-") as folder:
        subprocess.run([sys.executable, __file__, "--one", str(topologies), folder], check=True)
        result: dict[str, Any] = json.loads(Path(folder, "result.json").read_text())
    good = "ok  " if result["overhead"] < OVERHEAD_MAX else "MISS"
    print(
        f"{good} {result['runs']} runs on {result['cores']} cores: {result['sweep_s']:.1f} s, "
        f"simulations alone {result['alone_s']:.1f} s: {result['overhead']:.1%} more "
        f"(bar: {OVERHEAD_MAX:.0%})\n"
        f"     before it: Spark {result['start_s']:.1f} s, traces {result['traces_s']:.1f} s; "
        f"cores were the simulations' own for {result['own']:.0%} of their time; "
        f"{result['compiled']} runs compiled; tables written in {result['compact_s']:.1f} s",
        flush=True,
    )
    return result


def one(topologies: int, folder: Path) -> int:
    """The evaluation up to the end of its sweep, timed."""
    from thyme.pipeline.evaluate import plan_runs
    from thyme.pipeline.evaluation_traces import make_traces
    from thyme.pipeline.session import spark_session
    from thyme.pipeline.sweep.presets import QUICK, make_scenarios
    from thyme.pipeline.sweep.results import RunResults
    from thyme.pipeline.sweep.runner import sweep, warm_up
    from thyme.pipeline.warehouse import Warehouse

    began = time.monotonic()
    spark = spark_session()
    started = time.monotonic()
    preset = msgspec.structs.replace(QUICK, topologies=topologies)
    wanted = make_scenarios(preset)
    warm_up(spark)
    warehouse = Warehouse(folder / "w")
    traces = make_traces(warehouse, preset, wanted, spark, None)
    made = time.monotonic()
    results = RunResults(warehouse)
    swept = sweep(spark, plan_runs(wanted, traces.table_path("traces")), results)
    ended = time.monotonic()
    results.compact(spark)
    compacted = time.monotonic()
    spark.stop()
    assert not swept.failures, swept.failures[0]
    result = {
        "runs": swept.ran,
        "cores": swept.cores,
        "start_s": started - began,
        "traces_s": made - started,
        "sweep_s": swept.wall_s,
        "alone_s": swept.simulating_s / swept.cores,
        "overhead": swept.overhead,
        "own": swept.cpu_s / swept.simulating_s,
        "compiled": swept.compiled,
        "compact_s": compacted - ended,
        "load": os.getloadavg()[0],
    }
    (folder / "result.json").write_text(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
